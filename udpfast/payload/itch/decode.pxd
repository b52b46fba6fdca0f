# ITCH: turns one message into changes. E trades at the order's price, C at the price that it names.
# A C that is not printable reaches the tape with the cross (Q) that follows. U keeps the side of
# the order that it replaces.

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.itch.layout cimport *
from udpfast.wire.load cimport be16, be32, be64


cdef inline int32_t itch_decode(
        const uint8_t* data, uint32_t size, Change* change) noexcept nogil:
    cdef uint8_t kind = data[0] if size else 0
    cdef uint32_t least = itch_size(kind)
    if size < max(least, <uint32_t>1):
        # MoldUDP64 allows a message of no bytes.
        return OUTCOME_REFUSED if size else OUTCOME_OPAQUE
    if least == 0:
        return OUTCOME_REFUSED
    memset(change, 0, sizeof(Change))
    if least < ITCH_ORDER + 8:
        # S and W end before the place of an order's id.
        return OUTCOME_OPAQUE
    change.instrument = be16(data + ITCH_LOCATE)
    change.order = be64(data + ITCH_ORDER)
    change.price = PRICE_NONE
    change.side = SIDE_NONE
    if kind == c"A" or kind == c"F":
        change.verb = VERB_ADD
        change.side = change_side(data[ITCH_SIDE], c"B", c"S")
        change.quantity = be32(data + ITCH_SHARES)
        change.price = be32(data + ITCH_PRICE)
        change.name = ITCH_STOCK + 1
    elif kind == c"E" or kind == c"C":
        change.verb = VERB_EXECUTE
        change.quantity = be32(data + ITCH_LESS)
        change.order_before = be64(data + ITCH_MATCH)
        if kind == c"C":
            change.price = be32(data + ITCH_PRICE)
            change.flags = 0 if data[ITCH_PRINTABLE] == c"Y" else CHANGE_SILENT
    elif kind == c"X":
        change.verb = VERB_REDUCE
        change.quantity = be32(data + ITCH_LESS)
    elif kind == c"D":
        change.verb = VERB_DELETE
    elif kind == c"U":
        change.verb = VERB_REPLACE
        change.order_before = change.order
        change.order = be64(data + ITCH_NEW_ORDER)
        change.quantity = be32(data + ITCH_NEW_SHARES)
        change.price = be32(data + ITCH_NEW_PRICE)
    elif kind == c"P":
        change.verb = VERB_TRADE
        change.quantity = be32(data + ITCH_TRADE_SHARES)
        change.price = be32(data + ITCH_PRICE)
        change.order = be64(data + ITCH_TRADE_MATCH)
        change.name = ITCH_STOCK + 1
    elif kind == c"Q":
        change.verb = VERB_TRADE
        change.quantity = <int64_t>be64(data + ITCH_CROSS_SHARES)
        change.price = be32(data + ITCH_CROSS_PRICE)
        change.order = be64(data + ITCH_CROSS_MATCH)
        change.name = ITCH_CROSS_STOCK + 1
        if change.quantity == 0:
            return OUTCOME_OPAQUE  # nothing traded in this cross
    elif kind == c"R":
        change.verb = VERB_DEFINE
        change.name = ITCH_NAME + 1
        change.quantity = 8
        change.order = 0
    elif kind == c"H":
        change.verb = VERB_STATUS
        change.name = ITCH_NAME + 1
        change.quantity = itch_status(data[ITCH_STATE])
    else:
        return OUTCOME_OPAQUE
    return 1


cdef inline int itch_status(uint8_t state) noexcept nogil:
    # Return the schema's TradingStatus for a halt, a quotation period or trading.
    if state == c"T":
        return 5
    return 2 if state == c"Q" else 7
