# IEX TOPS 1.5 and 1.6, DEEP 1.0, DEEP+ 1.04: offsets of fields. Little endian. Prices are integers
# with four decimals. Every message begins with 0 c1 type, 1 flags, 2 i64 ns UTC, and, except for S,
# 10 c8 symbol.

cdef enum:
    IEX_FLAGS = 1
    IEX_TIME = 2
    IEX_SYMBOL = 10
    IEX_SIZE = 18                # u32, in trades and levels
    IEX_PRICE = 22
    IEX_TRADE = 30               # i64, in T
    IEX_BID_SIZE = 18            # in Q
    IEX_BID_PRICE = 22
    IEX_ASK_PRICE = 30
    IEX_ASK_SIZE = 38
    IEX_ORDER = 18               # u64, in DEEP+
    IEX_ORDER_SIZE = 26          # u32
    IEX_ORDER_PRICE = 30
    IEX_ORDER_TRADE = 38         # i64, in L
    IEX_EVENT_COMPLETE = 1       # a bit of a level's flags
    IEX_KEEPS_PLACE = 1          # a bit of M's flags

cdef enum:  # protocols, the upper half of a stream's number
    IEX_PROTOCOL_TOPS_OLD = 0x8002
    IEX_PROTOCOL_TOPS = 0x8003
    IEX_PROTOCOL_DEEP = 0x8004
    IEX_PROTOCOL_DEEP_PLUS = 0x8005


cdef inline unsigned int iex_size(unsigned char kind) noexcept nogil:
    # Return the least size of a type; 0 for an unknown type.
    if kind == c"8" or kind == c"5":
        return 30
    if kind == c"T" or kind == c"B" or kind == c"a" or kind == c"M":
        return 38
    if kind == c"Q":
        return 42
    if kind == c"R":
        return 26
    if kind == c"L":
        return 46
    if kind == c"H":
        return 22
    if kind == c"O" or kind == c"E" or kind == c"C" or kind == c"I":
        return 18
    if kind == c"P":
        return 19
    if kind == c"D":
        return 31
    if kind == c"S":
        return 10
    if kind == c"X":
        return 26
    return 80 if kind == c"A" else 0
