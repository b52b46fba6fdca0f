# Market: the instruments of one feed, their books, and how far each may be believed. It takes what
# a venue's decoder says (change.pxd) and knows no venue.
#
#     market_session, market_gap          what the feed says of a stream
#     market_begin(&market, &message)     then, of each of its changes:
#     market_apply(&market, &change)
#     publish.pxd: publish_next           updates, until there are none; more changes may follow
#
# A book has up to three faces, each believed for itself: levels, implied levels, orders. What
# becomes of the face that a change speaks of, by how far it is believed when the change arrives:
#
#   what arrives                     LIVE      UNKNOWN: a gap since      STALE, WAITING
#   a gap in its stream              UNKNOWN, at no cost: gaps are counted
#   a change that continues a chain  apply     it was not hit: apply     hold until a snapshot
#   one that does not                STALE     STALE                     hold
#   one without a chain              apply     STALE                     hold
#   a clear, a quote                 apply     LIVE                      LIVE
#   by place                         apply     as by its chain           places come to be known
#   a snapshot as of a number        pass by   LIVE if it is as new      LIVE, then what was held
#   an order that is not there, no room, less than nothing: STALE, and a counter

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.layout cimport Message, Session
from udpfast.market.change cimport CHANGES_MAX, DECIMALS_MAX, Change, Traits
from udpfast.market.instrument cimport Instrument, Instruments
from udpfast.market.names cimport Names
from udpfast.market.orders cimport RestingOrder, RestingOrders
from udpfast.market.side cimport LevelSlab

cdef enum:
    MARKET_STREAMS = 4160        # streams_max is at most 4,096
    TOUCHED_MAX = 1024           # levels, and orders, that one batch of updates tells of
    HELD_MAX = 65536             # unless the settings say how many; a power of two
    STAGES = 64                  # snapshots in parts that are taken at a time
    STAGE_PARTS_MAX = 4096
    STREAM_NOWHERE = 4159        # no feed has that many

cdef struct MarketSettings:      # [books]
    bint levels
    bint orders
    bint top
    uint32_t depth               # 0: all levels
    uint32_t orders_max
    uint32_t instruments_max
    uint8_t places[2]            # depths of books by place that are not defined; 0: not known
    bint awaits_definitions      # the lines that bring them are there
    bint loops                   # those of snapshots are
    uint32_t held_max            # changes kept for the snapshots of a server; 0: there is none

cdef struct MarketStream:
    uint32_t gaps
    uint32_t venue               # what its publisher calls it
    uint64_t number              # of the message at hand, or the last that was lost
    uint64_t lost                # the last number that was lost, or not seen at the beginning
    uint16_t session             # its ordinal
    uint64_t session_id          # as the messages of its changes have it
    uint8_t seen                 # a session of it began
    uint8_t whole                # nothing is missing since all of it was empty
    uint8_t open                 # an event goes on
    uint8_t broken               # of snapshots: a part may be missing
    int64_t gap_time_ns          # of the first change behind its last gap; 0: none came yet
    uint64_t needs               # a snapshot must be as of this number - 1 at least; 0: none must
    uint64_t overwritten         # the last number of its changes that was held, and is no more

cdef struct HeldChange:
    Change change                # `name`: its stream
    uint64_t number
    uint64_t next                # of the same face, position + 1

cdef struct Touched:             # a level that changed
    uint32_t instrument
    uint32_t side
    int64_t price
    int64_t quantity             # that it has now; 0: there is no such level
    uint64_t orders

cdef struct TouchedOrder:
    uint64_t id
    uint64_t priority
    int64_t price
    int64_t quantity
    uint32_t instrument
    uint8_t side
    uint8_t action               # schema UpdateAction
    uint8_t reserved[2]

cdef struct Row:                 # a trade, a status or a definition: it touches no book
    int64_t price                # of a definition: the tick size
    int64_t quantity             # of a definition: the multiplier
    uint64_t id
    int64_t time_ns
    uint32_t instrument
    uint8_t verb
    uint8_t side
    uint8_t option_type          # of a definition, as the rest
    uint8_t underlying_size
    uint32_t underlying          # where its text begins in the message, + 1; 0: it has none
    int64_t strike               # PRICE_NONE: it is not said

cdef struct Emission:            # where publish_next is
    uint32_t row
    uint32_t dirty
    uint32_t step
    uint32_t at
    bint plain                   # of the instrument at hand: is_plain

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
    bint heals                   # snapshots come, by the venue or of a server
    uint16_t waiting             # the FeedCounter of instruments whose levels are not LIVE
    uint64_t held_count          # ever
    uint64_t arrivals            # places given in queues
    Touched* touched
    uint32_t touched_count
    TouchedOrder* order_rows
    uint32_t order_rows_count
    Row* rows
    uint32_t rows_count
    Change option                # said of the definition that comes next; verb 0: nothing was
    uint32_t* dirty              # instruments whose updates are to be told
    uint32_t dirty_count
    uint32_t* pending            # whose tops are to be told when their event ends
    uint32_t pending_count
    uint64_t* stage_bits         # which parts of snapshots came
    Instrument** stage_owner
    uint32_t stage_turn
    # the message at hand
    const Message* message
    Names* names
    uint16_t stream              # whose instruments its changes are of
    bint refused                 # it says what cannot be, and nobody knows of which instrument
    bint untold                  # it says what no update tells
    bint flush                   # enough was gathered: publish
    # What was fetched ahead for it (ahead.pxd), maybe: its id says whether it is that.
    Instrument* expected
    RestingOrder* expected_order
    Instrument* taking           # of the snapshot at hand; NULL: it is passed by
    uint64_t taking_number
    uint32_t taking_chain
    uint8_t taking_face
    bint taking_part
    Emission emission


cdef inline bint market_full(const Market* market) noexcept nogil:
    # Whether updates have to be told before a further change.
    return market.flush or market.touched_count + 2 > TOUCHED_MAX or (
        market.order_rows_count + 2 > TOUCHED_MAX) or market.rows_count + 2 > CHANGES_MAX


cdef size_t market_memory_size(const Traits* traits, const MarketSettings* settings) noexcept nogil
# Nothing is known. The memory, market_memory_size bytes aligned to 8, is borrowed.
cdef void market_init(
    Market* market, const Traits* traits, const MarketSettings* settings, uint8_t* memory,
    int64_t* feed) noexcept nogil
cdef void market_session(
    Market* market, uint16_t stream, uint16_t ordinal, const Session* session) noexcept nogil
cdef void market_gap(Market* market, uint16_t stream, uint64_t last) noexcept nogil
cdef void market_begin(Market* market, const Message* message, Names* names) noexcept nogil
cdef void market_apply(Market* market, const Change* change) noexcept nogil
