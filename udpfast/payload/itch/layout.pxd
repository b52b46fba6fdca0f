# Nasdaq TotalView-ITCH 5.0. Big endian.
#
# Every message begins with 0 c1 type, 1 u16 stock locate, 3 u16 tracking, 5 u48 time.

cdef enum:
    ITCH_LOCATE = 1
    ITCH_ORDER = 11              # u64, the order's reference
    ITCH_SIDE = 19               # in A, F: B or S
    ITCH_SHARES = 20             # in A, F
    ITCH_STOCK = 24              # c8, in A, F, P
    ITCH_PRICE = 32              # u32, four decimals, in A, F, C, P
    ITCH_LESS = 19               # u32 shares, in E, C, X
    ITCH_MATCH = 23              # u64, in E, C
    ITCH_PRINTABLE = 31          # Y or N, in C
    ITCH_NEW_ORDER = 19          # u64, in U
    ITCH_NEW_SHARES = 27
    ITCH_NEW_PRICE = 31
    ITCH_TRADE_SHARES = 20       # in P
    ITCH_TRADE_MATCH = 36
    ITCH_CROSS_SHARES = 11       # u64, in Q
    ITCH_CROSS_STOCK = 19
    ITCH_CROSS_PRICE = 27
    ITCH_CROSS_MATCH = 31
    ITCH_NAME = 11               # c8, in R, H
    ITCH_STATE = 19              # H, P, Q or T, in H


cdef inline unsigned int itch_size(unsigned char kind) noexcept nogil:
    # Return the size of a type; 0 for an unknown type.
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
