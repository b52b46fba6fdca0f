# JournalCursor: the reading end of a journal, segment by segment. Nothing that it hands out is
# unchecked: every record's checksum, position and index are looked at.
#
# Where the bytes are not what was written, it goes on at the next record that the index of the
# segment, or the next segment, knows, and says how many records are missing: indices count on.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.core.layout cimport Record
from udpfast.log.marks cimport WrittenMark
from udpfast.log.segment cimport Segment
from udpfast.shm.region cimport Region

cdef enum:
    CURSOR_FULL = -3             # beside LOOK_*: the next payload does not fit in the room left
    CURSOR_PAST = -4             # the next record is behind the end that was asked for


cdef class JournalCursor:
    cdef Segment segment             # that it stands in; None: none yet, or past the last
    cdef const uint8_t* place        # of the next record
    cdef uint64_t room               # bytes of the segment from there on
    cdef readonly uint64_t position  # of the next record
    cdef readonly uint64_t index
    cdef readonly uint64_t missed    # by the last poll: records missing before its first
    cdef readonly uint64_t missed_total
    cdef uint32_t missed_reason      # LappedReason of `missed`
    cdef readonly bint ended         # nothing more will come, or not below `end`
    cdef readonly object directory
    cdef readonly bytes identity     # of the journal; None: nobody knows
    cdef readonly object headers     # RECORD, uint64, uint8: as a RingCursor's
    cdef readonly object offsets
    cdef readonly object payloads
    cdef Record* _headers
    cdef uint64_t* _offsets
    cdef uint8_t* _payloads
    cdef uint64_t _room_bytes
    cdef int64_t _limit
    cdef int64_t _start_ns           # records published before are left out
    cdef uint64_t _start_position
    cdef uint64_t left_out           # index behind the last record that was, or where it began
    cdef int64_t _end_ns
    cdef uint64_t _end_position
    cdef bint _past                  # there was a record published at _end_ns or later
    cdef bint _follow                # wait for a living writer
    cdef object _layouts             # that records are handed out by; None: as they are
    cdef dict _translations          # by the layout hash of segments
    cdef object _translation         # of this segment's records; None: there is none to do
    cdef tuple _source               # headers, offsets, payloads before they are translated
    cdef uint8_t* _into_headers      # where poll_segment puts them, and how long a header is
    cdef uint64_t* _into_offsets
    cdef uint8_t* _into_payloads
    cdef uint64_t _header_size
    cdef Region _region              # of the writer; None: there is none that can be believed
    cdef object _doubt               # why there is none, for an end that nobody knows to be one
    cdef uint64_t _number            # of the last segment that it stood in
    cdef int64_t _looked_ns          # when it last looked whether the writer lives
    cdef bint _handed_out            # the last poll brought records
    cdef int64_t poll_segment(self, int64_t limit, int64_t* count) noexcept nogil
    cdef bint ready(self) noexcept nogil
    cdef int64_t poll_all(self, int64_t limit) except -1
    cdef int64_t _translate(self, int64_t count) except -1
    cdef _make_room(self, uint64_t room_bytes)
    cdef _enter(self, Segment segment)
    cdef bint _advance(self, int64_t end) except *
    cdef bint _is_over(self) except *
    cdef bint _enter_next(self, uint32_t reason) except *
    cdef bint _step_over(self, bint known, const WrittenMark* mark) except *
    cdef bint _was_removed(self, uint64_t index) noexcept
    cdef _miss_until(self, uint64_t position, uint64_t index, uint32_t reason)
    cdef bint _is_complete(self) except *
    cdef _check_identity(self)
    cdef bint _written(self, WrittenMark* mark) noexcept
    cdef void _stand(self, uint64_t position, uint64_t index) noexcept nogil
