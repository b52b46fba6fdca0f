"""See when each message is in the ring: the loop of a feed, with a look at the ring behind it."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cimport cython

from udpfast.core.agent cimport Agent
from udpfast.core.atomics cimport counter_add, load_acquire
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport (
    FRAME_SIZE, KIND_GAP, KIND_MESSAGE, RECORD_NO_TIMESTAMP, RECORD_SIZE, RECORD_SNAPSHOT, Record)
from udpfast.log.cursor cimport RingCursor
from udpfast.log.ring cimport ring_poll
from udpfast.shm.histogram cimport LatencyHistogram, histogram_record

__all__ = ["PublishWatch", "StampWatch"]

cdef enum:
    # No turn takes longer, and so much for each datagram: its core did something else.
    AWAY_NS = 5_000
    AWAY_DATAGRAM_NS = 3_000


cdef class RingWatch(Agent):
    """Run an agent that publishes, and look at the ring behind it."""

    cdef Agent _loop
    cdef void* _borrowed             # of _loop, so that a turn touches no reference count
    cdef RingCursor _cursor

    def __init__(self, Agent loop, RingCursor cursor):
        super().__init__(loop.role)
        self._loop = loop
        self._borrowed = <void*>loop
        self._cursor = cursor

    def on_start(self) -> None:
        """Start the loop."""
        self._loop.on_start()

    cdef int _turn(self, int64_t now_ns) noexcept nogil:
        return (<Agent>self._borrowed).do_work(now_ns)

    cdef int64_t _poll(self, RingCursor c) noexcept nogil:
        # How many records the cursor has now that it had not.
        cdef uint64_t lapped
        return ring_poll(
            &c.reader, c._headers, c._offsets, c._payloads, c._room, c._limit, &lapped)


@cython.final
cdef class PublishWatch(RingWatch):
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

    cdef readonly LatencyHistogram histogram
    cdef int64_t _skip
    cdef int64_t _messages
    cdef int64_t _wrong
    cdef int64_t _gaps
    cdef uint64_t _next

    def __init__(self, Agent loop, RingCursor cursor, *, skip: int = 0, first_seqno: int = 1):
        super().__init__(loop, cursor)
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

    def on_stop(self) -> None:
        """Stop the loop, and look at what its end set free."""
        self._loop.on_stop()
        self._look(self._cursor, clock_monotonic_ns())

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef int work = self._turn(now_ns)
        if work > 0:
            self._look(self._cursor, clock_monotonic_ns())
        return work

    cdef void _look(self, RingCursor c, int64_t published_ns) noexcept nogil:
        cdef int64_t count, i
        while True:
            count = self._poll(c)
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


@cython.final
cdef class StampWatch(RingWatch):
    """Run a loop; time each datagram that it makes a record of, from the kernel's stamp on.

    Left out is what came while the loop's core did something else, and until nothing waited again.

    Parameters
    ----------
    loop : Agent
        Whose turns these are.
    cursor : RingCursor
        Of the ring that it writes.
    after : int
        Only datagrams of higher numbers are counted and timed.

    Attributes
    ----------
    to_loop : LatencyHistogram
        From the stamp to the clock that the loop reads when it has the datagram, in ns.
    to_ring : LatencyHistogram
        From there to the end of its turn, of turns that took nothing else.
    """

    cdef readonly LatencyHistogram to_loop
    cdef readonly LatencyHistogram to_ring
    cdef int64_t _datagrams
    cdef int64_t _unstamped
    cdef int64_t _left_out
    cdef uint64_t _number            # the highest one so far
    cdef bint _away
    cdef int64_t _turn_ns            # when the last turn began, and what it took
    cdef int _work

    def __init__(self, Agent loop, RingCursor cursor, *, after: int = 0):
        super().__init__(loop, cursor)
        self._number = after
        self.to_loop = LatencyHistogram()
        self.to_ring = LatencyHistogram()

    @property
    def datagrams(self) -> int:
        """Numbers that made a record so far, without those of snapshots."""
        return load_acquire(<uint64_t*>&self._datagrams)

    @property
    def unstamped(self) -> int:
        """How many of them had no stamp of the kernel's."""
        return self._unstamped

    @property
    def left_out(self) -> int:
        """How many were not timed, because the core was away."""
        return self._left_out

    def on_stop(self) -> None:
        """Stop the loop, and look at what its end set free."""
        self._loop.on_stop()
        self._away = True
        self._look(self._cursor, False, clock_realtime_ns())

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef int work
        self._note_away(self._turn_ns, now_ns, self._work)
        self._turn_ns = now_ns
        work = self._turn(now_ns)
        if work > 0:
            self._note_away(now_ns, clock_monotonic_ns(), work)
            self._look(self._cursor, work == 1, clock_realtime_ns())
        else:
            self._away = False
        self._work = max(work, 0)
        return work

    cdef void _note_away(self, int64_t begun_ns, int64_t ended_ns, int work) noexcept nogil:
        if ended_ns - begun_ns > AWAY_NS + work * AWAY_DATAGRAM_NS:
            self._away = True

    cdef void _look(self, RingCursor c, bint alone, int64_t ended_ns) noexcept nogil:
        cdef int64_t count, i
        cdef Record* record
        while True:
            count = self._poll(c)
            if count <= 0:
                return
            for i in range(count):
                record = &c._headers[i]
                # All records of a datagram have its number.
                if record.number <= self._number or record.flags & RECORD_SNAPSHOT:
                    continue
                self._number = record.number
                counter_add(&self._datagrams, 1)
                if self._away:
                    self._left_out += 1
                    continue
                # The kernel begins to stamp a little after the first socket asked for it.
                if record.flags & RECORD_NO_TIMESTAMP:
                    self._unstamped += 1
                else:
                    histogram_record(
                        self.to_loop.histogram, record.published_ns - record.received_ns)
                    if alone:
                        histogram_record(self.to_ring.histogram, ended_ns - record.published_ns)
