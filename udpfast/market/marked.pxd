# What changed since the last publication, and small helpers that all rooms of a market use.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport OBJECT_LIVE
from udpfast.market.change cimport *
from udpfast.market.instrument cimport FACE_IMPLIED, FACE_LEVELS, FACE_ORDERS, Face, Instrument
from udpfast.market.market cimport (
    MARKET_STREAMS, TOUCHED_MAX, Market, MarketStream, Touched, TouchedOrder)
from udpfast.market.orders cimport RestingOrder, order_find
from udpfast.market.side cimport SideLevel, side_is_best

cdef enum:  # the schema's UpdateAction
    ACTION_NEW = 1
    ACTION_CHANGE = 2
    ACTION_DELETE = 3

cdef enum:  # the schema's UpdateReason
    REASON_NONE = 0
    REASON_FILLED = 4

cdef enum:
    BOTH_SIDES = 3               # a bit each for SIDE_BID and SIDE_ASK


cdef inline uint32_t index_of(const Market* market, const Instrument* i) noexcept nogil:
    return <uint32_t>(i - market.instruments.items)


cdef inline MarketStream* stream_of(const Market* market, const Instrument* i) noexcept nogil:
    return market.streams + i.stream


cdef inline void need_snapshot(Market* market, const Instrument* i) noexcept nogil:
    # A snapshot is needed that includes everything up to now.
    cdef MarketStream* s = stream_of(market, i)
    s.needs = max(s.needs, s.number + 1)


cdef inline bint face_is_sure(
        const Market* market, const Instrument* i, const Face* face) noexcept nogil:
    return face.status == OBJECT_LIVE and face.sure == stream_of(market, i).gaps


cdef inline uint32_t depth_of(const Instrument* i, uint8_t side) noexcept nogil:
    return i.depth[side >> 1]


cdef inline uint32_t scope_of(const Market* market, const Instrument* i) noexcept nogil:
    return index_of(market, i) + MARKET_STREAMS if market.traits.orders_by_instrument else i.stream


cdef inline RestingOrder* order_of(Market* market, uint64_t id, uint32_t scope) noexcept nogil:
    # Return NULL if no such order rests.
    cdef RestingOrder* order = market.expected_order
    if likely(order.id == id and order.scope == scope):
        return order
    return order_find(&market.orders, id, scope)


cdef inline void instrument_mark_dirty(Market* market, Instrument* i) noexcept nogil:
    if not i.dirty:
        i.dirty = True
        market.dirty[market.dirty_count] = index_of(market, i)
        market.dirty_count += 1


cdef inline void instrument_mark(Market* market, Instrument* i) noexcept nogil:
    i.best_changed = BOTH_SIDES
    instrument_mark_dirty(market, i)


cdef inline void level_touch(
        Market* market, Instrument* i, uint8_t side, int64_t price,
        const SideLevel* level) noexcept nogil:
    # Note that a level changed; `level` is NULL if none is left at that price.
    cdef Touched* touched
    instrument_mark_dirty(market, i)
    if level == NULL or side_is_best(&market.slab, &i.sides[side], level):
        i.best_changed |= 1 << side & BOTH_SIDES
    if unlikely(market.touched_count == TOUCHED_MAX):
        i.face[FACE_IMPLIED if side > SIDE_ASK else FACE_LEVELS].replaced = True
        return
    touched = market.touched + market.touched_count
    touched.instrument = index_of(market, i)
    touched.side = side
    touched.price = price
    touched.quantity = level.quantity if level != NULL else 0
    touched.orders = level.orders if level != NULL else 0
    market.touched_count += 1


cdef inline void order_touch(
        Market* market, Instrument* i, const RestingOrder* order, uint8_t action,
        uint8_t reason) noexcept nogil:
    cdef TouchedOrder* row
    instrument_mark_dirty(market, i)
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
    row.reason = reason
    market.order_rows_count += 1


cdef inline bint has_face(const Market* market, int face) noexcept nogil:
    # Return True if the venue's books have this face separately.
    if face == FACE_ORDERS:
        return market.traits.orders and market.traits.levels != LEVELS_OF_ORDERS
    if face == FACE_IMPLIED:
        return market.traits.depth_implied and market.traits.levels != LEVELS_OF_ORDERS
    return market.traits.levels != LEVELS_NONE


cdef inline Face* face_of(const Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Return the face that a change concerns.
    if VERB_ADD <= c.verb <= VERB_DELETE and market.traits.levels != LEVELS_OF_ORDERS:
        return &i.face[FACE_ORDERS]
    if (c.side == SIDE_BID_IMPLIED or c.side == SIDE_ASK_IMPLIED) and has_face(
            market, FACE_IMPLIED):
        return &i.face[FACE_IMPLIED]
    return &i.face[FACE_LEVELS]
