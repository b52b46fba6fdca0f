"""What keeping a record costs: appends beside the plainest copy, a ring with a recorder on it."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport cpu_relax, store_release
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, RECORD_SIZE, Record
from udpfast.log.journal cimport Journal, journal_flush
from udpfast.log.ring cimport Ring, ring_claim, ring_commit, ring_flush
from udpfast.log.segment cimport Segment, segment_append

from udpfast.log.segment import Segment as SegmentFace

__all__ = ["append_cost_ns", "copy_cost_ns", "publish_lateness_ns"]

cdef enum:
    BATCH = 1024                 # records between two flushes, as a recorder has them


def append_cost_ns(Journal journal, int size, int64_t count) -> float:
    """Return the ns that appending a record of `size` bytes, header included, costs.

    The journal's segment must have room for `count`, and its pages should be touched.

    Raises
    ------
    ValueError
        Not all of them found room.
    """
    cdef Record header
    cdef uint8_t* payload = <uint8_t*>calloc(1, size)
    cdef int64_t i, done = 0, started_ns
    memset(&header, 0, sizeof(header))
    header.length = size
    header.kind = KIND_MESSAGE
    with nogil:
        started_ns = clock_monotonic_ns()
        for i in range(count):
            header.published_ns = i
            done += segment_append(&journal.writer, &header, payload)
            if i % BATCH == BATCH - 1:
                journal_flush(journal, i)
        started_ns = clock_monotonic_ns() - started_ns
    free(payload)
    if done != count:
        raise ValueError(f"expected room for {count} records, found it for {done}")
    return <double>started_ns / count


def copy_cost_ns(path: Path, int size, int64_t count) -> float:
    """Return the ns that the plainest log costs: a copy, and a word stored with release behind it.

    Into a file of the same kind as a segment, its pages touched before.
    """
    cdef Segment segment = SegmentFace.prepare(path, (size * count + 4095 & ~4095) + 4096)
    cdef uint8_t* source = <uint8_t*>calloc(1, size)
    cdef uint8_t* place = segment.records
    cdef int64_t _i, started_ns
    segment.populate(segment.mapping.size_bytes)
    with nogil:
        started_ns = clock_monotonic_ns()
        for _i in range(count):
            memcpy(place + 8, source + 8, size - 8)
            store_release(<uint64_t*>place, <uint64_t>size)
            place += size
        started_ns = clock_monotonic_ns() - started_ns
    free(source)
    segment.close()
    return <double>started_ns / count


def publish_lateness_ns(
        Ring ring, int size, int64_t count, int64_t interval_ns,
        int64_t away_ns) -> NDArray[np.int64]:
    """Return how late each of `count` records was in a ring, in ns after it was due.

    Open loop: one is due every `interval_ns`, whatever became of the ones before.

    Returns
    -------
    numpy.ndarray
        Of int64; -1 for records that became due while the core did something else: before the
        loop was back from two looks at the clock that were further apart than `away_ns`.
    """
    lateness = np.zeros(count, np.int64)
    cdef int64_t* target = <int64_t*><size_t>lateness.ctypes.data
    cdef int64_t i, now_ns, back_ns = 0, before_ns = clock_monotonic_ns()
    cdef int64_t due_ns = before_ns + 1_000_000
    cdef Record* record
    with nogil:
        for i in range(count):
            due_ns += interval_ns
            while True:
                now_ns = clock_monotonic_ns()
                if now_ns - before_ns > away_ns:
                    back_ns = now_ns
                before_ns = now_ns
                if now_ns >= due_ns:
                    break
                cpu_relax()
            record = ring_claim(&ring.writer, size)
            memset(<uint8_t*>record + 4, 0, RECORD_SIZE - 4 + size)
            record.published_ns = due_ns
            ring_commit(&ring.writer, KIND_MESSAGE, 0, 0, size)
            ring_flush(&ring.writer)
            target[i] = clock_monotonic_ns() - due_ns if due_ns > back_ns else -1
    return lateness
