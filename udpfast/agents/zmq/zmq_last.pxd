# LastValues: the state of all objects as of the record that the fan-out read last. A new subscriber
# gets it first.

from libc.stdint cimport int64_t, uint64_t

from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.market.state cimport State

cdef class LastValues:
    cdef State _state
    cdef begin(self, FeedCursor cursor, uint64_t missed)
    cdef bint resume(self, FeedCursor cursor, directory) except -1
    cdef int apply(self, FeedCursor cursor, int64_t count) noexcept nogil
    cdef void lapped(self, FeedCursor cursor, uint64_t count) noexcept nogil
    cdef bint ready(self) noexcept nogil
    cdef bytes records(self)
