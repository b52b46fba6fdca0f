# Coinbase Derivatives: turns one datagram into changes. A put adds an order or changes one. The
# venue does not say whether a changed order keeps its place, so it goes to the end of its queue.
# Only the names in snapshots are used; the datagram says which instrument a snapshot is for.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.coinbase.layout cimport *
from udpfast.wire.load cimport le16, le32, le64


cdef inline int32_t coinbase_decode(
        const uint8_t* data, uint32_t size, uint32_t instrument, Change* changes,
        uint32_t room) noexcept nogil:
    cdef uint32_t count = 0, at = 0, length, block
    cdef int32_t made
    while at < size:
        if size - at < COINBASE_FLAGS:
            return OUTCOME_REFUSED
        length = le16(data + at)
        block = le16(data + at + COINBASE_BLOCK)
        if length > size - at or length < COINBASE_FLAGS + block or count + 5 > room:
            return OUTCOME_REFUSED
        made = coinbase_message(data, at, instrument, changes + count)
        if made < 0:
            return made
        count += <uint32_t>made
        at += length
    return <int32_t>count if count else OUTCOME_OPAQUE


cdef inline bint coinbase_touches_none(uint32_t template) noexcept nogil:
    # Return True for parts of a snapshot, which are not used, and for answers to retransmission
    # requests.
    return (template == COINBASE_SNAPSHOT_ORDER or template == COINBASE_SNAPSHOT_END
            or template == COINBASE_CYCLE_END or template == COINBASE_REQUEST
            or template == COINBASE_REJECT)


cdef inline uint32_t coinbase_size(uint32_t template) noexcept nogil:
    # Return the least size, up to the end of its block, of a template that counts in a chain; 0 for
    # other templates.
    if template == COINBASE_PUT:
        return COINBASE_QUANTITY + 4
    if template == COINBASE_DELETE:
        return COINBASE_PRICE
    if COINBASE_DEFINITION <= template <= COINBASE_DEFINITION_LAST:
        return COINBASE_NAME + COINBASE_NAME_SIZE
    return COINBASE_ORDER if template == COINBASE_STATUS or template == COINBASE_IMPLIED or (
        COINBASE_TRADE <= template <= COINBASE_TRADE_LAST
        or COINBASE_STATISTICS <= template <= COINBASE_STATISTICS_LAST) else 0


cdef inline int32_t coinbase_message(
        const uint8_t* data, uint32_t at, uint32_t instrument, Change* changes) noexcept nogil:
    cdef const uint8_t* message = data + at
    cdef uint32_t template = le16(message + COINBASE_TEMPLATE), count = 0
    cdef uint32_t size = COINBASE_FLAGS + <uint32_t>le16(message + COINBASE_BLOCK)
    cdef uint32_t least = coinbase_size(template)
    cdef Change* change = changes
    if COINBASE_SNAPSHOT <= template <= COINBASE_SNAPSHOT_LAST:
        if size < COINBASE_SNAPSHOT_NAME + COINBASE_NAME_SIZE:
            return OUTCOME_REFUSED
        coinbase_begin(instrument, VERB_DEFINE, change)
        coinbase_define(message, at, COINBASE_SNAPSHOT_NAME, size, template, change)
        return 1
    if coinbase_touches_none(template):
        return 0
    if least == 0 or size < least:
        return OUTCOME_REFUSED
    instrument = le32(message + COINBASE_ID)
    if COINBASE_DEFINITION <= template <= COINBASE_DEFINITION_LAST:
        coinbase_begin(instrument, VERB_DEFINE, change)
        coinbase_define(message, at, COINBASE_NAME, size, template, change)
        count += 1
    if message[COINBASE_FLAGS] & COINBASE_BEGINS:
        coinbase_begin(instrument, VERB_EVENT_BEGIN, changes + count)
        count += 1
    change = changes + count
    coinbase_begin(instrument, VERB_CHAIN, change)
    change.chain = le32(message + COINBASE_CHAIN)
    change.time_ns = <int64_t>le64(message + COINBASE_TIME)
    count += 1
    if message[COINBASE_FLAGS] & COINBASE_CLEARS:
        change.verb = VERB_CLEAR
        if COINBASE_PUT <= template <= COINBASE_DELETE:
            changes[count] = change[0]
            change = changes + count
            change.chain = 0
            count += 1
    if COINBASE_PUT <= template <= COINBASE_DELETE:
        change.verb = VERB_PUT if template == COINBASE_PUT else VERB_DELETE
        change.order = le64(message + COINBASE_ORDER)
        change.side = change_side(message[COINBASE_SIDE], 1, COINBASE_ASK)
    if template == COINBASE_PUT:
        change.price = <int64_t>le64(message + COINBASE_PRICE)
        change.quantity = <int32_t>le32(message + COINBASE_QUANTITY)
    if message[COINBASE_FLAGS] & COINBASE_ENDS:
        coinbase_begin(instrument, VERB_EVENT_END, changes + count)
        count += 1
    return <int32_t>count


cdef inline void coinbase_define(
        const uint8_t* message, uint32_t at, uint32_t name, uint32_t size, uint32_t template,
        Change* change) noexcept nogil:
    # Fill in the name's place and the properties of an instrument.
    cdef uint32_t kind = template % 100 - COINBASE_DEFINITION
    change.name = at + name + 1
    change.quantity = COINBASE_NAME_SIZE
    if size >= name + COINBASE_TICK + 8:
        change.order = le64(message + name + COINBASE_TICK)
    change.side = SECURITY_OPTION if kind == 2 else 0 if kind else SECURITY_FUTURES


cdef inline void coinbase_begin(
        uint32_t instrument, uint8_t verb, Change* change) noexcept nogil:
    memset(change, 0, sizeof(Change))
    change.verb = verb
    change.instrument = instrument
    change.side = SIDE_NONE
    change.price = PRICE_NONE
