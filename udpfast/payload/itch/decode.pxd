# ITCH: one message to changes. E and C are trades at the order's price or at the one named; a C
# that is not printable is on the tape by the cross (Q) that follows. U takes the old order's side.

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
        return OUTCOME_REFUSED if size else OUTCOME_OPAQUE  # MoldUDP64 allows one without a byte
    if least == 0:
        return OUTCOME_REFUSED
    memset(change, 0, sizeof(Change))
    if least < ITCH_ORDER + 8:
        return OUTCOME_OPAQUE        # S and W: they end before an order would
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
            return OUTCOME_OPAQUE  # a cross in which nothing traded
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
    # Schema TradingStatus: of a halt, a quotation period and trading.
    if state == c"T":
        return 5
    return 2 if state == c"Q" else 7
