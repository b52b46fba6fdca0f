# ImageJoin: the state of an image, brought up to date from the log behind it, as records for a
# reader that joins late. They are handed out like the records of a source.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.core.layout cimport Record
from udpfast.market.state cimport State
from udpfast.market.state_bytes cimport StateOutput

cdef class ImageJoin:
    cdef State _state
    cdef StateOutput _output
    cdef uint64_t _at            # bytes of the output that have been handed out
    cdef readonly int64_t left   # records that have not been handed out

    # Copy up to `limit` records whose payloads fit in `room` bytes; return how many.
    cdef int64_t take(
        self, Record* headers, uint64_t* offsets, uint8_t* payloads, uint64_t room,
        int64_t limit) noexcept nogil
    cdef _forget(self)
    cdef str _try(self, directory, FeedCursor cursor)
    cdef str _catch_up(self, FeedCursor cursor, uint64_t target, keeper)
    cdef int _follow(self, FeedCursor cursor, uint64_t target) noexcept nogil
