# Books: every order book of a ring; each book knows whether it is stale.
#
#    object --> book --> name
#
# A book belongs to an object; the name is a label. `_claims` lists the objects that use a name: the
# first of them has the book that the name leads to, and every other one has a separate book.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.batch cimport BatchMemory
from udpfast.client.record cimport NameCache, Reading
from udpfast.core.layout cimport Record
from udpfast.market.book cimport OrderBook
from udpfast.market.doubt cimport Doubt, Doubts
from udpfast.market.order_queues cimport OrderQueues

cdef struct Track:               # one object
    Doubt doubt                  # its tag names the instrument of its book
    int32_t book                 # index of its book, -1: none yet
    int32_t queues               # index of its single orders, -1: none yet
    uint8_t book_missing         # its book cannot take updates before a snapshot
    uint8_t contested            # another object uses the same names
    uint8_t orders_missing       # its single orders cannot take updates before a snapshot
    uint8_t reserved[5]

cdef class Books:
    cdef object __weakref__
    cdef readonly object reader
    cdef Reading _reading        # whose records were applied; None: none so far
    cdef int64_t _unnamed
    cdef int64_t _contested
    cdef Doubts _doubts          # of Track
    cdef dict _by_name           # (exchange, symbol) -> OrderBook
    cdef list _books             # by Track.book: those in _by_name, and the separate ones
    cdef dict _places            # (exchange, symbol) -> Track.book
    cdef dict _claims            # (exchange, symbol) -> {index of a track: None}, of this session
    cdef dict _names             # index of a track -> (exchange, symbol)
    cdef set _holders            # names whose book an object has now
    cdef list _queues            # by Track.queues
    cdef dict _queues_by_name    # (exchange, symbol) -> OrderQueues
    cdef dict _queues_holders    # (exchange, symbol) -> index of the track that has them
    cdef list _spare             # indices in _books that no name and no object uses now
    cdef dict _members           # if several addresses are read as one: place -> (address, Books)
    cdef OrderBook _undecided    # always stale: the book of a name that several addresses have
    cdef uint32_t _orphaned      # ConnectionScope of a writer that is dead, stuck or cut off; or 0

    cdef Books _of(self, NameCache names)
    cdef _meet(self, Reading reading)
    cdef list _queues_named(self, object key)
    cdef OrderBook _find(self, object key)
    cdef dict _all(self)
    cdef OrderBook _undecided_book(self)
    cdef _accept_run(
        self, BatchMemory memory, int64_t first, int64_t end, NameCache names, int64_t* applied)
    cdef OrderBook _accept(
        self, const Record* header, const uint8_t* payload, NameCache names)
    cdef _go_elsewhere(self, const Record* header)
    cdef _apply_orders(self, const Record* header, const uint8_t* payload, NameCache names)
    cdef OrderQueues _queues_of(self, Track* track, uint64_t tag, NameCache names)
    cdef _forget_queues(self, Track* track)
    cdef void _take_state(
        self, Track* track, const Record* header, const uint8_t* payload) noexcept
    cdef void _pass_by(self, const Record* header) noexcept
    cdef OrderBook _apply(self, const Record* header, const uint8_t* payload, NameCache names)
    cdef Track* _at(self, uint32_t index) noexcept
    cdef uint32_t _index(self, const Track* track) noexcept
    cdef Track* _unnamed_track(self, const Record* header) noexcept
    cdef bint _bind(self, Track* track, uint64_t tag, NameCache names) except -1
    cdef _unbind(self, Track* track)
    cdef _claim(self, uint32_t index, object name)
    cdef _release(self, uint32_t index)
    cdef _take_lap(self)
    cdef _doubt_all(self)
    cdef _begin(self, const Record* header)
    cdef _begin_all(self, bint complete)
    cdef _note_writer(self, const Record* header, const uint8_t* payload)
    cdef bint _unsound(self, const Track* track) noexcept
    cdef void _refresh_stale(self, const Track* track) noexcept
    cdef void _refresh_all(self) noexcept
    cdef void _refresh_stream(self, uint32_t stream) noexcept
