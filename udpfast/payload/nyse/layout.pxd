# NYSE XDP and Pillar: integrated feed and imbalances. Little endian. 0 u16 size with itself, 2 u16
# type. Where a message has seconds, they are in front of all else.

cdef enum:  # types
    NYSE_RESET = 1
    NYSE_TIME = 2
    NYSE_MAPPING = 3
    NYSE_REQUEST = 10            # to REFRESH_REQUEST: of a request server
    NYSE_REFRESH_REQUEST = 15
    NYSE_UNAVAILABLE = 31
    NYSE_CLEAR = 32
    NYSE_STATUS = 34
    NYSE_REFRESH = 35
    NYSE_ADD = 100
    NYSE_MODIFY = 101
    NYSE_DELETE = 102
    NYSE_EXECUTE = 103
    NYSE_REPLACE = 104
    NYSE_IMBALANCE = 105
    NYSE_ADD_REFRESH = 106
    NYSE_TRADE = 110             # to RETAIL: they count in the symbol's chain
    NYSE_RETAIL = 114
    NYSE_SUMMARY = 223

cdef enum:  # offsets
    NYSE_TYPE = 2
    NYSE_MAPPED = 4              # of a mapping: u32 index
    NYSE_SYMBOL = 8              # c11, zeros behind
    NYSE_SYMBOL_SIZE = 11
    NYSE_SCALE = 24              # u8: decimals of its prices
    NYSE_REFRESH_PART = 4        # of a refresh's header: u16, from 1
    NYSE_REFRESH_PARTS = 6       # u16
    NYSE_REFRESH_LAST = 8        # u32: the last number that it contains,
    NYSE_REFRESH_CHAIN = 12      # and the symbol's own
    NYSE_REFRESH_MIN = 16
    NYSE_REFRESHED_ORDER = 20    # of an order of a refresh: u64
    NYSE_REFRESHED_PRICE = 28    # u32
    NYSE_REFRESHED_SIZE = 32
    NYSE_REFRESHED_SIDE = 36
    NYSE_REFRESHED_MIN = 37
    NYSE_SECONDS = 4             # of statuses, imbalances, clears; nanoseconds follow
    NYSE_TIMED_INDEX = 12        # behind them
    NYSE_TIMED_CHAIN = 16        # u32: the symbol's own number; of a clear, the next one
    NYSE_STATE = 20
    NYSE_INDEX = 8               # of others: u32
    NYSE_CHAIN = 12
    NYSE_ORDER = 16              # u64
    NYSE_PRICE = 24              # of add and modify: u32
    NYSE_SIZE = 28
    NYSE_SIDE = 32
    NYSE_MOVED = 32              # of a modification: whether it lost its place
    NYSE_TRADE_ID = 24           # of an execution: u32
    NYSE_TRADE_PRICE = 28
    NYSE_TRADE_SIZE = 32
    NYSE_PRINTABLE = 36
    NYSE_NEW_ORDER = 24          # of a replacement
    NYSE_NEW_PRICE = 32
    NYSE_NEW_SIZE = 36


cdef inline unsigned int nyse_size(unsigned int kind) noexcept nogil:
    # Bytes of a type at least; 0: nobody knows it.
    if kind == NYSE_MAPPING:
        return 25
    if kind == NYSE_CLEAR:
        return 20
    if kind == NYSE_STATUS:
        return 46
    if kind == NYSE_ADD:
        return 39
    if kind == NYSE_MODIFY:
        return 35
    if kind == NYSE_DELETE:
        return 25
    if kind == NYSE_EXECUTE or kind == NYSE_REPLACE:
        return 42
    if kind == NYSE_IMBALANCE or kind == NYSE_ADD_REFRESH:
        return 20
    if NYSE_TRADE <= kind <= NYSE_RETAIL:
        return 16
    return 4 if nyse_touches_none(kind) else 0


cdef inline bint nyse_touches_none(unsigned int kind) noexcept nogil:
    return (kind == NYSE_RESET or kind == NYSE_TIME or kind == NYSE_UNAVAILABLE
            or NYSE_REQUEST <= kind <= NYSE_REFRESH_REQUEST or kind == NYSE_REFRESH
            or kind == NYSE_SUMMARY)
