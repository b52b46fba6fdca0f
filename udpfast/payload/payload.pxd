# The payloads that become updates: a closed list, chosen by name in the settings.
#
#     payload_control(&context, &message)        of GAP and SESSION, before they are published
#     context.step = 0
#     while (kind = payload_next(&context, &message, space, room, &names)) > 0:
#         ... context.found is what to say of the update in its record ...
#
# Roq's messages are decoded by payload/roq/decode: they verify what they read by a schema.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.core.layout cimport Message
from udpfast.market.found cimport OUTCOME_OPAQUE, Found
from udpfast.market.market cimport MarketSettings
from udpfast.market.names cimport Names
from udpfast.market.publish cimport PUBLISH_ROOM
from udpfast.payload.traits cimport PAYLOAD_NONE
from udpfast.payload.venue cimport (
    Venue, venue_control, venue_expect, venue_init, venue_is, venue_memory_size, venue_next)

cdef struct PayloadContext:
    int payload                  # Payload
    int step                     # calls of payload_next for this message so far
    Found found                  # by the last call
    Venue venue


cdef inline size_t payload_memory_size(
        int payload, const MarketSettings* settings) noexcept nogil:
    # A multiple of 8.
    return venue_memory_size(payload, settings) if venue_is(payload) else 0


cdef inline void payload_init(
        PayloadContext* context, int payload, const MarketSettings* settings, uint8_t* memory,
        int64_t* feed) noexcept nogil:
    # Nothing is known. The memory, payload_memory_size bytes aligned to 8, is borrowed.
    memset(context, 0, sizeof(PayloadContext))
    context.payload = payload
    if venue_is(payload):
        venue_init(&context.venue, payload, settings, memory, feed)


cdef inline void payload_control(
        PayloadContext* context, const Message* message) noexcept nogil:
    # What is lost, or begins, puts in doubt, or empties, what a market keeps.
    if venue_is(context.payload):
        venue_control(&context.venue, message)


cdef inline bint payload_looks_ahead(const PayloadContext* context) noexcept nogil:
    # Whether payload_expect is worth its time.
    return context.venue.looks_ahead


cdef inline void payload_expect(
        PayloadContext* context, const uint8_t* data, uint32_t size) noexcept nogil:
    # Between messages: the one that comes AHEAD messages later; without a byte: none is there yet.
    venue_expect(&context.venue, data, size)


cdef inline int32_t payload_next(
        PayloadContext* context, const Message* message, uint8_t* into, uint32_t room,
        Names* names) noexcept nogil:
    # The next update of a message: its kind; 0: no more; below 0: OUTCOME_*, there is none.
    if venue_is(context.payload):
        context.step += 1
        return venue_next(&context.venue, message, context.step == 1, into, room, names,
                          &context.found)
    memset(&context.found, 0, sizeof(Found))
    return OUTCOME_OPAQUE
