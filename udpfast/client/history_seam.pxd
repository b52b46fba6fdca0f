# HistorySeam: where who reads a ring's history stands, and which piece of it is read.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.log.recorded_runs cimport RecordedRuns

cdef class HistorySeam:
    cdef RecordedRuns runs           # of the journal, that is read; None: the ring has its turn
    cdef JournalSource recorded      # the records that `runs` counts
    cdef RingSource live
    cdef bint entered                # another piece than before: its arrays are to be used
    cdef object journal              # its directory
    cdef tuple options               # of a cursor in the journal: records, bytes of a poll
    cdef int64_t start_ns            # what was published before is of no interest
    cdef bytes start_log             # which log the ring was of at first
    cdef uint64_t start_from         # of the oldest record that the ring had at first
    # What comes next, as the ring counts it.
    cdef bytes log                   # empty: nothing was read yet
    cdef uint64_t index
    cdef bint ahead                  # the ring at hand is of the log behind, where nothing is yet
    cdef bint exact                  # `index` is known; else it is that at least
    cdef set passed                  # logs before
    cdef int64_t last_ns             # when the record that was read last was published
    cdef bint doubted                # what is missing between counts as not known already
    cdef uint64_t missed_between     # not said yet
    cdef uint32_t between_reason
    cdef uint64_t missed_said
    cdef object state                # JournalState: how far the journal is read
    cdef begin_at_tail(self)
    cdef place(self, log, uint64_t index)
    cdef uint64_t tell(self) noexcept nogil
    cdef open(self, start)
    cdef bint stands_at(self, uint64_t position) except -1
    cdef use_ring(self)
    cdef leave_journal(self)
    cdef bint was_replaced(self) except -1
    cdef bint go_on(self) except -1
    cdef tuple recorded_piece(self)
    cdef change_log(self, piece, order)
    cdef pass_log(self, told)
    cdef uint32_t reason(self)
    cdef bint wait_in(self, piece) except -1
    cdef bint stand(self, piece, at) except -1
    cdef bint is_whole(self)
    cdef doubt(self)
    cdef miss(self, uint64_t missed, uint32_t reason)
