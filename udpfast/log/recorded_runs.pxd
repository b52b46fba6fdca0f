# RecordedRuns: a journal's records by their index in the source's log, in runs without a hole.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.log.journal_cursor cimport JournalCursor


cdef inline uint64_t source_ended() noexcept nogil:
    # Value in place of a source's position: the source's writer closed it, and the journal is
    # complete.
    return <uint64_t>-1


cdef class RecordedRuns:
    cdef JournalCursor cursor
    # The next record (or the one that would follow the journal's end): its log and its index there.
    cdef readonly bytes log
    cdef readonly uint64_t index
    cdef readonly bint exact         # `index` is exact; else it is a lower bound
    cdef readonly bint unknown  # records of the previous log are missing, nobody knows how many
    cdef uint32_t reason             # LappedReason of the records missing before it
    cdef bint skipped                # the record before it was skipped: published too early
    cdef bytes from_log              # log and index behind the last skipped record, or at the
    cdef uint64_t from_index         # beginning: in front of what is damaged or was removed
    cdef bint from_exact
    cdef int64_t begin               # of the last poll's records that are still in memory
    cdef int64_t end
    cdef bint known                  # it is known where the next poll's first record lies
    cdef uint64_t journal_index      # of that record
    cdef int64_t look(self, int64_t limit) except -1
    cdef int64_t take(self, int64_t count) noexcept
    cdef bint locate(self, uint64_t journal_index, bint behind)
    cdef forget_missing(self)
    cdef bint _poll(self, int64_t limit) except -1
    cdef _note_begin(self, uint64_t first)
    cdef void _step_over(self) noexcept
