# Resting orders: what a change does to them, and to the levels that are their sums.

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport FEED_BOOKS_FULL, FEED_ORDERS_UNKNOWN
from udpfast.market.change cimport *
from udpfast.market.instrument cimport FACE_LEVELS, Face, Instrument
from udpfast.market.marked cimport (
    ACTION_CHANGE, ACTION_DELETE, ACTION_NEW, REASON_FILLED, REASON_NONE, index_of, level_touch,
    order_of, order_touch, scope_of, stream_of)
from udpfast.market.market cimport Market, MarketStream
from udpfast.market.orders cimport RestingOrder, order_add, order_remove
from udpfast.market.side cimport Side, SideLevel, side_drop, side_put

cdef enum:
    # Readers get doubles, which are exact up to here.
    QUANTITY_MAX = 9_007_199_254_740_992


cdef inline void link_order(Market* market, Instrument* i, RestingOrder* order) noexcept nogil:
    cdef uint32_t at = <uint32_t>(order - market.orders.orders) + 1
    order.before = i.orders_last
    if i.orders_last:
        market.orders.orders[i.orders_last - 1].next = at
    else:
        i.orders_first = at
    i.orders_last = at


cdef inline void take_order(Market* market, Instrument* i, RestingOrder* order) noexcept nogil:
    # Remove an order from its instrument's list and from the table.
    if order.before:
        market.orders.orders[order.before - 1].next = order.next
    else:
        i.orders_first = order.next
    if order.next:
        market.orders.orders[order.next - 1].before = order.before
    else:
        i.orders_last = order.before
    order_remove(&market.orders, order)


cdef inline bint level_add(
        Market* market, Instrument* i, const RestingOrder* order, int64_t quantity,
        int orders) noexcept nogil:
    # Add quantity and number of orders to the level at the order's price. Return False if there is
    # no room, or if the sum is too large.
    cdef Side* side = &i.sides[order.side]
    cdef SideLevel* level
    if market.traits.levels != LEVELS_OF_ORDERS:
        return True
    level = side_put(&market.slab, side, order.price)
    if unlikely(level == NULL or quantity > <int64_t>QUANTITY_MAX - level.quantity):
        return False
    level.quantity += quantity
    level.orders += <uint32_t>orders
    if level.orders == 0:
        level.quantity = 0
    level_touch(market, i, order.side, order.price, level)
    if level.orders == 0:
        side_drop(&market.slab, side, level)
    return True


cdef inline void set_priority(Market* market, RestingOrder* order, const Change* c) noexcept nogil:
    if c.flags & CHANGE_PRIORITY:
        order.priority = c.order_before
    else:
        market.arrivals += 1
        order.priority = market.arrivals


cdef inline bint add_order(
        Market* market, Instrument* i, uint64_t id, uint8_t side, int64_t price, int64_t quantity,
        const Change* c) noexcept nogil:
    cdef RestingOrder* order
    if unlikely(side > SIDE_ASK_IMPLIED or quantity <= 0
                or not order_add(&market.orders, id, scope_of(market, i), &order)):
        counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
        return False
    if unlikely(order == NULL):
        counter_add(&market.feed[FEED_BOOKS_FULL], 1)
        market.crowded = True
        return False
    order.instrument = index_of(market, i)
    order.side = side
    order.price = price
    order.quantity = quantity
    order.gaps = stream_of(market, i).gaps
    set_priority(market, order, c)
    link_order(market, i, order)
    if unlikely(not level_add(market, i, order, quantity, 1)):
        counter_add(&market.feed[FEED_BOOKS_FULL], 1)
        return False
    order_touch(market, i, order, ACTION_NEW, REASON_NONE)
    return True


cdef inline void delete_order(
        Market* market, Instrument* i, RestingOrder* order, uint8_t reason) noexcept nogil:
    level_add(market, i, order, -order.quantity, -1)
    order.quantity = 0
    order_touch(market, i, order, ACTION_DELETE, reason)
    take_order(market, i, order)


cdef inline bint change_order(
        Market* market, Instrument* i, RestingOrder* order, const Change* c) noexcept nogil:
    cdef bint moves = order.price != c.price
    cdef bint keeps = c.flags & CHANGE_KEEPS_PLACE and not moves
    cdef int64_t more
    if unlikely(c.side != order.side and c.side != SIDE_NONE):
        counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
        return False             # an order never changes its side
    if c.quantity <= 0:
        delete_order(market, i, order, REASON_NONE)
        return True
    if moves:
        level_add(market, i, order, -order.quantity, -1)
        order.price = c.price
        order.quantity = 0
    order.gaps = stream_of(market, i).gaps
    more = c.quantity - order.quantity
    order.quantity = c.quantity
    if not keeps:
        set_priority(market, order, c)
    if unlikely(not level_add(market, i, order, more, moves)):
        counter_add(&market.feed[FEED_BOOKS_FULL], 1)
        return False
    order_touch(market, i, order, ACTION_CHANGE, REASON_NONE)
    return True


cdef inline bint reduce_order(
        Market* market, Instrument* i, RestingOrder* order, const Change* c) noexcept nogil:
    cdef int64_t rest = order.quantity - c.quantity
    cdef uint8_t reason = REASON_FILLED if c.verb == VERB_EXECUTE else REASON_NONE
    cdef bint again = False
    if c.flags & CHANGE_REST:
        again = rest != c.orders
        rest = c.orders
    if unlikely(rest < 0 or c.quantity < 0):
        counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
        return False
    if rest == 0:
        delete_order(market, i, order, reason)
        return True
    level_add(market, i, order, rest - order.quantity, 0)
    order.quantity = rest
    if again:
        market.arrivals += 1
        order.priority = market.arrivals
    order_touch(market, i, order, ACTION_CHANGE, reason)
    return True


cdef inline void drop_orders(Market* market, Instrument* i) noexcept nogil:
    cdef uint32_t at = i.orders_first
    cdef uint32_t next
    while at:
        next = market.orders.orders[at - 1].next
        order_remove(&market.orders, market.orders.orders + at - 1)
        at = next
    i.orders_first = i.orders_last = 0


cdef inline bint apply_order(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Return False if the change is impossible.
    cdef RestingOrder* order
    cdef uint8_t side
    if c.verb == VERB_ADD:
        return add_order(market, i, c.order, c.side, c.price, c.quantity, c)
    order = order_of(
        market, c.order_before if c.verb == VERB_REPLACE else c.order, scope_of(market, i))
    if order == NULL and c.verb == VERB_PUT:
        return c.quantity == 0 or add_order(
            market, i, c.order, c.side, c.price, c.quantity, c)
    if unlikely(order == NULL or order.instrument != index_of(market, i)):
        counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
        return False
    if c.verb == VERB_DELETE:
        delete_order(market, i, order, REASON_NONE)
        return True
    if c.verb == VERB_REPLACE:
        side = order.side
        delete_order(market, i, order, REASON_NONE)
        return add_order(market, i, c.order, side, c.price, c.quantity, c)
    if c.verb == VERB_EXECUTE or c.verb == VERB_REDUCE:
        return reduce_order(market, i, order, c)
    return change_order(market, i, order, c)


cdef inline bint order_price_known(
        const Market* market, const Instrument* i, const RestingOrder* order) noexcept nogil:
    # Return False if a lost message may have changed the order's price, or one that is held until a
    # snapshot is complete, or if two copies of the one that said it may have differed.
    cdef const MarketStream* s = stream_of(market, i)
    cdef const Face* face = &i.face[FACE_LEVELS]
    if market.traits.keeps_prices:
        return order.gaps >= s.disputed
    return order.gaps == s.gaps and face.stage == 0 and face.staged == 0


cdef inline void follow_new(
        Market* market, Instrument* i, const Change* c, uint8_t side) noexcept nogil:
    cdef uint32_t scope = scope_of(market, i)
    cdef RestingOrder* order
    if side > SIDE_ASK or c.quantity <= 0 or (
            not order_add(&market.orders, c.order, scope, &order)):
        return
    if unlikely(order == NULL):
        # The oldest order that is followed here gives way: most likely its end was lost.
        counter_add(&market.feed[FEED_BOOKS_FULL], 1)
        if i.orders_first == 0:
            return
        take_order(market, i, market.orders.orders + i.orders_first - 1)
        order_add(&market.orders, c.order, scope, &order)
    order.instrument = index_of(market, i)
    order.side = side
    order.price = c.price
    order.quantity = c.quantity
    order.gaps = stream_of(market, i).gaps
    link_order(market, i, order)


cdef inline void follow_order(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Follow an order whose book is in doubt: only for the price and side of its trades. Orders
    # whose end was lost stay until the book is known again, or until their room is needed. Levels
    # are not kept.
    cdef RestingOrder* order = order_of(
        market, c.order_before if c.verb == VERB_REPLACE else c.order, scope_of(market, i))
    cdef uint8_t side = c.side
    cdef int64_t rest
    if order != NULL and order.instrument != index_of(market, i):
        return
    if order == NULL:
        if c.verb == VERB_ADD or c.verb == VERB_PUT:
            follow_new(market, i, c, side)
        return
    if c.verb == VERB_EXECUTE or c.verb == VERB_REDUCE:
        rest = c.orders if c.flags & CHANGE_REST else order.quantity - c.quantity
    elif c.verb == VERB_DELETE:
        rest = 0
    else:
        # It rests at another price from now on.
        side = order.side if side == SIDE_NONE else side
        take_order(market, i, order)
        follow_new(market, i, c, side)
        return
    order.quantity = rest
    if rest <= 0:
        take_order(market, i, order)
