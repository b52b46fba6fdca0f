# The window of one stream: arbitration between lines, reassembly of fragments and reorder ask one
# truth, the slot of a number. Here is that truth, and what it says of a unit: which lines brought
# a message, in which order, whether they agree. `waiting` is about what waits. A unit here is
# one message, or a fragment of one: of a unit with several, the pipeline hands in each.
#
#        next - size                    next                            next + size
#   -----------|--------------------------|---------------------------------|-----------
#    forgotten |  delivered, or LOST      |  nothing, PARTIAL or WHOLE      |  too far ahead

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport (
    CHANNEL_DISAGREEMENTS, LINE_DISAGREEMENTS, LINE_LEADS, LINE_LEAD_NS, LINE_TIES_LOST,
    VERDICT_DUPLICATE, VERDICT_FRAGMENT_MAX_CHANGED, VERDICT_LATE, VERDICT_REPLAY,
)
from udpfast.core.layout cimport KIND_DISAGREEMENT, Datagram
from udpfast.feed.control cimport Control, control_push
from udpfast.feed.lines cimport lag_behind, line_steps_back, lines_wait_for
from udpfast.feed.pace cimport pace_marked
from udpfast.feed.run cimport (
    BYTES_EMPTY, BYTES_NEW, BYTES_OTHER, BYTES_SAME, Evidence, evidence_add,
)
from udpfast.feed.window_state cimport (
    FRAGMENTS_NONE, SLOT_DELIVERED, SLOT_WHOLE, WINDOW_EARLY, Early, Fragment, LineAccount, Slot,
    Window, window_early, window_number, window_slot, window_span,
)
from udpfast.wire.unit cimport UNIT_HEARTBEAT, UNIT_SNAPSHOT, Unit


cdef inline bint window_is_whole(Window* w, int64_t key) noexcept nogil:
    cdef Slot* slot = window_slot(w, key)
    return slot.key == key and slot.state == SLOT_WHOLE


cdef inline bint window_is_filled_by(Window* w, const LineAccount* line) noexcept nogil:
    # Whether the message at `next`, behind which others wait, is simply late on its line.
    return window_slot(w, w.next).key != w.next and not line_steps_back(w, line, w.next)


cdef inline bint window_is_copy(Window* w, const Unit* unit, int64_t at) noexcept nogil:
    # Whether this fragment of a message of [next, next + size) is there.
    cdef const Slot* slot = window_slot(w, at)
    if slot.key != at:
        return False
    if slot.fragment_max != unit.fragments - 1:
        return True
    if slot.fragment_max == 0:
        return slot.state == SLOT_WHOLE
    return w.waiting.fragments[slot.fragments + unit.fragment].present


cdef inline bint window_came_beyond(
    Window* w, uint8_t line, int64_t at, int64_t datagrams,
) noexcept nogil:
    # Whether a line brought so many datagrams from beyond a seqno that waits to be filled, among
    # twice as many up to its furthest: what lost more than half of them tells nothing. Slots tell
    # numbers of this line apart, marks datagrams with many of them.
    cdef const Slot* slot
    cdef int64_t wanted = datagrams
    cdef int64_t key = w.line[line].highest
    cdef int64_t end = max(at, key - window_span(w, 2 * datagrams))
    if not w.numbering.each_datagram and pace_marked(w, at) < datagrams:
        return False
    while key > end and wanted > 0:
        slot = window_slot(w, key)
        if slot.key == key:
            wanted -= (slot.lines >> line) & 1
        key -= 1
    return wanted == 0


cdef inline int64_t window_accepted_ns(const Window* w, int64_t at) noexcept nogil:
    # When this seqno came first; of one from before the numbering's first, when that came.
    cdef const Slot* slot = &w.slots[at & w.mask]
    return slot.received_ns if slot.key == at else w.numbering.begun_ns


cdef inline bint window_is_delivered(Window* w, int64_t at) noexcept nogil:
    cdef const Slot* slot = window_slot(w, at)
    return slot.key == at and slot.state == SLOT_DELIVERED


cdef inline bint window_is_before(const Window* w, const Slot* slot, int64_t at) noexcept nogil:
    # Whether a slot still knows this seqno of the numbering before the current one.
    return slot.key < w.numbering.base and <uint32_t>slot.key == <uint32_t>at


cdef inline void window_compare_before(
    Window* w, const Unit* unit, int64_t at, uint32_t hash, Evidence* e,
) noexcept nogil:
    # What a datagram near where the numbering before was left tells: one of its stragglers is what
    # it delivered, byte for byte. Of messages in fragments no bytes are remembered.
    cdef const Slot* slot = window_slot(w, at)
    if not window_is_before(w, slot, at) or slot.state != SLOT_DELIVERED:
        evidence_add(e, BYTES_NEW, False)
    elif unit.fragments > 1 or slot.fragment_max:
        if unit.fragments - 1 != slot.fragment_max:
            evidence_add(e, BYTES_OTHER, False)
    else:
        window_compare(unit, slot.hash, hash, False, e)


cdef inline bint window_is_unproven(const Window* w, const Unit* unit) noexcept nogil:
    # A snapshot that came while two runs contended, where snapshots are rare: who believes it
    # believes nothing else, and nobody can tell whose it is.
    return not w.numbering.follows and unit.flags & UNIT_SNAPSHOT


cdef inline bint window_was_other(
    Window* w, const Unit* unit, int64_t at, uint32_t hash,
) noexcept nogil:
    # Whether the numbering before this one delivered other bytes for a seqno, for all we know.
    cdef const Slot* slot = window_slot(w, at)
    return (
        window_is_before(w, slot, at) and slot.state == SLOT_DELIVERED
        and (unit.fragments > 1 or slot.fragment_max or slot.hash != hash)
    )


cdef inline void window_dispute(
    Early* early, const Datagram* d, const Unit* unit, uint32_t hash_other,
) noexcept nogil:
    # To be said behind the message that waits.
    early.other_hash = hash_other
    early.other_object = unit.object
    early.other_fragment = <uint8_t>unit.fragment
    early.other_line = <uint8_t>(d.line + 1)


cdef inline void window_disagree(
    Window* w, const Slot* slot, const Datagram* d, const Unit* unit, uint8_t line_first,
    uint32_t hash_first, uint32_t hash_other,
) noexcept nogil:
    # Nobody can tell which of them is the publisher's: the objects of both are in doubt
    # (market/gate), or all of the stream where units name none (agents/feed/engine). Each gets a
    # record, behind the message that it is about. One that is given up instead needs none: the gap
    # puts all objects in doubt.
    cdef Early* early = window_early(w, slot.key)
    counter_add(&w.line[d.line].counters[LINE_DISAGREEMENTS], 1)
    counter_add(&w.counters[CHANNEL_DISAGREEMENTS], 1)
    if slot.state == SLOT_DELIVERED:
        window_say_both(
            w, slot.cell, unit.object, d.received_ns, slot.key, <uint8_t>unit.fragment, line_first,
            d.line, hash_first, hash_other)
        return
    if early.other_line and early.other_object != unit.object:
        window_say_disagreement(         # no room for a third one
            w, early.other_object, d.received_ns, slot.key, early.other_fragment, line_first,
            early.other_line - 1, hash_first, early.other_hash)
    window_dispute(early, d, unit, hash_other)


cdef inline void window_say_both(
    Window* w, uint32_t first, uint32_t other, int64_t received_ns, int64_t key, uint8_t fragment,
    uint8_t line_first, uint8_t line_other, uint32_t hash_first, uint32_t hash_other,
) noexcept nogil:
    window_say_disagreement(
        w, first, received_ns, key, fragment, line_first, line_other, hash_first, hash_other)
    if other != first:
        window_say_disagreement(
            w, other, received_ns, key, fragment, line_first, line_other, hash_first, hash_other)


cdef inline void window_say_disagreement(
    Window* w, uint32_t object_key, int64_t received_ns, int64_t key, uint8_t fragment,
    uint8_t line_first, uint8_t line_other, uint32_t hash_first, uint32_t hash_other,
) noexcept nogil:
    cdef Control* control = window_control(w, KIND_DISAGREEMENT)
    if control == NULL:
        return
    control.line = line_other
    control.received_ns = received_ns
    control.number = window_number(w, key)
    control.object_key = object_key
    control.size = sizeof(control.payload.disagreement)
    control.payload.disagreement.number = control.number
    control.payload.disagreement.fragment = fragment
    control.payload.disagreement.line_first = line_first
    control.payload.disagreement.line_other = line_other
    control.payload.disagreement.hash_first = hash_first
    control.payload.disagreement.hash_other = hash_other


cdef inline Control* window_control(Window* w, uint16_t kind) noexcept nogil:
    # Something to say of this stream; NULL: too much waits to be said.
    cdef Control* control = control_push(w.controls)
    if control != NULL:
        control.kind = kind
        control.channel = w.channel
        control.stream = w.stream
        control.session = w.session
        control.session_id = w.session_id
    return control


cdef inline void window_copy(
    Window* w, Slot* slot, const Datagram* d, const Unit* unit, uint32_t hash, Evidence* e,
) noexcept nogil:
    # A further copy of a fragment: the race between the lines, and whether it is one. A line
    # is compared with the first copy once, and the line that brought it always: if a forged one
    # came first, the true one is but a repetition on the same line.
    cdef Fragment* fragment
    cdef uint8_t bit = <uint8_t>(1 << d.line)
    cdef uint8_t lines, line_first
    cdef uint32_t hash_first
    cdef int64_t lead_ns = d.received_ns - slot.received_ns
    if slot.fragment_max == 0:
        lines = slot.lines
        line_first = slot.line
        hash_first = slot.hash
    else:
        slot.lines |= bit
        if slot.fragments == FRAGMENTS_NONE:
            evidence_add(e, BYTES_NEW, False)
            return
        fragment = &w.waiting.fragments[slot.fragments + unit.fragment]
        lines = fragment.lines
        line_first = fragment.line
        hash_first = fragment.hash
        lead_ns -= fragment.delay_ns
        fragment.lines |= bit
    if not lines & bit:
        slot.lines |= bit
        counter_add(&w.line[d.line].counters[LINE_TIES_LOST], 1)
        w.line[d.line].lag_ns = lag_behind(w.line[d.line].lag_ns, lead_ns)
        if unlikely(lead_ns > w.waiting.wait_ns):
            lines_wait_for(w, &w.line[d.line])
        if not lines & (lines - 1):          # the second line to bring it
            # Negative where the stamps of two NICs contradict the order.
            counter_add(&w.line[line_first].counters[LINE_LEADS], 1)
            counter_add(&w.line[line_first].counters[LINE_LEAD_NS], lead_ns)
            w.line[line_first].lag_ns = lag_behind(w.line[line_first].lag_ns, 0)
    elif d.line != line_first:
        window_compare(unit, hash_first, hash, True, e)
        return
    if unlikely(hash != hash_first):
        window_disagree(w, slot, d, unit, line_first, hash_first, hash)
    window_compare(unit, hash_first, hash, lines & bit, e)


cdef inline void window_compare(
    const Unit* unit, uint32_t hash_known, uint32_t hash, bint repeated, Evidence* e,
) noexcept nogil:
    if hash != hash_known:
        evidence_add(e, BYTES_OTHER, False)
    elif unit.size:
        evidence_add(e, BYTES_SAME, False)
    else:
        evidence_add(e, BYTES_EMPTY, repeated != 0)


cdef inline int window_compare_delivered(
    Window* w, const Datagram* d, const Unit* unit, int64_t at, uint32_t hash, Evidence* e,
) noexcept nogil:
    # The verdict on a seqno before `next`, and whether we know this very datagram.
    cdef Slot* slot = window_slot(w, at)
    cdef int64_t base = w.numbering.base
    if at < base or w.next - at > w.size:
        if (at >= base and at < w.known.start_end and unit.fragment == 0
                and (w.known.start_known >> (at - base)) & 1):
            window_compare(unit, w.known.start_hash[at - base], hash, True, e)
        elif base - WINDOW_EARLY <= at < base and unit.flags & UNIT_HEARTBEAT:
            evidence_add(e, BYTES_EMPTY, False)  # the first that came was not the first sent
        else:
            evidence_add(e, BYTES_NEW, False)
        return VERDICT_REPLAY
    if slot.key != at or slot.state != SLOT_DELIVERED:
        evidence_add(e, BYTES_NEW, False)
        return VERDICT_LATE
    if slot.fragment_max != unit.fragments - 1:
        window_disagree(w, slot, d, unit, slot.line, slot.hash, hash)
        evidence_add(e, BYTES_OTHER, False)
        return VERDICT_FRAGMENT_MAX_CHANGED
    window_copy(w, slot, d, unit, hash, e)
    return VERDICT_DUPLICATE
