# Ahead: fetches the memory that the next messages will need. In a table that no cache holds, a
# change waits for four cache lines, each of which tells where the next one is: the slot of its
# order, the order, its instrument, the levels. Each of them is fetched some messages after the one
# before.
#
# Nothing here changes a table. A wrong guess costs the fetch of a cache line.

from libc.stdint cimport uint32_t, uint64_t

from udpfast.core.atomics cimport prefetch_read, prefetch_write
from udpfast.market.change cimport SIDE_ASK, SIDE_BID
from udpfast.market.instrument cimport FACE_ORDERS, Instrument, instrument_guess, instrument_hash
from udpfast.market.market cimport Market
from udpfast.market.orders cimport RestingOrder, order_guess, order_hash

cdef enum:
    AHEAD = 6                    # how many messages ahead the feed looks
    # Messages between the fetches of two lines: a fetch from memory takes about two.
    AHEAD_STEP = 2
    AHEAD_RING = 8

cdef struct Expected:            # what a message will need
    uint32_t order_hash
    uint32_t instrument_hash     # 0: the message names no instrument
    uint32_t known               # 0: the message concerns no order
    RestingOrder* order
    Instrument* instrument

cdef struct Ahead:
    Expected expected[AHEAD_RING]  # by `count`, modulo AHEAD_RING
    uint32_t count


cdef inline void ahead_hand_over(Market* market, const Ahead* ahead) noexcept nogil:
    # Pass what was found for the current message to the market, which looks there first.
    cdef const Expected* e = ahead.expected + (ahead.count - AHEAD - 1 & AHEAD_RING - 1)
    if e.order != NULL:
        market.expected_order = e.order
    if e.instrument != NULL:
        market.expected = e.instrument


cdef inline void ahead_note(
        Market* market, Ahead* ahead, bint known, uint64_t instrument,
        uint64_t order) noexcept nogil:
    # Note order and instrument (0: not named) of the message that comes AHEAD messages after the
    # current one. `known` is False if there is no such message yet, or it concerns no order.
    cdef Expected* e = ahead.expected + (ahead.count & AHEAD_RING - 1)
    e.known = known
    if known:
        ahead_slots(market, e, instrument, order)
    e = ahead.expected + (ahead.count - AHEAD_STEP & AHEAD_RING - 1)
    if e.known:
        ahead_order(market, e)
    e = ahead.expected + (ahead.count - 2 * AHEAD_STEP & AHEAD_RING - 1)
    if e.known:
        ahead_levels(market, e)
    ahead.count += 1


cdef inline void ahead_slots(
        Market* market, Expected* e, uint64_t instrument, uint64_t order) noexcept nogil:
    e.order_hash = order_hash(&market.orders, order, market.stream)
    prefetch_write(market.orders.slots + (e.order_hash & market.orders.slots_mask))
    e.instrument_hash = 0
    if instrument:
        e.instrument_hash = instrument_hash(&market.instruments, instrument)
        prefetch_read(market.instruments.slots + (
            e.instrument_hash & market.instruments.slots_mask))


cdef inline void ahead_order(Market* market, Expected* e) noexcept nogil:
    e.order = order_guess(&market.orders, e.order_hash)
    e.instrument = NULL
    if e.order != NULL:
        prefetch_write(e.order)
    if e.instrument_hash:
        e.instrument = instrument_guess(&market.instruments, e.instrument_hash)
        if e.instrument != NULL:
            prefetch_instrument(e.instrument)


cdef inline void prefetch_instrument(Instrument* i) noexcept nogil:
    prefetch_write(i)
    prefetch_write(&i.sides[2])  # the second line
    prefetch_write(&i.face[FACE_ORDERS])
    prefetch_write(&i.top)       # what readers were told last


cdef inline void ahead_levels(Market* market, Expected* e) noexcept nogil:
    if e.order != NULL:
        if e.order.before:
            prefetch_write(market.orders.orders + e.order.before - 1)
        if e.order.next:
            prefetch_write(market.orders.orders + e.order.next - 1)
        if e.instrument == NULL:
            prefetch_instrument(market.instruments.items + e.order.instrument)
        elif e.order.side <= SIDE_ASK:
            prefetch_best(market, e.instrument, e.order.side)
    # The order is new: it will follow the last one of its instrument.
    elif e.instrument != NULL:
        if e.instrument.orders_last:
            prefetch_write(market.orders.orders + e.instrument.orders_last - 1)
        prefetch_best(market, e.instrument, SIDE_BID)
        prefetch_best(market, e.instrument, SIDE_ASK)


cdef inline void prefetch_best(Market* market, const Instrument* i, int side) noexcept nogil:
    # Fetch the best levels of a side, and the room for one more.
    prefetch_write(market.slab.levels + i.sides[side].at + i.sides[side].count)
    if i.sides[side].count > 2:
        prefetch_write(market.slab.levels + i.sides[side].at + i.sides[side].count - 3)
