# Block: a run of records in the arrays of a cursor, and the rows of a table found in it.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from udpfast.core.layout cimport Record
from udpfast.market.update_header cimport UpdateHeader

cdef class Block:
    cdef readonly int64_t count
    cdef const Record* records
    cdef const uint64_t* offsets     # offset of each payload in payloads
    cdef const uint8_t* payloads
    cdef tuple _arrays

    cdef int64_t _count(self, uint64_t kinds, bint rows, const uint8_t* keep) noexcept nogil
    cdef void _fill(self, Rows found, uint64_t kinds, bint rows, const uint8_t* keep) noexcept nogil
    cdef const UpdateHeader* update(self, int64_t i) noexcept nogil


cdef class Rows:
    cdef readonly int64_t count
    cdef readonly object ordinals
    cdef readonly object asks
    cdef Block _block
    cdef object _addresses
    cdef const uint8_t** base[5]     # by BASE_*: pointer to the bytes of each row
    cdef int32_t* ordinal
    cdef uint8_t* ask

    cdef _allocate(self, int64_t count, Block block)
