# IEX DEEP+ 1.04. Little endian. 0 c1 type, 1 flags, 2 i64 ns UTC, 10 c8 symbol.

cdef enum:
    DEEP_PLUS_FLAGS = 1
    DEEP_PLUS_TIME = 2
    DEEP_PLUS_SYMBOL = 10
    DEEP_PLUS_ORDER = 18         # u64
    DEEP_PLUS_SIZE = 26          # u32
    DEEP_PLUS_PRICE = 30         # i64, four decimals
    DEEP_PLUS_TRADE = 38         # of L: i64
    DEEP_PLUS_HIDDEN_SIZE = 18   # of T: u32
    DEEP_PLUS_HIDDEN_PRICE = 22
    DEEP_PLUS_HIDDEN_TRADE = 30
    DEEP_PLUS_KEEPS = 1          # bit of the flags of M


cdef inline unsigned int deep_plus_size(unsigned char kind) noexcept nogil:
    # Bytes of a type; 0: none that says something of a book.
    if kind == c"a" or kind == c"M" or kind == c"T":
        return 38
    if kind == c"R":
        return 26
    if kind == c"L":
        return 46
    if kind == c"H":
        return 22
    return 18 if kind == c"C" else 0
