# JournalCursor: the reading end of a journal, segment by segment. It checks the checksum, position
# and index of every record before it returns it.
#
# Behind damaged bytes it continues at the next record that the segment's index or the next segment
# names, and reports how many records are missing, which the indices tell.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.core.layout cimport Record
from udpfast.log.marks cimport WrittenMark
from udpfast.log.segment cimport Segment
from udpfast.shm.region cimport Region

cdef enum:
    CURSOR_FULL = -3             # besides LOOK_*: the next payload does not fit the room left
    CURSOR_PAST = -4             # the next record lies behind the requested end


cdef class JournalCursor:
    cdef Segment segment             # the current one; None: none yet, or past the last
    cdef const uint8_t* place        # of the next record
    cdef uint64_t room               # bytes of the segment from `place` on
    cdef readonly uint64_t position  # of the next record
    cdef readonly uint64_t index
    cdef readonly uint64_t missed    # records missing before the first one of the last poll
    cdef readonly uint64_t missed_total
    cdef uint32_t missed_reason      # LappedReason of `missed`
    cdef readonly bint ended         # nothing more will come, or nothing below the requested end
    cdef readonly object directory
    cdef readonly bytes identity     # identity of the journal; None: unknown
    cdef readonly object headers     # dtypes RECORD, uint64 and uint8, as in RingCursor
    cdef readonly object offsets
    cdef readonly object payloads
    cdef Record* _headers
    cdef uint64_t* _offsets
    cdef uint8_t* _payloads
    cdef uint64_t _room_bytes
    cdef int64_t _limit
    cdef int64_t _start_ns           # skip records published before
    cdef uint64_t _start_position
    cdef uint64_t left_out           # index behind the last skipped record, or where reading began
    cdef int64_t _end_ns
    cdef uint64_t _end_position
    cdef bint _past                  # a record was published at _end_ns or later
    cdef bint _follow                # wait for a living writer
    cdef object _layouts             # layouts in which records are returned; None: as stored
    cdef dict _translations          # by the layout hash of segments
    cdef object _translation         # of the current segment's records; None: none is needed
    cdef tuple _source               # headers, offsets, payloads before translation
    cdef uint8_t* _into_headers      # where poll_segment copies to, and the size of a header
    cdef uint64_t* _into_offsets
    cdef uint8_t* _into_payloads
    cdef uint64_t _header_size
    cdef Region _region              # the writer's; None: it is missing or damaged
    cdef object _doubt               # why it is None, in case the end is not certain
    cdef uint64_t _number            # number of the last segment entered
    cdef int64_t _looked_ns          # when the writer was last checked to be alive
    cdef bint _handed_out            # the last poll returned records
    cdef int64_t _last_ns            # when the last record was published; of a LAPPED: unchanged
    cdef uint64_t _ended_epoch       # of the writer that ended last; 0: its mark was not readable
    cdef int64_t _again_ns           # when the writer that goes on had written last, UNIX ns
    cdef uint64_t _current_index     # it is current from this record on; UINT64_MAX: not known
    cdef int64_t poll_segment(self, int64_t limit, int64_t* count) noexcept nogil
    cdef bint ready(self) noexcept nogil
    cdef int64_t poll_all(self, int64_t limit) except -1
    cdef int64_t _translate(self, int64_t count) except -1
    cdef _make_room(self, uint64_t room_bytes)
    cdef _enter(self, Segment segment)
    cdef bint _advance(self, int64_t end) except *
    cdef bint _is_over(self) except *
    cdef bint go_on(self) except *
    cdef bint is_current(self) except *
    cdef bint has_ended(self) except *
    cdef bint knows_end(self) noexcept
    cdef _check_removed(self)
    cdef bint _enter_next(self, uint32_t reason) except *
    cdef bint _step_over(self, bint known, const WrittenMark* mark) except *
    cdef bint _was_removed(self, uint64_t index) noexcept
    cdef _miss_until(self, uint64_t position, uint64_t index, uint32_t reason)
    cdef bint _is_complete(self) except *
    cdef bint _is_past(self) noexcept
    cdef _check_identity(self)
    cdef bint _written(self, WrittenMark* mark) noexcept
    cdef void _stand(self, uint64_t position, uint64_t index) noexcept nogil
