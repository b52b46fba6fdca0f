"""See when each message is in the ring: the loop of a feed, with a look at the ring behind it."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cimport cython

from udpfast.core.agent cimport Agent
from udpfast.core.atomics cimport counter_add, load_acquire
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport FRAME_SIZE, KIND_GAP, KIND_MESSAGE, RECORD_SIZE, Record
from udpfast.log.cursor cimport RingCursor
from udpfast.log.ring cimport ring_poll
from udpfast.shm.histogram cimport LatencyHistogram, histogram_record

__all__ = ["PublishWatch"]


@cython.final
cdef class PublishWatch(Agent):
    """Run an agent that publishes what a `PacedSender` sends; time each message's way.

    The clock is read after every turn that received something; what the ring then holds anew was
    published by that turn, or by an earlier one because a hole had waited too long. Reading the
    ring comes after the clock: it delays the next turn by some 20 ns per message, and adds nothing
    to a latency.

    Parameters
    ----------
    loop : Agent
        Whose turns these are.
    cursor : RingCursor
        At the beginning of the ring that it writes.
    skip : int
        Messages at the beginning that are counted and not timed.

    Attributes
    ----------
    histogram : LatencyHistogram
        From the time that a message carries to the end of the turn that published it, in ns.
    """

    cdef Agent _loop
    cdef void* _borrowed             # of _loop, so that a turn touches no reference count
    cdef RingCursor _cursor
    cdef readonly LatencyHistogram histogram
    cdef int64_t _skip
    cdef int64_t _messages
    cdef int64_t _wrong
    cdef int64_t _gaps
    cdef uint64_t _next

    def __init__(self, Agent loop, RingCursor cursor, *, skip: int = 0, first_seqno: int = 1):
        super().__init__(loop.role)
        self._loop = loop
        self._borrowed = <void*>loop
        self._cursor = cursor
        self._skip = skip
        self._next = first_seqno
        self.histogram = LatencyHistogram()

    @property
    def messages(self) -> int:
        """Messages published so far."""
        return load_acquire(<uint64_t*>&self._messages)

    @property
    def wrong(self) -> int:
        """Messages out of order, or whose first or last bytes are not those that were sent."""
        return self._wrong

    @property
    def gaps(self) -> int:
        """Gaps reported."""
        return self._gaps

    def on_start(self) -> None:
        """Start the loop."""
        self._loop.on_start()

    def on_stop(self) -> None:
        """Stop the loop, and look at what its end set free."""
        self._loop.on_stop()
        self._look(self._cursor, clock_monotonic_ns())

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef int work = (<Agent>self._borrowed).do_work(now_ns)
        if work > 0:
            self._look(self._cursor, clock_monotonic_ns())
        return work

    cdef void _look(self, RingCursor c, int64_t published_ns) noexcept nogil:
        cdef uint64_t lapped
        cdef int64_t count, i
        while True:
            count = ring_poll(&c.reader, c._headers, c._offsets, c._payloads, c._room, c._limit,
                              &lapped)
            if count <= 0:
                return
            for i in range(count):
                if c._headers[i].kind == KIND_MESSAGE:
                    self._note(&c._headers[i], c._payloads + c._offsets[i], published_ns)
                else:
                    self._gaps += c._headers[i].kind == KIND_GAP

    cdef void _note(
            self, const Record* record, const uint8_t* payload,
            int64_t published_ns) noexcept nogil:
        cdef int64_t due_ns
        cdef uint64_t mark
        memcpy(&due_ns, payload + FRAME_SIZE, sizeof(due_ns))
        memcpy(&mark, payload + record.length - RECORD_SIZE - sizeof(mark), sizeof(mark))
        if record.number != self._next or mark != self._next:
            self._wrong += 1
        self._next = record.number + 1
        if self._messages >= self._skip:
            histogram_record(self.histogram.histogram, published_ns - due_ns)
        counter_add(&self._messages, 1)
