# NYSE: turns one message into a change. A symbol's index is the instrument's id; its mapping has
# the name and the decimals of prices. Every message about a symbol counts in its chain, imbalances
# too. Refreshes are in loop.pxd.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.nyse.layout cimport *
from udpfast.wire.load cimport le16, le32, le64


cdef inline int32_t nyse_decode(
        const uint8_t* data, uint32_t size, bint integrated, Change* change) noexcept nogil:
    cdef uint32_t kind = le16(data + NYSE_TYPE) if size >= 4 else 0
    cdef uint32_t least = nyse_size(kind)
    if size < 4 or size < least or (least == 0 and integrated):
        return OUTCOME_REFUSED
    if nyse_touches_none(kind) or (
            not integrated and kind != NYSE_MAPPING and kind != NYSE_STATUS):
        return OUTCOME_OPAQUE    # the imbalance feed has no books
    memset(change, 0, sizeof(Change))
    change.side = SIDE_NONE
    change.price = PRICE_NONE
    if kind == NYSE_MAPPING:
        change.verb = VERB_DEFINE
        change.instrument = le32(data + NYSE_MAPPED)
        change.name = NYSE_SYMBOL + 1
        change.quantity = NYSE_SYMBOL_SIZE
        change.price = data[NYSE_SCALE]
        return 1
    if kind == NYSE_ADD_REFRESH:
        # The order is restored within a refresh on this line, which is not read. A DELETE of an
        # unknown order puts the symbol in doubt.
        change.instrument = le32(data + NYSE_TIMED_INDEX)
        change.verb = VERB_DELETE
        return 1
    if kind == NYSE_CLEAR or kind == NYSE_STATUS or kind == NYSE_IMBALANCE:
        return nyse_timed(data, kind, change)
    change.instrument = le32(data + NYSE_INDEX)
    change.chain = le32(data + NYSE_CHAIN)
    if kind >= NYSE_TRADE:
        change.verb = VERB_CHAIN
        return 1
    change.order = le64(data + NYSE_ORDER)
    if kind == NYSE_ADD or kind == NYSE_MODIFY:
        change.price = le32(data + NYSE_PRICE)
        change.quantity = le32(data + NYSE_SIZE)
        if kind == NYSE_ADD:
            change.verb = VERB_ADD
            change.side = change_side(data[NYSE_SIDE], c"B", c"S")
        else:
            change.verb = VERB_CHANGE
            change.flags = CHANGE_KEEPS_PLACE if data[NYSE_MOVED] == 0 else 0
    elif kind == NYSE_DELETE:
        change.verb = VERB_DELETE
    elif kind == NYSE_EXECUTE:
        change.verb = VERB_EXECUTE
        change.order_before = le32(data + NYSE_TRADE_ID)
        change.price = le32(data + NYSE_TRADE_PRICE)
        change.quantity = le32(data + NYSE_TRADE_SIZE)
        change.flags = 0 if data[NYSE_PRINTABLE] else CHANGE_SILENT
    else:
        change.verb = VERB_REPLACE
        change.order_before = change.order
        change.order = le64(data + NYSE_NEW_ORDER)
        change.price = le32(data + NYSE_NEW_PRICE)
        change.quantity = le32(data + NYSE_NEW_SIZE)
    return 1


cdef inline int32_t nyse_timed(
        const uint8_t* data, uint32_t kind, Change* change) noexcept nogil:
    # Decode a message that has seconds and nanoseconds.
    change.instrument = le32(data + NYSE_TIMED_INDEX)
    change.chain = le32(data + NYSE_TIMED_CHAIN)
    change.time_ns = (<int64_t>le32(data + NYSE_SECONDS) * 1_000_000_000
                      + le32(data + NYSE_SECONDS + 4))
    change.verb = VERB_CHAIN
    if kind == NYSE_CLEAR:
        # A refresh follows on this line, which is not read. The first message of a day needs none,
        # because the book was empty.
        change.verb = VERB_CLEAR
        change.flags = CHANGE_MORE if change.chain > 1 else 0
        change.chain -= 1        # the message has the number of the next one
    elif kind == NYSE_STATUS:
        change.quantity = nyse_state(data[NYSE_STATE])
        if change.quantity:
            change.verb = VERB_STATUS
    return 1


cdef inline int nyse_state(uint8_t state) noexcept nogil:
    # Return the schema's TradingStatus; 0 if the state does not concern trading, as with short sale
    # restrictions.
    if state == c"4" or state == c"6":
        return 7                 # halted, or it does not open or resume
    if state == c"5" or state == c"E" or state == c"O" or state == c"L":
        return 5                 # resumed, or in one of the day's sessions
    if state == c"3" or state == c"P" or state == c"B":
        return 2                 # delayed, or before the first session
    return 12 if state == c"X" else 0
