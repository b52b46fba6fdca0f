"""One ring, a writer and its readers: what a record costs, and how long it is under way.

Payloads begin with 8 bytes of monotonic ns, when the record was due (0 at full speed), and end
with 8 bytes that hold its number; `seqno` is the number too. At full speed the writer waits for
readers that are half a ring behind (`progress`), so that nothing is lost and both ends are timed
at the pace that they can hold together. The ring itself never waits.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.client.batch cimport Batch, batch_header, batch_payload
from udpfast.core.atomics cimport cpu_relax, load_acquire, store_release
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, RECORD_SIZE, Record
from udpfast.log.cursor cimport RingCursor
from udpfast.log.ring cimport Ring, RingWriter, ring_claim, ring_commit, ring_flush, ring_poll
from udpfast.shm.histogram cimport Histogram, LatencyHistogram, histogram_record

__all__ = [
    "PROGRESS_STRIDE", "advance", "look", "note_batch", "read_attended", "read_fast", "read_paced",
    "write_bursts", "write_fast", "write_paced",
]

cdef enum:
    STRIDE = 16
    FLUSH_EVERY = 64             # records, as a subscriber does once per batch of datagrams
    LOOK_EVERY = 4096            # empty polls between two looks at the clock

#: Words between the progress of two readers: processors fetch lines in pairs.
PROGRESS_STRIDE: int = STRIDE


cdef inline void _append(
        RingWriter* w, const uint8_t* source, uint32_t size, int64_t due_ns,
        int64_t sent_ns, uint64_t number) noexcept nogil:
    cdef Record* record = ring_claim(w, size)
    cdef uint8_t* payload = <uint8_t*>record + RECORD_SIZE
    memcpy(payload, source, size)
    memcpy(payload, &due_ns, sizeof(due_ns))
    memcpy(payload + size - sizeof(number), &number, sizeof(number))
    record.received_ns = due_ns
    record.published_ns = sent_ns
    record.number = number
    record.object = 0
    record.flight_ns = 0
    record.stream = record.session = 0
    ring_commit(w, KIND_MESSAGE, 0, 0, size)


cdef inline int64_t _due(const uint8_t* payload) noexcept nogil:
    cdef int64_t due_ns
    memcpy(&due_ns, payload, sizeof(due_ns))
    return due_ns


cdef inline bint _wrong(
        const Record* record, const uint8_t* payload, uint64_t number) noexcept nogil:
    cdef uint64_t mark
    memcpy(&mark, payload + record.length - RECORD_SIZE - sizeof(mark), sizeof(mark))
    return mark != number or record.number != number


def _check_size(Ring ring, size):
    if not 16 <= size <= min(ring.payload_max, 4096):
        raise ValueError(f"size must be 16..{min(ring.payload_max, 4096)}, was {size}")


def write_fast(
        Ring ring, uint64_t[::1] progress, int64_t records, uint32_t size, int readers=1) -> int:
    """Write at full speed, never more than half a ring ahead of the slowest reader.

    Returns
    -------
    int
        Elapsed ns, waiting included.
    """
    cdef uint8_t source[4096]
    cdef RingWriter* w = &ring.writer
    cdef int64_t n, started
    cdef int64_t ahead = <int64_t>(ring.writer.capacity // 2 // (RECORD_SIZE + size))
    cdef int64_t limit = ahead
    _check_size(ring, size)
    if readers and progress.shape[0] < readers * STRIDE:
        raise ValueError(f"progress must have {readers * STRIDE} words, has {progress.shape[0]}")
    memset(source, 7, sizeof(source))
    with nogil:
        started = clock_monotonic_ns()
        for n in range(records):
            while n >= limit and readers:
                limit = _slowest(progress, readers) + ahead
            _append(w, source, size, 0, 0, n)
            if n % FLUSH_EVERY == 0:
                ring_flush(w)
        ring_flush(w)
        started = clock_monotonic_ns() - started
    return started


cdef int64_t _slowest(uint64_t[::1] progress, int readers) noexcept nogil:
    cdef int64_t slowest = <int64_t>load_acquire(&progress[0])  # stored by `read_fast`, `advance`
    cdef int i
    for i in range(1, readers):
        slowest = min(slowest, <int64_t>load_acquire(&progress[i * STRIDE]))
    return slowest


def write_paced(Ring ring, const int64_t[::1] due_ns, uint32_t size) -> int:
    """Write one record at each due time (monotonic ns); spin in between.

    Returns
    -------
    int
        The furthest that a record was behind its time, in ns.
    """
    cdef uint8_t source[4096]
    cdef int64_t n, now_ns, late_ns = 0
    _check_size(ring, size)
    memset(source, 7, sizeof(source))
    with nogil:
        for n in range(due_ns.shape[0]):
            now_ns = clock_monotonic_ns()
            while now_ns < due_ns[n]:
                cpu_relax()
                now_ns = clock_monotonic_ns()
            late_ns = max(late_ns, now_ns - due_ns[n])
            _append(&ring.writer, source, size, due_ns[n], now_ns, n)
        ring_flush(&ring.writer)
    return late_ns


def write_bursts(
        Ring ring, int64_t bursts, int burst, int64_t period_ns, uint32_t size,
        int64_t first=0) -> NDArray[np.int64]:
    """Write `burst` records at full speed every `period_ns`.

    Parameters
    ----------
    first : int
        The number of the first record.

    Returns
    -------
    numpy.ndarray of int64
        What each burst took, in ns, flush included.
    """
    cdef uint8_t source[4096]
    cdef int64_t n = first, due_ns, started, i
    cdef int _k
    cdef int64_t[::1] took
    _check_size(ring, size)
    memset(source, 7, sizeof(source))
    taken = np.zeros(bursts, np.int64)
    took = taken
    with nogil:
        due_ns = clock_monotonic_ns()
        for i in range(bursts):
            while clock_monotonic_ns() < due_ns:
                cpu_relax()
            started = clock_monotonic_ns()
            for _k in range(burst):
                _append(&ring.writer, source, size, 0, 0, n)
                n += 1
            ring_flush(&ring.writer)
            took[i] = clock_monotonic_ns() - started
            due_ns += period_ns
    return taken


def read_fast(
        RingCursor cursor, uint64_t[::1] progress, int64_t records, int reader=0,
        int64_t timeout_ns=2_000_000_000) -> tuple[int, int, int]:
    """Read `records` records, spinning; say how far it is in `progress`.

    Returns
    -------
    tuple of int
        Records read, records that were not the expected ones, ns from the first to the last.
    """
    cdef int64_t seen = 0, wrong = 0, first_ns = 0, last_ns = 0
    with nogil:
        _read(cursor, records, NULL, &progress[reader * STRIDE], timeout_ns, &seen, &wrong,
              &first_ns, &last_ns)
    return seen, wrong, last_ns - first_ns


def read_paced(
        RingCursor cursor, int64_t records, LatencyHistogram histogram, *, skip: int = 0,
        timeout_ns: int = 2_000_000_000) -> tuple[int, int]:
    """Read `records` records, spinning; record how long each was under way.

    The first `skip` records are read and not recorded.

    Returns
    -------
    tuple of int
        Records read, records that were not the expected ones.
    """
    cdef int64_t seen = 0, wrong = 0, first_ns = 0, last_ns = 0, limit = timeout_ns
    cdef int64_t skipped = skip
    cdef Histogram* target = histogram.histogram
    with nogil:
        _read(cursor, skipped, NULL, NULL, limit, &seen, &wrong, &first_ns, &last_ns)
        _read(cursor, records, target, NULL, limit, &seen, &wrong, &first_ns, &last_ns)
    return seen, wrong


def read_attended(
        RingCursor cursor, int64_t records, LatencyHistogram histogram, *, int64_t away_ns,
        skip: int = 0, timeout_ns: int = 2_000_000_000) -> tuple[int, int, int]:
    """Read as `read_paced`, and leave out what happened while a core was taken away.

    Not recorded are records that were sent more than `away_ns` after they were due, and those that
    became due before the reader had been back from looks further apart than that.

    Returns
    -------
    tuple of int
        Records read, records that were not the expected ones, records left out.
    """
    cdef RingCursor c = cursor
    cdef Histogram* target = histogram.histogram
    cdef uint64_t lapped
    cdef const Record* record
    cdef int64_t skipped = skip, limit = timeout_ns, seen = 0, wrong = 0, away = 0, count, i
    cdef int64_t now_ns, before_ns, back_ns = 0, idle_since_ns
    with nogil:
        before_ns = idle_since_ns = clock_monotonic_ns()
        while seen < records:
            count = ring_poll(&c.reader, c._headers, c._offsets, c._payloads, c._room,
                              min(c._limit, records - seen), &lapped)
            now_ns = clock_monotonic_ns()
            if now_ns - before_ns > away_ns:
                back_ns = now_ns
            before_ns = now_ns
            if count < 0 or now_ns - idle_since_ns > limit:
                break
            if count > 0:
                idle_since_ns = now_ns
            for i in range(count):
                record = &c._headers[i]
                wrong += _wrong(record, c._payloads + c._offsets[i], seen)
                if seen >= skipped:
                    if (record.received_ns <= back_ns
                            or record.published_ns - record.received_ns > away_ns):
                        away += 1
                    else:
                        histogram_record(target, now_ns - record.received_ns)
                seen += 1
    return seen, wrong, away


cdef void _read(
        RingCursor c, int64_t records, Histogram* histogram, uint64_t* progress,
        int64_t timeout_ns, int64_t* seen, int64_t* wrong, int64_t* first_ns,
        int64_t* last_ns) noexcept nogil:
    # On until *seen is `records`, or nothing came for timeout_ns.
    cdef uint64_t lapped
    # At full speed the clock is read at the ends only: a reader in step polls record by record.
    cdef int64_t count, i, idle = 0, now_ns = clock_monotonic_ns()
    cdef int64_t idle_since_ns = now_ns
    while seen[0] < records:
        count = ring_poll(&c.reader, c._headers, c._offsets, c._payloads, c._room,
                          min(c._limit, records - seen[0]), &lapped)
        if count < 0:
            return
        if count == 0:
            idle += 1
            if idle == LOOK_EVERY:
                idle_since_ns = clock_monotonic_ns()
            elif idle % LOOK_EVERY == 0 and clock_monotonic_ns() - idle_since_ns > timeout_ns:
                return
            continue
        idle = 0
        if histogram != NULL or first_ns[0] == 0:
            now_ns = clock_monotonic_ns()
            if first_ns[0] == 0:
                first_ns[0] = now_ns
        for i in range(count):
            wrong[0] += _wrong(&c._headers[i], c._payloads + c._offsets[i], seen[0])
            if histogram != NULL:
                histogram_record(histogram, now_ns - _due(c._payloads + c._offsets[i]))
            seen[0] += 1
        if progress != NULL:
            store_release(progress, <uint64_t>seen[0])  # read by `_slowest`
    last_ns[0] = clock_monotonic_ns()


def note_batch(
        Batch batch, int64_t now_ns, LatencyHistogram histogram or None, int64_t first,
        int64_t skip=0) -> int:
    """Record how long each record of a batch was under way when the strategy had it.

    Parameters
    ----------
    batch : Batch
    now_ns : int
        Monotonic ns, read when the poll returned.
    histogram : LatencyHistogram or None
    first : int
        The number that the first record must have.
    skip : int
        Records with a lower number are not timed.

    Returns
    -------
    int
        Records that were not the expected ones.
    """
    cdef int64_t i, wrong = 0
    for i in range(batch.count):
        wrong += _wrong(batch_header(batch, i), batch_payload(batch, i), first + i)
        if histogram is not None and first + i >= skip:
            histogram_record(histogram.histogram, now_ns - _due(batch_payload(batch, i)))
    return wrong


def advance(uint64_t[::1] progress, uint64_t records, int reader=0) -> None:
    """Say how far a reader is, to `write_fast`."""
    store_release(&progress[reader * STRIDE], records)  # read by `_slowest`


def look(RingCursor cursor) -> tuple[int, int]:
    """Look once, as a compiled reader does.

    Returns
    -------
    tuple of int
        Records read, which are in the cursor's arrays; the pauses that the next look begins with,
        if it is in step with the writer.
    """
    cdef uint64_t lapped
    cdef int64_t count = ring_poll(&cursor.reader, cursor._headers, cursor._offsets,
                                   cursor._payloads, cursor._room, cursor._limit, &lapped)
    return count, cursor.reader.rest
