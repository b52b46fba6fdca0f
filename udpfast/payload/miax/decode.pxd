# MIAX ToM: turns one message into changes. A quote replaces its side, which has no other levels.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.miax.layout cimport *
from udpfast.wire.load cimport le16, le32


cdef inline void miax_quote(
        const uint8_t* data, const uint8_t* at, bint wide, uint8_t side,
        Change* change) noexcept nogil:
    memset(change, 0, sizeof(Change))
    change.verb = VERB_QUOTE
    change.instrument = le32(data + MIAX_PRODUCT)
    change.side = side
    change.price = <int64_t>le32(at) if wide else <int64_t>le16(at) * 100
    change.quantity = le32(at + 4) if wide else le16(at + 2)


cdef inline int32_t miax_decode(
        const uint8_t* data, uint32_t size, Change* change) noexcept nogil:
    cdef uint8_t kind = data[0] if size else 0
    cdef bint wide = kind == c"W" or kind == c"A" or kind == c"D"
    cdef bint both = kind == c"d" or kind == c"D"
    cdef uint32_t side = MIAX_WIDE_SIDE if wide else MIAX_SHORT_SIDE
    if kind == c"T":
        if size < MIAX_TRADE_BYTES:
            return OUTCOME_REFUSED
        memset(change, 0, sizeof(Change))
        change.verb = VERB_TRADE
        change.instrument = le32(data + MIAX_PRODUCT)
        change.order = le32(data + MIAX_TRADE_ID)
        change.price = le32(data + MIAX_TRADE_PRICE)
        change.quantity = le32(data + MIAX_TRADE_SIZE)
        change.side = SIDE_NONE
        return 1
    if kind == c"1" or kind == c"P" or kind == c"S" or kind == c"X" or kind == c"H":
        return OUTCOME_OPAQUE    # seconds, series, system states, cancelled trades, halts
    if not (both or wide or kind == c"B" or kind == c"O") or size < MIAX_PRICE + side * (1 + both):
        return OUTCOME_REFUSED
    miax_quote(data, data + MIAX_PRICE, wide,
               SIDE_ASK if kind == c"O" or kind == c"A" else SIDE_BID, change)
    if not both:
        return 1
    miax_quote(data, data + MIAX_PRICE + side, wide, SIDE_ASK, change + 1)
    return 2
