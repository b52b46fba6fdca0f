# DEEP+: one message to a change. The symbol is the instrument's id.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.deep_plus.layout cimport *
from udpfast.wire.load cimport le32, le64


cdef inline int32_t deep_plus_decode(
        const uint8_t* data, uint32_t size, Change* change) noexcept nogil:
    cdef uint8_t kind = data[0] if size else 0
    cdef uint32_t least = deep_plus_size(kind)
    if size < 2 or size < least:
        return OUTCOME_REFUSED
    if least == 0:
        return OUTCOME_OPAQUE
    memset(change, 0, sizeof(Change))
    memcpy(&change.instrument, data + DEEP_PLUS_SYMBOL, 8)
    change.time_ns = <int64_t>le64(data + DEEP_PLUS_TIME)
    change.side = SIDE_NONE
    change.price = PRICE_NONE
    if kind == c"C":
        change.verb = VERB_CLEAR
        return 1
    if kind == c"H":
        change.verb = VERB_STATUS
        change.quantity = deep_plus_state(data[DEEP_PLUS_FLAGS])
        return 1
    if kind == c"T":
        change.verb = VERB_TRADE
        change.quantity = le32(data + DEEP_PLUS_HIDDEN_SIZE)
        change.price = <int64_t>le64(data + DEEP_PLUS_HIDDEN_PRICE)
        change.order = le64(data + DEEP_PLUS_HIDDEN_TRADE)
        return 1
    change.order = le64(data + DEEP_PLUS_ORDER)
    if kind == c"R":
        change.verb = VERB_DELETE
        return 1
    change.quantity = le32(data + DEEP_PLUS_SIZE)
    change.price = <int64_t>le64(data + DEEP_PLUS_PRICE)
    if kind == c"a":
        change.verb = VERB_ADD
        change.side = SIDE_BID if data[DEEP_PLUS_FLAGS] == c"8" else SIDE_ASK
    elif kind == c"M":
        change.verb = VERB_CHANGE
        change.flags = CHANGE_KEEPS_PLACE if data[DEEP_PLUS_FLAGS] & DEEP_PLUS_KEEPS else 0
    else:
        change.verb = VERB_EXECUTE
        change.order_before = le64(data + DEEP_PLUS_TRADE)
    return 1


cdef inline int deep_plus_state(uint8_t state) noexcept nogil:
    # Schema TradingStatus: T trading, O order acceptance; halted or paused otherwise.
    if state == c"T":
        return 5
    return 2 if state == c"O" else 7
