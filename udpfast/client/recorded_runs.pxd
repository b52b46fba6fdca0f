# RecordedRuns: a journal's records as its ring counted them: in runs of one log without a hole.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.journal_source cimport JournalSource
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.segment cimport SegmentHeader

cdef class RecordedRuns:
    cdef JournalSource source
    cdef JournalCursor cursor
    # The record that stands next, or would behind the journal's end: its log, and its index there.
    cdef bytes log
    cdef uint64_t index
    cdef bint exact                  # `index` is known; else it is that at least
    cdef bint unknown                # nobody knows how many of the log before are missing
    cdef uint32_t reason             # LappedReason of what is missing before it
    cdef bint skipped                # the record before it was left out: published too early
    cdef uint64_t from_index         # behind that one; without one, behind what was removed
    cdef bint begins                 # and its segment is the first that has its log
    cdef int64_t begin               # of the last poll's records in memory, those that are left
    cdef int64_t end
    cdef bint known                  # where the next poll's first record stands
    cdef uint64_t journal_index      # of that record
    cdef int64_t look(self, int64_t limit) except -1
    cdef int64_t take(self, int64_t count) noexcept
    cdef bint locate(self, uint64_t journal_index)
    cdef forget_missing(self)
    cdef bint _poll(self, int64_t limit) except -1
    cdef _enter(self, const SegmentHeader* header)
    cdef _log_before(self, const SegmentHeader* header)
    cdef void _step_over(self) noexcept
