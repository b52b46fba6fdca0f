# T7 EOBI: turns one datagram into changes. Orders have no ids. An order's priority, a time stamp,
# is unique among the orders of its instrument and side, so the id here is twice the stamp, plus one
# for a sell order. Orders without a price (market orders) are in no book. The loops are in
# loop.pxd.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.eobi.layout cimport *
from udpfast.wire.load cimport le16, le32, le64


cdef inline Change* eobi_change(
        Change* change, uint8_t verb, const uint8_t* id, int64_t time_ns) noexcept nogil:
    memset(change, 0, sizeof(Change))
    change.verb = verb
    change.instrument = le64(id)
    change.time_ns = time_ns
    change.side = SIDE_NONE
    change.price = PRICE_NONE
    return change


cdef inline bint eobi_order(Change* change, uint64_t priority, uint8_t side) noexcept nogil:
    # Set an order's side, id and priority. Return False if its side is neither buy nor sell.
    change.side = SIDE_BID if side == EOBI_BUY else SIDE_ASK
    change.order = priority << 1 | change.side
    change.order_before = priority
    change.flags = CHANGE_PRIORITY
    return side == EOBI_BUY or side == EOBI_SELL


cdef inline bint eobi_quantity(Change* change, uint64_t units) noexcept nogil:
    # Read a quantity with four decimals. Return False if it is not a whole number.
    change.quantity = <int64_t>(units // EOBI_QUANTITY_UNIT)
    return units % EOBI_QUANTITY_UNIT == 0


cdef inline bint eobi_is_other(const uint8_t* details) noexcept nogil:
    # Return True if 32 bytes of details are not version 13 with padding, but a later layout that
    # has the price four bytes further back. Such a price read by version 13's layout has a lower
    # half of 0, which no tick size allows.
    cdef uint32_t lower = le32(details + EOBI_PRICE_13)
    cdef uint32_t upper = le32(details + EOBI_PRICE_13 + 4)
    return le32(details + EOBI_DETAILS_13) != 0 or (
        lower == 0 and upper != 0 and upper != EOBI_PRICE_NULL_UPPER)


cdef inline bint eobi_details(
        Change* change, const uint8_t* message, uint32_t length, uint32_t at) noexcept nogil:
    # Read an order by the version that has this many bytes of details. Return False if there is
    # none.
    cdef const uint8_t* details = message + at
    cdef uint8_t side
    if length >= at + EOBI_DETAILS_PADDED and eobi_is_other(details):
        return False
    if length >= at + EOBI_DETAILS_13:
        side = details[EOBI_SIDE_13]
        change.price = <int64_t>le64(details + EOBI_PRICE_13)
        if not eobi_quantity(change, le64(details + EOBI_QUANTITY)):
            return False
    elif length >= at + EOBI_DETAILS:
        side = details[EOBI_SIDE]
        change.price = <int64_t>le64(details + EOBI_PRICE)
        change.quantity = <int32_t>le32(details + EOBI_QUANTITY)
    else:
        return False
    return eobi_order(change, le64(details), side)


cdef inline int32_t eobi_execution(
        const uint8_t* message, uint32_t length, bint full, Change* change) noexcept nogil:
    cdef bint later
    cdef uint64_t match
    if length < EOBI_EXECUTED_SIZE:
        return OUTCOME_REFUSED
    later = le32(message + EOBI_MATCH_13) != 0
    match = le32(message + (EOBI_MATCH_13 if later else EOBI_MATCH))
    eobi_change(change, VERB_EXECUTE, message + EOBI_EXECUTED_ID, 0)
    if not eobi_order(change, le64(message + EOBI_EXECUTED_PRIORITY),
                      message[EOBI_EXECUTED_SIDE]):
        return OUTCOME_REFUSED
    if not later:
        change.quantity = <int32_t>le32(message + EOBI_LAST_QUANTITY)
    elif not eobi_quantity(change, le64(message + EOBI_LAST_QUANTITY_13)):
        return OUTCOME_REFUSED
    change.price = <int64_t>le64(message + EOBI_LAST_PRICE)
    if change.quantity <= 0 or change.price == PRICE_NONE:
        return OUTCOME_REFUSED   # each execution has both: what lacks one is damaged
    change.order_before = match
    change.flags = CHANGE_REST if full else 0     # with `orders` 0: nothing is left of the order
    if <int64_t>le64(message + EOBI_EXECUTED_PRICE) == PRICE_NONE:
        change.verb = VERB_TRADE
        change.order = match
        change.side = 1 - change.side             # the side of the taker
    return 1


cdef inline int32_t eobi_modify(
        const uint8_t* message, uint32_t length, Change* change) noexcept nogil:
    # The order leaves its old place and joins another queue.
    cdef int64_t time_ns
    cdef int32_t count = 0
    cdef Change new
    if length < EOBI_MODIFY_DETAILS:
        return OUTCOME_REFUSED
    time_ns = <int64_t>le64(message + EOBI_TIME)
    eobi_change(&new, VERB_ADD, message + EOBI_MODIFY_ID, time_ns)
    if not eobi_details(&new, message, length, EOBI_MODIFY_DETAILS):
        return OUTCOME_REFUSED
    if <int64_t>le64(message + EOBI_PREVIOUS_PRICE) != PRICE_NONE:
        eobi_change(change, VERB_DELETE, message + EOBI_MODIFY_ID, time_ns)
        eobi_order(change, le64(message + EOBI_PREVIOUS_PRIORITY), new.side + 1)
        count = 1
    if new.price != PRICE_NONE:
        change[count] = new
        count += 1
    return count


cdef inline bint eobi_touches_none(uint32_t template) noexcept nogil:
    return (template == EOBI_HEARTBEAT or EOBI_REVERSAL <= template <= EOBI_REPORT_OFF_BOOK
            or EOBI_PRODUCT_STATE <= template <= EOBI_STATES
            or EOBI_INSTRUMENT <= template <= EOBI_INSTRUMENT_SCALED
            or EOBI_AUCTION <= template <= EOBI_TOP
            or EOBI_PRODUCT <= template <= EOBI_SNAPSHOT_ORDER)


cdef inline int32_t eobi_message(
        const uint8_t* message, uint32_t length, Change* change) noexcept nogil:
    cdef uint32_t template = le16(message + EOBI_TEMPLATE)
    cdef uint32_t id, details
    if eobi_touches_none(template):
        return 0
    if template == EOBI_FULL_EXECUTION or template == EOBI_PARTIAL_EXECUTION:
        return eobi_execution(message, length, template == EOBI_FULL_EXECUTION, change)
    if template == EOBI_MODIFY:
        return eobi_modify(message, length, change)
    if template == EOBI_MASS_DELETE:
        if length < EOBI_MASS_DELETE_TIME + 8:
            return OUTCOME_REFUSED
        eobi_change(change, VERB_CLEAR, message + EOBI_MASS_DELETE_ID,
                    <int64_t>le64(message + EOBI_MASS_DELETE_TIME))
        return 1
    if template == EOBI_ADD:
        id, details = EOBI_ADD_ID, EOBI_ADD_DETAILS
    elif template == EOBI_DELETE:
        id, details = EOBI_DELETE_ID, EOBI_DELETE_DETAILS
    elif template == EOBI_MODIFY_SAME_PRIORITY:
        id, details = EOBI_SAME_ID, EOBI_SAME_DETAILS
    else:
        return OUTCOME_REFUSED   # nobody knows the template
    if length < details:
        return OUTCOME_REFUSED
    eobi_change(
        change, VERB_ADD if template == EOBI_ADD else VERB_CHANGE, message + id,
        <int64_t>le64(message + EOBI_TIME))
    if template == EOBI_DELETE:
        change.verb = VERB_DELETE
    if not eobi_details(change, message, length, details):
        return OUTCOME_REFUSED
    return 0 if change.price == PRICE_NONE else 1


cdef inline int32_t eobi_decode(
        const uint8_t* data, uint32_t size, Change* changes, uint32_t room) noexcept nogil:
    cdef uint32_t count = 0, at = 0, length
    cdef int32_t made
    while at < size:
        if size - at < EOBI_FIELDS:
            return OUTCOME_REFUSED
        length = le16(data + at)
        if length < EOBI_FIELDS or length > size - at or count + 2 > room:
            return OUTCOME_REFUSED
        made = eobi_message(data + at, length, changes + count)
        if made < 0:
            return made
        count += <uint32_t>made
        at += length
    return <int32_t>count if count else OUTCOME_OPAQUE
