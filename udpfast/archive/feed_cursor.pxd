# FeedCursor: reads the records that a feed writes, from a ring or a store, so that agents need not
# know which of the two it is.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from udpfast.archive.live cimport BusLive
from udpfast.core.layout cimport Record
from udpfast.log.cursor cimport RingCursor
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.readers cimport ReaderEntry

cdef class FeedCursor:
    cdef Record* headers             # of the last poll, as in a RingCursor
    cdef uint64_t* offsets
    cdef uint8_t* payloads
    cdef readonly str kind           # "ring" or "store"
    cdef readonly uint64_t missed    # records missing before the first one of the last poll
    cdef uint64_t log                # beginning of the log's identity
    cdef uint64_t born  # identifies the life of the log: a state saved in another life is void

    cdef bint ready(self) noexcept nogil
    cdef bint jumped(self) noexcept nogil
    cdef int64_t poll(self, int64_t limit) noexcept nogil
    cdef uint64_t position(self) noexcept nogil
    cdef uint64_t index(self) noexcept nogil
    cdef uint64_t end(self) noexcept
    cdef uint64_t end_index(self) noexcept
    cdef int64_t created_ns(self) noexcept nogil
    cdef uint64_t epoch(self) noexcept nogil
    cdef uint64_t began(self) noexcept nogil
    cdef uint64_t began_index(self) noexcept nogil
    cdef void report(self, ReaderEntry* entry) noexcept nogil
    cdef seek(self, uint64_t position, uint64_t index)
    cdef bint follow(self) except -1
    cdef bint ended(self) except -1
    cdef bint failed(self) except -1
    cdef bint gone(self) except -1
    cdef bint stuck(self, int64_t now_ns, int64_t patience_ns) noexcept nogil
    cdef check(self)
    cdef fail(self, int64_t code)
    cdef int64_t names_number(self) noexcept
    cdef names_file(self)
    cdef uint64_t names_mark(self) noexcept
    cdef use_arrays(self, headers, offsets, payloads)
    cdef close(self)


cdef class RingFeedCursor(FeedCursor):
    cdef RingCursor cursor
    cdef take_file(self)


cdef class StoreFeedCursor(FeedCursor):
    cdef JournalCursor cursor
    cdef object live                 # Live: owns what `said` points into
    cdef const BusLive* said
    cdef uint64_t cuts
    cdef int64_t looked_ns
    cdef object failure              # raised without the GIL, for `fail` to raise again
    cdef uint64_t bound(self) noexcept nogil
    cdef int64_t look(self, int64_t limit) except -1
    cdef stand(self, JournalCursor cursor)
