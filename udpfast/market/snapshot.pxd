# Snapshots: whether one is taken, its rows and parts, and the held changes that follow it.

from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.string cimport memcmp, memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport (
    FEED_COLLECT_DROPPED, FEED_ORDERS_UNKNOWN, FEED_RECOVERED_SNAPSHOT, FEED_RELEASED,
    FEED_SNAPSHOTS_BROKEN, FEED_SNAPSHOTS_SKIPPED, FEED_SNAPSHOTS_TOO_OLD)
from udpfast.core.layout cimport OBJECT_LIVE, OBJECT_STALE
from udpfast.market.change cimport *
from udpfast.market.instrument cimport (
    FACE_IMPLIED, FACE_LEVELS, FACE_ORDERS, Face, Instrument, instrument_find)
from udpfast.market.levels cimport face_empty, face_forget, instrument_reach
from udpfast.market.marked cimport (
    depth_of, has_face, need_snapshot, order_of, stream_of, face_is_sure)
from udpfast.market.market cimport (
    STAGES, STAGE_PARTS_MAX, STREAM_NOWHERE, HeldChange, Market, MarketStream)
from udpfast.market.names cimport names_get
from udpfast.market.orders cimport RestingOrder
from udpfast.market.side cimport Side, SideLevel, side_levels, side_reserve
from udpfast.market.trust cimport (
    apply_change, face_drop_held, face_held_is_lost, face_turn, levels_are_live, face_become_live,
    levels_resume, face_become_stale, held_goes_on, levels_become_stale)

cdef inline bint face_replay(
        Market* market, Instrument* i, Face* face, uint64_t number) noexcept nogil:
    # Apply the held changes that are newer than a snapshot. Return False if they do not continue
    # it.
    cdef uint64_t at = face.held_first
    cdef HeldChange* held
    cdef bint chained = face != &i.face[FACE_ORDERS] and market.traits.chain != CHAIN_NONE
    cdef bint by_number = market.traits.chain != CHAIN_PREVIOUS
    cdef const Change* c
    face_drop_held(market, face, stream_of(market, i).number)
    while at:
        held = market.held + ((at - 1) & market.held_mask)
        at = held.next
        c = &held.change
        if by_number and held.number <= number:
            continue
        if chained and (c.chain or (market.traits.chain == CHAIN_PREVIOUS and c.order)):
            i.passing = held_goes_on(market, i, held)
            if i.passing:
                i.chain = c.order if market.traits.chain == CHAIN_PREVIOUS else c.chain
                i.unfinished = c.flags & CHANGE_MORE
            elif (c.order if market.traits.chain == CHAIN_PREVIOUS else c.chain) > i.chain:
                return False
        if chained and not i.passing:
            continue
        if not apply_change(market, i, c):
            return False
        counter_add(&market.feed[FEED_RELEASED], 1)
    return True


cdef inline bint stage_part(
        Market* market, Instrument* i, Face* face, const Change* c) noexcept nogil:
    # Return True if this part of a snapshot is to be taken. If rows come in the order of the queue,
    # parts must come in order, and the first one starts the snapshot again.
    cdef uint64_t* bits
    cdef uint32_t slot, part = c.orders - 1
    cdef bint begun = face.stage == c.order + 1 and face.stage_place != 0 and (
        market.stage_owner[face.stage_place - 1] == i)
    if c.chain == 0 or c.chain > STAGE_PARTS_MAX or part >= c.chain:
        return False
    if market.traits.levels == LEVELS_OF_ORDERS:
        if part and (not begun or part != face.stage_parts):
            return False
        begun = begun and part != 0
    if not begun:
        slot = market.stage_turn
        market.stage_turn = (slot + 1) % STAGES
        market.stage_owner[slot] = i
        memset(market.stage_bits + slot * (STAGE_PARTS_MAX // 64), 0, STAGE_PARTS_MAX // 8)
        face.stage = c.order + 1
        face.stage_place = slot + 1
        face.stage_parts = 0
        face_turn(market, i, face, OBJECT_STALE)
        face_forget(market, i, <int>(face - i.face))
    bits = market.stage_bits + (face.stage_place - 1) * (STAGE_PARTS_MAX // 64) + part // 64
    if bits[0] >> (part & 63) & 1:
        return False
    bits[0] |= <uint64_t>1 << (part & 63)
    face.stage_parts += 1
    return True


cdef inline bint is_called(
        const Market* market, const Instrument* i, const uint8_t* text,
        uint32_t size) noexcept nogil:
    # Return True if the instrument has this symbol. One for which the table of names had no room
    # may have any.
    cdef uint32_t known_size = 0
    cdef const uint8_t* known = names_get(market.names, i.symbol_id, &known_size)
    while size and (text[size - 1] == c" " or text[size - 1] == 0):
        size -= 1
    return known == NULL or (known_size == size and memcmp(known, text, size) == 0)


cdef inline bint snapshot_is_too_old(
        const Market* market, const Instrument* i, const Face* face, const Change* c
        ) noexcept nogil:
    # Return True if something is lost that the snapshot does not include.
    cdef const MarketStream* s = market.streams + i.stream
    cdef bint newer
    if market.traits.chain != CHAIN_PREVIOUS:
        return c.order < max(s.lost, face.held_since) or c.order > s.number
    # The snapshot's number does not belong to the stream of changes. Either the changes held since
    # the last gap must continue it, or it must be later than the first change after the gap.
    newer = s.gaps == 0 or (s.gap_time_ns != 0 and c.time_ns > s.gap_time_ns) or (
        face.held_first != 0 and face.held_since >= s.lost)
    return market.streams[market.message.stream].broken or not newer or (
        i.linked and c.order < i.chain and face.status == OBJECT_LIVE)


cdef inline void begin_snapshot(Market* market, Instrument* i, const Change* c) noexcept nogil:
    cdef int which = FACE_ORDERS if c.flags & CHANGE_ORDERS else FACE_LEVELS
    cdef Face* face = &i.face[which]
    cdef MarketStream* s = stream_of(market, i)
    cdef uint32_t dense = c.chain
    cdef uint64_t chain
    if c.flags & CHANGE_PART and c.chain == 0:
        dense = <uint32_t>c.order_before
    chain = c.order if market.traits.chain == CHAIN_PREVIOUS else dense
    market.taking = NULL
    i.round = c.order + 1
    if c.name and i.named and not is_called(market, i, market.message.payload + c.name - 1, 8):
        # It belongs to another day or market.
        counter_add(&market.feed[FEED_SNAPSHOTS_BROKEN], 1)
        need_snapshot(market, i)
        return
    if face_is_sure(market, i, face) and (
            which == FACE_ORDERS or not has_face(market, FACE_IMPLIED)
            or face_is_sure(market, i, &i.face[FACE_IMPLIED])):
        counter_add(&market.feed[FEED_SNAPSHOTS_SKIPPED], 1)
        return
    if snapshot_is_too_old(market, i, face, c):
        counter_add(&market.feed[FEED_SNAPSHOTS_TOO_OLD], 1)
        return
    if which == FACE_LEVELS and i.linked and face.status == OBJECT_LIVE and (
            chain == i.chain and not i.unfinished):
        levels_resume(market, i)        # what is held is as new as the snapshot
        if levels_are_live(market, i):
            return
    if s.lost > face.held_since:
        face_drop_held(market, face, s.lost)
    if face_held_is_lost(market, face):
        counter_add(&market.feed[FEED_COLLECT_DROPPED], 1)
        face_drop_held(market, face, s.number)
        need_snapshot(market, i)
        return
    market.taking_part = False
    face.staged = 0
    if c.flags & CHANGE_PART and c.chain:
        if not stage_part(market, i, face, c):
            return
        market.taking_part = face.stage_parts < c.chain
    elif c.flags & CHANGE_PART and c.orders:
        # Each part follows the one before; after an ignored part the rest is ignored, too.
        if c.orders != 1 and (face.stage != c.order + 1 or face.stage_parts != c.orders - 1):
            return
        if c.orders == 1:
            face_empty(market, i, which)
        face.stage = c.order + 1
        face.stage_parts = c.orders
    elif c.flags & CHANGE_PART:
        if face.stage != c.order + 1:
            face_empty(market, i, which)
        face.stage = c.order + 1
    else:
        face_empty(market, i, which)
        if which == FACE_LEVELS and has_face(market, FACE_IMPLIED):
            face_empty(market, i, FACE_IMPLIED)
    face_turn(market, i, face, OBJECT_STALE)  # until the snapshot is complete
    market.taking = i
    market.taking_face = <uint8_t>which
    market.taking_number = c.order
    market.taking_chain = dense


cdef inline void break_snapshot(Market* market, Instrument* i) noexcept nogil:
    # Discard the current snapshot: it is impossible, or there is no room for it.
    counter_add(&market.feed[FEED_SNAPSHOTS_BROKEN], 1)
    need_snapshot(market, i)
    market.taking = NULL
    if market.taking_face == FACE_LEVELS:
        levels_become_stale(market, i)
    else:
        face_become_stale(market, i, &i.face[FACE_ORDERS])


cdef inline void end_snapshot(Market* market, const Change* c) noexcept nogil:
    cdef Instrument* i = market.taking
    cdef Face* face
    cdef bint sound
    if not c.flags & CHANGE_MORE:
        market.streams[market.message.stream].broken = False
    if i == NULL or market.taking_part or c.flags & CHANGE_MORE:
        market.taking = NULL
        return
    market.taking = NULL
    face = &i.face[market.taking_face]
    if market.taking_face == FACE_LEVELS and market.traits.chain != CHAIN_NONE:
        i.linked = True
        i.unfinished = False
        i.chain = i.chain_taken = (
            market.taking_number if market.traits.chain == CHAIN_PREVIOUS else market.taking_chain)
    # Held changes name orders of any instrument: they are applied all at once, at the round's end.
    if market.traits.nameless:
        face.staged = market.taking_number + 1
        return
    sound = face_replay(market, i, face, market.taking_number)
    if sound:
        face.replaced = True
        face_become_live(market, i, face)
        counter_add(&market.feed[FEED_RECOVERED_SNAPSHOT], 1)
        if market.taking_face == FACE_LEVELS and has_face(market, FACE_IMPLIED):
            i.face[FACE_IMPLIED].replaced = True
            face_become_live(market, i, &i.face[FACE_IMPLIED])
    else:
        break_snapshot(market, i)


cdef inline Instrument* changed_instrument(Market* market, const Change* c) noexcept nogil:
    # Return the instrument of a held change, which may name only its order; NULL if there is no
    # such order.
    cdef RestingOrder* order
    if c.instrument:
        return instrument_find(&market.instruments, c.instrument)
    order = order_of(
        market, c.order_before if c.verb == VERB_REPLACE else c.order, market.stream)
    return NULL if order == NULL else market.instruments.items + order.instrument


cdef inline bint market_replay_round(Market* market, uint64_t number) noexcept nogil:
    # All instruments of a stream have a snapshot as of `number`: apply the changes held since then,
    # in the order in which they came. Return False if they do not continue it; then none of the
    # snapshots counts.
    cdef MarketStream* s = market.streams + market.stream
    cdef uint64_t at = 0
    cdef HeldChange* held
    cdef const Change* c
    cdef Instrument* i
    cdef bint sound = number >= max(s.lost, s.overwritten) and number <= s.number
    if market.held_count > market.held_mask:
        at = market.held_count - market.held_mask - 1
    while sound and at < market.held_count:
        held = market.held + (at & market.held_mask)
        at += 1
        if held.change.name != market.stream or held.number <= number:
            continue
        c = &held.change
        i = changed_instrument(market, c)
        if i == NULL:
            counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
            sound = False
        elif i.face[FACE_LEVELS].staged == number + 1:
            sound = apply_change(market, i, c)
            counter_add(&market.feed[FEED_RELEASED], 1)
    for at in range(market.instruments.count):
        i = market.instruments.items + at
        if i.stream != market.stream or i.face[FACE_LEVELS].staged != number + 1:
            continue
        if sound:
            i.face[FACE_LEVELS].replaced = True
            face_become_live(market, i, &i.face[FACE_LEVELS])
            counter_add(&market.feed[FEED_RECOVERED_SNAPSHOT], 1)
        else:
            levels_become_stale(market, i)
    return sound


cdef inline void end_round(Market* market, const Change* c) noexcept nogil:
    # An instrument without a snapshot in this round has an empty book.
    cdef MarketStream* s = market.streams + market.stream
    cdef Instrument* i
    cdef Change begin = c[0]
    cdef Change end = c[0]
    cdef uint32_t at
    begin.verb, end.verb = VERB_BEGIN_SNAPSHOT, VERB_END_SNAPSHOT
    for at in range(market.instruments.count):
        i = market.instruments.items + at
        if i.stream == market.stream and not i.homeless and i.round != c.order + 1 and (
                not face_is_sure(market, i, &i.face[FACE_LEVELS])):
            begin_snapshot(market, i, &begin)
            end_snapshot(market, &end)
    if market.traits.nameless and not market_replay_round(market, c.order):
        counter_add(&market.feed[FEED_SNAPSHOTS_BROKEN], 1)
        s.needs = max(s.needs, s.number + 1)
        return
    if c.order >= s.lost and c.order <= s.number:
        s.whole = True           # the round told of everything that exists
        if c.order + 1 >= s.needs:
            s.needs = 0


cdef inline void end_told(Market* market, const Change* c) noexcept nogil:
    if c.verb == VERB_END_SNAPSHOT:
        end_snapshot(market, c)
    elif market.stream != STREAM_NOWHERE:
        end_round(market, c)


cdef inline void take_row(Market* market, const Change* c) noexcept nogil:
    # Take a row of a snapshot.
    cdef SideLevel level
    cdef Side* side
    cdef Instrument* i = market.taking
    if i == NULL:
        return
    if c.side > SIDE_ASK_IMPLIED or market.taking_face == FACE_ORDERS or (
            market.traits.levels != LEVELS_BY_PLACE):
        # Rows without a side are refused, as changes without a side are.
        if unlikely(not apply_change(market, i, c)):
            market.streams[market.message.stream].broken = True
            break_snapshot(market, i)
        return
    level.price = c.price
    level.quantity = c.quantity
    level.orders = c.orders
    level.unknown = 0
    side = &i.sides[c.side]
    if c.place == side.count + 1 and side_reserve(
            &market.slab, side, max(<uint32_t>c.place, depth_of(i, c.side)) + 1):
        side_levels(&market.slab, side)[side.count] = level
        side.count += 1
        instrument_reach(i, c.side, side.count)
    else:
        break_snapshot(market, i)
