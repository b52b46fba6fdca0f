# Batch: a run of records that were copied out of the ring together, without an object per record.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.client.source cimport Source
from udpfast.core.layout cimport Record

cdef class BatchMemory:
    # The memory that every poll of a reader overwrites. Each batch remembers its poll, so that
    # using it after the next poll raises an error and does not return another poll's records.
    cdef Record* headers
    cdef uint64_t* offsets       # of each payload in payloads; its size is length - RECORD_SIZE
    cdef uint8_t* payloads
    cdef uint64_t polls          # number of the poll whose records it holds
    cdef object headers_array    # RECORD, uint64, uint8: the arrays that the pointers point into
    cdef object offsets_array
    cdef object payloads_array

cdef class Batch:
    cdef BatchMemory memory
    cdef readonly NameCache names
    cdef Source source           # that its records are from; None: of a copy
    cdef tuple _feeds            # of a copy: see Source.feeds
    cdef int64_t first           # index of its first record in memory
    cdef int64_t count
    cdef readonly uint64_t lapped
    cdef uint64_t _poll

    cdef int check(self) except -1
    cdef tuple feeds(self)

cdef Batch batch_of(
    BatchMemory memory, int64_t first, int64_t count, uint64_t lapped, NameCache names,
    Source source)


cdef inline const Record* batch_header(Batch batch, int64_t i) noexcept nogil:
    # Requires i < count; valid until the reader polls again.
    return batch.memory.headers + batch.first + i


cdef inline const uint8_t* batch_payload(Batch batch, int64_t i) noexcept nogil:
    # Aligned to 8 bytes; requires and valid as above.
    return batch.memory.payloads + batch.memory.offsets[batch.first + i]
