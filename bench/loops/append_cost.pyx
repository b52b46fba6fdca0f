"""Appends to a store on a schedule, beside a thread that reads its records and does nothing else.

What that costs an append is the way of cache lines between two cores: there is no link, no socket.
"""

import numpy as np
import cython

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from udpfast.bus.log cimport Log, Place, Store, log_append, place_run
from udpfast.bus.link_sender cimport RUN_BYTES
from udpfast.core.agent cimport Agent
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_BUS, RECORD_SIZE, STREAM_NONE, Record

__all__ = ["BareReader", "append_times"]

# The same for any position: there is no other epoch.
cdef uint64_t UNTIL_NONE = 0xFFFFFFFFFFFFFFFF


@cython.final
cdef class BareReader(Agent):
    """Walks the records of a store as they come.

    Parameters
    ----------
    store : Store
    gap_ns : int
        It looks so seldom; 0: all the time.
    """

    cdef Place _place
    cdef object _memory          # that _place points into
    cdef int64_t _gap_ns, _looked_ns
    cdef readonly uint64_t count

    def __init__(self, Store store, gap_ns: int):
        super().__init__("read")
        self._memory = store.log.place_at(store.log.writer.position, &self._place)
        self._gap_ns = gap_ns

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef uint64_t count
        if now_ns - self._looked_ns < self._gap_ns:
            return 0
        self._looked_ns = now_ns
        self._place.position += place_run(&self._place, UNTIL_NONE, RUN_BYTES, &count)
        self.count += count
        return <int>count


def append_times(
        Store store, int64_t count, int64_t size, int64_t batch,
        int64_t gap_ns) -> NDArray[np.int64]:
    """Append records of `size` bytes, `batch` at a time, and return ns of each of these times.

    Parameters
    ----------
    store : Store
        Whose writer is nobody else; its segment has room for all.
    count, size, batch : int
    gap_ns : int
        Between two times; the thread spins meanwhile.
    """
    cdef Record record
    cdef uint8_t payload[1024]
    cdef int64_t[::1] took = np.zeros(count // batch, np.int64)
    cdef int64_t at, begun_ns
    cdef int64_t due_ns = clock_monotonic_ns()
    cdef Log log = store.log
    memset(&record, 0, sizeof(record))
    memset(payload, 0, sizeof(payload))
    record.length = RECORD_SIZE + <int>size
    record.kind = KIND_BUS
    record.stream = STREAM_NONE
    with nogil:
        for at in range(count // batch):
            begun_ns = clock_monotonic_ns()
            due_ns = max(due_ns + gap_ns, begun_ns)
            while begun_ns < due_ns:
                begun_ns = clock_monotonic_ns()
            for _ in range(batch):
                record.published_ns = log.last_ns + 1
                log_append(log, &record, payload)
            took[at] = clock_monotonic_ns() - begun_ns
    return np.asarray(took)
