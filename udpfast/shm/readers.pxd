# ReaderEntry: what an attached reader tells about itself. Nobody waits for it, the writer never
# looks: it is there for tools, which compare it with the ring's tail.

from libc.stdint cimport int64_t, uint64_t, uint8_t

from udpfast.core.atomics cimport store_relaxed
from udpfast.shm.region cimport Region
from udpfast.shm.ring cimport RingReader

cdef enum:
    READER_NAME_SIZE = 64

cdef struct ReaderEntry:
    uint8_t region[128]      # RegionHeader: pid and start of the reader's process
    char name[64]            # UTF-8, filled up with zeros
    uint64_t position        # of the next record that it will read
    uint64_t index
    uint64_t lapped          # records missed since it attached
    int64_t polled_ns        # UNIX ns, as its caller said

cdef inline void reader_report(
        ReaderEntry* entry, const RingReader* reader, int64_t now_ns) noexcept nogil:
    # Four stores to a line of its own, once per poll.
    store_relaxed(&entry.position, reader.cursor)
    store_relaxed(&entry.index, reader.index)
    store_relaxed(&entry.lapped, reader.lapped)
    store_relaxed(<uint64_t*>&entry.polled_ns, now_ns)

cdef class ReaderRegistration:
    cdef ReaderEntry* entry
    cdef readonly Region region
    cdef readonly str name
