"""A writer that takes turns, as a feed does: what readers who sleep cost it, and how it wakes them.

`write_turns` writes records on a schedule, and looks for sleepers at each turn of its loop.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport cpu_relax, store_relaxed
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, RECORD_SIZE, Record
from udpfast.log.ring cimport Ring, ring_claim, ring_commit, ring_flush
from udpfast.shm.wake cimport WakeRegion, waker_turn, waker_wake

__all__ = ["turn_cost_ns", "wake_cost_ns", "write_turns"]


def write_turns(Ring ring, WakeRegion wake, const int64_t[::1] due_ns, int64_t first=0) -> None:
    """Write a record at each due time (monotonic ns); spin in between.

    Its payload is that time and the record's number, from `first` on, as `ring_hop.read_paced`
    wants them.
    """
    cdef int64_t n, number, now_ns
    cdef Record* record
    with nogil:
        for n in range(due_ns.shape[0]):
            now_ns = clock_monotonic_ns()
            while now_ns < due_ns[n]:
                waker_turn(&wake.waker, ring.writer.position, now_ns)
                cpu_relax()
                now_ns = clock_monotonic_ns()
            record = ring_claim(&ring.writer, 16)
            if record == NULL:
                break  # no ring is so small
            memset(<uint8_t*> record + 4, 0, RECORD_SIZE - 4)
            record.received_ns = record.published_ns = due_ns[n]
            number = first + n
            record.number = number
            memcpy(<uint8_t*> record + RECORD_SIZE, &due_ns[n], 8)
            memcpy(<uint8_t*> record + RECORD_SIZE + 8, &number, 8)
            ring_commit(&ring.writer, KIND_MESSAGE, 0, 0, 16)
            ring_flush(&ring.writer)
            waker_turn(&wake.waker, ring.writer.position, clock_monotonic_ns())


def turn_cost_ns(WakeRegion wake, int64_t turns) -> float:
    """Return what a turn costs while nobody sleeps, in ns, the loop around it included."""
    cdef int64_t i, started = clock_monotonic_ns()
    with nogil:
        for i in range(turns):
            waker_turn(&wake.waker, i, i)
    return <double> (clock_monotonic_ns() - started) / turns


def wake_cost_ns(WakeRegion wake, int64_t wakes) -> float:
    """Return what waking costs the writer, in ns, with whoever watches now."""
    cdef int64_t i, started = clock_monotonic_ns()
    with nogil:
        for i in range(wakes):
            store_relaxed(&wake.waker.header.asleep, 1)
            waker_wake(&wake.waker, i, i)
    return <double> (clock_monotonic_ns() - started) / wakes
