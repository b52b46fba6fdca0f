# Levels by price and by place: what a change does to them and to the rest of a book.

from libc.stdint cimport uint32_t, uint8_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport FEED_BOOKS_FULL, FEED_ORDERS_UNKNOWN
from udpfast.market.change cimport *
from udpfast.market.instrument cimport FACE_IMPLIED, FACE_ORDERS, Instrument
from udpfast.market.marked cimport depth_of, instrument_mark, level_touch
from udpfast.market.market cimport Market
from udpfast.market.resting cimport apply_order, drop_orders
from udpfast.market.side cimport (
    Side, SideLevel, place_delete, place_new, place_set, places_unknown, side_drop, side_find,
    side_put, side_free)

cdef enum:
    DEPTH_ANY = 255              # deeper than any side


cdef inline void face_empty(Market* market, Instrument* i, int face) noexcept nogil:
    # Empty a face: its book is known to be empty.
    if face == FACE_ORDERS or market.traits.levels == LEVELS_OF_ORDERS:
        drop_orders(market, i)
    face_empty_levels(market, i, face)


cdef inline void face_empty_levels(Market* market, Instrument* i, int face) noexcept nogil:
    if face != FACE_ORDERS:
        i.deepest[face >> 1] = 0
        side_free(&market.slab, &i.sides[face])
        side_free(&market.slab, &i.sides[face + 1])
    i.face[face].replaced = True
    if market.traits.levels == LEVELS_OF_ORDERS:
        side_free(&market.slab, &i.sides[SIDE_BID_IMPLIED])
        side_free(&market.slab, &i.sides[SIDE_ASK_IMPLIED])
        i.face[FACE_ORDERS].replaced = i.face[FACE_IMPLIED].replaced = True


cdef inline void face_forget(Market* market, Instrument* i, int face) noexcept nogil:
    # Empty a face whose contents are unknown from now on.
    face_empty(market, i, face)
    if market.traits.levels == LEVELS_BY_PLACE and face != FACE_ORDERS:
        i.deepest[face >> 1] = DEPTH_ANY
        places_unknown(&market.slab, &i.sides[face], depth_of(i, <uint8_t>face))
        places_unknown(&market.slab, &i.sides[face + 1], depth_of(i, <uint8_t>face))


cdef inline bint apply_price(Market* market, Instrument* i, const Change* c) noexcept nogil:
    cdef Side* side = &i.sides[c.side]
    cdef SideLevel* level
    if c.quantity == 0:
        level = side_find(&market.slab, side, c.price)
        if level != NULL:
            level.quantity = level.orders = 0
            level_touch(market, i, c.side, c.price, level)
            side_drop(&market.slab, side, level)
        else:
            # It is as the venue says: without this level.
            counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
            if market.traits.absolute:
                level_touch(market, i, c.side, c.price, NULL)  # readers may have it
        return True
    level = side_put(&market.slab, side, c.price)
    if unlikely(level == NULL):
        counter_add(&market.feed[FEED_BOOKS_FULL], 1)
        return False
    level.quantity = c.quantity
    level.orders = c.orders
    level_touch(market, i, c.side, c.price, level)
    return True


cdef inline void instrument_reach(Instrument* i, uint8_t side, uint32_t depth) noexcept nogil:
    # Note how deep a side was, including a last place that has fallen out of it.
    if depth > i.deepest[side >> 1]:
        i.deepest[side >> 1] = <uint8_t>min(depth, <uint32_t>DEPTH_ANY)


cdef inline bint apply_place(Market* market, Instrument* i, const Change* c) noexcept nogil:
    cdef Side* side = &i.sides[c.side]
    cdef SideLevel level
    cdef uint32_t depth = depth_of(i, c.side)
    instrument_mark(market, i)
    level.price = c.price
    level.quantity = c.quantity
    level.orders = c.orders
    level.unknown = 0
    if c.verb == VERB_PLACE_NEW:
        instrument_reach(i, c.side, side.count + 1)
        return place_new(&market.slab, side, c.place, depth, &level)
    if c.verb == VERB_PLACE_DELETE:
        return place_delete(&market.slab, side, c.place, c.place)
    if c.verb == VERB_PLACE_THRU:
        side.count = 0
        return True
    if c.verb == VERB_PLACE_FROM:
        return place_delete(&market.slab, side, 1, c.place)
    if c.verb == VERB_PLACE_OVERLAY and c.place == side.count + 1:
        instrument_reach(i, c.side, c.place)
        return place_new(&market.slab, side, c.place, depth, &level)
    return place_set(&market.slab, side, c.place, &level)


cdef inline bint apply_book(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Return False if the change is impossible, or if there is no room.
    if VERB_ADD <= c.verb <= VERB_DELETE:
        return apply_order(market, i, c)
    if not VERB_SET <= c.verb <= VERB_PLACE_OVERLAY:
        return True              # it only continues a chain
    if unlikely(c.side > SIDE_ASK_IMPLIED):
        counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
        return False
    return apply_price(market, i, c) if c.verb == VERB_SET else apply_place(market, i, c)
