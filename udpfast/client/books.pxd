# Books: every order book of a ring, each of which says whether it is sound.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.batch cimport BatchMemory
from udpfast.client.record cimport NameCache
from udpfast.client.track cimport Track, Tracks
from udpfast.core.layout cimport Record
from udpfast.market.book cimport OrderBook

cdef class Books:
    cdef readonly object reader
    cdef readonly int64_t unnamed  # BOOK records without a symbol: kept by nobody
    cdef Tracks _tracks
    cdef dict _by_name           # (exchange, symbol) -> OrderBook
    cdef list _books             # the same, by Track.book
    cdef dict _places            # (exchange, symbol) -> Track.book
    cdef int32_t _session        # -1: none seen yet
    cdef uint32_t _source        # of several that are read as one: which is believed

    cdef _accept_run(
        self, BatchMemory memory, int64_t first, int64_t end, NameCache names, int64_t* applied)
    cdef OrderBook _accept(
        self, const Record* header, const uint8_t* payload, NameCache names)
    cdef OrderBook _apply(self, const Record* header, const uint8_t* payload, NameCache names)
    cdef int _bind(self, Track* track, uint64_t tag, NameCache names) except -1
    cdef _missed(self)
    cdef _begin_session(self, int32_t session, bint complete)
    cdef _mark(self, Track* track)
    cdef _mark_all(self)
