# Nasdaq TotalView-ITCH 5.0. Big endian.
#
# Every message: 0 c1 type, 1 u16 stock locate, 3 u16 tracking, 5 u48 time.

cdef enum:
    ITCH_LOCATE = 1
    ITCH_ORDER = 11              # u64 reference
    ITCH_SIDE = 19               # of A, F: B or S
    ITCH_SHARES = 20             # of A, F
    ITCH_STOCK = 24              # of A, F, P: c8
    ITCH_PRICE = 32              # of A, F, C, P: u32, four decimals
    ITCH_LESS = 19               # of E, C, X: u32 shares
    ITCH_MATCH = 23              # of E, C: u64
    ITCH_PRINTABLE = 31          # of C: Y or N
    ITCH_NEW_ORDER = 19          # of U: u64
    ITCH_NEW_SHARES = 27
    ITCH_NEW_PRICE = 31
    ITCH_TRADE_SHARES = 20       # of P
    ITCH_TRADE_MATCH = 36
    ITCH_CROSS_SHARES = 11       # of Q: u64
    ITCH_CROSS_STOCK = 19
    ITCH_CROSS_PRICE = 27
    ITCH_CROSS_MATCH = 31
    ITCH_NAME = 11               # of R, H: c8
    ITCH_STATE = 19              # of H: H P Q T


cdef inline unsigned int itch_size(unsigned char kind) noexcept nogil:
    # Bytes of a type; 0: none that we know.
    if kind == c"A":
        return 36
    if kind == c"F" or kind == c"Q":
        return 40
    if kind == c"E":
        return 31
    if kind == c"C":
        return 36
    if kind == c"X":
        return 23
    if kind == c"D" or kind == c"B":
        return 19
    if kind == c"U" or kind == c"V" or kind == c"J":
        return 35
    if kind == c"P":
        return 44
    if kind == c"R":
        return 39
    if kind == c"H":
        return 25
    if kind == c"S" or kind == c"W":
        return 12
    if kind == c"h":
        return 21
    if kind == c"Y" or kind == c"N":
        return 20
    if kind == c"L":
        return 26
    if kind == c"K":
        return 28
    if kind == c"I":
        return 50
    return 48 if kind == c"O" else 0
