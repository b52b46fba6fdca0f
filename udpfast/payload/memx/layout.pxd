# MEMX MEMOIR depth 1.3: SBE, big endian. 0 u16 block, 2 u8 template, 3 u8 schema, 4 u16 version,
# then the block: 6 u64 UNIX ns, 14 u16 id of the instrument.

cdef enum:  # templates
    MEMX_INSTRUMENT = 1
    MEMX_CLEAR = 18
    MEMX_ADD = 10
    MEMX_DELETE = 11
    MEMX_REDUCE = 12
    MEMX_EXECUTE = 13

cdef enum:  # offsets
    MEMX_TEMPLATE = 2
    MEMX_TIME = 6
    MEMX_ID = 14
    MEMX_NAME = 16               # c6, and c6 of its suffix
    MEMX_NAME_SIZE = 12
    MEMX_ORDER = 16              # u64
    MEMX_SIDE = 24
    MEMX_SIZE = 25               # u32
    MEMX_PRICE = 29              # i64, six decimals
    MEMX_LESS = 24               # of a reduction: u32
    MEMX_TRADE = 24              # of an execution: u64
    MEMX_TRADE_SIZE = 32
    MEMX_TRADE_PRICE = 36


cdef inline unsigned int memx_size(unsigned char template) noexcept nogil:
    # Bytes of a template at least; 0: none that says something of a book.
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
    return 16 if template == MEMX_CLEAR else 0
