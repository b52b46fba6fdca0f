# RecordedRuns: a journal's records as its source counted them: in runs of one log without a hole.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.log.journal_cursor cimport JournalCursor


cdef inline uint64_t source_ended() noexcept nogil:
    # In place of a position in the source: its writer closed it, and the journal has all of it.
    return <uint64_t>-1


cdef class RecordedRuns:
    cdef JournalCursor cursor
    # The record that stands next, or would behind the journal's end: its log, and its index there.
    cdef readonly bytes log
    cdef readonly uint64_t index
    cdef readonly bint exact         # `index` is known; else it is that at least
    cdef readonly bint unknown       # nobody knows how many of the log before are missing
    cdef uint32_t reason             # LappedReason of what is missing before it
    cdef bint skipped                # the record before it was left out: published too early
    cdef bytes from_log              # where it stands behind the last one that was left out, or
    cdef uint64_t from_index         # where it began: before what is damaged or was removed
    cdef bint from_exact
    cdef int64_t begin               # of the last poll's records in memory, those that are left
    cdef int64_t end
    cdef bint known                  # where the next poll's first record stands
    cdef uint64_t journal_index      # of that record
    cdef int64_t look(self, int64_t limit) except -1
    cdef int64_t take(self, int64_t count) noexcept
    cdef bint locate(self, uint64_t journal_index, bint behind)
    cdef forget_missing(self)
    cdef bint _poll(self, int64_t limit) except -1
    cdef _note_begin(self, uint64_t first)
    cdef void _step_over(self) noexcept
