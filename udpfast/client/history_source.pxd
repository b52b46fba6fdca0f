# HistorySource: the Source of a journal and the ring whose records it has: one after the other, at
# exactly the record where the one ends and the other goes on.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport Source
from udpfast.log.segment cimport SegmentHeader

cdef class HistorySource(Source):
    cdef JournalSource history       # that it reads; None: the ring has its turn
    cdef RingSource live
    cdef object journal              # its directory: for when records are missing in the ring
    cdef str history_address
    cdef str live_address
    cdef tuple options               # of a cursor in the journal: records, bytes of a poll
    cdef int64_t start_ns            # records of the ring published before are left out ...
    cdef uint64_t start_until        # ... up to this index: later ones are new ...
    cdef bytes start_log             # ... and those of other logs
    # What comes next, as the ring counts it; `exact`: known so far.
    cdef bytes log
    cdef uint64_t index
    cdef bint exact
    cdef uint64_t journal_index      # of the journal's record behind the last one read
    cdef bint placed                 # in the ring: which record comes first there is not known yet
    cdef bint sought                 # this wait went back to the ring's oldest record
    cdef bint doubtful               # nobody said how far the log before went
    cdef bint turning                # the ring comes next, though the journal has more
    cdef set passed                  # logs that were read before
    cdef int64_t last_ns             # when the record that was read last was published
    cdef uint64_t missed_between     # not said yet
    cdef uint32_t between_reason
    cdef uint64_t missed_said
    cdef object state                # JournalState: how far the journal is read
    cdef object failure
    cdef void _tell(self) noexcept nogil
    cdef int64_t look(self, int64_t limit) noexcept
    cdef int64_t _read(self, int64_t limit) except -1
    cdef int64_t _note(self, int64_t count) except -1
    cdef bint _ring_is_between(self, const SegmentHeader* header, int64_t count) except -1
    cdef int64_t _oldest_at_hand(self) except? 0
    cdef bint _ring_is_before(self, const SegmentHeader* header) except -1
    cdef _doubt(self)
    cdef bint _count_up_to(self, uint64_t journal_index)
    cdef bint _go_over(self) except -1
    cdef bint _ring_has(self, uint64_t position) except -1
    cdef uint64_t _oldest(self) except? 0
    cdef bint _stands_at(self, uint64_t position) except -1
    cdef _place(self, uint64_t position)
    cdef _use_ring(self)
    cdef _choose_file(self)
    cdef int64_t _disturbed(self, int64_t count) noexcept
    cdef bint _go_on(self) except -1
    cdef int64_t _end(self, int64_t code) except? -1
    cdef bint _change_log(self, uint64_t first, int64_t until_ns) except -1
    cdef _miss_up_to(self, uint64_t first)
    cdef _read_again(self, uint64_t position, uint64_t found)
    cdef bint _begin_again(self)
    cdef bint _is_whole(self)
    cdef bint _look_back(self, uint64_t before) except -1
    cdef _miss_between(self, uint64_t missed, uint32_t reason)
    cdef _use(self, Source source)
    cdef int64_t _leave_out(self, int64_t count) noexcept nogil
    cdef uint64_t _as_of_ring(self)
