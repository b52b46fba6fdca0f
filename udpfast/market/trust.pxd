# How far a face can be trusted, and what changes that: a chain that continues or breaks, places
# that become known, a book that begins empty. Changes that cannot be applied yet are held here.

from libc.stdint cimport uint32_t, uint64_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    FEED_COLLECTED, FEED_COLLECT_DROPPED, FEED_RECOVERED_CHAIN, FEED_STALE)
from udpfast.core.layout cimport OBJECT_LIVE, OBJECT_STALE
from udpfast.market.change cimport *
from udpfast.market.instrument cimport (
    FACES, FACE_IMPLIED, FACE_LEVELS, FACE_ORDERS, Face, Instrument)
from udpfast.market.levels cimport apply_book, face_empty, face_empty_levels, face_forget
from udpfast.market.marked cimport has_face, instrument_mark, need_snapshot, stream_of, face_is_sure
from udpfast.market.market cimport HeldChange, Market, MarketStream
from udpfast.market.resting cimport take_order
from udpfast.market.side cimport places_missing

cdef inline void face_turn(
        Market* market, Instrument* i, Face* face, uint8_t status) noexcept nogil:
    # Set a face's status, and count the instrument as waiting while its levels are not LIVE.
    if face == &i.face[FACE_LEVELS]:
        count_waiting(market, (status != OBJECT_LIVE) - (face.status != OBJECT_LIVE))
    face.status = status


cdef inline void count_waiting(Market* market, int more) noexcept nogil:
    if has_face(market, FACE_LEVELS):
        counter_add(&market.feed[market.waiting], more)


cdef inline void face_drop_held(Market* market, Face* face, uint64_t since) noexcept nogil:
    face.held_first = face.held_last = 0
    face.held_since = since


cdef inline bint face_held_is_lost(const Market* market, const Face* face) noexcept nogil:
    # Return True if the first held change of the face was overwritten.
    return face.held_first != 0 and face.held_first + market.held_mask <= market.held_count


cdef inline void keep_change(Market* market, uint16_t stream, const Change* c) noexcept nogil:
    # Append a change to those that are held. The oldest of all is overwritten.
    cdef HeldChange* held = market.held + (market.held_count & market.held_mask)
    cdef MarketStream* s
    if market.held_count > market.held_mask:
        s = market.streams + held.change.name
        s.overwritten = max(s.overwritten, held.number)
    held.change = c[0]
    held.change.name = stream
    held.number = market.streams[stream].number
    held.next = 0
    market.held_count += 1
    counter_add(&market.feed[FEED_COLLECTED], 1)


cdef inline void face_hold(
        Market* market, Instrument* i, Face* face, const Change* c) noexcept nogil:
    cdef MarketStream* s = stream_of(market, i)
    if not market.heals:
        return
    if s.lost > face.held_since:
        face_drop_held(market, face, s.lost)
    if face_held_is_lost(market, face):
        counter_add(&market.feed[FEED_COLLECT_DROPPED], 1)
        face_drop_held(market, face, s.number)
        need_snapshot(market, i)
    keep_change(market, i.stream, c)
    if face.held_first == 0:
        face.held_first = market.held_count
    else:
        market.held[(face.held_last - 1) & market.held_mask].next = market.held_count
    face.held_last = market.held_count


cdef inline bint follows_orders(const Market* market) noexcept nogil:
    # Return True if orders are followed while their book is in doubt.
    return market.traits.levels == LEVELS_OF_ORDERS and market.traits.chain == CHAIN_NONE


cdef inline void face_become_stale(Market* market, Instrument* i, Face* face) noexcept nogil:
    # The face differs from what the venue has.
    cdef int which = <int>(face - i.face)
    cdef MarketStream* s = stream_of(market, i)
    # Orders that were followed until now are followed on (follow_order).
    cdef bint follows = face.status == OBJECT_LIVE and follows_orders(market)
    if face.status == OBJECT_LIVE:
        counter_add(&market.feed[FEED_STALE], 1)
        if face_is_sure(market, i, face):
            need_snapshot(market, i)
        if face.held_first == 0:  # an unsure face had no change since the gap
            face.held_since = s.number if face_is_sure(market, i, face) else s.lost
    face_turn(market, i, face, OBJECT_STALE)
    face.stage = face.staged = 0
    i.top_said = False
    if market.traits.absolute:   # what is held is right until the venue says otherwise
        face.replaced = False
    elif follows:
        face_empty_levels(market, i, which)
    else:
        face_forget(market, i, which)
    instrument_mark(market, i)


cdef inline bint gives_room(
        const Market* market, const Instrument* i, const Face* face) noexcept nogil:
    # Return True if an order is only followed, or will be from the next change on. Where changes
    # name their order alone, one that is not there would put a whole stream in doubt, unless
    # something of it was lost.
    return i.orders_first != 0 and face.stage == 0 and face.staged == 0 and (
        not face_is_sure(market, i, face)) and (
        not market.traits.nameless or not stream_of(market, i).whole)


cdef inline bint make_room(Market* market, const Instrument* needs) noexcept nogil:
    # Remove the oldest order of another book that is in doubt. Return False if there is none.
    cdef Instrument* i
    cdef Face* face
    cdef uint32_t _turn
    if not follows_orders(market):
        return False
    for _turn in range(market.instruments.count):
        if market.yielding >= market.instruments.count:
            market.yielding = 0
        i = market.instruments.items + market.yielding
        face = &i.face[FACE_LEVELS]
        if i != needs and gives_room(market, i, face):
            if face.status == OBJECT_LIVE:
                face_become_stale(market, i, face)
            take_order(market, i, market.orders.orders + i.orders_first - 1)
            return True
        market.yielding += 1
    return False


cdef inline bint apply_change(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Apply a change of a book, for which an order of a book in doubt may have to give way.
    if likely(apply_book(market, i, c)):
        return True
    if not market.crowded:
        return False
    market.crowded = False
    return make_room(market, i) and apply_book(market, i, c)


cdef inline void levels_become_stale(Market* market, Instrument* i) noexcept nogil:
    # Make all faces stale whose chain is broken.
    face_become_stale(market, i, &i.face[FACE_LEVELS])
    if has_face(market, FACE_IMPLIED):
        face_become_stale(market, i, &i.face[FACE_IMPLIED])


cdef inline bint levels_are_live(const Market* market, const Instrument* i) noexcept nogil:
    # Return True if no change of the chain needs to be held.
    return i.face[FACE_LEVELS].status == OBJECT_LIVE and (
        not has_face(market, FACE_IMPLIED) or i.face[FACE_IMPLIED].status == OBJECT_LIVE)


cdef inline void face_become_live(Market* market, Instrument* i, Face* face) noexcept nogil:
    if face.status != OBJECT_LIVE:
        face.replaced = True
    face_turn(market, i, face, OBJECT_LIVE)
    face.sure = stream_of(market, i).gaps
    face.stage = face.staged = 0
    if face == &i.face[FACE_ORDERS] or levels_are_live(market, i):
        face_drop_held(market, face, stream_of(market, i).number)
    instrument_mark(market, i)


cdef inline bint levels_are_disputed(const Market* market, const Instrument* i) noexcept nogil:
    # Return True if a change that is in the levels, and in the chain, may be another than the
    # venue's.
    return i.face[FACE_LEVELS].sure < stream_of(market, i).disputed and (
        i.face[FACE_LEVELS].status == OBJECT_LIVE)


cdef inline void levels_resume(Market* market, Instrument* i) noexcept nogil:
    # The chain continues, so no gap concerned the levels.
    cdef Face* face = &i.face[FACE_LEVELS]
    cdef int which
    for which in range(FACES):
        if which == FACE_ORDERS or not has_face(market, which):
            continue
        face = &i.face[which]
        if face.status == OBJECT_LIVE and face.sure != stream_of(market, i).gaps:
            face.sure = stream_of(market, i).gaps
            counter_add(&market.feed[FEED_RECOVERED_CHAIN], 1)
            instrument_mark(market, i)


cdef inline void instrument_begin_empty(Market* market, Instrument* i) noexcept nogil:
    # The instrument begins with empty books, so all of them are known.
    cdef int which
    for which in range(FACES):
        if has_face(market, which):
            face_empty(market, i, which)
            face_become_live(market, i, &i.face[which])


cdef inline bint is_whole(const MarketStream* s, uint64_t number, const Change* c) noexcept nogil:
    # Return False if the change may be the rest of one that began in a datagram that was lost.
    return not c.flags & CHANGE_PART or s.lost == 0 or number != s.lost + 1


cdef inline bint previous_goes_on(const Instrument* i, const Change* c) noexcept nogil:
    # Return True if a change is the next message of the current number, or begins the next number.
    return c.order == i.chain if i.unfinished else c.order_before == i.chain


cdef inline bint held_goes_on(
        const Market* market, const Instrument* i, const HeldChange* held) noexcept nogil:
    # Return True if a held change continues the instrument's chain.
    if market.traits.chain == CHAIN_PREVIOUS:
        return previous_goes_on(i, &held.change) and (
            is_whole(market.streams + i.stream, held.number, &held.change))
    return held.change.chain == i.chain + 1


cdef inline bint instrument_follow_previous(
        Market* market, Instrument* i, const Change* c) noexcept nogil:
    # As instrument_follow_chain, for a chain in which each change names the one before.
    cdef const MarketStream* s = stream_of(market, i)
    cdef bint whole = is_whole(s, s.number, c)
    cdef bint goes_on = i.linked and whole and previous_goes_on(i, c) and (
        not i.unfinished or i.face[FACE_LEVELS].sure == s.gaps)
    if goes_on or c.order > i.chain:
        i.unfinished = c.flags & CHANGE_MORE
    if not i.linked and c.order_before == 0 and whole:
        i.linked = goes_on = True
        instrument_begin_empty(market, i)
    return goes_on


cdef inline bint instrument_follow_chain(
        Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Return True if a change continues the chain. Otherwise the levels are stale now, unless the
    # change is older than what is held.
    cdef uint64_t number = c.chain
    cdef bint goes_on = i.linked and number == i.chain + 1
    if market.traits.chain == CHAIN_PREVIOUS:
        number = c.order
        goes_on = instrument_follow_previous(market, i, c)
    elif not i.linked and number == 1:
        i.linked = goes_on = True
        instrument_begin_empty(market, i)
    if likely(goes_on and not levels_are_disputed(market, i)):
        i.chain = number
        i.passing = True
        levels_resume(market, i)
        return True
    i.passing = False
    if market.traits.chain == CHAIN_PREVIOUS and i.linked and (
            number <= i.chain and number <= i.chain_taken):
        # The snapshot came early and includes the change.
        return False
    i.chain = number
    i.linked = True
    i.passing = market.traits.levels == LEVELS_BY_PLACE   # places become known from here on
    levels_become_stale(market, i)
    return i.passing


cdef inline void face_check_places(Market* market, Instrument* i, Face* face) noexcept nogil:
    # Make a book by place LIVE as soon as all its places are known.
    cdef int which = <int>(face - i.face)
    if unlikely(i.sides[which].cls == 0 or i.sides[which + 1].cls == 0):
        # There was no room to mark places as unknown.
        return
    if places_missing(&market.slab, &i.sides[which]) == 0 and (
            places_missing(&market.slab, &i.sides[which + 1]) == 0) and i.linked:
        face_become_live(market, i, face)
