# Change: what a venue's message says about one instrument, in terms that fit all venues. A decoder
# (payload/) turns bytes into changes and keeps nothing; market/market keeps books and doubt.
#
# The Traits of a venue are one row of payload/traits.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef struct Change:  # 64 bytes: a cache line
    uint64_t instrument          # the venue's id; 0: the instrument of the order
    # The venue's id of the order. TRADE: id of the trade. Snapshots: the number as of which they
    # are. DEFINE: tick size with DEFINED_DECIMALS, as is the multiplier in `order_before`; 0: not
    # said.
    uint64_t order
    # REPLACE: the old id. EXECUTE: id of the trade. Chains of kind PREVIOUS: the number before this
    # one. With CHANGE_PRIORITY: the place in the queue.
    uint64_t order_before
    int64_t price                # mantissa or PRICE_NONE; DEFINE: decimals of prices or PRICE_NONE
    int64_t quantity             # DEFINE: length of the name in bytes
    int64_t time_ns              # UNIX; 0: unknown; DEFINE: when the instrument expires
    uint32_t chain               # the instrument's own number; 0: none
    uint32_t orders              # in the level, if the venue says so; CHANGE_REST: what is left
    uint8_t verb                 # Verb
    uint8_t side                 # Side; DEFINE: the schema's SecurityType, or SIDE_NONE
    uint8_t place                # from 1; DEFINE: the depth; STATUS: 0, or which of two parts
    uint8_t flags                # ChangeFlag
    uint32_t name                # offset of the name in the message, + 1; 0: there is none

cdef enum:  # Verb
    VERB_DEFINE = 1              # name, depth (`orders`: implied depth), other properties
    VERB_CLEAR                   # the instrument's book is empty now; `chain`
    VERB_SET                     # the level at `price` has `quantity`; 0 removes it
    VERB_PLACE_NEW               # inserted at a place: levels from there on move one place back
    VERB_PLACE_SET
    VERB_PLACE_DELETE
    VERB_PLACE_THRU              # the side is empty
    # Places 1 to `place` are removed.
    VERB_PLACE_FROM
    VERB_PLACE_OVERLAY
    VERB_ADD
    VERB_PUT                     # an order that may already rest
    VERB_CHANGE                  # new price and quantity of a resting order
    VERB_REDUCE                  # by `quantity`
    VERB_EXECUTE                 # by `quantity`: a trade, at `price` or at the order's own
    # `order` takes the place of `order_before`; side and instrument stay.
    VERB_REPLACE
    VERB_DELETE
    # The best level of a side, which has no others.
    VERB_QUOTE
    VERB_TRADE                   # changes no book
    VERB_STATUS                  # `quantity`: the schema's TradingStatus
    VERB_CHAIN                   # changes no book, but counts in the chain
    VERB_BEGIN_SNAPSHOT          # as of the number `order`; with CHANGE_PART one part of several
    VERB_END_SNAPSHOT
    # All snapshots as of `order` came: an instrument without one has an empty book.
    VERB_END_ROUND
    VERB_EVENT_BEGIN             # the changes up to EVENT_END belong together
    VERB_EVENT_END
    VERB_CLEAR_STREAM            # all books of the stream are empty now
    # Precedes the DEFINE of an option. `price`: strike with DEFINED_DECIMALS; `place`: the schema's
    # OptionType; `name` and `quantity`: the text that names the underlying.
    VERB_OPTION

cdef enum:  # Side
    SIDE_BID = 0
    SIDE_ASK = 1
    SIDE_BID_IMPLIED = 2
    SIDE_ASK_IMPLIED = 3
    SIDE_NONE = 255

cdef enum:  # ChangeFlag
    CHANGE_KEEPS_PLACE = 1       # the order keeps its place in the queue
    CHANGE_PRIORITY = 2          # `order_before` is its place in the queue: lower is earlier
    CHANGE_REST = 4              # `orders` is the quantity that must be left of the order
    CHANGE_SILENT = 8            # EXECUTE: not reported on the tape
    # BEGIN_SNAPSHOT: part `orders`, from 1, of `chain` parts. With 0 parts, as many parts as come,
    # in order, and the chain's number is in `order_before`; with part 0, they are in the order of
    # their stream. CHAIN: the message may continue one that began in the datagram before.
    CHANGE_PART = 16
    CHANGE_ORDERS = 32           # a snapshot of orders, not of levels
    # END_SNAPSHOT: another part follows. CHAIN with the number before: another message with this
    # number follows. SET: its event goes on. CLEAR: the venue sends the orders again, but where
    # nobody listens.
    CHANGE_MORE = 64
    CHANGE_ROW = 128             # a row of a snapshot, in whichever message

cdef enum:
    # One message has no more: the smallest entries have 16 bytes, and a datagram has 65,527.
    CHANGES_MAX = 4160
    DECIMALS_MAX = 18            # no price has more
    DEFINED_DECIMALS = 9

cdef enum:  # the schema's SecurityType
    SECURITY_SPOT = 1
    SECURITY_FUTURES = 2
    SECURITY_OPTION = 3

cdef enum:  # the schema's OptionType
    OPTION_CALL = 1
    OPTION_PUT = 2

cdef enum:  # Levels: what a venue's levels consist of
    LEVELS_NONE = 0
    LEVELS_BY_PRICE
    LEVELS_BY_PLACE
    LEVELS_OF_ORDERS             # sums of the orders at a price
    LEVELS_OF_QUOTES             # only the best level of each side

cdef enum:  # Chain
    CHAIN_NONE = 0
    CHAIN_DENSE                  # each number is one more than the last
    CHAIN_PREVIOUS               # each change names the number before it

cdef enum:  # NamesFrom
    NAMES_IN_ID = 0              # the id is the name, in eight characters
    NAMES_DEFINED                # DEFINE has the name; until it comes, the id in decimal
    NAMES_MENTIONED              # DEFINE has the name, or the change itself

cdef struct Traits:
    const char* exchange
    uint8_t levels               # Levels
    bint orders                  # the venue sends single orders
    uint8_t chain                # Chain
    bint empty_at_start          # books are empty when a session begins with its first number
    bint heals                   # snapshots come, so it pays to hold changes until then
    bint loops                   # snapshots come on lines of their own
    uint8_t names                # NamesFrom
    bint renumbers               # each session gives out new ids, with new names
    bint orders_by_instrument    # ids of orders are unique within an instrument only
    bint keeps_prices            # an order with another price has another id
    bint nameless                # changes of orders name the order, but not its instrument
    bint doubles                 # prices and quantities are doubles (change_double)
    uint8_t decimals             # of prices, before a definition
    uint8_t depth                # levels of a side, before a definition
    uint8_t depth_implied
    bint defined_first           # before a definition, depth or decimals are a guess
    bint absolute                # a change of a level is complete: it is right whatever was lost
    uint16_t protocols[2]        # upper halves of stream numbers that carry the payload; 0: any
    # Snapshots of stream n come on stream n + this; 0: on the same stream.
    uint16_t snapshots_from


cdef extern from *:
    """
    #define UDPFAST_PRICE_NONE INT64_MIN
    static inline int64_t udpfast_change_double(double value)
    {
        int64_t bits;
        __builtin_memcpy(&bits, &value, 8);
        return bits ^ ((bits >> 63) & INT64_MAX);
    }
    static inline double udpfast_change_undouble(int64_t mantissa)
    {
        int64_t bits = mantissa ^ ((mantissa >> 63) & INT64_MAX);
        double value;
        __builtin_memcpy(&value, &bits, 8);
        return value;
    }
    """
    const int64_t PRICE_NONE "UDPFAST_PRICE_NONE"
    # A double as an integer that compares as the double does; 0 stays 0.
    int64_t change_double "udpfast_change_double" (double value) noexcept nogil
    double change_undouble "udpfast_change_undouble" (int64_t mantissa) noexcept nogil


cdef inline uint8_t change_side(uint8_t said, uint8_t bid, uint8_t ask) noexcept nogil:
    # Return SIDE_NONE if it is neither; no order has that side.
    if said == bid:
        return SIDE_BID
    return SIDE_ASK if said == ask else SIDE_NONE
