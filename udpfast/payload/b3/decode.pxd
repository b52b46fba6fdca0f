# B3 UMDF: turns one datagram into changes. Orders are known by their secondary id: an order that
# gets a new one goes to the end of its queue. Orders without a price (at market) are in no book.
# The loops are in loop.pxd.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.b3.layout cimport *
from udpfast.wire.load cimport le16, le32, le64


cdef inline void b3_change(Change* change, uint8_t verb, uint64_t instrument) noexcept nogil:
    memset(change, 0, sizeof(Change))
    change.verb = verb
    change.instrument = instrument
    change.side = SIDE_NONE
    change.price = PRICE_NONE


cdef inline bint b3_order(
        const uint8_t* block, uint32_t id, uint32_t price, Change* change) noexcept nogil:
    # Read an order's side, id and price. Return False if its side is neither bid nor offer.
    cdef uint8_t side = block[B3_SIDE]
    change.side = SIDE_BID if side == c"0" else SIDE_ASK
    change.order = change.order_before = le64(block + id)
    change.flags = CHANGE_PRIORITY
    change.price = <int64_t>le64(block + price)
    return side == c"0" or side == c"1"


cdef inline int32_t b3_told(
        const uint8_t* block, uint32_t size, uint32_t template, Change* change) noexcept nogil:
    # Append the message's change, if it has one. Return the number of changes, or OUTCOME_REFUSED.
    cdef uint32_t least = B3_ORDER_SIZE if template == B3_ORDER else B3_DELETE_SIZE
    b3_change(change, VERB_CLEAR, le64(block + B3_ID))
    if template == B3_EMPTY_BOOK:
        return 1
    if template == B3_MASS_DELETE:
        # It does not name the orders that it deletes. A DELETE of no order puts the book in doubt.
        change.verb = VERB_DELETE
        return 1
    if size < least:
        return OUTCOME_REFUSED
    if template == B3_DELETE:
        change.verb = VERB_DELETE
        if not b3_order(block, B3_DELETE_ID, B3_DELETE_PRICE, change):
            return OUTCOME_REFUSED
        if change.price == PRICE_NONE:
            # Without a price the order may be in no book, and a DELETE of it would raise a doubt.
            change.verb = VERB_PUT
        return 1
    change.verb = VERB_PUT if block[B3_ACTION] else VERB_ADD
    change.time_ns = <int64_t>le64(block + B3_TIME)
    if block[B3_ACTION] > 1 or not b3_order(block, B3_ORDER_ID, B3_PRICE, change):
        return OUTCOME_REFUSED
    change.quantity = <int64_t>le64(block + B3_QUANTITY)
    if change.price == PRICE_NONE:
        # The order may have had a price: without one it leaves the book.
        change.verb = VERB_PUT
        change.quantity = 0
    return 1


cdef inline bint b3_touches_none(uint32_t template) noexcept nogil:
    return (B3_RESET <= template <= B3_NEWS or template == B3_GROUP_PHASE
            or B3_OPENING_PRICE <= template <= B3_SNAPSHOT
            or B3_TRADE < template <= B3_BUST or template == B3_SNAPSHOT_ORDERS)


cdef inline uint8_t b3_security(uint8_t kind) noexcept nogil:
    # Return the schema's SecurityType for shares, funds, futures, options and spot contracts.
    if kind == 3 or kind == 5 or kind == 14 or kind == 17:
        return SECURITY_SPOT
    if kind == 6 or kind == 10 or kind == 12 or kind == 16:
        return SECURITY_OPTION
    return SECURITY_FUTURES if kind == 8 else 0


cdef inline int32_t b3_define(
        const uint8_t* block, uint32_t at, Change* change) noexcept nogil:
    # Append a DEFINE. `at` is the offset of the block in the message, by which the name is found.
    cdef int64_t tick = <int64_t>le64(block + B3_TICK)
    cdef int64_t multiplier = <int64_t>le64(block + B3_MULTIPLIER)
    cdef int64_t expires_s = <int64_t>le64(block + B3_EXPIRES)
    if block[B3_UPDATE] == c"D":
        return 0
    b3_change(change, VERB_DEFINE, le64(block + B3_ID))
    change.name = at + B3_SYMBOL + 1
    change.quantity = B3_SYMBOL_SIZE
    change.side = b3_security(block[B3_SECURITY])
    if 0 < tick < <int64_t>B3_DEFINED_MAX:
        change.order = <uint64_t>tick * 10
    if 0 < multiplier < <int64_t>B3_DEFINED_MAX:
        change.order_before = <uint64_t>multiplier * 10
    if 0 < expires_s < <int64_t>B3_EXPIRES_MAX:
        change.time_ns = expires_s * 1_000_000_000
    return 1


cdef inline int32_t b3_traded(
        const uint8_t* block, uint32_t size, Change* change) noexcept nogil:
    if size < B3_TRADE_SIZE:
        return OUTCOME_REFUSED
    b3_change(change, VERB_TRADE, le64(block + B3_ID))
    change.price = <int64_t>le64(block + B3_TRADE_PRICE)
    change.quantity = <int64_t>le64(block + B3_TRADE_QUANTITY)
    change.order = le32(block + B3_TRADE_ID)
    change.time_ns = <int64_t>le64(block + B3_TRADE_TIME)
    return 1


cdef inline int32_t b3_message(
        const uint8_t* block, uint32_t size, uint32_t template, uint32_t at,
        Change* change) noexcept nogil:
    # Append the changes of one message, with the marks of its event. `at` is the offset of the
    # block in the datagram.
    cdef int32_t made
    cdef bint ends
    if template == B3_CHANNEL_RESET:
        b3_change(change, VERB_CLEAR_STREAM, 0)
        return 1
    if b3_touches_none(template):
        return 0
    if template == B3_DEFINITION:
        return OUTCOME_REFUSED if size < B3_DEFINED_SIZE else b3_define(block, at, change)
    if template == B3_TRADE:
        return b3_traded(block, size, change)
    if size <= B3_INDICATOR or (
            template != B3_EMPTY_BOOK and (template < B3_ORDER or template > B3_MASS_DELETE)):
        return OUTCOME_REFUSED
    ends = block[B3_INDICATOR] & B3_EVENT_END
    if not ends:
        b3_change(change, VERB_EVENT_BEGIN, 0)
        change += 1
    made = b3_told(block, size, template, change)
    if made < 0:
        return made
    if ends:
        b3_change(change + made, VERB_EVENT_END, 0)
    return made + 1


cdef inline int32_t b3_decode(
        const uint8_t* data, uint32_t size, Change* changes, uint32_t room) noexcept nogil:
    cdef uint32_t count = 0, at = 0, length, block
    cdef int32_t made
    while at < size:
        if size - at < B3_BLOCK:
            return OUTCOME_REFUSED
        length = le16(data + at)
        block = le16(data + at + B3_BLOCK_SIZE)
        if length > size - at or length < B3_BLOCK + block or count + 2 > room:
            return OUTCOME_REFUSED
        made = b3_message(
            data + at + B3_BLOCK, block, le16(data + at + B3_TEMPLATE), at + B3_BLOCK,
            changes + count)
        if made < 0:
            return made
        count += <uint32_t>made
        at += length
    return <int32_t>count if count else OUTCOME_OPAQUE
