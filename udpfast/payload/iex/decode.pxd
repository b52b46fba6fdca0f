# IEX: turns one message of TOPS, DEEP or DEEP+ into changes. The symbol is the instrument's id.
#
#   Q quote             -> QUOTE twice         one for each side
#   8, 5 price level    -> SET                 complete: it is right whatever was lost before
#   a M R L C           -> ADD, CHANGE, DELETE, EXECUTE, CLEAR
#   T trade             -> TRADE
#   H, O status, halt   -> STATUS              a symbol trades only if both say so
#   others              -> OUTCOME_OPAQUE

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED, OUTCOME_UNKNOWN
from udpfast.payload.iex.layout cimport *
from udpfast.payload.traits cimport PAYLOAD_IEX_DEEP, PAYLOAD_IEX_DEEP_PLUS, PAYLOAD_IEX_TOPS
from udpfast.wire.load cimport le32, le64

cdef enum:  # schema TradingStatus
    STATUS_UNDEFINED = 0
    STATUS_PRE_OPEN = 2
    STATUS_OPEN = 5
    STATUS_HALT = 7


cdef inline int32_t iex_decode(
        int payload, const uint8_t* data, uint32_t size, Change* change) noexcept nogil:
    cdef uint8_t kind = data[0] if size else 0
    cdef uint32_t least = iex_size(kind)
    # Later versions may append fields, which are ignored.
    if size < max(least, <uint32_t>1):
        return OUTCOME_REFUSED
    if least == 0:
        return OUTCOME_UNKNOWN   # IEX adds types without notice
    if kind == c"S":
        return OUTCOME_OPAQUE
    memset(change, 0, sizeof(Change))
    memcpy(&change.instrument, data + IEX_SYMBOL, 8)
    change.time_ns = <int64_t>le64(data + IEX_TIME)
    change.side = SIDE_NONE
    if kind == c"T":
        change.verb = VERB_TRADE
        change.quantity = le32(data + IEX_SIZE)
        change.price = <int64_t>le64(data + IEX_PRICE)
        change.order = le64(data + IEX_TRADE)
        return 1
    if kind == c"H" or kind == c"O":
        change.verb = VERB_STATUS
        change.place = 1 if kind == c"H" else 2
        change.quantity = iex_status(kind, data[IEX_FLAGS])
        return 1
    if payload == PAYLOAD_IEX_TOPS and kind == c"Q":
        return iex_quote(data, change)
    if payload == PAYLOAD_IEX_DEEP and (kind == c"8" or kind == c"5"):
        change.verb = VERB_SET
        change.side = SIDE_BID if kind == c"8" else SIDE_ASK
        change.quantity = le32(data + IEX_SIZE)
        change.price = <int64_t>le64(data + IEX_PRICE)
        change.flags = 0 if data[IEX_FLAGS] & IEX_EVENT_COMPLETE else CHANGE_MORE
        return 1
    if payload == PAYLOAD_IEX_DEEP_PLUS:
        return iex_order(kind, data, change)
    return OUTCOME_OPAQUE


cdef inline int32_t iex_quote(const uint8_t* data, Change* change) noexcept nogil:
    # An empty side is published as size 0 at price 0.
    change.verb = VERB_QUOTE
    change[1] = change[0]
    change.side = SIDE_BID
    change.quantity = le32(data + IEX_BID_SIZE)
    change.price = <int64_t>le64(data + IEX_BID_PRICE)
    change[1].side = SIDE_ASK
    change[1].quantity = le32(data + IEX_ASK_SIZE)
    change[1].price = <int64_t>le64(data + IEX_ASK_PRICE)
    return 2


cdef inline int32_t iex_order(uint8_t kind, const uint8_t* data, Change* change) noexcept nogil:
    change.price = PRICE_NONE
    if kind == c"C":
        change.verb = VERB_CLEAR
        return 1
    if kind != c"a" and kind != c"M" and kind != c"L" and kind != c"R":
        return OUTCOME_OPAQUE
    change.order = le64(data + IEX_ORDER)
    if kind == c"R":
        change.verb = VERB_DELETE
        return 1
    change.quantity = le32(data + IEX_ORDER_SIZE)
    change.price = <int64_t>le64(data + IEX_ORDER_PRICE)
    if kind == c"a":
        change.verb = VERB_ADD
        change.side = change_side(data[IEX_FLAGS], c"8", c"5")
    elif kind == c"M":
        change.verb = VERB_CHANGE
        change.flags = CHANGE_KEEPS_PLACE if data[IEX_FLAGS] & IEX_KEEPS_PLACE else 0
    else:
        change.verb = VERB_EXECUTE
        change.order_before = le64(data + IEX_ORDER_TRADE)
    return 1


cdef inline int iex_status(uint8_t kind, uint8_t said) noexcept nogil:
    if kind == c"O":
        if said == c"O":
            return STATUS_HALT
        return STATUS_OPEN if said == c"N" else STATUS_UNDEFINED
    if said == c"H":
        return STATUS_HALT
    if said == c"T":
        return STATUS_OPEN
    return STATUS_PRE_OPEN if said == c"O" or said == c"P" else STATUS_UNDEFINED
