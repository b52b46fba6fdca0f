# RingCursor: a RingReader (ring.pxd) with the arrays that it copies into.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from udpfast.core.layout cimport Record
from udpfast.log.ring cimport RingReader
from udpfast.shm.region cimport Region

cdef class RingCursor:
    cdef RingReader reader
    cdef readonly Region region
    cdef readonly object headers
    cdef readonly object offsets
    cdef readonly object payloads
    cdef readonly uint64_t lapped
    cdef Record* _headers
    cdef uint64_t* _offsets
    cdef uint8_t* _payloads
    cdef size_t _room
    cdef int64_t _limit
    cdef object _layout
    cdef _allocate(self, limit, room_bytes)
    cdef _use(self, headers, offsets, payloads)
    cdef _check_open(self)
    cdef _raise(self, int64_t code)
    cdef bint skip_lap(self) noexcept nogil
    cdef int64_t poll_oldest(self) noexcept nogil
