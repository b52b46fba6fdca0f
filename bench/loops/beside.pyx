"""Datagrams that are sent when they are due beside others at full speed, and when a loop had them.

One thread sends both, so that they come from one core. How late it was with a due one counts for
nothing: each is timed from the kernel's stamp on.
"""

from dataclasses import dataclass

from libc.stdint cimport int64_t, uint8_t, uint64_t

cimport cython

from udpfast.core.agent cimport Agent
from udpfast.core.atomics cimport counter_add, cpu_relax, load_acquire
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport RECORD_NO_TIMESTAMP, RECORD_SNAPSHOT, Record
from udpfast.core.oserr cimport check
from udpfast.log.cursor cimport RingCursor
from udpfast.log.ring cimport ring_poll
from udpfast.net.sender cimport DatagramSender, send_slots
from udpfast.shm.histogram cimport LatencyHistogram, histogram_record

__all__ = ["BesideResult", "StampWatch", "send_beside"]

cdef enum:
    # So many of the others in one call: a due one waits for as many.
    CALL = 8
    SEND_ATTEMPTS = 1_000
    # No turn takes longer, and so much for each datagram: its core did something else.
    AWAY_NS = 5_000
    AWAY_DATAGRAM_NS = 3_000


@dataclass(frozen=True, slots=True)
class BesideResult:
    """What was sent.

    Attributes
    ----------
    unsent : int
        Due datagrams that a full queue did not take.
    others : int
        Datagrams beside them.
    elapsed_ns : int
        For all of it.
    """

    unsent: int
    others: int
    elapsed_ns: int


def send_beside(
        DatagramSender due, const uint8_t[:, ::1] rows, const int64_t[::1] sizes,
        int64_t interval_ns, DatagramSender beside, const uint8_t[:, ::1] others,
        const int64_t[::1] other_sizes) -> BesideResult:
    """Send each row when it is due, and the others round and round while none is.

    Parameters
    ----------
    due, beside : DatagramSender
        Of the rows, and of the others.
    rows, others : 2-D array of bytes
        A datagram each; without others, none are sent between.
    sizes, other_sizes : array of int64
        Bytes of each.
    interval_ns : int
        From one row to the next.

    Raises
    ------
    OSError
        A socket is of no use.
    """
    cdef int64_t begun_ns, now_ns, due_ns, sent = 0
    cdef int64_t count = rows.shape[0], unsent = 0, at = 0, kinds = others.shape[0], n = 0
    cdef int rc = 0, attempts
    with nogil:
        begun_ns = now_ns = clock_monotonic_ns()
        due_ns = begun_ns + interval_ns
        while n < count and rc >= 0:
            if now_ns >= due_ns:
                attempts = SEND_ATTEMPTS
                rc = 0
                while rc == 0 and attempts:
                    rc = send_slots(&due.batch, &rows[n, 0], 0, &sizes[n], 0, 1)
                    attempts -= 1
                unsent += rc == 0
                n += 1
                due_ns += interval_ns
            elif kinds:
                rc = send_slots(&beside.batch, &others[at, 0], others.shape[1], &other_sizes[at], 0,
                                min(CALL, kinds - at))
                sent += max(rc, 0)
                at += CALL
                if at >= kinds:
                    at = 0
            else:
                cpu_relax()
            now_ns = clock_monotonic_ns()
    check(min(rc, 0), "send", "a datagram")
    return BesideResult(unsent, sent, now_ns - begun_ns)


@cython.final
cdef class StampWatch(Agent):
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

    cdef Agent _loop
    cdef void* _borrowed             # of _loop, so that a turn touches no reference count
    cdef RingCursor _cursor
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
        super().__init__(loop.role)
        self._loop = loop
        self._borrowed = <void*>loop
        self._cursor = cursor
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

    def on_start(self) -> None:
        """Start the loop."""
        self._loop.on_start()

    def on_stop(self) -> None:
        """Stop the loop, and look at what its end set free."""
        self._loop.on_stop()
        self._away = True
        self._look(self._cursor, False, clock_realtime_ns())

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef int work
        self._note_away(self._turn_ns, now_ns, self._work)
        self._turn_ns = now_ns
        work = (<Agent>self._borrowed).do_work(now_ns)
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
        cdef uint64_t lapped
        cdef int64_t count, i
        cdef Record* record
        while True:
            count = ring_poll(&c.reader, c._headers, c._offsets, c._payloads, c._room, c._limit,
                              &lapped)
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
