# LastValues: the state of a ring as the fan-out has read it: what a new subscriber gets first.

from libc.stdint cimport int64_t, uint64_t

from udpfast.log.cursor cimport RingCursor
from udpfast.market.state cimport State

cdef class LastValues:
    cdef State _state
    cdef begin(self, RingCursor cursor, uint64_t missed)
    cdef bint resume(self, RingCursor cursor) except -1
    cdef int apply(self, RingCursor cursor, int64_t count) noexcept nogil
    cdef void lapped(self, RingCursor cursor, uint64_t count) noexcept nogil
    cdef bint ready(self) noexcept nogil
    cdef bytes records(self)
