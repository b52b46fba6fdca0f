# What becomes of a unit of the current numbering. Whole and next in order, it is delivered; what is
# known is compared; all else waits, outside where there is no room.

from libc.stdint cimport int64_t, uint32_t, uint8_t

from udpfast.core.atomics cimport counter_add, prefetch_write
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport LINE_WINS, VERDICT_DUPLICATE, VERDICT_HELD, VERDICT_SLAB_FULL
from udpfast.core.layout cimport Datagram
from udpfast.feed.fingerprint cimport message_hash
from udpfast.feed.given_up cimport waiting_force, waiting_jump
from udpfast.feed.lines cimport line_bring, lines_hear, lines_settle_past
from udpfast.feed.pace cimport pace_count, pace_pass_milestone
from udpfast.feed.pieces cimport piece_at, piece_next, pieces_begin, pieces_place, unit_is_piece
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_hash, pipeline_look
from udpfast.feed.run cimport BYTES_SAME, Evidence, evidence_add, evidence_begin
from udpfast.feed.slots cimport slots_fill, slots_match
from udpfast.feed.waiting cimport WAITING_PARK, waiting_hold, waiting_note_sent
from udpfast.feed.window cimport window_compare_delivered
from udpfast.feed.window_state cimport (
    LineAccount, Slot, Window, slot_deliver, window_number, window_slot, window_unwrap,
)
from udpfast.wire.messages cimport DELIMITER_NONE, MessageWalk
from udpfast.wire.unit cimport UNIT_UNSEQUENCED, Unit

# --- next in order --------------------------------------------------------------------------------

cdef inline void pipeline_deliver(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, uint32_t object, uint32_t hash,
    int64_t now_ns,
) noexcept nogil:
    # Next in order and whole.
    pipeline_deliver_slot(w, line, d, object, hash, now_ns)
    line.heard_ns = now_ns
    counter_add(&line.counters[LINE_WINS], 1)
    p.ready = d
    p.ready_window = w
    if w.pending:
        pipeline_look(p, w)


cdef inline void pipeline_deliver_slot(
    Window* w, LineAccount* line, const Datagram* d, uint32_t object, uint32_t hash, int64_t now_ns,
) noexcept nogil:
    # Only its slot is written, for copies that may follow.
    cdef int64_t at = w.next
    cdef Slot* slot = window_slot(w, at)
    lines_settle_past(w, at)
    if unlikely(at >= w.milestone):
        pace_pass_milestone(w, at, hash, now_ns)
    slot_deliver(slot, d, object)
    slot.key = at
    slot.hash = hash
    if at > line.highest:
        line.highest = at
    w.next = at + 1


cdef inline void pipeline_make_ready(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, uint32_t skipped,
) noexcept nogil:
    # take() hands out the messages of a unit, behind the first `skipped` ones.
    p.ready = d
    p.ready_window = w
    p.unit = unit
    p.ready_piece = skipped
    p.ready_first = skipped
    p.ready_placed = p.each_message and unit.delimiter != DELIMITER_NONE
    p.ready_step = 0 if unlikely(unit.flags & UNIT_UNSEQUENCED) else 1
    p.ready_number = window_number(w, w.next) if likely(p.ready_step) else 0


cdef inline void pipeline_deliver_slots(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, uint32_t first,
    int64_t now_ns,
) noexcept nogil:
    # The slots of a unit's messages from the n-th on.
    cdef int64_t end = w.next + unit.count - first
    cdef uint32_t offset, size, n
    if likely(unit.count > 1 and p.ready_placed and end <= w.milestone
              and end - w.next <= w.size):
        lines_settle_past(w, end - 1)
        slots_fill(w, d, unit, first, p.places)
        w.next = end
        line.highest = max(line.highest, end - 1)
        return
    pieces_place(p.places, d, unit, p.each_message)
    for n in range(first, unit.count):
        piece_at(p.places, unit, n, p.ready_placed, &offset, &size)
        pipeline_deliver_slot(
            w, line, d, unit.object, message_hash(d.data + offset, size, w.several), now_ns)


cdef inline void pipeline_deliver_unit(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, uint32_t behind,
    int64_t now_ns,
) noexcept nogil:
    # Its first `behind` messages had come before and were compared, the next one is
    # next in order, nothing waits.
    pipeline_make_ready(p, w, d, unit, behind)
    pipeline_deliver_slots(p, w, line, d, unit, behind, now_ns)
    # Where streams take turns, the next slot would come from far away.
    prefetch_write(window_slot(w, w.next + 1))
    line.heard_ns = now_ns
    waiting_note_sent(w, unit)
    line.sent_ns = max(line.sent_ns, unit.sent_ns)
    pace_count(w, unit.count, now_ns)
    counter_add(&line.counters[LINE_WINS], unit.count - behind)


# --- known ----------------------------------------------------------------------------------------

cdef inline void pipeline_compare_delivered(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, uint32_t count,
) noexcept nogil:
    # A unit's first `count` messages lie before `next`: the lines are compared, nothing else.
    cdef MessageWalk walk
    cdef Unit piece
    cdef Evidence unasked
    cdef int64_t at = window_unwrap(w, unit.number)
    cdef uint32_t n
    evidence_begin(&unasked)
    pieces_begin(&walk, d, unit)
    for n in range(count):
        piece_next(&walk, unit, n, p.each_message, &piece)
        window_compare_delivered(w, d, &piece, at + n, pipeline_hash(p, w, d, &piece), &unasked)


cdef inline int pipeline_compare(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, int64_t at, int64_t now_ns,
    Evidence* e,
) noexcept nogil:
    # A unit that brings nothing new is compared with what is known. Its last message's verdict.
    cdef MessageWalk walk
    cdef Unit piece
    cdef int verdict = VERDICT_DUPLICATE
    cdef uint32_t matched = 0
    cdef uint32_t n
    evidence_begin(e)
    if likely(not p.each_message):
        return pipeline_hold_piece(p, w, d, unit, at, now_ns, e)
    if likely(unit.delimiter != DELIMITER_NONE):
        matched = slots_match(w, d, unit, at)
        if matched:
            evidence_add(e, BYTES_SAME, False)
    pieces_begin(&walk, d, unit)
    for n in range(unit.count if matched < unit.count else 0):
        piece_next(&walk, unit, n, p.each_message, &piece)
        if n >= matched:
            verdict = pipeline_hold_piece(p, w, d, &piece, at + n, now_ns, e)
    return verdict


# --- early ----------------------------------------------------------------------------------------

cdef inline int pipeline_hold(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, int64_t at,
    int64_t now_ns,
) noexcept nogil:
    # Its messages wait, those that had come are compared. The verdict is that of what is new of
    # it, if anything is. What finds no room is parked until take() has made some.
    cdef MessageWalk walk
    cdef Unit piece
    cdef Evidence unasked
    cdef int verdict = VERDICT_DUPLICATE
    cdef int one
    cdef uint32_t n
    cdef uint32_t parked = unit.count
    cdef bint fresh = False
    evidence_begin(&unasked)
    pieces_begin(&walk, d, unit)
    for n in range(unit.count):
        if likely(unit_is_piece(unit, p.each_message)):
            # To copy a unit right after it was written would cost as much as all of the rest.
            one = pipeline_hold_piece(p, w, d, unit, at, now_ns, &unasked)
        else:
            piece_next(&walk, unit, n, p.each_message, &piece)
            one = pipeline_hold_piece(p, w, d, &piece, at + n, now_ns, &unasked)
        if one == WAITING_PARK:
            fresh = True
            verdict = VERDICT_HELD
            parked = n
            break
        if one == VERDICT_HELD or one == VERDICT_SLAB_FULL:
            fresh = True
            if verdict != VERDICT_HELD:
                verdict = one
        elif not fresh:
            verdict = one
    if fresh:
        lines_hear(p, w, line, now_ns)
        line_bring(line, unit, at + unit.count - 1)
        if parked < unit.count:
            pipeline_park(p, w, d, unit, parked, at + parked, now_ns)
    return verdict


cdef inline int pipeline_hold_piece(
    Pipeline* p, Window* w, const Datagram* d, const Unit* piece, int64_t at, int64_t now_ns,
    Evidence* e,
) noexcept nogil:
    # One message, or a fragment of one: the verdict, or WAITING_PARK.
    if at < w.next:
        return window_compare_delivered(w, d, piece, at, pipeline_hash(p, w, d, piece), e)
    if at >= w.next + w.size:
        return WAITING_PARK
    return waiting_hold(w, d, piece, at, pipeline_hash(p, w, d, piece), now_ns, e)


cdef inline void pipeline_park(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, uint32_t n, int64_t at,
    int64_t now_ns,
) noexcept nogil:
    # From its n-th message on it waits outside: what is before it is given up, as far as needed.
    if at >= w.next + w.size:
        if n:
            w.waiting.jump_from = at
        waiting_jump(w, at, now_ns)
    else:
        waiting_force(w, at)
    p.parked = d
    p.parked_window = w
    p.parked_unit = unit[0]
    p.parked_piece = n
    p.parked_at = at
