# MEMX MEMOIR depth 1.3. SBE, big endian. A message has 0 u16 block, 2 u8 template, 3 u8 schema, 4
# u16 version, then the block, which begins with 6 u64 UNIX ns and 14 u16 id of the instrument.

cdef enum:  # templates
    MEMX_INSTRUMENT = 1
    # From here to MEMX_SESSION, from MEMX_TAPE to MEMX_CORRECTED, and MEMX_SNAPSHOT_END: no book
    # changes.
    MEMX_SHORT_SALES = 2
    MEMX_SESSION = 5
    MEMX_ADD = 10
    MEMX_DELETE = 11
    MEMX_REDUCE = 12
    MEMX_EXECUTE = 13
    MEMX_TAPE = 14               # reports of trades
    MEMX_CORRECTED = 16
    MEMX_CLEAR = 18
    MEMX_SNAPSHOT_END = 100

cdef enum:  # offsets
    MEMX_HEADER = 6
    MEMX_TEMPLATE = 2
    MEMX_TIME = 6
    MEMX_ID = 14
    MEMX_NAME = 16               # c6, then c6 of its suffix
    MEMX_NAME_SIZE = 12
    MEMX_TICK = 34               # i64, six decimals
    MEMX_ORDER = 16              # u64
    MEMX_SIDE = 24
    MEMX_SIZE = 25               # u32
    MEMX_PRICE = 29              # i64, six decimals
    MEMX_LESS = 24               # u32, in a reduction
    MEMX_TRADE = 24              # u64, in an execution
    MEMX_TRADE_SIZE = 32
    MEMX_TRADE_PRICE = 36


cdef inline unsigned int memx_size(unsigned char template) noexcept nogil:
    # Return the least size of a template; 0 for an unknown template.
    if template == MEMX_INSTRUMENT:
        return 42
    if template == MEMX_ADD:
        return 37
    if template == MEMX_DELETE:
        return 24
    if template == MEMX_REDUCE:
        return 28
    if template == MEMX_EXECUTE:
        return 44
    if template == MEMX_CLEAR:
        return 16
    return MEMX_HEADER if memx_touches_none(template) else 0


cdef inline bint memx_touches_none(unsigned char template) noexcept nogil:
    return (MEMX_SHORT_SALES <= template <= MEMX_SESSION or MEMX_TAPE <= template <= MEMX_CORRECTED
            or template == MEMX_SNAPSHOT_END)
