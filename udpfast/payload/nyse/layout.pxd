# NYSE XDP and Pillar: integrated feed and imbalances. Little endian. A message begins with 0 u16
# size of the whole, 2 u16 type. Where a message has seconds, they come first.

cdef enum:  # types
    NYSE_RESET = 1
    NYSE_TIME = 2
    NYSE_MAPPING = 3
    NYSE_REQUEST = 10            # to NYSE_REFRESH_REQUEST: requests and their answers
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
    NYSE_TRADE = 110             # to NYSE_RETAIL: these count in the symbol's chain
    NYSE_RETAIL = 114
    NYSE_SUMMARY = 223

cdef enum:  # offsets
    NYSE_TYPE = 2
    NYSE_MAPPED = 4              # u32 index, in a mapping
    NYSE_SYMBOL = 8              # c11, padded with zeros
    NYSE_SYMBOL_SIZE = 11
    NYSE_SCALE = 24              # u8: decimals of prices
    NYSE_REFRESH_PART = 4        # u16, from 1, in a refresh's header
    NYSE_REFRESH_PARTS = 6       # u16
    NYSE_REFRESH_LAST = 8        # u32: the last number that the refresh includes,
    NYSE_REFRESH_CHAIN = 12      # and the same in the symbol's own chain
    NYSE_REFRESH_MIN = 16
    NYSE_REFRESHED_ORDER = 20    # u64, in an order of a refresh
    NYSE_REFRESHED_PRICE = 28    # u32
    NYSE_REFRESHED_SIZE = 32
    NYSE_REFRESHED_SIDE = 36
    NYSE_REFRESHED_MIN = 37
    NYSE_SECONDS = 4             # in statuses, imbalances and clears; nanoseconds follow
    NYSE_TIMED_INDEX = 12        # behind the nanoseconds
    NYSE_TIMED_CHAIN = 16        # u32: the symbol's own number; in a clear, the next one
    NYSE_STATE = 20
    NYSE_INDEX = 8               # u32, in all other messages
    NYSE_CHAIN = 12
    NYSE_ORDER = 16              # u64
    NYSE_PRICE = 24              # u32, in add and modify
    NYSE_SIZE = 28
    NYSE_SIDE = 32
    NYSE_MOVED = 32              # in modify: 0 if the order keeps its place in the queue
    NYSE_TRADE_ID = 24           # u32, in an execution
    NYSE_TRADE_PRICE = 28
    NYSE_TRADE_SIZE = 32
    NYSE_PRINTABLE = 36
    NYSE_NEW_ORDER = 24          # in a replacement
    NYSE_NEW_PRICE = 32
    NYSE_NEW_SIZE = 36


cdef inline unsigned int nyse_size(unsigned int kind) noexcept nogil:
    # Return the least size of a type; 0 for an unknown type.
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
