# ICE: turns one message into a change. E adds an order or replaces a known one. A trade (G) changes
# no book, because an E or F follows. Prices are raw integers: their scale is published on another
# feed. Orders implied by other markets form a book of their own.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED, OUTCOME_UNKNOWN
from udpfast.payload.ice.layout cimport *
from udpfast.wire.load cimport be32, be64


cdef inline int32_t ice_decode(
        const uint8_t* data, uint32_t size, Change* change) noexcept nogil:
    cdef uint8_t kind = data[0] if size else 0
    cdef uint32_t least = ice_size(kind)
    if size < 3 or size < least:
        return OUTCOME_REFUSED
    if kind == c"J" or kind == c"M" or kind == c"N" or kind == c"g":
        return OUTCOME_OPAQUE    # statistics, open interest, opening prices
    if least == 0:
        return OUTCOME_UNKNOWN   # ICE's books are never sound, so there is none to put in doubt
    memset(change, 0, sizeof(Change))
    change.side = SIDE_NONE
    change.price = PRICE_NONE
    if kind == c"T":
        change.verb = VERB_EVENT_BEGIN if data[ICE_MARKER] == c"S" else VERB_EVENT_END
        return 1
    change.instrument = be32(data + ICE_MARKET)
    change.order = be64(data + ICE_ORDER)
    if kind == c"E":
        change.verb = VERB_PUT
        change.side = SIDE_BID if data[ICE_SIDE] == c"1" else SIDE_ASK
        change.side += 2 if data[ICE_IMPLIED] == c"Y" else 0
        change.price = <int64_t>be64(data + ICE_PRICE)
        change.quantity = <int32_t>be32(data + ICE_QUANTITY)
    elif kind == c"F":
        change.verb = VERB_DELETE
    elif kind == c"G":
        change.verb = VERB_TRADE
        change.price = <int64_t>be64(data + ICE_TRADE_PRICE)
        change.quantity = <int32_t>be32(data + ICE_TRADE_QUANTITY)
        change.time_ns = <int64_t>(be64(data + ICE_TRADE_TIME) * 1_000_000)
        if data[ICE_AGGRESSOR] == c"1":
            change.side = SIDE_BID
        elif data[ICE_AGGRESSOR] == c"2":
            change.side = SIDE_ASK
    else:
        change.verb = VERB_STATUS
        change.order = 0
        change.quantity = ice_state(data[ICE_STATE])
    return 1


cdef inline int ice_state(uint8_t state) noexcept nogil:
    # Return the schema's TradingStatus.
    if state == c"O":
        return 5
    if state == c"1":
        return 2
    return 9 if state == c"2" else 12
