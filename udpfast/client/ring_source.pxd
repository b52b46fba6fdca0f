# RingSource: the Source of "ring:NAME": a cursor in a ring of this host, the table of names beside
# it, and an entry in its list of readers.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.image_join cimport ImageJoin
from udpfast.client.source cimport Source
from udpfast.log.cursor cimport RingCursor
from udpfast.log.readers cimport ReaderRegistration

cdef class RingSource(Source):
    cdef RingCursor cursor
    cdef ReaderRegistration registration  # shows this reader's name and lag to tools
    cdef ImageJoin join          # records that come before the ring's; None: none (left)
    cdef int64_t join_left       # records of `join` not handed out yet
    cdef uint64_t join_taken     # records handed out that are not in the ring: of join, and our own
    cdef bint joins              # whether to join from the image again after a lap
    cdef int64_t joins_until_ns  # a lap was met: how long to try; 0: there is none, -1: in vain
    # ConnectionScope of the DISCONNECTED that was handed out; 0: the writer is connected.
    cdef uint32_t gone
    cdef uint64_t gone_epoch     # the writer's epoch at that time
    cdef bint current            # since then its loop has run again,
    cdef uint64_t current_index  # and had written this many records by then
    cdef bint unknown            # another log follows: the number of missing records is unknown
    cdef bint followed           # another file was opened; what it lacks is not reported yet
    cdef uint32_t turned         # ConnectionStatus to hand out next; 0: none
    cdef uint32_t turned_scope   # scope of a DISCONNECTED; that of READY is `gone`
    cdef uint64_t missed_unknown  # how often an unknown loss was reported, as 1 record each
    cdef int64_t looked_ns       # when the writer was last checked
    cdef bint removed            # it was said that the ring was removed
    # Records written when that was first seen: they are read first. INT64_MAX: it is there.
    cdef uint64_t removed_index
    cdef bint steered            # the owner (HistorySource) decides which file comes next
    cdef object names_region
    cdef object failure          # exception for `fail` to raise
    cdef int64_t names_looked_ns  # when names_missing last returned True
    cdef bint names_warned       # that they were removed

    cdef int64_t _take_image(self, int64_t limit) noexcept nogil
    cdef int64_t _meet_lap(self, int64_t count, int64_t limit) noexcept
    cdef int64_t _join_again(self, int64_t limit) except -1
    cdef bint _follow(self) except -1
    cdef int64_t say_ended(self, int64_t code) except? -1
    cdef _look_at_writer(self, bint joins, bint all_read)
    cdef bint _is_back(self) noexcept nogil
    cdef bint _is_removed(self) noexcept
    cdef int64_t _end_removed(self) noexcept
    cdef take_file(self)
    cdef bint _all_read(self) noexcept nogil
    cdef void _note_unknown(self) noexcept nogil
    cdef int64_t _last_ns(self) noexcept
    cdef int64_t _end(self, int64_t code) noexcept
    cdef int64_t _hand_out_connection(self) noexcept
    cdef int64_t _hand_out_lapped(self) noexcept
