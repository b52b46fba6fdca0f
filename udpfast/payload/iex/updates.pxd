# IEX: one message of TOPS or DEEP in, one update out. It writes straight into the ring space that
# it is given, as payload/roq/decode does: no GIL, no allocation, no byte read beyond the message.
#
#   Q quote              -> TOP_OF_BOOK     complete: it is all that its object is
#   8, 5 price level     -> BOOK, one level a change, right only on a book that is whole
#   H, O status, halt    -> MARKET_STATUS   complete: what both together say
#   T trade              -> TRADES, one row an event: it needs nothing before it
#   others               -> OUTCOME_OPAQUE   as published
#
# Nobody but the venue watches over its objects: all updates are RECORD_UNGATED, so a gap puts each
# object in doubt until something complete comes, which is RECORD_SNAPSHOT, too. A symbol has three
# objects, as a trade or a status does not make its prices sound: prices, trades, status.
#
# DEEP has no snapshots, and needs none: books are empty when a session begins. So the first level
# of a symbol in a session that was seen from its number 1, without a gap, is its whole book, and
# says so (update_type SNAPSHOT). After a gap nobody can tell what the book was before: levels are
# changes from then on, and their object stays in doubt until the next session.
#
# A level whose flag says that its event goes on has PRESENT_MORE: the book holds a part of an
# event, and its best prices may be none that the venue ever showed.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.market.found cimport Found
from udpfast.market.names cimport Names

cdef enum:
    IEX_STREAMS = 64             # of a stream with a higher ordinal no book is ever whole

cdef struct IexSymbol:  # 16 bytes, by the id of its name
    uint32_t run                 # in which its book was said to be whole; 0: in none
    uint32_t status_since        # IexStream.since when its trading status was last heard
    uint32_t halt_since          # the same of its operational halt
    uint16_t stream              # of that book
    uint8_t status               # character of the trading status
    uint8_t halt                 # of the operational halt

cdef struct IexStream:
    uint32_t run                 # of its session; 0: none seen
    uint32_t since               # another one after each session and gap
    bint whole                   # seen from number 1 without a gap

cdef struct IexState:
    bint deep                    # DEEP: levels; else TOPS: quotes
    uint32_t symbols_max
    uint32_t runs                # sessions and gaps so far: no two, of whatever stream, are one
    IexSymbol* symbols           # symbols_max + 1
    IexStream streams[IEX_STREAMS]

cdef struct IexMessage:
    const uint8_t* data          # borrowed, any alignment
    uint32_t size
    uint16_t stream              # ordinal
    uint64_t number
    int64_t sent_ns


cdef inline size_t iex_memory_size(uint64_t names_capacity) noexcept nogil:
    return (names_capacity + 1) * sizeof(IexSymbol)


cdef inline void iex_init(
        IexState* state, uint8_t* memory, uint64_t names_capacity, bint deep) noexcept nogil:
    # Nothing is known. The memory, iex_memory_size bytes aligned to 8, is borrowed.
    memset(state, 0, sizeof(IexState))
    memset(memory, 0, iex_memory_size(names_capacity))
    state.symbols = <IexSymbol*>memory
    state.symbols_max = <uint32_t>names_capacity
    state.deep = deep


cdef inline void iex_session(
        IexState* state, uint16_t stream, uint64_t first_number, uint64_t unseen) noexcept nogil:
    # A session begins; what is delivered of it begins with first_number.
    if stream < IEX_STREAMS:
        state.runs += 1
        state.streams[stream].run = state.streams[stream].since = state.runs
        state.streams[stream].whole = first_number == 1 and unseen == 0


cdef inline void iex_gap(IexState* state, uint16_t stream) noexcept nogil:
    # Messages of this stream are lost.
    if stream < IEX_STREAMS:
        state.runs += 1
        state.streams[stream].since = state.runs
        state.streams[stream].whole = False


# One message: a kind, with `found.size` bytes at `into` (8-aligned), or a OUTCOME_* code.
cdef int32_t iex_decode(
    IexState* state, const IexMessage* message, uint8_t* into, uint32_t room, Names* names,
    Found* found) noexcept nogil
