# Change: what a venue's message says of one instrument, in the words of all venues. A decoder
# (payload/) turns bytes into changes and keeps nothing; market/market keeps state and doubt.
#
# A venue is described by its Traits, one row in payload/traits.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef struct Change:  # 64 bytes: a cache line
    uint64_t instrument          # the venue's id; 0: that of the order
    # The venue's id; of TRADE: its id; of a snapshot: its number; of DEFINE: the tick size, as the
    # multiplier in `order_before` with DEFINED_DECIMALS. 0: not said.
    uint64_t order
    # REPLACE: the old id; EXECUTE: the trade's id; PREVIOUS chains: the number before; with
    # CHANGE_PRIORITY: the place in the queue.
    uint64_t order_before
    int64_t price                # mantissa; PRICE_NONE. Of DEFINE: its decimals, or PRICE_NONE
    int64_t quantity             # of DEFINE: bytes of the name
    int64_t time_ns              # UNIX; 0: not known; of DEFINE: when the instrument expires
    uint32_t chain               # the instrument's own number; 0: none
    uint32_t orders              # of the level, if the venue says so; CHANGE_REST: what is left
    uint8_t verb                 # Verb
    uint8_t side                 # Side; of DEFINE: schema SecurityType, or SIDE_NONE
    uint8_t place                # from 1; of DEFINE: the depth; of STATUS: 0, or one of two parts
    uint8_t flags                # ChangeFlag
    uint32_t name                # where the name begins in the message, + 1; 0: it has none

cdef enum:  # Verb
    VERB_DEFINE = 1              # name, depth (orders: implied depth), what else is said of it
    VERB_CLEAR                   # nothing is left of the instrument; `chain`
    VERB_SET                     # price -> quantity; 0 removes the level
    VERB_PLACE_NEW               # at a place: those behind move away from the best
    VERB_PLACE_SET
    VERB_PLACE_DELETE
    VERB_PLACE_THRU              # the side is empty
    VERB_PLACE_FROM              # places 1 to `place` are gone
    VERB_PLACE_OVERLAY
    VERB_ADD
    VERB_PUT                     # an order that may be there already
    VERB_CHANGE                  # of an order that is there: price and quantity
    VERB_REDUCE                  # by `quantity`
    VERB_EXECUTE                 # by `quantity`: a trade, at `price` or at the order's own
    VERB_REPLACE                 # `order_before` by `order`: side and instrument stay
    VERB_DELETE
    VERB_QUOTE                   # the best of a side, and all that is told of it
    VERB_TRADE                   # touches no book
    VERB_STATUS                  # `quantity`: schema TradingStatus
    VERB_CHAIN                   # says nothing of a book, but counts in the chain
    VERB_BEGIN_SNAPSHOT          # as of the number `order`; with CHANGE_PART a part of it
    VERB_END_SNAPSHOT
    VERB_END_ROUND               # all snapshots as of `order` came: who had none is empty
    VERB_EVENT_BEGIN             # what follows belongs together
    VERB_EVENT_END
    VERB_CLEAR_STREAM            # nothing is left of any instrument of the stream
    # The DEFINE behind it is of an option: `price` its strike with DEFINED_DECIMALS, `place` schema
    # OptionType, `name` and `quantity` the text that names what it is on.
    VERB_OPTION

cdef enum:  # Side
    SIDE_BID = 0
    SIDE_ASK = 1
    SIDE_BID_IMPLIED = 2
    SIDE_ASK_IMPLIED = 3
    SIDE_NONE = 255

cdef enum:  # ChangeFlag
    CHANGE_KEEPS_PLACE = 1       # the order keeps its place in the queue
    CHANGE_PRIORITY = 2          # order_before says its place: lower is earlier
    CHANGE_REST = 4              # `orders` says what must be left of the order
    CHANGE_SILENT = 8            # EXECUTE: no trade for the tape
    # A part of a snapshot: `orders`, from 1, of `chain`. 0 parts: as many as come, in order, and
    # `order_before` is its chain; part 0: the order is that of their stream. CHAIN: perhaps the
    # rest of what the datagram before began.
    CHANGE_PART = 16
    CHANGE_ORDERS = 32           # of a snapshot: of orders, not of levels
    # END_SNAPSHOT: another part follows; CHAIN, where it names the number before: another message
    # of this number does; SET: its event goes on; CLEAR: the orders that there are come again where
    # nobody listens.
    CHANGE_MORE = 64
    CHANGE_ROW = 128             # a row of a snapshot, wherever that comes

cdef enum:
    # One message says no more: the smallest entries have 16 bytes, a datagram 65,527.
    CHANGES_MAX = 4160
    DECIMALS_MAX = 18            # more than any price has
    DEFINED_DECIMALS = 9

cdef enum:  # schema SecurityType
    SECURITY_SPOT = 1
    SECURITY_FUTURES = 2
    SECURITY_OPTION = 3

cdef enum:  # schema OptionType
    OPTION_CALL = 1
    OPTION_PUT = 2

cdef enum:  # Levels: what the levels of a venue are made of
    LEVELS_NONE = 0
    LEVELS_BY_PRICE
    LEVELS_BY_PLACE
    LEVELS_OF_ORDERS             # sums of its orders
    LEVELS_OF_QUOTES             # the best of each side alone

cdef enum:  # Chain
    CHAIN_NONE = 0
    CHAIN_DENSE                  # counts by one
    CHAIN_PREVIOUS               # names the one before

cdef enum:  # NamesFrom
    NAMES_IN_ID = 0              # the id is eight characters
    NAMES_DEFINED                # by DEFINE; the number stands for it where none comes
    NAMES_MENTIONED              # by DEFINE, or beside the change

cdef struct Traits:
    const char* exchange
    uint8_t levels               # Levels
    bint orders                  # it tells single orders
    uint8_t chain                # Chain
    bint empty_at_start          # books are empty where its session begins with its first number
    bint heals                   # snapshots come, so changes are worth keeping until then
    bint loops                   # they come on lines of their own
    uint8_t names                # NamesFrom
    bint renumbers               # ids are given anew in each session, and names with them
    bint orders_by_instrument    # an order's id is its instrument's
    bint nameless                # what changes an order names that alone, not its instrument
    bint doubles                 # prices and quantities are doubles (change_double)
    uint8_t decimals             # of prices, until they are defined
    uint8_t depth                # places of a side, until it is defined
    uint8_t depth_implied
    bint defined_first           # depth or decimals are a guess until a definition comes
    bint absolute                # a level says all of what it names, whatever was before
    uint16_t protocols[2]        # upper half of the numbers of its streams; 0: any
    uint16_t snapshots_from      # the stream of snapshots is that of changes + this; 0: the same


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
    # A double as a mantissa: in the order of doubles, and 0 is 0.
    int64_t change_double "udpfast_change_double" (double value) noexcept nogil
    double change_undouble "udpfast_change_undouble" (int64_t mantissa) noexcept nogil


cdef inline uint8_t change_side(uint8_t said, uint8_t bid, uint8_t ask) noexcept nogil:
    # SIDE_NONE: it is neither, and no order is of it.
    if said == bid:
        return SIDE_BID
    return SIDE_ASK if said == ask else SIDE_NONE
