# CSM: turns one message into changes. Levels come by place. A refresh in the stream is a snapshot
# of its instrument, as of its own number. The order of levels is that of their places, because the
# bids of a strategy may have prices that rise from place to place.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.csm.layout cimport *
from udpfast.wire.load cimport be32


cdef inline Change* csm_change(
        const uint8_t* data, Change* change, int verb, uint32_t chain) noexcept nogil:
    memset(change, 0, sizeof(Change))
    change.verb = <uint8_t>verb
    change.instrument = (<uint64_t>be32(data + CSM_CLASS) << 32) | be32(data + CSM_SECURITY)
    change.chain = chain
    change.price = PRICE_NONE
    change.side = SIDE_NONE
    return change


cdef inline bint csm_price(const uint8_t* at, int64_t* price) noexcept nogil:
    # Read a price: i8 exponent, i32 mantissa. Return False if it does not fit CSM_DECIMALS.
    cdef int exponent = <int8_t>at[0] + CSM_DECIMALS
    cdef int _
    if exponent < 0 or exponent > 9 + CSM_DECIMALS:
        return False
    price[0] = <int32_t>be32(at + 1)
    for _ in range(min(exponent, 9)):
        price[0] *= 10
    return exponent <= 9


cdef inline int32_t csm_decode(
        const uint8_t* data, uint32_t size, uint64_t number, Change* changes,
        uint32_t room) noexcept nogil:
    cdef uint8_t template = data[CSM_TEMPLATE] if size > CSM_TEMPLATE else 0
    cdef bint refresh = template == CSM_REFRESH
    cdef uint32_t chain, at, _, k, actions = 0 if refresh else 1
    cdef Change* change = changes
    if template == CSM_DEFINITION or template == CSM_HEARTBEAT:
        return OUTCOME_OPAQUE
    if template < CSM_REFRESH or template > CSM_STATE or size <= CSM_STATUS:
        return OUTCOME_REFUSED
    chain = be32(data + CSM_CHAIN)
    if template == CSM_STATE:
        csm_change(data, change, VERB_CHAIN, chain)
        return 1
    at = CSM_ENTRIES + refresh
    if size < at:
        return OUTCOME_REFUSED
    csm_change(data, change, VERB_BEGIN_SNAPSHOT if refresh else VERB_CHAIN, chain)
    change.order = number if refresh else 0
    change += 1
    for _ in range(data[at - 1]):
        if size - at < 8 + actions or change + 2 > changes + room:
            return OUTCOME_REFUSED
        if not refresh and csm_verb(data[at]) == 0:
            return OUTCOME_REFUSED
        csm_change(data, change, VERB_PLACE_SET, 0)
        change.flags = CHANGE_ROW if refresh else 0
        if not refresh:
            change.verb = <uint8_t>csm_verb(data[at])
        change.side = change_side(data[at + actions], c"0", c"1")
        change.place = data[at + actions + 1]
        if change.side == SIDE_NONE or not csm_price(data + at + actions + 2, &change.price):
            return OUTCOME_REFUSED
        at += actions + 8
        k = data[at - 1]
        if size - at < 5 * k:
            return OUTCOME_REFUSED
        while k:
            change.quantity += be32(data + at + 1)
            at += 5
            k -= 1
        change += 1
    if refresh:
        csm_change(data, change, VERB_END_SNAPSHOT, 0)
        change += 1
    return <int32_t>(change - changes)


cdef inline int csm_verb(uint8_t action) noexcept nogil:
    # Return the verb for an action, or 0 if the action is unknown.
    if action == 0:
        return VERB_PLACE_NEW
    if action == 1:
        return VERB_PLACE_SET
    if action == 2:
        return VERB_PLACE_DELETE
    return VERB_PLACE_OVERLAY if action == 5 else 0
