# The payloads that become updates: a closed list, chosen by name in the settings, one branch each.
#
#     payload_control(&context, &message)        of GAP and SESSION, before they are published
#     context.step = 0
#     while (kind = payload_next(&context, &message, space, room, &names)) > 0:
#         ... context.found is what to say of the update in its record ...
#
# Roq's messages are decoded by payload/roq/decode: they verify what they read by a schema.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.layout cimport KIND_GAP, KIND_SESSION, Gap, Message, Session
from udpfast.market.found cimport OUTCOME_OPAQUE, Found
from udpfast.market.market cimport MarketSettings
from udpfast.market.names cimport Names
from udpfast.market.publish cimport PUBLISH_ROOM
from udpfast.payload.iex.updates cimport (
    IexMessage,
    IexState,
    iex_decode,
    iex_gap,
    iex_init,
    iex_memory_size,
    iex_session,
)
from udpfast.payload.traits cimport (
    PAYLOAD_IEX_DEEP, PAYLOAD_IEX_TOPS, PAYLOAD_NONE, PAYLOAD_ROQ)
from udpfast.payload.venue cimport (
    Venue, venue_control, venue_init, venue_is, venue_memory_size, venue_next)

cdef struct PayloadContext:
    int payload                  # Payload
    int step                     # calls of payload_next for this message so far
    Found found                  # by the last call
    IexState iex
    Venue venue


cdef inline size_t payload_memory_size(
        int payload, uint64_t names_capacity, const MarketSettings* settings) noexcept nogil:
    # A multiple of 8.
    if venue_is(payload):
        return venue_memory_size(payload, settings)
    if payload == PAYLOAD_IEX_TOPS or payload == PAYLOAD_IEX_DEEP:
        return iex_memory_size(names_capacity)
    return 0


cdef inline void payload_init(
        PayloadContext* context, int payload, uint64_t names_capacity,
        const MarketSettings* settings, uint8_t* memory, int64_t* feed) noexcept nogil:
    # Nothing is known. The memory, payload_memory_size bytes aligned to 8, is borrowed.
    memset(context, 0, sizeof(PayloadContext))
    context.payload = payload
    if venue_is(payload):
        venue_init(&context.venue, payload, settings, memory, feed)
    if payload == PAYLOAD_IEX_TOPS or payload == PAYLOAD_IEX_DEEP:
        iex_init(&context.iex, memory, names_capacity, payload == PAYLOAD_IEX_DEEP)


cdef inline void payload_control(
        PayloadContext* context, const Message* message) noexcept nogil:
    # What is lost, or begins, puts in doubt, or empties, what decoders keep.
    cdef Session session
    if venue_is(context.payload):
        venue_control(&context.venue, message)
        return
    if context.payload != PAYLOAD_IEX_TOPS and context.payload != PAYLOAD_IEX_DEEP:
        return
    if message.kind == KIND_GAP:
        iex_gap(&context.iex, message.stream)
    elif message.kind == KIND_SESSION and message.size >= sizeof(Session):
        memcpy(&session, message.payload, sizeof(Session))
        iex_session(&context.iex, message.stream, session.first_number, session.unseen)


cdef inline int32_t payload_next(
        PayloadContext* context, const Message* message, uint8_t* into, uint32_t room,
        Names* names) noexcept nogil:
    # The next update of a message: its kind; 0: no more; below 0: OUTCOME_*, there is none.
    cdef IexMessage iex
    if venue_is(context.payload):
        context.step += 1
        return venue_next(&context.venue, message, context.step == 1, into, room, names,
                          &context.found)
    if context.step:
        return 0
    context.step += 1
    if context.payload == PAYLOAD_IEX_TOPS or context.payload == PAYLOAD_IEX_DEEP:
        iex.data = message.payload
        iex.size = message.size
        iex.stream = message.stream
        iex.number = message.number
        iex.sent_ns = message.sent_ns
        return iex_decode(&context.iex, &iex, into, room, names, &context.found)
    memset(&context.found, 0, sizeof(Found))
    return OUTCOME_OPAQUE
