# HistorySource: the Source of a journal and then of the ring whose records it keeps; it changes
# from one to the other exactly at the record where the journal ends.

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.history_seam cimport HistorySeam
from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport Source

cdef class HistorySource(Source):
    cdef HistorySeam seam            # knows which record comes next, and where it is
    cdef RingSource live
    cdef str history_address
    cdef str live_address
    cdef uint64_t start_until        # records of the ring below this index may be before start_ns
    cdef bint whole                  # reading starts at the journal's oldest record
    cdef bint sought                 # this wait has searched for records that the ring lacks
    cdef object failure              # exception for `fail` to raise
    cdef void _tell(self) noexcept nogil
    cdef int64_t _leave_out(self, int64_t count) noexcept nogil
    cdef int64_t _look(self, int64_t limit) noexcept
    cdef int64_t _read(self, int64_t limit) except -1
    cdef bint _comes_next(self) except -1
    cdef _begin_with(self)
    cdef bint _journal_ended(self) except -1
    cdef uint64_t _place_behind_journal(self) except? 0
    cdef bint _journal_gone(self) except -1
    cdef bint _read_elsewhere(self) except -1
    cdef int64_t _disturbed(self, int64_t count) noexcept
    cdef int64_t _end(self, int64_t code) except? -1
    cdef bint _go_on(self) except -1
    cdef _use_piece(self)
    cdef _use(self, Source source)
