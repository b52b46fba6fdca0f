# HistorySource: the Source of "ring:NAME" from a time on: the journal that has the ring's records,
# and then the ring, at exactly the record behind the journal's last.

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport Source

cdef class HistorySource(Source):
    cdef JournalSource history       # None: the ring has its turn
    cdef RingSource live
    cdef str history_address
    cdef str live_address
    cdef int64_t start_ns            # records of the ring published before are left out ...
    cdef uint64_t start_until        # ... up to this index: later ones are new
    cdef uint64_t missed_before      # by the journal, and between the two
    cdef uint64_t missed_between     # not said yet
    cdef object state                # JournalState: how far the journal is read
    cdef object failure
    cdef int64_t look(self, int64_t limit) noexcept
    cdef void _use_live(self) noexcept
    cdef bint _go_over(self) except *
    cdef int64_t _leave_out(self, int64_t count) noexcept nogil
    cdef uint64_t _as_of_ring(self)
