# HistorySeam: where the reader of a ring's history stands, and which piece it is reading.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.log.recorded_runs cimport RecordedRuns

cdef class HistorySeam:
    cdef RecordedRuns runs           # the journal that is being read; None: the ring is being read
    cdef JournalSource recorded      # the source of the records that `runs` counts
    cdef RingSource live
    cdef bint entered                # the piece has changed: the caller must use its arrays
    cdef object journal              # the journal's directory
    cdef tuple options               # records and bytes that one poll of the journal may take
    cdef int64_t start_ns            # skip records that were published before
    cdef bytes start_log             # identity of the ring's log when this was opened
    cdef uint64_t start_from         # index of the oldest record that the ring had then
    # The record that comes next, by log and index in the ring's log.
    cdef bytes log                   # empty: nothing was read yet
    cdef uint64_t index
    cdef bint ahead                  # the ring is of the next log, which has no record yet
    cdef bint exact                  # `index` is exact; otherwise it is a lower bound
    cdef set passed                  # logs before `log`
    cdef int64_t last_ns             # when the last record read was published
    cdef bint doubted                # the unknown loss in between has been counted already
    cdef uint64_t missed_between     # records missed and not reported yet
    cdef uint32_t between_reason     # LappedReason of these
    cdef uint64_t missed_said        # records reported as missed
    cdef object state                # JournalState: how far to read the journal
    cdef begin_at_tail(self)
    cdef bint count_by_time(self, uint64_t end=*) except -1
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
