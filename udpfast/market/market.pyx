"""The books of one feed, of whatever venue: what changes do to them. `market.pxd` has the rules."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    FEED_BOOKS_FULL, FEED_BOOKS_UNDEFINED, FEED_COLLECTED, FEED_COLLECT_DROPPED, FEED_OBJECTS,
    FEED_OBJECTS_FULL, FEED_ORDERS_UNKNOWN, FEED_RECOVERED_CHAIN, FEED_RECOVERED_SNAPSHOT,
    FEED_RELEASED, FEED_SNAPSHOTS_BROKEN, FEED_SNAPSHOTS_SKIPPED, FEED_SNAPSHOTS_TOO_OLD,
    FEED_STALE)
from udpfast.core.layout cimport Message, OBJECT_LIVE, OBJECT_STALE, OBJECT_WAITING
from udpfast.market.change cimport *
from udpfast.market.instrument cimport (
    FACE_IMPLIED, FACE_LEVELS, FACE_ORDERS, FACES, Face, Instrument, instrument_add,
    instrument_find, instruments_init, instruments_memory_size)
from udpfast.market.names cimport Names, names_intern
from udpfast.market.orders cimport (
    RestingOrder, order_add, order_find, order_remove, orders_init, orders_memory_size)
from udpfast.market.side cimport (
    Side, SideLevel, place_delete, place_new, place_set, places_missing, places_unknown,
    side_drop, side_find, side_levels, side_put, side_reserve, slab_give)

__all__ = []

cdef enum:  # schema UpdateAction
    ACTION_NEW = 1
    ACTION_CHANGE = 2
    ACTION_DELETE = 3

cdef enum:
    LEVELS_MIN = 1 << 16         # of the slab
    DEPTH_ANY = 255              # deeper than a side is


# --- memory --------------------------------------------------------------------------------------

cdef inline uint64_t orders_max_of(const Traits* traits, const MarketSettings* s) noexcept nogil:
    return s.orders_max if traits.orders else 16


cdef inline uint64_t levels_max_of(const Traits* traits, const MarketSettings* s) noexcept nogil:
    # Blocks of all sides, and of books of orders two levels for each order.
    cdef uint64_t sides = 128 if traits.levels == LEVELS_BY_PLACE else 32
    return max(<uint64_t>LEVELS_MIN, sides * s.instruments_max) + 2 * orders_max_of(traits, s)


cdef size_t market_memory_size(const Traits* traits, const MarketSettings* s) noexcept nogil:
    return (
        instruments_memory_size(s.instruments_max)
        + orders_memory_size(orders_max_of(traits, s))
        + levels_max_of(traits, s) * sizeof(SideLevel)
        + <size_t>MARKET_STREAMS * sizeof(MarketStream)
        + (<size_t>HELD_MAX * sizeof(HeldChange) if traits.heals else 0)
        + <size_t>TOUCHED_MAX * (sizeof(Touched) + sizeof(TouchedOrder))
        + <size_t>CHANGES_MAX * sizeof(Row)
        + 2 * 4 * (<size_t>s.instruments_max + 2)
        + <size_t>STAGES * (STAGE_PARTS_MAX // 8 + sizeof(void*))
        + 16 * 64)


cdef uint8_t* carve(uint8_t** memory, size_t size) noexcept nogil:
    cdef uint8_t* begin = memory[0]
    memset(begin, 0, size)
    memory[0] += (size + 63) & ~<size_t>63
    return begin


cdef void market_init(
        Market* market, const Traits* traits, const MarketSettings* settings, uint8_t* memory,
        int64_t* feed) noexcept nogil:
    cdef uint64_t instruments = settings.instruments_max
    cdef uint64_t orders = orders_max_of(traits, settings)
    cdef int decimals
    memset(market, 0, sizeof(Market))
    market.traits = traits
    market.price_units[0] = 1
    for decimals in range(DECIMALS_MAX):
        market.price_units[decimals + 1] = 10 * market.price_units[decimals]
    market.settings = settings[0]
    market.settings.awaits_definitions = traits.snapshots_from or (
        traits.loops and settings.awaits_definitions)
    market.feed = feed
    market.streams = <MarketStream*>carve(&memory, MARKET_STREAMS * sizeof(MarketStream))
    if traits.heals:
        market.held = <HeldChange*>carve(&memory, HELD_MAX * sizeof(HeldChange))
    market.touched = <Touched*>carve(&memory, TOUCHED_MAX * sizeof(Touched))
    market.order_rows = <TouchedOrder*>carve(&memory, TOUCHED_MAX * sizeof(TouchedOrder))
    market.rows = <Row*>carve(&memory, CHANGES_MAX * sizeof(Row))
    market.dirty = <uint32_t*>carve(&memory, 4 * instruments)
    market.pending = <uint32_t*>carve(&memory, 4 * instruments)
    market.stage_bits = <uint64_t*>carve(&memory, STAGES * STAGE_PARTS_MAX // 8)
    market.stage_owner = <Instrument**>carve(&memory, STAGES * sizeof(void*))
    instruments_init(
        &market.instruments, carve(&memory, instruments_memory_size(instruments)), instruments)
    orders_init(&market.orders, carve(&memory, orders_memory_size(orders)), orders)
    market.slab.count = <uint32_t>levels_max_of(traits, settings)
    market.slab.levels = <SideLevel*>carve(
        &memory, <size_t>market.slab.count * sizeof(SideLevel))


# --- small words ---------------------------------------------------------------------------------

cdef inline uint32_t index_of(const Market* market, const Instrument* i) noexcept nogil:
    return <uint32_t>(i - market.instruments.items)


cdef inline MarketStream* stream_of(const Market* market, const Instrument* i) noexcept nogil:
    return market.streams + i.stream


cdef inline bint sure(const Market* market, const Instrument* i, const Face* face) noexcept nogil:
    return face.status == OBJECT_LIVE and face.sure == stream_of(market, i).gaps


cdef inline uint32_t depth_of(const Instrument* i, uint8_t side) noexcept nogil:
    return i.depth[side >> 1]


cdef inline void mark(Market* market, Instrument* i) noexcept nogil:
    if not i.dirty:
        i.dirty = True
        market.dirty[market.dirty_count] = index_of(market, i)
        market.dirty_count += 1


cdef inline void touch(Market* market, Instrument* i, uint8_t side, int64_t price) noexcept nogil:
    cdef Touched* touched
    mark(market, i)
    if market.touched_count < TOUCHED_MAX:
        touched = market.touched + market.touched_count
        touched.instrument = index_of(market, i)
        touched.side = side
        touched.price = price
        market.touched_count += 1
    else:
        i.face[FACE_IMPLIED if side > SIDE_ASK else FACE_LEVELS].replaced = True


cdef inline void touch_order(
        Market* market, Instrument* i, const RestingOrder* order, uint8_t action) noexcept nogil:
    cdef TouchedOrder* row
    mark(market, i)
    if not market.settings.orders or order.side > SIDE_ASK:
        return
    if market.order_rows_count == TOUCHED_MAX:
        i.face[FACE_ORDERS].replaced = True
        return
    row = market.order_rows + market.order_rows_count
    row.id = order.id
    row.priority = order.priority
    row.price = order.price
    row.quantity = order.quantity
    row.instrument = index_of(market, i)
    row.side = order.side
    row.action = action
    market.order_rows_count += 1


cdef inline bint has_face(const Market* market, int face) noexcept nogil:
    # Whether the venue tells it apart from the others.
    if face == FACE_ORDERS:
        return market.traits.orders and market.traits.levels != LEVELS_OF_ORDERS
    if face == FACE_IMPLIED:
        return market.traits.depth_implied and market.traits.levels != LEVELS_OF_ORDERS
    return market.traits.levels != LEVELS_NONE


cdef inline Face* face_of(const Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Of what a change speaks.
    if VERB_ADD <= c.verb <= VERB_DELETE and market.traits.levels != LEVELS_OF_ORDERS:
        return &i.face[FACE_ORDERS]
    if (c.side == SIDE_BID_IMPLIED or c.side == SIDE_ASK_IMPLIED) and has_face(
            market, FACE_IMPLIED):
        return &i.face[FACE_IMPLIED]
    return &i.face[FACE_LEVELS]


# --- what is in a book ---------------------------------------------------------------------------

cdef void drop_orders(Market* market, Instrument* i) noexcept nogil:
    cdef uint32_t at = i.orders_first
    cdef uint32_t next
    while at:
        next = market.orders.orders[at - 1].next
        order_remove(&market.orders, market.orders.orders + at - 1)
        at = next
    i.orders_first = i.orders_last = i.orders_count = 0


cdef void empty(Market* market, Instrument* i, int face) noexcept nogil:
    # Nothing is left, and that is known.
    if face == FACE_ORDERS or market.traits.levels == LEVELS_OF_ORDERS:
        drop_orders(market, i)
    if face != FACE_ORDERS:
        i.deepest[face >> 1] = 0
        slab_give(&market.slab, &i.sides[face])
        slab_give(&market.slab, &i.sides[face + 1])
    i.face[face].replaced = True
    if market.traits.levels == LEVELS_OF_ORDERS:
        slab_give(&market.slab, &i.sides[SIDE_BID_IMPLIED])
        slab_give(&market.slab, &i.sides[SIDE_ASK_IMPLIED])
        i.face[FACE_ORDERS].replaced = i.face[FACE_IMPLIED].replaced = True


cdef void forget(Market* market, Instrument* i, int face) noexcept nogil:
    # What is there is not known any more.
    empty(market, i, face)
    if market.traits.levels == LEVELS_BY_PLACE and face != FACE_ORDERS:
        i.deepest[face >> 1] = DEPTH_ANY
        places_unknown(&market.slab, &i.sides[face], depth_of(i, <uint8_t>face))
        places_unknown(&market.slab, &i.sides[face + 1], depth_of(i, <uint8_t>face))


cdef inline void link_order(Market* market, Instrument* i, RestingOrder* order) noexcept nogil:
    cdef uint32_t at = <uint32_t>(order - market.orders.orders) + 1
    order.before = i.orders_last
    if i.orders_last:
        market.orders.orders[i.orders_last - 1].next = at
    else:
        i.orders_first = at
    i.orders_last = at
    i.orders_count += 1


cdef inline void take_order(Market* market, Instrument* i, RestingOrder* order) noexcept nogil:
    # It rests no more.
    if order.before:
        market.orders.orders[order.before - 1].next = order.next
    else:
        i.orders_first = order.next
    if order.next:
        market.orders.orders[order.next - 1].before = order.before
    else:
        i.orders_last = order.before
    i.orders_count -= 1
    order_remove(&market.orders, order)


cdef bint level_add(
        Market* market, Instrument* i, const RestingOrder* order, int64_t quantity,
        int orders) noexcept nogil:
    # So much more, and so many orders more, at the order's price. False: no room.
    cdef Side* side = &i.sides[order.side]
    cdef SideLevel* level
    if market.traits.levels != LEVELS_OF_ORDERS:
        return True
    level = side_put(&market.slab, side, order.price)
    if unlikely(level == NULL):
        return False
    level.quantity += quantity
    level.orders += <uint32_t>orders
    if level.orders == 0:
        side_drop(&market.slab, side, level)
    touch(market, i, order.side, order.price)
    return True


cdef inline uint32_t scope_of(const Market* market, const Instrument* i) noexcept nogil:
    return index_of(market, i) + MARKET_STREAMS if market.traits.orders_by_instrument else i.stream


cdef bint add_order(
        Market* market, Instrument* i, uint64_t id, uint8_t side, int64_t price, int64_t quantity,
        const Change* c) noexcept nogil:
    cdef RestingOrder* order
    if unlikely(side > SIDE_ASK_IMPLIED or quantity <= 0
                or order_find(&market.orders, id, scope_of(market, i)) != NULL):
        counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
        return False
    order = order_add(&market.orders, id, scope_of(market, i))
    if unlikely(order == NULL):
        counter_add(&market.feed[FEED_BOOKS_FULL], 1)
        return False
    order.instrument = index_of(market, i)
    order.side = side
    order.price = price
    order.quantity = quantity
    set_priority(market, order, c)
    link_order(market, i, order)
    if unlikely(not level_add(market, i, order, quantity, 1)):
        counter_add(&market.feed[FEED_BOOKS_FULL], 1)
        return False
    touch_order(market, i, order, ACTION_NEW)
    return True


cdef inline void set_priority(Market* market, RestingOrder* order, const Change* c) noexcept nogil:
    if c.flags & CHANGE_PRIORITY:
        order.priority = c.order_before
    else:
        market.arrivals += 1
        order.priority = market.arrivals


cdef void delete_order(Market* market, Instrument* i, RestingOrder* order) noexcept nogil:
    level_add(market, i, order, -order.quantity, -1)
    order.quantity = 0
    touch_order(market, i, order, ACTION_DELETE)
    take_order(market, i, order)


cdef bint change_order(
        Market* market, Instrument* i, RestingOrder* order, const Change* c) noexcept nogil:
    cdef bint keeps = c.flags & CHANGE_KEEPS_PLACE and order.price == c.price
    if c.quantity <= 0:
        delete_order(market, i, order)
        return True
    level_add(market, i, order, -order.quantity, -1)
    order.price = c.price
    order.quantity = c.quantity
    if not keeps:
        set_priority(market, order, c)
    if unlikely(not level_add(market, i, order, order.quantity, 1)):
        counter_add(&market.feed[FEED_BOOKS_FULL], 1)
        return False
    touch_order(market, i, order, ACTION_CHANGE)
    return True


cdef bint reduce_order(
        Market* market, Instrument* i, RestingOrder* order, const Change* c) noexcept nogil:
    cdef int64_t rest = order.quantity - c.quantity
    cdef bint again = False
    if c.flags & CHANGE_REST:
        again = rest != c.orders
        rest = c.orders
    if unlikely(rest < 0 or c.quantity < 0):
        counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
        return False
    if rest == 0:
        delete_order(market, i, order)
        return True
    level_add(market, i, order, rest - order.quantity, 0)
    order.quantity = rest
    if again:
        market.arrivals += 1
        order.priority = market.arrivals
    touch_order(market, i, order, ACTION_CHANGE)
    return True


cdef bint apply_order(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # False: what it says cannot be.
    cdef RestingOrder* order
    cdef uint8_t side
    if c.verb == VERB_ADD:
        return add_order(market, i, c.order, c.side, c.price, c.quantity, c)
    order = order_find(&market.orders, c.order_before if c.verb == VERB_REPLACE else c.order,
                       scope_of(market, i))
    if order == NULL and c.verb == VERB_PUT:
        return c.quantity == 0 or add_order(
            market, i, c.order, c.side, c.price, c.quantity, c)
    if unlikely(order == NULL or order.instrument != index_of(market, i)):
        counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
        return False
    if c.verb == VERB_DELETE:
        delete_order(market, i, order)
        return True
    if c.verb == VERB_REPLACE:
        side = order.side
        delete_order(market, i, order)
        return add_order(market, i, c.order, side, c.price, c.quantity, c)
    if c.verb == VERB_EXECUTE or c.verb == VERB_REDUCE:
        return reduce_order(market, i, order, c)
    return change_order(market, i, order, c)


cdef bint apply_price(Market* market, Instrument* i, const Change* c) noexcept nogil:
    cdef Side* side = &i.sides[c.side]
    cdef SideLevel* level
    if c.quantity == 0:
        level = side_find(&market.slab, side, c.price)
        if level != NULL:
            side_drop(&market.slab, side, level)
            touch(market, i, c.side, c.price)
        else:
            counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
        return True
    level = side_put(&market.slab, side, c.price)
    if unlikely(level == NULL):
        counter_add(&market.feed[FEED_BOOKS_FULL], 1)
        return False
    level.quantity = c.quantity
    level.orders = c.orders
    touch(market, i, c.side, c.price)
    return True


cdef inline void reach(Instrument* i, uint8_t side, uint32_t depth) noexcept nogil:
    # A side is so deep, or was before its last place fell out of it.
    if depth > i.deepest[side >> 1]:
        i.deepest[side >> 1] = <uint8_t>min(depth, <uint32_t>DEPTH_ANY)


cdef bint apply_place(Market* market, Instrument* i, const Change* c) noexcept nogil:
    cdef Side* side = &i.sides[c.side]
    cdef SideLevel level
    cdef uint32_t depth = depth_of(i, c.side)
    mark(market, i)
    level.price = c.price
    level.quantity = c.quantity
    level.orders = c.orders
    level.unknown = 0
    if c.verb == VERB_PLACE_NEW:
        reach(i, c.side, side.count + 1)
        return place_new(&market.slab, side, c.place, depth, &level)
    if c.verb == VERB_PLACE_DELETE:
        return place_delete(&market.slab, side, c.place, c.place)
    if c.verb == VERB_PLACE_THRU:
        side.count = 0
        return True
    if c.verb == VERB_PLACE_FROM:
        return place_delete(&market.slab, side, 1, c.place)
    if c.verb == VERB_PLACE_OVERLAY and c.place == side.count + 1:
        reach(i, c.side, c.place)
        return place_new(&market.slab, side, c.place, depth, &level)
    return place_set(&market.slab, side, c.place, &level)


cdef bint apply_book(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # False: what it says cannot be, or there is no room.
    if VERB_ADD <= c.verb <= VERB_DELETE:
        return apply_order(market, i, c)
    if unlikely(c.side > SIDE_ASK_IMPLIED):
        return True
    if c.verb == VERB_SET:
        return apply_price(market, i, c)
    if VERB_PLACE_NEW <= c.verb <= VERB_PLACE_OVERLAY:
        return apply_place(market, i, c)
    return True


# --- what is held until a snapshot ---------------------------------------------------------------

cdef inline void drop_held(Market* market, Face* face, uint64_t since) noexcept nogil:
    face.held_first = face.held_last = 0
    face.held_since = since


cdef void hold(Market* market, Instrument* i, Face* face, const Change* c) noexcept nogil:
    cdef HeldChange* held
    cdef MarketStream* s = stream_of(market, i)
    if not market.traits.heals:
        return
    if s.lost > face.held_since:
        drop_held(market, face, s.lost)
    if face.held_first and face.held_first - 1 + HELD_MAX <= market.held_count:
        counter_add(&market.feed[FEED_COLLECT_DROPPED], 1)
        drop_held(market, face, s.number)      # its first ones were overwritten
    held = market.held + (market.held_count & (HELD_MAX - 1))
    held.change = c[0]
    held.number = s.number
    held.next = 0
    market.held_count += 1
    if face.held_first == 0:
        face.held_first = market.held_count
    else:
        market.held[(face.held_last - 1) & (HELD_MAX - 1)].next = market.held_count
    face.held_last = market.held_count
    counter_add(&market.feed[FEED_COLLECTED], 1)


cdef void stale(Market* market, Instrument* i, Face* face) noexcept nogil:
    # What is kept of it is not what the venue has.
    cdef int which = <int>(face - i.face)
    cdef MarketStream* s = stream_of(market, i)
    if face.status == OBJECT_LIVE:
        counter_add(&market.feed[FEED_STALE], 1)
        if face.held_first == 0:  # of what was unsure nothing came since the gap
            face.held_since = s.number if sure(market, i, face) else s.lost
    face.status = OBJECT_STALE
    face.stage = 0
    i.top_said = False
    forget(market, i, which)
    mark(market, i)


cdef void stale_levels(Market* market, Instrument* i) noexcept nogil:
    # Those whose chain is broken.
    stale(market, i, &i.face[FACE_LEVELS])
    if has_face(market, FACE_IMPLIED):
        stale(market, i, &i.face[FACE_IMPLIED])


cdef inline bint levels_live(const Market* market, const Instrument* i) noexcept nogil:
    # Whether nothing has to be held that its chain counts.
    return i.face[FACE_LEVELS].status == OBJECT_LIVE and (
        not has_face(market, FACE_IMPLIED) or i.face[FACE_IMPLIED].status == OBJECT_LIVE)


cdef void live(Market* market, Instrument* i, Face* face) noexcept nogil:
    if face.status != OBJECT_LIVE:
        face.replaced = True
    face.status = OBJECT_LIVE
    face.sure = stream_of(market, i).gaps
    face.stage = 0
    if face == &i.face[FACE_ORDERS] or levels_live(market, i):
        drop_held(market, face, stream_of(market, i).number)
    mark(market, i)


cdef void resume(Market* market, Instrument* i) noexcept nogil:
    # Its chain goes on: no gap hit what it counts.
    cdef Face* face = &i.face[FACE_LEVELS]
    cdef int which
    for which in range(FACES):
        if which == FACE_ORDERS or not has_face(market, which):
            continue
        face = &i.face[which]
        if face.status == OBJECT_LIVE and face.sure != stream_of(market, i).gaps:
            face.sure = stream_of(market, i).gaps
            counter_add(&market.feed[FEED_RECOVERED_CHAIN], 1)
            mark(market, i)


cdef void begin_empty(Market* market, Instrument* i) noexcept nogil:
    # Nothing was before: all of it is known.
    cdef int which
    for which in range(FACES):
        if has_face(market, which):
            empty(market, i, which)
            live(market, i, &i.face[which])


cdef bint follow_chain(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Whether a change goes on where the one before ended; else its levels are stale by now, or it
    # is older than what is there.
    cdef uint64_t number = c.chain
    cdef bint goes_on = i.linked and number == i.chain + 1
    if market.traits.chain == CHAIN_PREVIOUS:
        number = c.order
        goes_on = i.linked and (c.order_before == i.chain or (
            number == i.chain and stream_of(market, i).open))
        if not i.linked and c.order_before == 0:
            i.linked = goes_on = True
            begin_empty(market, i)
    elif not i.linked and number == 1:
        i.linked = goes_on = True
        begin_empty(market, i)
    if likely(goes_on):
        i.chain = number
        i.passing = True
        resume(market, i)
        return True
    i.passing = False
    if i.linked and number <= i.chain and number <= i.chain_taken:
        return False             # the snapshot contains it
    i.chain = number
    i.linked = True
    i.passing = market.traits.levels == LEVELS_BY_PLACE   # places come to be known from here on
    stale_levels(market, i)
    return i.passing


cdef void check_places(Market* market, Instrument* i, Face* face) noexcept nogil:
    # By place, and not all known: whole as soon as they are.
    cdef int which = <int>(face - i.face)
    if unlikely(i.sides[which].cls == 0 or i.sides[which + 1].cls == 0):
        return                   # there was no room to note which are not
    if places_missing(&market.slab, &i.sides[which]) == 0 and (
            places_missing(&market.slab, &i.sides[which + 1]) == 0) and i.linked:
        live(market, i, face)


# --- snapshots -----------------------------------------------------------------------------------

cdef bint replay(Market* market, Instrument* i, Face* face, uint64_t number) noexcept nogil:
    # What was held behind a snapshot that was taken. False: it does not continue it.
    cdef uint64_t at = face.held_first
    cdef HeldChange* held
    cdef bint chained = face != &i.face[FACE_ORDERS] and market.traits.chain != CHAIN_NONE
    cdef bint by_number = market.traits.chain != CHAIN_PREVIOUS
    cdef const Change* c
    drop_held(market, face, stream_of(market, i).number)
    while at:
        held = market.held + ((at - 1) & (HELD_MAX - 1))
        at = held.next
        c = &held.change
        if by_number and held.number <= number:
            continue
        if chained and (c.chain or (market.traits.chain == CHAIN_PREVIOUS and c.order)):
            i.passing = (c.order_before == i.chain if market.traits.chain == CHAIN_PREVIOUS
                         else c.chain == i.chain + 1)
            if i.passing:
                i.chain = c.order if market.traits.chain == CHAIN_PREVIOUS else c.chain
            elif (c.order if market.traits.chain == CHAIN_PREVIOUS else c.chain) > i.chain:
                return False
        if chained and not i.passing:
            continue
        if not apply_book(market, i, c):
            return False
        counter_add(&market.feed[FEED_RELEASED], 1)
    return True


cdef bint stage_part(Market* market, Instrument* i, Face* face, const Change* c) noexcept nogil:
    # Of a snapshot in parts: whether to take this one.
    cdef uint64_t* bits
    cdef uint32_t slot, part = c.orders - 1
    if c.chain == 0 or c.chain > STAGE_PARTS_MAX or part >= c.chain:
        return False
    if face.stage != c.order + 1 or face.stage_place == 0 or (
            market.stage_owner[face.stage_place - 1] != i):
        slot = market.stage_turn
        market.stage_turn = (slot + 1) % STAGES
        market.stage_owner[slot] = i
        memset(market.stage_bits + slot * (STAGE_PARTS_MAX // 64), 0, STAGE_PARTS_MAX // 8)
        face.stage = c.order + 1
        face.stage_place = slot + 1
        face.stage_parts = 0
        face.status = OBJECT_STALE
        forget(market, i, <int>(face - i.face))
    bits = market.stage_bits + (face.stage_place - 1) * (STAGE_PARTS_MAX // 64) + part // 64
    if bits[0] >> (part & 63) & 1:
        return False
    bits[0] |= <uint64_t>1 << (part & 63)
    face.stage_parts += 1
    return True


cdef void begin_snapshot(Market* market, Instrument* i, const Change* c) noexcept nogil:
    cdef int which = FACE_ORDERS if c.flags & CHANGE_ORDERS else FACE_LEVELS
    cdef Face* face = &i.face[which]
    cdef MarketStream* s = stream_of(market, i)
    cdef bint previous = market.traits.chain == CHAIN_PREVIOUS
    cdef uint64_t chain = c.order if previous else c.chain
    cdef bint newer
    market.taking = NULL
    if sure(market, i, face) and (which == FACE_ORDERS or not has_face(market, FACE_IMPLIED)
                                  or sure(market, i, &i.face[FACE_IMPLIED])):
        counter_add(&market.feed[FEED_SNAPSHOTS_SKIPPED], 1)
        return
    if previous:
        # Its number is none of the changes' stream. What was held behind the last gap has to
        # continue it; else the snapshot has to be later than what came behind the gap.
        newer = s.gaps == 0 or (s.gap_time_ns != 0 and c.time_ns > s.gap_time_ns) or (
            face.held_first != 0 and face.held_since >= s.lost)
        if market.streams[market.message.stream].broken or not newer or (
                i.linked and chain < i.chain and face.status == OBJECT_LIVE):
            counter_add(&market.feed[FEED_SNAPSHOTS_TOO_OLD], 1)
            return
    elif c.order < max(s.lost, face.held_since) or c.order > s.number:
        counter_add(&market.feed[FEED_SNAPSHOTS_TOO_OLD], 1)
        return
    if which == FACE_LEVELS and i.linked and face.status == OBJECT_LIVE and chain == i.chain:
        resume(market, i)        # what it has is as new
        if levels_live(market, i):
            return
    if s.lost > face.held_since:
        drop_held(market, face, s.lost)
    if face.held_first and face.held_first - 1 + HELD_MAX <= market.held_count:
        counter_add(&market.feed[FEED_COLLECT_DROPPED], 1)
        drop_held(market, face, s.number)
        return
    market.taking_part = False
    if c.flags & CHANGE_PART and c.chain:
        if not stage_part(market, i, face, c):
            return
        market.taking_part = face.stage_parts < c.chain
    elif c.flags & CHANGE_PART:
        if face.stage != c.order + 1:
            empty(market, i, which)
        face.stage = c.order + 1
    else:
        empty(market, i, which)
        if which == FACE_LEVELS and has_face(market, FACE_IMPLIED):
            empty(market, i, FACE_IMPLIED)
    face.status = OBJECT_STALE    # until it is complete
    market.taking = i
    market.taking_face = <uint8_t>which
    market.taking_number = c.order
    market.taking_chain = c.chain


cdef void break_snapshot(Market* market, Instrument* i) noexcept nogil:
    # What it says cannot be, or there is no room for it: none of it holds.
    counter_add(&market.feed[FEED_SNAPSHOTS_BROKEN], 1)
    market.taking = NULL
    if market.taking_face == FACE_LEVELS:
        stale_levels(market, i)
    else:
        stale(market, i, &i.face[FACE_ORDERS])


cdef void end_snapshot(Market* market, const Change* c) noexcept nogil:
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
        i.chain = i.chain_taken = (
            market.taking_number if market.traits.chain == CHAIN_PREVIOUS else market.taking_chain)
    sound = replay(market, i, face, market.taking_number)
    if sound:
        face.replaced = True
        live(market, i, face)
        counter_add(&market.feed[FEED_RECOVERED_SNAPSHOT], 1)
        if market.taking_face == FACE_LEVELS and has_face(market, FACE_IMPLIED):
            i.face[FACE_IMPLIED].replaced = True
            live(market, i, &i.face[FACE_IMPLIED])
    else:
        break_snapshot(market, i)


cdef void take_row(Market* market, const Change* c) noexcept nogil:
    # A row of a snapshot.
    cdef SideLevel level
    cdef Side* side
    cdef Instrument* i = market.taking
    if i == NULL or c.side > SIDE_ASK_IMPLIED:
        return
    if market.taking_face == FACE_ORDERS or market.traits.levels != LEVELS_BY_PLACE:
        if unlikely(not apply_book(market, i, c)):
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
        reach(i, c.side, side.count)
    else:
        break_snapshot(market, i)


# --- instruments ---------------------------------------------------------------------------------

cdef void name_instrument(
        Market* market, Instrument* i, const uint8_t* text, uint32_t size) noexcept nogil:
    cdef uint32_t id
    while size and (text[size - 1] == c" " or text[size - 1] == 0):
        size -= 1
    id = names_intern(market.names, text, size)
    if id == i.symbol_id:
        return
    i.symbol_before = i.symbol_id
    i.symbol_id = id
    if i.symbol_before:
        mark(market, i)


cdef void number_instrument(Market* market, Instrument* i) noexcept nogil:
    # Its number in decimal stands for a name that nobody told.
    cdef uint8_t text[20]
    cdef int at = 20
    cdef uint64_t rest = i.id
    while True:
        at -= 1
        text[at] = <uint8_t>(c"0" + rest % 10)
        rest //= 10
        if rest == 0:
            break
    name_instrument(market, i, text + at, 20 - at)


cdef uint32_t text_size(const char* text) noexcept nogil:
    cdef uint32_t size = 0
    while text[size]:
        size += 1
    return size


cdef void begin_instrument(Market* market, Instrument* i, uint16_t stream) noexcept nogil:
    # As it is known when its first change comes.
    cdef MarketStream* s = market.streams + stream
    cdef int which
    i.stream = stream
    i.homeless = False
    for which in range(FACES):
        i.face[which].status = OBJECT_WAITING
        i.face[which].sure = s.gaps
        i.face[which].held_since = s.lost
        if has_face(market, which):
            forget(market, i, which)
    if s.whole:                  # the first number of its chain, if it has one, is 1
        i.linked = market.traits.chain == CHAIN_DENSE
        begin_empty(market, i)


cdef Instrument* instrument_of(
        Market* market, const Change* c, uint16_t stream) noexcept nogil:
    # NULL: there is no room for it.
    cdef Instrument* i = instrument_find(&market.instruments, c.instrument)
    cdef const char* exchange
    cdef uint8_t text[64]
    cdef uint32_t size
    cdef uint64_t id = c.instrument
    if unlikely(i == NULL):
        i = instrument_add(&market.instruments, c.instrument)
        if i == NULL:
            counter_add(&market.feed[FEED_OBJECTS_FULL], 1)
            return NULL
        counter_add(&market.feed[FEED_OBJECTS], 1)
        exchange = market.traits.exchange
        size = text_size(exchange)
        i.exchange_id = names_intern(market.names, <const uint8_t*>exchange, size)
        if market.traits.depth_implied:
            memcpy(text, exchange, size)
            memcpy(text + size, b" implied", 8)
            i.implied_id = names_intern(market.names, text, size + 8)
        i.depth[0] = market.traits.depth
        i.depth[1] = market.traits.depth_implied
        i.decimals = market.traits.decimals
        i.measured = not market.traits.defined_first
        if market.settings.places[0] and not i.measured and (
                market.traits.levels == LEVELS_BY_PLACE):
            i.depth = market.settings.places
            i.measured = True
        if not i.measured and c.verb != VERB_DEFINE:
            counter_add(&market.feed[FEED_BOOKS_UNDEFINED], 1)
        i.sides[1].ask = i.sides[3].ask = i.shown[1].ask = i.shown[3].ask = 1
        if market.traits.names == NAMES_IN_ID:
            i.named = i.defined = True
            name_instrument(market, i, <const uint8_t*>&id, 8)
        elif market.traits.names == NAMES_DEFINED:
            number_instrument(market, i)
        i.homeless = True
        i.stream = STREAM_NOWHERE
    if unlikely(not i.named and c.name):
        i.named = i.defined = True
        name_instrument(market, i, market.message.payload + c.name - 1, 8)
    if unlikely(i.homeless):
        if stream == STREAM_NOWHERE:
            return i if c.verb == VERB_DEFINE else NULL
        begin_instrument(market, i, stream)
    return i


cdef void replace_all(Market* market, Instrument* i) noexcept nogil:
    # Readers need all of it anew.
    cdef int which
    for which in range(FACES):
        i.face[which].replaced = True
    i.top_said = False
    mark(market, i)


cdef void define_depth(Market* market, Instrument* i, uint8_t own, uint8_t implied) noexcept nogil:
    # Levels are right as they are where no side was ever deeper than the smaller of two depths:
    # nothing fell out of it. Else nobody knows what did.
    cdef bint outgrown = i.deepest[0] > min(i.depth[0], own) and i.depth[0] != own
    if i.deepest[1] > min(i.depth[1], implied) and i.depth[1] != implied:
        outgrown = True
    i.depth[0] = own
    i.depth[1] = implied
    if outgrown and not i.homeless:
        stale_levels(market, i)


cdef void define(Market* market, Instrument* i, const Change* c) noexcept nogil:
    cdef bint by_place = market.traits.levels == LEVELS_BY_PLACE
    cdef bint measures = c.place != 0 if by_place else 0 <= c.price <= DECIMALS_MAX
    if c.name:
        name_instrument(
            market, i, market.message.payload + c.name - 1, <uint32_t>c.quantity)
    if measures and by_place:
        define_depth(market, i, c.place, <uint8_t>c.orders)
    elif measures and c.price != i.decimals:
        i.decimals = <uint8_t>c.price
        replace_all(market, i)
    if measures and not i.measured:
        i.measured = True
        mark(market, i)
    i.named = True
    if not i.defined:
        i.defined = True
        mark(market, i)


cdef void clear_all(Market* market, uint16_t stream) noexcept nogil:
    # Everything of a stream is empty, and that is known.
    cdef MarketStream* s = market.streams + stream
    cdef Instrument* i = market.instruments.items
    cdef uint32_t at
    s.whole = True
    s.lost = s.number - 1 if s.number else 0
    for at in range(market.instruments.count):
        i = market.instruments.items + at
        if i.stream == stream and not i.homeless:
            i.linked = market.traits.chain == CHAIN_DENSE
            i.chain = i.chain_taken = 0
            begin_empty(market, i)


# --- the verbs -----------------------------------------------------------------------------------

cdef inline void add_row(
        Market* market, const Instrument* i, const Change* c, int64_t price, uint64_t id,
        uint8_t side, uint8_t verb) noexcept nogil:
    cdef Row* row
    if market.rows_count == CHANGES_MAX:
        return
    row = market.rows + market.rows_count
    row.price = price
    row.quantity = c.quantity
    row.id = id
    row.time_ns = c.time_ns
    row.instrument = index_of(market, i)
    row.verb = verb
    row.side = side
    market.rows_count += 1


cdef void quote(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # All that is told of a side.
    cdef Side* side = &i.sides[c.side & 1]
    cdef SideLevel* level
    slab_give(&market.slab, side)
    if c.quantity:
        level = side_put(&market.slab, side, c.price)
        if level != NULL:
            level.quantity = c.quantity
    i.quoted[c.side & 1] = stream_of(market, i).gaps + 1
    mark(market, i)
    if i.quoted[0] == i.quoted[1]:
        i.top_said = False
        live(market, i, &i.face[FACE_LEVELS])


cdef void execute_row(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # The trade of an order, before the order is less by it.
    cdef RestingOrder* order
    if c.flags & CHANGE_SILENT:
        return
    if not i.measured:
        market.untold = True
        return
    order = order_find(&market.orders, c.order, scope_of(market, i))
    if order != NULL:            # the taker was on the other side
        add_row(market, i, c, order.price if c.price == PRICE_NONE else c.price, c.order_before,
                1 - (order.side & 1), VERB_TRADE)
    elif c.price != PRICE_NONE:
        add_row(market, i, c, c.price, c.order_before, SIDE_NONE, VERB_TRADE)


cdef void apply_gated(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # A change of a book, of which its chain was followed.
    cdef Face* face = face_of(market, i, c)
    cdef bint chained = face != &i.face[FACE_ORDERS] and market.traits.chain != CHAIN_NONE
    if unlikely(face.status == OBJECT_LIVE and not chained and not sure(market, i, face)):
        stale(market, i, face)
    if unlikely(face.status != OBJECT_LIVE and not chained):
        hold(market, i, face, c)
        return
    if chained and not i.passing:
        return
    if likely(face.status == OBJECT_LIVE):
        if unlikely(not apply_book(market, i, c)):
            if chained:
                stale_levels(market, i)
            else:
                stale(market, i, face)
    elif market.traits.levels == LEVELS_BY_PLACE:
        if not apply_place(market, i, c):
            forget(market, i, <int>(face - i.face))
        check_places(market, i, face)


cdef void market_apply(Market* market, const Change* c) noexcept nogil:
    cdef Instrument* i
    cdef RestingOrder* order
    cdef MarketStream* s = market.streams + market.stream
    if c.verb == VERB_EVENT_END or c.verb == VERB_EVENT_BEGIN:
        s.open = c.verb == VERB_EVENT_BEGIN
        market.flush = c.verb == VERB_EVENT_END and (
            market.dirty_count != 0 or market.pending_count != 0)
        return
    if c.verb == VERB_END_SNAPSHOT:
        end_snapshot(market, c)
        return
    if c.instrument == 0 and market.traits.names != NAMES_DEFINED:
        if c.verb == VERB_CLEAR:
            clear_all(market, market.stream)
            return
        order = order_find(
            &market.orders, c.order_before if c.verb == VERB_REPLACE else c.order, market.stream)
        if order == NULL:
            counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
            market.refused = market.refused or s.whole   # of which instrument nobody knows
            return
        i = market.instruments.items + order.instrument
    elif c.instrument == 0 and c.verb == VERB_CLEAR:
        clear_all(market, market.stream)
        return
    else:
        i = instrument_of(market, c, market.stream)
        if i == NULL:
            return
    if c.time_ns:
        i.time_ns = c.time_ns
        if s.gaps and s.gap_time_ns == 0 and market.message.stream == market.stream:
            s.gap_time_ns = c.time_ns
    if c.verb == VERB_DEFINE:
        define(market, i, c)
        return
    if c.verb == VERB_BEGIN_SNAPSHOT:
        begin_snapshot(market, i, c)
        return
    if c.flags & CHANGE_ROW:
        if market.taking == i:
            take_row(market, c)
        return
    if unlikely(i.stream != market.stream):
        stale_levels(market, i)  # two streams have it: no book of it is the one
        return
    if c.verb == VERB_CLEAR:
        begin_empty(market, i)
        if c.chain:
            i.linked = i.passing = True
            i.chain = c.chain
        return
    if c.verb == VERB_TRADE and not i.measured and market.traits.levels != LEVELS_BY_PLACE:
        market.untold = True     # at which price, nobody knows yet
    elif c.verb == VERB_TRADE or c.verb == VERB_STATUS:
        add_row(market, i, c, c.price, c.order, c.side, c.verb)
    if market.traits.chain != CHAIN_NONE:
        if c.chain or (c.verb == VERB_CHAIN and c.order):
            follow_chain(market, i, c)
        # What is no change of the levels may be a part of their chain.
        if not levels_live(market, i) and (c.chain or face_of(market, i, c) != (
                &i.face[FACE_ORDERS])):
            hold(market, i, &i.face[FACE_LEVELS], c)
    if c.verb == VERB_QUOTE:
        quote(market, i, c)
    elif VERB_SET <= c.verb <= VERB_DELETE:
        if c.verb == VERB_EXECUTE:
            execute_row(market, i, c)
        apply_gated(market, i, c)


# --- what the feed says --------------------------------------------------------------------------

cdef void forget_instrument(Market* market, Instrument* i) noexcept nogil:
    # Its session is over.
    cdef int which
    for which in range(FACES):
        if has_face(market, which):
            empty(market, i, which)
        memset(&i.face[which], 0, sizeof(Face))
    for which in range(4):
        slab_give(&market.slab, &i.shown[which])
    i.homeless = True
    i.linked = i.passing = i.top_said = False
    i.chain = i.chain_taken = 0
    i.quoted[0] = i.quoted[1] = 0
    if market.traits.names == NAMES_MENTIONED:
        i.named = i.defined = False
        i.symbol_id = 0


cdef void market_session(
        Market* market, uint16_t stream, uint32_t venue, uint64_t first_number,
        uint64_t unseen) noexcept nogil:
    # What was there of its stream is void.
    cdef MarketStream* s
    cdef uint32_t at
    cdef Instrument* i
    if stream >= MARKET_STREAMS:
        return
    s = market.streams + stream
    for at in range(market.instruments.count):
        i = market.instruments.items + at
        if i.stream == stream:
            forget_instrument(market, i)
    memset(s, 0, sizeof(MarketStream))
    s.venue = venue
    s.seen = s.broken = True
    s.number = s.lost = first_number - 1 if first_number else 0
    s.whole = first_number <= 1 and unseen == 0 and market.traits.empty_at_start


cdef void market_gap(Market* market, uint16_t stream, uint64_t last) noexcept nogil:
    cdef MarketStream* s
    if stream >= MARKET_STREAMS:
        return
    s = market.streams + stream
    s.gaps += 1
    s.lost = max(s.lost, last)
    s.whole = s.open = False
    s.broken = True
    s.gap_time_ns = 0


cdef void market_begin(Market* market, const Message* message, Names* names) noexcept nogil:
    cdef MarketStream* s
    market.message = message
    market.names = names
    market.refused = market.untold = market.flush = False
    market.taking = NULL
    memset(&market.emission, 0, sizeof(Emission))
    if message.number and message.stream < MARKET_STREAMS:
        s = market.streams + message.stream
        s.number = message.number
        s.session = message.session
        s.seen = True
    market.stream = home_of(market, message)


cdef uint16_t home_of(const Market* market, const Message* message) noexcept nogil:
    # The stream of the changes that a message speaks of: snapshots may come on another one.
    cdef uint16_t stream
    if message.stream >= MARKET_STREAMS:
        return STREAM_NOWHERE
    if market.traits.loops and message.channel:
        for stream in range(MARKET_STREAMS):
            if market.streams[stream].seen:
                return stream
        return STREAM_NOWHERE
    if market.traits.snapshots_from and (
            market.streams[message.stream].venue >= market.traits.snapshots_from):
        for stream in range(MARKET_STREAMS):
            if market.streams[stream].seen and market.streams[stream].venue == (
                    market.streams[message.stream].venue - market.traits.snapshots_from):
                return stream
        return STREAM_NOWHERE    # nothing of its changes was heard: what is lost cannot be known
    return message.stream
