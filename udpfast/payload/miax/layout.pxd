# MIAX top of market (ToM) 1.9 on MACH. Little endian. A message begins with 0 c1 type, 1 u32 ns, 5
# u32 product.

cdef enum:
    MIAX_PRODUCT = 5
    MIAX_PRICE = 9               # u16, two decimals; in wide forms u32, four decimals
    MIAX_SHORT_SIDE = 7          # size of one side: price, size, customers' size, condition
    MIAX_WIDE_SIDE = 13
    MIAX_TRADE_ID = 9
    MIAX_TRADE_PRICE = 19
    MIAX_TRADE_SIZE = 23
    MIAX_TRADE_BYTES = 28
