"""Turn venues' messages into updates: the closed list of decoders, over `market`."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport CHANNEL_SNAPSHOT, Gap, KIND_GAP, KIND_SESSION, Message, Session
from udpfast.market.ahead cimport ahead_hand_over, ahead_note
from udpfast.market.change cimport CHANGES_MAX, VERB_CHAIN, Change, Traits
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED, Found
from udpfast.market.market cimport (
    MARKET_STREAMS, Market, MarketSettings, market_apply, market_begin, market_disputed,
    market_full, market_gap, market_init, market_memory_size, market_session)
from udpfast.market.names cimport Names
from udpfast.market.publish cimport publish_next
from udpfast.payload.b3.decode cimport b3_decode
from udpfast.payload.b3.loop cimport b3_loop_decode
from udpfast.payload.cme.decode cimport cme_decode
from udpfast.payload.coinbase.decode cimport coinbase_decode
from udpfast.payload.csm.decode cimport csm_decode
from udpfast.payload.deribit.decode cimport deribit_decode
from udpfast.payload.eobi.decode cimport eobi_decode
from udpfast.payload.eobi.loop cimport EobiNumbers, eobi_loop_decode, eobi_note
from udpfast.payload.ice.decode cimport ice_decode
from udpfast.payload.iex.decode cimport iex_decode
from udpfast.payload.itch.decode cimport itch_decode
from udpfast.payload.itch.layout cimport ITCH_LOCATE, ITCH_ORDER
from udpfast.payload.memx.decode cimport memx_decode
from udpfast.payload.miax.decode cimport miax_decode
from udpfast.payload.nyse.decode cimport nyse_decode
from udpfast.payload.nyse.loop cimport nyse_loop_decode
from udpfast.payload.pitch.decode cimport pitch_decode
from udpfast.payload.pitch.layout cimport PITCH_ORDER
from udpfast.payload.served cimport served_decode
from udpfast.payload.traits cimport *
from udpfast.wire.load cimport be16, be64, le64

__all__ = []


cdef bint venue_is(int payload) noexcept nogil:
    return venue_traits(payload) != NULL


cdef size_t venue_memory_size(int payload, const MarketSettings* settings) noexcept nogil:
    return (market_memory_size(venue_traits(payload), settings) + numbers_size(payload)
            + <size_t>CHANGES_MAX * sizeof(Change) + 64)


cdef inline size_t numbers_size(int payload) noexcept nogil:
    return LOOPS * sizeof(EobiNumbers) if payload == PAYLOAD_EOBI else 0


cdef void venue_init(
        Venue* venue, int payload, const MarketSettings* settings, uint8_t* memory,
        int64_t* feed) noexcept nogil:
    memset(venue, 0, sizeof(Venue))
    venue.payload = payload
    venue.looks_ahead = payload == PAYLOAD_ITCH or payload == PAYLOAD_PITCH
    venue.changes = <Change*>memory
    memset(memory, 0, <size_t>CHANGES_MAX * sizeof(Change) + numbers_size(payload))
    memory += <size_t>CHANGES_MAX * sizeof(Change)
    if payload == PAYLOAD_EOBI:
        venue.numbers = <EobiNumbers*>memory
    memory += numbers_size(payload)
    market_init(&venue.market, venue_traits(payload), settings, memory, feed)


cdef void venue_expect(Venue* venue, const uint8_t* data, uint32_t size) noexcept nogil:
    # Read the order's id where most messages have it. For a message that has something else there,
    # the guess is wrong and costs one useless fetch; to check the message's type would cost more.
    if venue.payload == PAYLOAD_ITCH and size >= ITCH_ORDER + 8:
        ahead_note(
            &venue.market, &venue.ahead, True, be16(data + ITCH_LOCATE), be64(data + ITCH_ORDER))
    elif venue.payload == PAYLOAD_PITCH and size >= PITCH_ORDER + 8:
        ahead_note(&venue.market, &venue.ahead, True, 0, le64(data + PITCH_ORDER))
    else:
        ahead_note(&venue.market, &venue.ahead, False, 0, 0)


cdef void venue_control(Venue* venue, const Message* message) noexcept nogil:
    cdef Session session
    cdef Gap gap
    if message.kind == KIND_GAP and message.size >= sizeof(Gap):
        memcpy(&gap, message.payload, sizeof(Gap))
        market_gap(&venue.market, message.stream, gap.last)
    elif message.kind == KIND_SESSION and message.size >= sizeof(Session):
        memcpy(&session, message.payload, sizeof(Session))
        market_session(&venue.market, message.stream, message.session, &session)


cdef bint venue_disputed(Venue* venue, Message* message) noexcept nogil:
    return market_disputed(&venue.market, message)


cdef int32_t venue_decode(
        int payload, const Message* message, Change* changes) noexcept nogil:
    if payload == PAYLOAD_ITCH:
        return itch_decode(message.payload, message.size, changes)
    if payload == PAYLOAD_PITCH:
        return pitch_decode(message.payload, message.size, changes)
    if payload == PAYLOAD_CME:
        return cme_decode(message.payload, message.size, changes, CHANGES_MAX)
    if payload == PAYLOAD_DERIBIT:
        return deribit_decode(message.payload, message.size, changes, CHANGES_MAX)
    if payload == PAYLOAD_CSM:
        return csm_decode(message.payload, message.size, message.number, changes, CHANGES_MAX)
    if payload == PAYLOAD_IEX_TOPS or payload == PAYLOAD_IEX_DEEP or (
            payload == PAYLOAD_IEX_DEEP_PLUS):
        return iex_decode(payload, message.payload, message.size, changes)
    if payload == PAYLOAD_ICE:
        return ice_decode(message.payload, message.size, changes)
    if payload == PAYLOAD_NYSE_INTEGRATED or payload == PAYLOAD_NYSE_IMBALANCES:
        return nyse_decode(
            message.payload, message.size, payload == PAYLOAD_NYSE_INTEGRATED, changes)
    if payload == PAYLOAD_MEMX:
        return memx_decode(message.payload, message.size, changes)
    if payload == PAYLOAD_COINBASE:
        return coinbase_decode(
            message.payload, message.size, message.object, changes, CHANGES_MAX)
    if payload == PAYLOAD_EOBI:
        return eobi_decode(message.payload, message.size, changes, CHANGES_MAX)
    if payload == PAYLOAD_B3:
        return b3_decode(message.payload, message.size, changes, CHANGES_MAX)
    if payload == PAYLOAD_MIAX:
        return miax_decode(message.payload, message.size, changes)
    # No decoder: refuse the message rather than read it by another venue's layout.
    return OUTCOME_REFUSED


cdef int32_t venue_decode_loop(Venue* venue, const Message* message) noexcept nogil:
    # Decode a datagram of snapshots whose parts do not name their snapshot.
    cdef Market* market = &venue.market
    cdef VenueLoop* loop = venue.loops + message.stream % LOOPS
    if loop.stream != message.stream:
        memset(loop, 0, sizeof(VenueLoop))
        loop.stream = message.stream
    if venue.payload == PAYLOAD_B3:
        return b3_loop_decode(
            message, market.streams[market.stream].session_id, &loop.b3, venue.changes, CHANGES_MAX)
    if venue.payload == PAYLOAD_EOBI:
        return eobi_loop_decode(
            message, venue.numbers + market.stream % LOOPS, market.stream, &loop.eobi,
            venue.changes, CHANGES_MAX)
    if venue.payload == PAYLOAD_NYSE_INTEGRATED:
        return nyse_loop_decode(message, &loop.nyse, venue.changes, CHANGES_MAX)
    return OUTCOME_REFUSED


cdef inline bint is_spoken(const Market* market, const Message* message) noexcept nogil:
    # Return True if the message's stream carries this payload's protocol. A venue may send several
    # protocols on the same lines.
    cdef const Traits* traits = market.traits
    cdef uint32_t protocol
    if traits.protocols[0] == 0 or message.stream >= MARKET_STREAMS:
        return True
    protocol = market.streams[message.stream].venue >> 16
    return protocol == traits.protocols[0] or protocol == traits.protocols[1]


cdef int32_t venue_next(
        Venue* venue, const Message* message, bint begins, uint8_t* into, uint32_t room,
        Names* names, Found* found) noexcept nogil:
    cdef Market* market = &venue.market
    cdef int32_t kind
    memset(found, 0, sizeof(Found))
    if begins:
        market_begin(market, message, names)
        venue.telling = False
        venue.applied = venue.changes_count = 0
        if venue.looks_ahead:
            ahead_hand_over(market, &venue.ahead)
        if unlikely(message.channel == CHANNEL_SNAPSHOT and market.settings.held_max):
            kind = served_decode(message.payload, message.size, venue.changes, CHANGES_MAX)
        else:
            kind = OUTCOME_OPAQUE
            if unlikely(message.channel == CHANNEL_SNAPSHOT and (
                    venue.payload == PAYLOAD_B3 or venue.payload == PAYLOAD_NYSE_INTEGRATED
                    or venue.payload == PAYLOAD_EOBI)):
                kind = venue_decode_loop(venue, message)
            # Nasdaq's messages are so short that the call of venue_decode would show.
            elif venue.payload == PAYLOAD_ITCH:
                kind = itch_decode(message.payload, message.size, venue.changes)
            elif likely(is_spoken(market, message)):
                if venue.numbers != NULL:
                    eobi_note(venue.numbers + message.stream % LOOPS, message)
                kind = venue_decode(venue.payload, message, venue.changes)
        if kind < 0:
            return kind
        venue.changes_count = <uint32_t>kind
        # A message that only continues a chain makes no update: it is published as it came.
        market.untold = kind == 1 and venue.changes.verb == VERB_CHAIN
    while True:
        if venue.telling:
            kind = publish_next(market, into, room, found)
            if kind:
                found.last = found.last and venue.applied == venue.changes_count and not (
                    market.refused or market.untold)
                return kind
            venue.telling = False
            if venue.applied == venue.changes_count:
                if market.refused:
                    return OUTCOME_REFUSED
                return OUTCOME_OPAQUE if market.untold else 0
        while venue.applied < venue.changes_count and likely(not market_full(market)):
            market_apply(market, venue.changes + venue.applied)
            venue.applied += 1
        venue.telling = True
