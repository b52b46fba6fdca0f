# Decodes an event payload into an update: verifies it, then writes straight into the given room.
#
#     result = decode_event(payload, size, space, room, &names, &context)
#     if result > 0: the update's kind; context.size bytes of `space` are the update (updates.pxd)
#     else:          an OUTCOME_* code (market/found); `space` has no defined contents
#
# decode_count adds the outcome of a call to the feed's counters.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.counter cimport (
    FEED_DECODE_REFUSED,
    FEED_FIELDS_UNKNOWN,
    FEED_NAMES_FULL,
    FEED_NAMES_LONG,
    FEED_RECORDS_TOO_LARGE,
    FEED_STREAM_STATUS,
    FEED_TRUNCATED,
    FEED_TYPES_NONE,
    FEED_TYPES_OPAQUE,
    FEED_TYPES_UNKNOWN,
    FEED_UPDATES,
)
from udpfast.market.found cimport (
    OUTCOME_NONE,
    OUTCOME_OPAQUE,
    OUTCOME_REFUSED,
    OUTCOME_STREAM_STATUS,
    OUTCOME_UNKNOWN,
)
from udpfast.market.names cimport Names
from udpfast.payload.roq.flatbuffer cimport Shapes
from udpfast.payload.roq.vtable_plan cimport Plans

cdef enum:
    SUPPORT_MARKET_DATA = 0xFF   # schema SupportType: everything that is market data

cdef struct DecodeContext:
    uint64_t support_mask        # setting: GatewayStatus.supported & support_mask is published
    Shapes shapes                # the verifier's memory
    Plans plans                  # plans of the fast types (fast.pxd)
    # The outcome of the last call; each call zeroes it first.
    uint32_t size                # bytes of the update
    uint32_t message_type        # union code
    uint32_t exchange_id
    uint32_t symbol_id
    uint32_t flags               # RECORD_TRUNCATED (a cut text, or a name without an id) or 0
    uint32_t truncated           # texts that were cut
    uint32_t names_full          # names that the table had no room for
    uint32_t names_long          # names longer than the table allows
    uint64_t fields_unknown


# Decode one event payload.
#
# payload, size   borrowed, any alignment
# into, room      where the update goes; aligned to 8 if it is to be read in place
# names           the table in which exchange and symbol are interned
cdef int32_t decode_event(
    const uint8_t* payload, uint32_t size, uint8_t* into, uint32_t room, Names* names,
    DecodeContext* context) noexcept nogil


# The same by the general path alone, which takes every payload. Tests compare decode_event's
# shorter path with it.
cdef int32_t decode_any(
    const uint8_t* payload, uint32_t size, uint8_t* into, uint32_t room, Names* names,
    DecodeContext* context) noexcept nogil


cdef inline void decode_init(DecodeContext* context, uint64_t support_mask) noexcept nogil:
    memset(context, 0, sizeof(DecodeContext))
    context.support_mask = support_mask


cdef inline uint32_t decode_size_bound(uint32_t payload_size) noexcept nogil:
    # Return a size that no update of such a payload exceeds. The verifier makes sure that a row
    # takes at least 8 bytes of payload; the widest row (Trade) has 136 bytes, the widest fixed part
    # 608.
    return 608 + (payload_size >> 3) * 136


cdef inline void decode_count(
        int64_t* feed, int32_t result, const DecodeContext* context) noexcept nogil:
    # Count the outcome of one call (core/counter, FeedCounter).
    if result > 0:
        counter_add(&feed[FEED_UPDATES], 1)
        if context.truncated:
            counter_add(&feed[FEED_TRUNCATED], context.truncated)
        if context.names_full:
            counter_add(&feed[FEED_NAMES_FULL], context.names_full)
        if context.names_long:
            counter_add(&feed[FEED_NAMES_LONG], context.names_long)
    elif result == OUTCOME_REFUSED:
        counter_add(&feed[FEED_DECODE_REFUSED], 1)
    elif result == OUTCOME_NONE:
        counter_add(&feed[FEED_TYPES_NONE], 1)
    elif result == OUTCOME_OPAQUE:
        counter_add(&feed[FEED_TYPES_OPAQUE], 1)
    elif result == OUTCOME_UNKNOWN:
        counter_add(&feed[FEED_TYPES_UNKNOWN], 1)
    elif result == OUTCOME_STREAM_STATUS:
        counter_add(&feed[FEED_STREAM_STATUS], 1)
    else:
        counter_add(&feed[FEED_RECORDS_TOO_LARGE], 1)
    if context.fields_unknown:
        counter_add(&feed[FEED_FIELDS_UNKNOWN], context.fields_unknown)
