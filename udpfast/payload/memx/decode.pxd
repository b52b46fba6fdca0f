# MEMX: turns one message into a change. Each day the instrument directory gives out new ids.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.memx.layout cimport *
from udpfast.wire.load cimport be16, be32, be64


cdef inline int32_t memx_decode(
        const uint8_t* data, uint32_t size, Change* change) noexcept nogil:
    cdef uint8_t template = data[MEMX_TEMPLATE] if size > MEMX_TEMPLATE else 0
    cdef uint32_t least = memx_size(template)
    if least == 0 or size < MEMX_HEADER or size < MEMX_HEADER + <uint32_t>be16(data) or (
            MEMX_HEADER + <uint32_t>be16(data) < least):
        return OUTCOME_REFUSED
    if memx_touches_none(template):
        return OUTCOME_OPAQUE
    memset(change, 0, sizeof(Change))
    change.instrument = be16(data + MEMX_ID)
    change.time_ns = <int64_t>be64(data + MEMX_TIME)
    change.side = SIDE_NONE
    change.price = PRICE_NONE
    if template == MEMX_INSTRUMENT:
        change.verb = VERB_DEFINE
        change.name = MEMX_NAME + 1
        change.quantity = MEMX_NAME_SIZE
        change.order = be64(data + MEMX_TICK) * 1000
        change.time_ns = 0
        return 1
    if template == MEMX_CLEAR:
        change.verb = VERB_CLEAR
        return 1
    change.order = be64(data + MEMX_ORDER)
    if template == MEMX_ADD:
        change.verb = VERB_ADD
        change.side = change_side(data[MEMX_SIDE], c"B", c"S")
        change.quantity = be32(data + MEMX_SIZE)
        change.price = <int64_t>be64(data + MEMX_PRICE)
    elif template == MEMX_REDUCE:
        change.verb = VERB_REDUCE
        change.quantity = be32(data + MEMX_LESS)
    elif template == MEMX_EXECUTE:
        change.verb = VERB_EXECUTE
        change.order_before = be64(data + MEMX_TRADE)
        change.quantity = be32(data + MEMX_TRADE_SIZE)
        change.price = <int64_t>be64(data + MEMX_TRADE_PRICE)
    else:
        change.verb = VERB_DELETE
    return 1
