# ReaderEntry: the state that an attached reader publishes. The writer never reads it, and nobody
# waits for it: tools compare it with the ring's tail and read its latencies.

from libc.stdint cimport int64_t, uint64_t, uint8_t

from udpfast.core.atomics cimport store_relaxed
from udpfast.core.layout cimport (
    KIND_MESSAGE, KIND_UPDATES, RECORD_NO_TIMESTAMP, RECORD_RELEASED, Record)
from udpfast.log.ring cimport RingReader
from udpfast.shm.histogram cimport Histogram, histogram_add, histogram_record
from udpfast.shm.region cimport Region

cdef enum:
    READER_NAME_SIZE = 64

cdef struct ReaderEntry:
    uint8_t region[128]      # RegionHeader: pid and start of the reader's process
    char name[64]            # UTF-8, filled up with zeros
    uint64_t position        # of the next record that it will read
    uint64_t index
    uint64_t lapped          # records missed since it attached
    int64_t polled_ns        # UNIX ns, as passed by the caller
    uint64_t began_index     # index of the first record that it could read
    uint64_t read            # records handed out; began_index + read + lapped = index
    int64_t began_ns         # UNIX ns: records published before are not timed
    uint8_t reserved[8]
    Histogram loop_to_strategy    # the record's published_ns -> handed out
    Histogram kernel_to_strategy  # the record's received_ns -> handed out

cdef inline void reader_report(
        ReaderEntry* entry, const RingReader* reader, int64_t now_ns) noexcept nogil:
    # Four stores to a line of its own, once per poll.
    store_relaxed(&entry.position, reader.cursor)
    store_relaxed(&entry.index, reader.index)
    store_relaxed(&entry.lapped, reader.lapped)
    store_relaxed(<uint64_t*>&entry.polled_ns, now_ns)

cdef inline bint reader_timed(const ReaderEntry* entry, const Record* record) noexcept nogil:
    # Return whether a record's age is a latency: the record came from the wire, was not held back
    # for a snapshot, and was published after this reader began.
    return (record.kind >= KIND_UPDATES or record.kind == KIND_MESSAGE) and (
        not record.flags & RECORD_RELEASED and record.published_ns >= entry.began_ns)

cdef inline void reader_time(
        ReaderEntry* entry, const Record* record, int64_t now_ns) noexcept nogil:
    # Record the latencies of one record.
    if reader_timed(entry, record):
        histogram_record(&entry.loop_to_strategy, now_ns - record.published_ns)
        if not record.flags & RECORD_NO_TIMESTAMP:
            histogram_record(&entry.kernel_to_strategy, now_ns - record.received_ns)

cdef inline void reader_time_all(
        ReaderEntry* entry, const Record* records, int64_t count, int64_t now_ns) noexcept nogil:
    # Record the latencies of a batch that was handed out at one time. Records that the loop
    # published together have one stamp and are counted together.
    cdef int64_t i, same = 0, published_ns = 0
    cdef const Record* record
    for i in range(count):
        record = records + i
        if not reader_timed(entry, record):
            continue
        if record.published_ns != published_ns:
            if same:
                histogram_add(&entry.loop_to_strategy, now_ns - published_ns, same)
            published_ns = record.published_ns
            same = 0
        same += 1
        if not record.flags & RECORD_NO_TIMESTAMP:
            histogram_record(&entry.kernel_to_strategy, now_ns - record.received_ns)
    if same:
        histogram_add(&entry.loop_to_strategy, now_ns - published_ns, same)

cdef class ReaderRegistration:
    cdef object __weakref__
    cdef object _leave       # removes the file, once
    cdef ReaderEntry* entry
    cdef readonly Region region
    cdef readonly str name
