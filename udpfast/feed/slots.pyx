"""Slots of all messages of a unit in one loop. It has no Python face: `slots.pxd` describes it."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport invariant, likely, unlikely
from udpfast.core.counter cimport LINE_LEADS, LINE_LEAD_NS, LINE_TIES_LOST
from udpfast.core.layout cimport Datagram
from udpfast.feed.fingerprint cimport FINGERPRINT_EDGE, fingerprint_few, message_hash
from udpfast.feed.lines cimport lag_behind, lines_wait_for
from udpfast.feed.pieces cimport piece_span
from udpfast.feed.window_state cimport (
    FRAGMENTS_NONE, SLOT_DELIVERED, LineAccount, Slot, Window, slot_deliver,
)
from udpfast.wire.messages cimport (
    DELIMITER_BE16, DELIMITER_LE16, DELIMITER_LE16_WHOLE, DELIMITER_U8_WHOLE, message_skip,
)
from udpfast.wire.unit cimport Unit

__all__ = []

if sizeof(Slot) != 32:
    raise ImportError(f"Slot has {sizeof(Slot)} bytes, not 32")

cdef extern from *:
    """
    /* Left to itself, gcc makes one loop of those for each delimiter, which asks every message. */
    #undef CYTHON_INLINE
    #define CYTHON_INLINE inline __attribute__((always_inline))
    """

cdef enum:
    SLOT_SHARED = 24             # bytes of a slot before what all messages of a unit have alike


cdef void slots_fill(
    Window* w, const Datagram* d, const Unit* unit, uint32_t skipped, uint32_t* places,
) noexcept nogil:
    # A loop for each delimiter that messages come with by the dozen.
    cdef int delimiter = unit.delimiter
    if delimiter == DELIMITER_BE16:
        slots_fill_by(w, d, unit, skipped, places, DELIMITER_BE16)
    elif delimiter == DELIMITER_LE16:
        slots_fill_by(w, d, unit, skipped, places, DELIMITER_LE16)
    elif delimiter == DELIMITER_LE16_WHOLE:
        slots_fill_by(w, d, unit, skipped, places, DELIMITER_LE16_WHOLE)
    elif delimiter == DELIMITER_U8_WHOLE:
        slots_fill_by(w, d, unit, skipped, places, DELIMITER_U8_WHOLE)
    else:
        slots_fill_by(w, d, unit, skipped, places, delimiter)


cdef inline void slots_fill_by(
    Window* w, const Datagram* d, const Unit* unit, uint32_t skipped, uint32_t* places,
    int delimiter,
) noexcept nogil:
    # Each step of the walk waits for a length; in one loop with the hashes that costs nothing.
    cdef Slot* slots = w.slots
    cdef int64_t mask = w.mask
    cdef int64_t key = w.next
    cdef bint several = w.several
    cdef const uint8_t* data = d.data
    cdef uint32_t skip = message_skip(delimiter)
    cdef uint32_t at = unit.offset
    cdef uint32_t n, span
    cdef Slot made
    cdef Slot* slot
    slot_deliver(&made, d, unit.object)
    for n in range(skipped):
        span = piece_span(data + at, delimiter)
        places[n] = (at + skip) | (span - skip) << 16
        at += span
    for n in range(skipped, unit.count):
        span = piece_span(data + at, delimiter)
        places[n] = (at + skip) | (span - skip) << 16
        slot = &slots[key & mask]
        slot.hash = piece_hash(data + at + skip, span - skip, several)
        slot.key = key
        slot.received_ns = made.received_ns
        slot.fragments = FRAGMENTS_NONE
        memcpy(&slot.cell, &made.cell, sizeof(Slot) - SLOT_SHARED)
        key += 1
        at += span
    invariant(at <= unit.offset + unit.size)     # the framing has walked over all of them


cdef inline uint32_t piece_hash(const uint8_t* data, uint32_t size, bint several) noexcept nogil:
    # message_hash of short ones, which most are.
    if likely(size <= 2 * FINGERPRINT_EDGE):
        return fingerprint_few(data, size)
    return message_hash(data, size, several)


cdef uint32_t slots_match(
    Window* w, const Datagram* d, const Unit* unit, int64_t at,
) noexcept nogil:
    cdef int delimiter = unit.delimiter
    if delimiter == DELIMITER_BE16:
        return slots_match_by(w, d, unit, at, DELIMITER_BE16)
    if delimiter == DELIMITER_LE16:
        return slots_match_by(w, d, unit, at, DELIMITER_LE16)
    if delimiter == DELIMITER_LE16_WHOLE:
        return slots_match_by(w, d, unit, at, DELIMITER_LE16_WHOLE)
    if delimiter == DELIMITER_U8_WHOLE:
        return slots_match_by(w, d, unit, at, DELIMITER_U8_WHOLE)
    return slots_match_by(w, d, unit, at, delimiter)


cdef inline uint32_t slots_match_by(
    Window* w, const Datagram* d, const Unit* unit, int64_t at, int delimiter,
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
    cdef const uint8_t* data = d.data
    cdef uint32_t step = unit.offset
    cdef uint32_t count = unit.count
    cdef uint32_t n = 0
    cdef uint32_t skip = message_skip(delimiter)
    cdef uint32_t span
    if lines & bit or at < w.numbering.base or w.next - at > w.size:
        return 0
    while n < count:
        span = piece_span(data + step, delimiter)
        slot = &slots[key & mask]
        if unlikely(
            slot.key != key or slot.received_ns != received_ns or slot.lines != lines
            or slot.line != line_first or slot.state != SLOT_DELIVERED or slot.fragment_max
            or span == skip or slot.hash != piece_hash(data + step + skip, span - skip, True)
        ):
            break
        slot.lines = lines | bit
        lag_ns = lag_behind(lag_ns, lead_ns)
        step += span
        key += 1
        n += 1
    invariant(step <= unit.offset + unit.size)
    line.lag_ns = lag_ns
    if unlikely(lead_ns > w.waiting.wait_ns):
        lines_wait_for(w, line)
    counter_add(&line.counters[LINE_TIES_LOST], n)
    if lines & (lines - 1) == 0:
        counter_add(&w.line[line_first].counters[LINE_LEADS], n)
        counter_add(&w.line[line_first].counters[LINE_LEAD_NS], n * lead_ns)
        w.line[line_first].lag_ns -= w.line[line_first].lag_ns * n >> 12
    return n
