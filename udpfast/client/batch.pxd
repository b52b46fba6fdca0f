# Batch: a run of records, copied out of the ring together, without an object per record.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.core.layout cimport Record

cdef class BatchMemory:
    # What a reader copies into, again and again. Its batches say which poll they belong to, so
    # that a late look at one of them is an error and not another poll's records.
    cdef Record* headers
    cdef uint64_t* offsets       # of each payload in payloads; its size is length - RECORD_SIZE
    cdef uint8_t* payloads
    cdef uint64_t polls          # which poll's records it holds
    cdef object headers_array    # RECORD, uint64, uint8: what the pointers point into
    cdef object offsets_array
    cdef object payloads_array

cdef class Batch:
    cdef BatchMemory memory
    cdef readonly NameCache names
    cdef int64_t first           # in memory
    cdef int64_t count
    cdef readonly uint64_t lapped
    cdef uint64_t _poll

    cdef int check(self) except -1

cdef Batch batch_of(
    BatchMemory memory, int64_t first, int64_t count, uint64_t lapped, NameCache names)


cdef inline const Record* batch_header(Batch batch, int64_t i) noexcept nogil:
    # For i < count, until the reader polls again.
    return batch.memory.headers + batch.first + i


cdef inline const uint8_t* batch_payload(Batch batch, int64_t i) noexcept nogil:
    # Aligned to 8.
    return batch.memory.payloads + batch.memory.offsets[batch.first + i]
