# Market: the instruments of one feed, their books, and how far each can be trusted. It applies what
# a venue's decoder returns (change.pxd) and knows no venue.
#
#     market_session, market_gap          what the feed says of a stream
#     market_begin(&market, &message)     then, for each of its changes:
#     market_apply(&market, &change)
#     publish.pxd: publish_next           updates, until there are none; then more changes
#
# A book has up to three faces, which are trusted separately: levels, implied levels, orders. What
# arrives, and what becomes of the face that it concerns, by the state of that face:
#
#   what arrives                     LIVE      UNKNOWN: a gap since      STALE, WAITING
#   a gap in its stream              UNKNOWN; costs nothing, because gaps are only counted
#   a change that continues a chain  apply     nothing was lost: apply   hold until a snapshot
#                                              (disputed: as the next)
#   one that does not                STALE     STALE                     hold
#   one without a chain              apply     STALE                     hold
#   a clear, a quote                 apply     LIVE                      LIVE
#   a change by place                apply     by its chain              its place becomes known
#   a snapshot as of a number        ignore    LIVE if new enough        LIVE, then apply the held
#   an unknown order, no room, a quantity below 0: STALE, and a counter
#
# Orders without a chain are followed while their book is not LIVE (follow_order): they are not
# published, but tell the price and side of their executions. A snapshot or a clear begins anew.
# Where there is no room for an order of a book that is LIVE, one of them gives way (make_room).

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.layout cimport Message, Session
from udpfast.market.change cimport CHANGES_MAX, DECIMALS_MAX, Change, Traits
from udpfast.market.instrument cimport Instrument, Instruments
from udpfast.market.names cimport Names
from udpfast.market.orders cimport RestingOrder, RestingOrders
from udpfast.market.side cimport LevelSlab

cdef enum:
    MARKET_STREAMS = 4160        # streams_max is at most 4,096
    TOUCHED_MAX = 1024           # levels, and orders, that one batch of updates can tell of
    HELD_MAX = 65536             # unless the settings give another number; a power of two
    STAGES = 64                  # snapshots in parts that are taken at the same time
    STAGE_PARTS_MAX = 4096
    STREAM_NOWHERE = 4159        # no feed has so many streams

cdef struct MarketSettings:      # [books]
    bint levels
    bint orders
    bint top
    uint32_t depth               # 0: all levels
    uint32_t orders_max
    uint32_t instruments_max
    uint8_t places[2]            # depths of books by place before a definition; 0: unknown
    bint awaits_definitions      # there are lines that bring definitions
    bint loops                   # there are lines that bring snapshots
    uint32_t held_max            # changes held for a server's snapshots; 0: there is no server

cdef struct MarketStream:
    uint32_t gaps
    uint32_t disputed            # the count of gaps of the last one behind copies that differ
    uint32_t venue               # the publisher's number of the stream
    uint64_t number              # of the current message, or the last lost one
    uint64_t lost                # the last number that was lost, or not seen at the beginning
    uint16_t session             # its ordinal
    uint64_t session_id          # as in the messages of its changes
    uint8_t seen                 # a session has begun
    uint8_t whole                # nothing is missing since all its books were empty
    uint8_t open                 # an event goes on
    uint8_t broken               # snapshot streams: a part may be missing
    int64_t gap_time_ns          # time of the first change after its last gap; 0: none came yet
    uint64_t needs               # a snapshot must include this number - 1; 0: any will do
    uint64_t overwritten         # the last number of its held changes that was overwritten

cdef struct HeldChange:
    Change change                # `name`: its stream
    uint64_t number
    uint64_t next                # the next one of the same face, position + 1

cdef struct Touched:             # a level that changed
    uint32_t instrument
    uint32_t side
    int64_t price
    int64_t quantity             # what it has now; 0: the level is gone
    uint64_t orders

cdef struct TouchedOrder:
    uint64_t id
    uint64_t priority
    int64_t price
    int64_t quantity
    uint32_t instrument
    uint8_t side
    uint8_t action               # the schema's UpdateAction
    uint8_t reason               # the schema's UpdateReason
    uint8_t reserved

cdef struct Row:                 # a trade, status or definition: it changes no book
    int64_t price                # definition: the tick size
    int64_t quantity             # definition: the multiplier
    uint64_t id
    int64_t time_ns
    uint32_t instrument
    uint8_t verb
    uint8_t side
    uint8_t option_type          # in definitions, as are the fields below
    uint8_t underlying_size
    uint32_t underlying          # offset of its text in the message, + 1; 0: it has none
    int64_t strike               # PRICE_NONE: not said

cdef struct Emission:            # how far publish_next has come
    uint32_t row
    uint32_t dirty
    uint32_t step
    uint32_t at
    bint plain                   # is_plain, for the current instrument

cdef struct Market:
    const Traits* traits
    double price_units[DECIMALS_MAX + 1]  # powers of ten, by decimals
    MarketSettings settings
    int64_t* feed                # the feed's counters
    Instruments instruments
    RestingOrders orders
    LevelSlab slab
    MarketStream* streams
    HeldChange* held
    uint64_t held_mask
    bint heals                   # snapshots come, from the venue or a server
    uint16_t waiting             # the FeedCounter for instruments whose levels are not LIVE
    uint64_t held_count          # held changes, ever
    uint64_t arrivals            # places in queues given out, ever
    uint32_t yielding            # the instrument whose followed order gave way last (make_room)
    bint crowded                 # an order found no room
    Touched* touched
    uint32_t touched_count
    TouchedOrder* order_rows
    uint32_t order_rows_count
    Row* rows
    uint32_t rows_count
    Change option                # what was said of the definition that comes next; verb 0: nothing
    uint32_t* dirty              # instruments with unpublished changes
    uint32_t dirty_count
    # Instruments whose tops are published when their event ends.
    uint32_t* pending
    uint32_t pending_count
    # For each snapshot in parts, a bit for each part that came.
    uint64_t* stage_bits
    Instrument** stage_owner
    uint32_t stage_turn
    # The current message.
    const Message* message
    Names* names
    uint16_t stream              # the stream of the instruments that it changes
    bint refused                 # it is impossible, and the instrument it concerns is unknown
    bint untold                  # it says something that no update tells
    bint withheld                # a book that it changes is in doubt
    bint flush                   # enough has changed: publish before the next change
    # What ahead.pxd fetched for the message; the id in it tells whether the guess was right.
    Instrument* expected
    RestingOrder* expected_order
    Instrument* taking  # the instrument of the current snapshot; NULL: the snapshot is ignored
    uint64_t taking_number
    uint32_t taking_chain
    uint8_t taking_face
    bint taking_part
    Emission emission


cdef inline bint market_full(const Market* market) noexcept nogil:
    # Return True if updates must be published before another change is applied.
    return market.flush or market.touched_count + 2 > TOUCHED_MAX or (
        market.order_rows_count + 2 > TOUCHED_MAX) or market.rows_count + 2 > CHANGES_MAX


cdef size_t market_memory_size(const Traits* traits, const MarketSettings* settings) noexcept nogil
# Start without instruments. The caller keeps `memory` alive: market_memory_size bytes, aligned to
# 8.
cdef void market_init(
    Market* market, const Traits* traits, const MarketSettings* settings, uint8_t* memory,
    int64_t* feed) noexcept nogil
cdef void market_session(
    Market* market, uint16_t stream, uint16_t ordinal, const Session* session) noexcept nogil
cdef void market_gap(Market* market, uint16_t stream, uint64_t last) noexcept nogil
# Two copies of a message differ. Turn it into a message of the stream whose books it changed (of a
# snapshot: the stream of changes). No chain bridges the GAP that follows, because both copies may
# continue it. Return False if the message changed no book.
cdef bint market_disputed(Market* market, Message* message) noexcept nogil
cdef void market_begin(Market* market, const Message* message, Names* names) noexcept nogil
cdef void market_apply(Market* market, const Change* change) noexcept nogil
