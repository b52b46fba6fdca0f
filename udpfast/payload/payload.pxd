# The payloads that the feed decodes into updates: a closed list, chosen by name in the settings.
#
#     payload_control(&context, &message)        each GAP and SESSION, before it is published
#     context.step = 0
#     while (kind = payload_next(&context, &message, space, room, &names)) > 0:
#         ... publish the update; context.found holds the fields of its record ...
#
# Roq's messages do not pass here: payload/roq/decode decodes them and verifies them by a schema.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.core.layout cimport Message
from udpfast.market.found cimport OUTCOME_OPAQUE, Found
from udpfast.market.market cimport MarketSettings
from udpfast.market.names cimport Names
from udpfast.market.publish cimport PUBLISH_ROOM
from udpfast.payload.traits cimport PAYLOAD_NONE
from udpfast.payload.venue cimport (
    Venue, venue_control, venue_disputed, venue_expect, venue_init, venue_is, venue_memory_size,
    venue_next)

cdef struct PayloadContext:
    int payload                  # Payload
    int step                     # calls of payload_next for this message so far
    Found found                  # what the last call found
    Venue venue


cdef inline size_t payload_memory_size(
        int payload, const MarketSettings* settings) noexcept nogil:
    # Return the bytes of memory that the payload needs, a multiple of 8.
    return venue_memory_size(payload, settings) if venue_is(payload) else 0


cdef inline void payload_init(
        PayloadContext* context, int payload, const MarketSettings* settings, uint8_t* memory,
        int64_t* feed) noexcept nogil:
    # Start without any books. The caller keeps `memory` alive: payload_memory_size bytes, aligned
    # to 8.
    memset(context, 0, sizeof(PayloadContext))
    context.payload = payload
    if venue_is(payload):
        venue_init(&context.venue, payload, settings, memory, feed)


cdef inline void payload_control(
        PayloadContext* context, const Message* message) noexcept nogil:
    # Apply a GAP or SESSION to the books: a gap puts them in doubt, a session may empty them.
    if venue_is(context.payload):
        venue_control(&context.venue, message)


cdef inline bint payload_disputed(
        PayloadContext* context, Message* message) noexcept nogil:
    # Turn a message of which two copies differ into one of the stream whose books it changed; the
    # caller publishes a GAP of that. Return False if it changed no book.
    return venue_is(context.payload) and venue_disputed(&context.venue, message)


cdef inline bint payload_withheld(const PayloadContext* context) noexcept nogil:
    # Return True if the last message changed a book that is in doubt.
    return context.venue.market.withheld


cdef inline bint payload_looks_ahead(const PayloadContext* context) noexcept nogil:
    # Return True if the payload makes use of payload_expect.
    return context.venue.looks_ahead


cdef inline void payload_expect(
        PayloadContext* context, const uint8_t* data, uint32_t size) noexcept nogil:
    # Announce the message that follows AHEAD messages later, so that its memory is fetched in time.
    # Call it between messages; size 0 means that no such message is there yet.
    venue_expect(&context.venue, data, size)


cdef inline int32_t payload_next(
        PayloadContext* context, const Message* message, uint8_t* into, uint32_t room,
        Names* names) noexcept nogil:
    # Decode the next update of a message into `into`. Return its kind, 0 if there is no further
    # update, or OUTCOME_* (below 0) if the message has none.
    if venue_is(context.payload):
        context.step += 1
        return venue_next(&context.venue, message, context.step == 1, into, room, names,
                          &context.found)
    memset(&context.found, 0, sizeof(Found))
    return OUTCOME_OPAQUE
