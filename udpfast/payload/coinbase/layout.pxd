# Coinbase Derivatives 1.2. Little endian. A message has 0 u16 length of the whole, 2 u16 block, 4
# u16 template, 6 u16 schema, 8 u16 version, then the block. In all templates that count in an
# instrument's chain the block begins with the same 22 bytes.

cdef enum:  # templates
    COINBASE_DEFINITION = 10     # to 12
    COINBASE_DEFINITION_LAST = 12
    COINBASE_STATUS = 17
    COINBASE_PUT = 20
    COINBASE_DELETE = 21
    COINBASE_IMPLIED = 22
    COINBASE_TRADE = 30          # to 34
    COINBASE_TRADE_LAST = 34
    COINBASE_STATISTICS = 40     # to 43
    COINBASE_STATISTICS_LAST = 43
    COINBASE_SNAPSHOT = 110      # to 112: the start of a snapshot, with a definition
    COINBASE_SNAPSHOT_LAST = 112
    COINBASE_SNAPSHOT_ORDER = 120
    COINBASE_SNAPSHOT_END = 122
    COINBASE_CYCLE_END = 124
    COINBASE_REQUEST = 200
    COINBASE_REJECT = 202

cdef enum:  # offsets
    COINBASE_BLOCK = 2
    COINBASE_TEMPLATE = 4
    COINBASE_FLAGS = 10
    COINBASE_SIDE = 11           # i8: 1 bid, -1 ask
    COINBASE_ASK = 255
    COINBASE_ID = 12             # u32
    COINBASE_CHAIN = 16          # u32
    COINBASE_TIME = 24           # i64 UNIX ns
    COINBASE_ORDER = 32          # i64
    COINBASE_PRICE = 40          # i64, nine decimals
    COINBASE_QUANTITY = 48       # i32
    COINBASE_NAME = 32           # c24 in a definition, padded with zeros
    COINBASE_SNAPSHOT_NAME = 16
    COINBASE_TICK = 64           # counted from the name: i64, nine decimals
    COINBASE_NAME_SIZE = 24

cdef enum:  # flags
    COINBASE_BEGINS = 1
    COINBASE_ENDS = 2
    COINBASE_CLEARS = 4
