# Cboe multicast PITCH 2.x, US equities. Little endian. Every message begins with 0 u8 length of the
# whole, 1 u8 type, 2 u32 time offset.

cdef enum:  # types
    PITCH_TIME = 0x20
    PITCH_BREAK = 0x2C
    PITCH_SESSION_END = 0x2D
    PITCH_SYMBOL_MAPPING = 0x2E
    PITCH_AUCTION = 0x95
    PITCH_AUCTION_SUMMARY = 0x96
    PITCH_RETAIL = 0x98
    PITCH_UNIT_CLEAR = 0x97
    PITCH_ADD_LONG = 0x21
    PITCH_ADD_SHORT = 0x22
    PITCH_ADD_EXPANDED = 0x2F
    PITCH_EXECUTED = 0x23
    PITCH_EXECUTED_AT = 0x24
    PITCH_REDUCE_LONG = 0x25
    PITCH_REDUCE_SHORT = 0x26
    PITCH_MODIFY_LONG = 0x27
    PITCH_MODIFY_SHORT = 0x28
    PITCH_DELETE = 0x29
    PITCH_TRADE_LONG = 0x2A
    PITCH_TRADE_SHORT = 0x2B
    PITCH_TRADE_EXPANDED = 0x30
    PITCH_STATUS = 0x31

cdef enum:  # offsets
    PITCH_TYPE = 1
    PITCH_ORDER = 6              # u64
    PITCH_SIDE = 14              # in adds and trades: B or S
    PITCH_SIZE = 15              # u16 in short forms, else u32
    PITCH_SYMBOL = 19            # c6, in expanded forms c8; in short forms at 17
    PITCH_LESS = 14              # in executions, reductions, modifications
    PITCH_EXECUTION = 18         # u64, in 0x23
    PITCH_LEFT = 18              # u32, in 0x24
    PITCH_EXECUTION_AT = 22
    PITCH_PRICE_AT = 30
    PITCH_STATUS_SYMBOL = 6      # c8
    PITCH_STATE = 14
    PITCH_KEEPS = 2              # a bit of a modification's flags


cdef inline unsigned int pitch_size(unsigned char kind) noexcept nogil:
    # Return the least size of a type; 0 for an unknown type.
    if kind == PITCH_UNIT_CLEAR:
        return 6
    if kind == PITCH_ADD_LONG:
        return 34
    if kind == PITCH_ADD_SHORT or kind == PITCH_EXECUTED:
        return 26
    if kind == PITCH_ADD_EXPANDED or kind == PITCH_TRADE_LONG:
        return 41
    if kind == PITCH_EXECUTED_AT:
        return 38
    if kind == PITCH_REDUCE_LONG or kind == PITCH_STATUS:
        return 18
    if kind == PITCH_REDUCE_SHORT:
        return 16
    if kind == PITCH_MODIFY_LONG:
        return 27
    if kind == PITCH_MODIFY_SHORT:
        return 19
    if kind == PITCH_DELETE:
        return 14
    if kind == PITCH_TRADE_SHORT:
        return 33
    if kind == PITCH_TRADE_EXPANDED:
        return 43
    return 2 if pitch_touches_none(kind) else 0


cdef inline bint pitch_touches_none(unsigned char kind) noexcept nogil:
    return (kind == PITCH_TIME or kind == PITCH_BREAK or kind == PITCH_SESSION_END
            or kind == PITCH_SYMBOL_MAPPING or PITCH_AUCTION <= kind <= PITCH_AUCTION_SUMMARY
            or kind == PITCH_RETAIL)
