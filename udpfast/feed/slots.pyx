"""Slots of all messages of a unit in one loop. It has no Python face: `slots.pxd` describes it."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport LINE_LEADS, LINE_LEAD_NS, LINE_TIES_LOST
from udpfast.core.layout cimport Datagram
from udpfast.feed.fingerprint cimport message_hash
from udpfast.feed.lines cimport lag_behind
from udpfast.feed.pieces cimport PieceSteps, place_bytes, place_size, steps_begin, steps_next
from udpfast.feed.window_state cimport (
    SLOT_DELIVERED, LineAccount, Slot, Window, slot_deliver,
)
from udpfast.wire.unit cimport Unit

__all__ = []


cdef void slots_fill(
    Window* w, const Datagram* d, const Unit* unit, uint32_t skipped, uint32_t* places,
) noexcept nogil:
    # Each step of the walk waits for a length; in one loop with the hashes that costs nothing.
    cdef Slot* slots = w.slots
    cdef int64_t mask = w.mask
    cdef int64_t at = w.next
    cdef bint several = w.several
    cdef Slot made
    cdef PieceSteps steps
    cdef uint32_t n, place
    slot_deliver(&made, d, unit.object)
    steps_begin(&steps, d, unit)
    for n in range(skipped):
        places[n] = steps_next(&steps)
    for n in range(skipped, unit.count):
        place = steps_next(&steps)
        places[n] = place
        made.key = at
        made.hash = message_hash(place_bytes(steps.data, place), place_size(place), several)
        slots[at & mask] = made
        at += 1


cdef uint32_t slots_match(
    Window* w, const Datagram* d, const Unit* unit, int64_t at,
) noexcept nogil:
    cdef LineAccount* line = &w.line[d.line]
    cdef Slot* slots = w.slots
    cdef int64_t mask = w.mask
    cdef const Slot* first = &slots[at & mask]
    cdef uint8_t line_first = first.line
    cdef uint8_t lines = first.lines
    cdef uint8_t bit = <uint8_t>(1 << d.line)
    cdef int64_t lead_ns = d.received_ns - first.received_ns
    cdef int64_t received_ns = first.received_ns
    cdef int64_t lag_ns = line.lag_ns
    cdef int64_t key = at
    cdef Slot* slot
    cdef PieceSteps steps
    cdef uint32_t count = unit.count
    cdef uint32_t n = 0
    cdef uint32_t place
    if lines & bit or at < w.numbering.base or w.next - at > w.size:
        return 0
    steps_begin(&steps, d, unit)
    while n < count:
        place = steps_next(&steps)
        slot = &slots[key & mask]
        if unlikely(
            slot.key != key or slot.received_ns != received_ns or slot.lines != lines
            or slot.line != line_first or slot.state != SLOT_DELIVERED or slot.fragment_max
            or place_size(place) == 0
            or slot.hash != message_hash(place_bytes(steps.data, place), place_size(place), True)
        ):
            break
        slot.lines = lines | bit
        lag_ns = lag_behind(lag_ns, lead_ns)
        key += 1
        n += 1
    line.lag_ns = lag_ns
    counter_add(&line.counters[LINE_TIES_LOST], n)
    if lines & (lines - 1) == 0:
        counter_add(&w.line[line_first].counters[LINE_LEADS], n)
        counter_add(&w.line[line_first].counters[LINE_LEAD_NS], n * lead_ns)
    return n
