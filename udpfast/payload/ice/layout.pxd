# ICE iMpact 1.1. Big endian. Every message begins with 0 u8 type, 1 u16 length of the rest.

cdef enum:
    ICE_MARKET = 3               # i32
    ICE_ORDER = 7                # i64
    ICE_SIDE = 17                # c1: 1 bid, 2 offer
    ICE_PRICE = 18               # i64
    ICE_QUANTITY = 26            # i32
    ICE_IMPLIED = 30             # c1
    ICE_TRADE = 7                # i64, in G
    ICE_TRADE_PRICE = 16
    ICE_TRADE_QUANTITY = 24
    ICE_TRADE_TIME = 29          # i64 ms
    ICE_AGGRESSOR = 40           # c1: 1 buy, 2 sell
    ICE_STATE = 7                # c1, in K
    ICE_MARKER = 3               # in T: S begins an event, E ends it


cdef inline unsigned int ice_size(unsigned char kind) noexcept nogil:
    # Return the least size of a type; 0 for a type that makes no change.
    if kind == c"E":
        return 45
    if kind == c"F":
        return 15
    if kind == c"G":
        return 49
    if kind == c"K":
        return 16
    return 4 if kind == c"T" else 0
