# HistorySource: the Source of a journal and the ring whose records it has: one after the other, at
# exactly the record where the one ends and the other goes on.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport Source
from udpfast.log.recorded_runs cimport RecordedRuns

cdef class HistorySource(Source):
    cdef RecordedRuns runs           # of the journal, that it reads; None: the ring has its turn
    cdef JournalSource recorded      # the records that `runs` counts
    cdef RingSource live
    cdef object journal              # its directory
    cdef str history_address
    cdef str live_address
    cdef tuple options               # of a cursor in the journal: records, bytes of a poll
    cdef int64_t start_ns            # records of the ring published before are left out ...
    cdef uint64_t start_until        # ... up to this index: later ones are new ...
    cdef bytes start_log             # ... and those of other logs
    cdef uint64_t start_from         # of the oldest record that the ring had at first
    cdef bint whole                  # it begins with all there is, not amid the journal
    # What comes next, as the ring counts it.
    cdef bytes log                   # empty: nothing was read yet
    cdef uint64_t index
    cdef bint ahead                  # the ring at hand is of the log behind, where nothing is yet
    cdef bint exact                  # `index` is known; else it is that at least
    cdef set passed                  # logs before
    cdef int64_t last_ns             # when the record that was read last was published
    cdef bint sought                 # this wait looked round for what the ring lacks
    cdef bint doubted                # what is missing between counts as not known already
    cdef uint64_t missed_between     # not said yet
    cdef uint32_t between_reason
    cdef uint64_t missed_said
    cdef object state                # JournalState: how far the journal is read
    cdef object failure
    cdef void _tell(self) noexcept nogil
    cdef int64_t _leave_out(self, int64_t count) noexcept nogil
    cdef int64_t _look(self, int64_t limit) noexcept
    cdef int64_t _read(self, int64_t limit) except -1
    cdef bint _comes_next(self) except -1
    cdef _begin_with(self)
    cdef _place(self, log, uint64_t index)
    cdef bint _journal_ended(self) except -1
    cdef bint _journal_gone(self) except -1
    cdef int64_t _disturbed(self, int64_t count) noexcept
    cdef int64_t _end(self, int64_t code) except? -1
    cdef bint _go_on(self) except -1
    cdef _change_log(self, piece, order)
    cdef _pass_log(self, told)
    cdef bint _wait_in(self, piece) except -1
    cdef bint _stand(self, piece, at) except -1
    cdef bint _stands_at(self, uint64_t position) except -1
    cdef _use_ring(self)
    cdef bint _read_elsewhere(self) except -1
    cdef bint _was_replaced(self) except -1
    cdef _leave_journal(self)
    cdef _open(self, start)
    cdef bint _is_whole(self)
    cdef uint32_t _reason(self)
    cdef _doubt(self)
    cdef _miss(self, uint64_t missed, uint32_t reason)
    cdef _use(self, Source source)
