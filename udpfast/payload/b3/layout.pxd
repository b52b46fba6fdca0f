# B3 binary UMDF 2.2. SBE, little endian. A message has 0 u16 size, 2 u16 encoding, 4 u16 block, 6
# u16 template, 8 u16 schema, 10 u16 version, then the block. Offsets of fields count from the
# block.

cdef enum:  # templates
    B3_RESET = 1
    B3_SEQUENCE = 2
    B3_STATUS = 3
    B3_DEFINITION_7 = 4          # up to version 7
    B3_NEWS = 5
    B3_EMPTY_BOOK = 9
    B3_GROUP_PHASE = 10
    B3_CHANNEL_RESET = 11
    B3_DEFINITION = 12
    B3_OPENING_PRICE = 15        # to B3_SNAPSHOT: prices, price bands and daily totals
    B3_SNAPSHOT = 30
    B3_ORDER = 50
    B3_DELETE = 51
    B3_MASS_DELETE = 52
    B3_TRADE = 53                # to B3_BUST
    B3_BUST = 57
    B3_SNAPSHOT_ORDERS = 71

cdef enum:
    B3_BLOCK_SIZE = 4
    B3_TEMPLATE = 6
    B3_BLOCK = 12
    B3_ID = 0                    # u64, the instrument's
    B3_INDICATOR = 8             # bit 7: the event ends
    B3_EVENT_END = 0x80
    B3_ACTION = 9                # 0 new, 1 changed
    B3_SIDE = 10                 # c1: 0 bid, 1 offer
    B3_PRICE = 12                # i64, four decimals
    B3_QUANTITY = 20             # i64
    B3_ORDER_ID = 44             # u64: the secondary id, which also gives the place in the queue
    B3_TIME = 56                 # u64 UNIX ns
    B3_ORDER_SIZE = 64
    B3_DELETE_ID = 24
    B3_DELETE_PRICE = 44
    B3_DELETE_SIZE = 52

cdef enum:  # trades
    B3_TRADE_PRICE = 12
    B3_TRADE_QUANTITY = 20       # i64
    B3_TRADE_ID = 28             # u32
    B3_TRADE_TIME = 44           # u64 UNIX ns
    B3_TRADE_SIZE = 52

cdef enum:  # the header of a snapshot
    B3_LAST = 8                  # u32: number of the last datagram of changes that it includes
    B3_BIDS = 16                 # u32
    B3_OFFERS = 20
    B3_LAST_VERSION = 32         # u16: version of the numbering of that datagram

cdef enum:  # an order in a snapshot begins with its price, i64
    B3_ROW_QUANTITY = 8          # i64
    B3_ROW_ID = 32               # u64, the secondary one
    B3_ROW_SIDE = 40             # c1
    B3_ROW = 41

cdef enum:  # definitions
    B3_SYMBOL = 16               # c20
    B3_SYMBOL_SIZE = 20
    B3_UPDATE = 36               # c1: A, D, M
    B3_SECURITY = 37             # u8
    B3_TICK = 44                 # i64, eight decimals
    B3_MULTIPLIER = 60           # i64, eight decimals
    B3_EXPIRES = 76              # i64 UNIX seconds
    B3_DEFINED_SIZE = 84
    # For tick and multiplier: ten times as much fits an i64.
    B3_DEFINED_MAX = 900_000_000_000_000_000
    B3_EXPIRES_MAX = 9_000_000_000
