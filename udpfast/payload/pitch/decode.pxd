# PITCH: turns one message into a change. The symbol is the instrument's id. Only adds, trades and
# statuses have it; all other messages name the order alone.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED, OUTCOME_UNKNOWN
from udpfast.payload.pitch.layout cimport *
from udpfast.wire.load cimport le16, le32, le64


cdef inline uint64_t pitch_symbol(const uint8_t* at, uint32_t size) noexcept nogil:
    # Return the id of a symbol of six or eight characters, padded with blanks, so that a symbol has
    # the same id in both forms.
    cdef uint64_t symbol
    memset(&symbol, c" ", 8)
    memcpy(&symbol, at, size)
    return symbol


cdef inline void pitch_order(
        const uint8_t* data, bint short, uint32_t symbol_size, Change* change) noexcept nogil:
    # Read side, size, symbol and price of an add or a trade.
    cdef const uint8_t* symbol = data + (PITCH_SYMBOL - 2 if short else PITCH_SYMBOL)
    change.side = change_side(data[PITCH_SIDE], c"B", c"S")
    change.quantity = le16(data + PITCH_SIZE) if short else le32(data + PITCH_SIZE)
    change.instrument = pitch_symbol(symbol, symbol_size)
    change.price = (<int64_t>le16(symbol + symbol_size) * 100 if short
                    else <int64_t>le64(symbol + symbol_size))


cdef inline int32_t pitch_decode(
        const uint8_t* data, uint32_t size, Change* change) noexcept nogil:
    cdef uint8_t kind = data[PITCH_TYPE] if size > PITCH_TYPE else 0
    cdef uint32_t least = pitch_size(kind)
    if size < 2 or size < least:
        return OUTCOME_REFUSED
    if least == 0:
        return OUTCOME_UNKNOWN   # Cboe asks receivers to skip unknown types
    if pitch_touches_none(kind):
        return OUTCOME_OPAQUE
    memset(change, 0, sizeof(Change))
    change.side = SIDE_NONE
    change.price = PRICE_NONE
    if kind == PITCH_UNIT_CLEAR:
        change.verb = VERB_CLEAR_STREAM
        return 1
    if kind == PITCH_STATUS:
        change.verb = VERB_STATUS
        change.instrument = pitch_symbol(data + PITCH_STATUS_SYMBOL, 8)
        change.quantity = pitch_status(data[PITCH_STATE])
        return 1
    change.order = le64(data + PITCH_ORDER)
    if kind == PITCH_ADD_LONG or kind == PITCH_ADD_SHORT or kind == PITCH_ADD_EXPANDED:
        change.verb = VERB_ADD
        pitch_order(data, kind == PITCH_ADD_SHORT, 8 if kind == PITCH_ADD_EXPANDED else 6, change)
    elif kind == PITCH_TRADE_LONG or kind == PITCH_TRADE_SHORT or kind == PITCH_TRADE_EXPANDED:
        change.verb = VERB_TRADE
        pitch_order(
            data, kind == PITCH_TRADE_SHORT, 8 if kind == PITCH_TRADE_EXPANDED else 6, change)
        change.order = le64(data + least - 8)
        if change.side != SIDE_NONE:
            # The message has the hidden order's side; the taker was on the other one.
            change.side = 1 - change.side
    elif kind == PITCH_EXECUTED:
        change.verb = VERB_EXECUTE
        change.quantity = le32(data + PITCH_LESS)
        change.order_before = le64(data + PITCH_EXECUTION)
    elif kind == PITCH_EXECUTED_AT:
        change.verb = VERB_EXECUTE
        change.quantity = le32(data + PITCH_LESS)
        change.orders = le32(data + PITCH_LEFT)
        change.flags = CHANGE_REST
        change.order_before = le64(data + PITCH_EXECUTION_AT)
        change.price = <int64_t>le64(data + PITCH_PRICE_AT)
    elif kind == PITCH_REDUCE_LONG or kind == PITCH_REDUCE_SHORT:
        change.verb = VERB_REDUCE
        change.quantity = (le32(data + PITCH_LESS) if kind == PITCH_REDUCE_LONG
                           else le16(data + PITCH_LESS))
    elif kind == PITCH_MODIFY_LONG:
        change.verb = VERB_CHANGE
        change.quantity = le32(data + PITCH_LESS)
        change.price = <int64_t>le64(data + PITCH_LESS + 4)
        change.flags = CHANGE_KEEPS_PLACE if data[least - 1] & PITCH_KEEPS else 0
    elif kind == PITCH_MODIFY_SHORT:
        change.verb = VERB_CHANGE
        change.quantity = le16(data + PITCH_LESS)
        change.price = <int64_t>le16(data + PITCH_LESS + 2) * 100
        change.flags = CHANGE_KEEPS_PLACE if data[least - 1] & PITCH_KEEPS else 0
    else:
        change.verb = VERB_DELETE
    return 1


cdef inline int pitch_status(uint8_t state) noexcept nogil:
    # Return the schema's TradingStatus: T trading, H and S halted, A and Q before trading.
    if state == c"T":
        return 5
    return 7 if state == c"H" or state == c"S" else 2
