# Ahead: what the next messages are of is fetched while those before them are worked on. A change in
# a table that no cache holds waits for four lines, each of which says where the next one is: the
# slot of its order, the order, its instrument, the levels. Each is asked for some messages later.
#
# Nothing here changes or promises anything: a wrong guess costs the fetch of a line.

from libc.stdint cimport uint32_t, uint64_t

from udpfast.core.atomics cimport prefetch_read, prefetch_write
from udpfast.market.change cimport SIDE_ASK, SIDE_BID
from udpfast.market.instrument cimport FACE_ORDERS, Instrument, instrument_guess, instrument_hash
from udpfast.market.market cimport Market
from udpfast.market.orders cimport RestingOrder, order_guess, order_hash

cdef enum:
    AHEAD = 6                    # messages that are looked at before their turn
    AHEAD_STEP = 2               # messages from one fetch to the next: a table in memory takes two
    AHEAD_RING = 8

cdef struct Expected:            # what a message will ask for
    uint32_t order_hash
    uint32_t instrument_hash     # 0: it does not say
    uint32_t known               # else it is none of an order
    RestingOrder* order
    Instrument* instrument

cdef struct Ahead:
    Expected expected[AHEAD_RING]  # by count
    uint32_t count


cdef inline void ahead_hand_over(Market* market, const Ahead* ahead) noexcept nogil:
    # What was found of the message at hand, for the market to look at first.
    cdef const Expected* e = ahead.expected + (ahead.count - AHEAD - 1 & AHEAD_RING - 1)
    if e.order != NULL:
        market.expected_order = e.order
    if e.instrument != NULL:
        market.expected = e.instrument


cdef inline void ahead_note(
        Market* market, Ahead* ahead, bint known, uint64_t instrument,
        uint64_t order) noexcept nogil:
    # Order and instrument (0: it does not say) of the message AHEAD behind the one at hand. Not
    # known: there is none, or it is of no order.
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
    prefetch_write(&i.top)       # which readers were told last


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
    elif e.instrument != NULL:   # a new one, which follows the last one of its instrument
        if e.instrument.orders_last:
            prefetch_write(market.orders.orders + e.instrument.orders_last - 1)
        prefetch_best(market, e.instrument, SIDE_BID)
        prefetch_best(market, e.instrument, SIDE_ASK)


cdef inline void prefetch_best(Market* market, const Instrument* i, int side) noexcept nogil:
    # The best levels of a side, and the place of one more.
    prefetch_write(market.slab.levels + i.sides[side].at + i.sides[side].count)
    if i.sides[side].count > 2:
        prefetch_write(market.slab.levels + i.sides[side].at + i.sides[side].count - 3)
