# Coinbase Derivatives 1.2. Little endian. 0 u16 length with itself, 2 u16 block, 4 u16 template,
# 6 u16 schema, 8 u16 version, then the block. It begins with the same 22 bytes for all that counts
# in an instrument's chain.

cdef enum:  # templates
    COINBASE_PUT = 20
    COINBASE_DELETE = 21
    COINBASE_IMPLIED = 22
    COINBASE_TRADE = 30          # to 34
    COINBASE_TRADE_LAST = 34
    COINBASE_OUTRIGHT = 110      # to 112: definitions, at the head of a snapshot
    COINBASE_OPTION = 112

cdef enum:  # offsets
    COINBASE_TEMPLATE = 4
    COINBASE_FLAGS = 10
    COINBASE_SIDE = 11           # i8: 1 bid, -1 ask
    COINBASE_ID = 12             # u32
    COINBASE_CHAIN = 16          # u32
    COINBASE_TIME = 24           # i64 UNIX ns
    COINBASE_ORDER = 32          # i64
    COINBASE_PRICE = 40          # i64, nine decimals
    COINBASE_QUANTITY = 48       # i32
    COINBASE_DEFINED = 12        # of a definition: u32
    COINBASE_NAME = 16           # c24, zeros behind
    COINBASE_NAME_SIZE = 24

cdef enum:  # flags
    COINBASE_BEGINS = 1
    COINBASE_ENDS = 2
    COINBASE_CLEARS = 4
