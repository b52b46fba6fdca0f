# What becomes of a unit of the current numbering: whole and next in order, it passes; what is known
# is compared; all else waits, outside where there is no room.

from libc.stdint cimport int64_t, uint32_t, uint8_t

from udpfast.core.atomics cimport counter_add, prefetch_write
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport LINE_WINS, VERDICT_DUPLICATE, VERDICT_HELD, VERDICT_SLAB_FULL
from udpfast.core.layout cimport Datagram
from udpfast.feed.fingerprint cimport fingerprint, fingerprint_edges
from udpfast.feed.given_up cimport waiting_force, waiting_jump
from udpfast.feed.lines cimport line_bring, lines_hear, lines_judge_past
from udpfast.feed.pace cimport pace_count, pace_pass_milestone
from udpfast.feed.pieces cimport piece_at, piece_next, pieces_begin, pieces_place, unit_is_piece
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_hash, pipeline_look
from udpfast.feed.run cimport Evidence, evidence_begin
from udpfast.feed.waiting cimport WAITING_PARK, waiting_hold, waiting_note_sent
from udpfast.feed.window cimport window_past
from udpfast.feed.window_state cimport (
    FRAGMENTS_NONE, SLOT_DELIVERED, LineAccount, Slot, Window, window_slot, window_unwrap,
)
from udpfast.wire.messages cimport MessageWalk
from udpfast.wire.unit cimport Unit

# --- next in order --------------------------------------------------------------------------------

cdef inline void pipeline_pass(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, uint32_t object, uint32_t hash,
    int64_t now_ns,
) noexcept nogil:
    # Next in order and whole.
    pipeline_pass_slot(w, line, d, object, hash, now_ns)
    line.heard_ns = now_ns
    counter_add(&line.counters[LINE_WINS], 1)
    p.ready = d
    p.ready_window = w
    if w.pending:
        pipeline_look(p, w)


cdef inline void pipeline_pass_slot(
    Window* w, LineAccount* line, const Datagram* d, uint32_t object, uint32_t hash, int64_t now_ns,
) noexcept nogil:
    # Only its slot is written, for copies that may follow.
    cdef int64_t at = w.next
    cdef Slot* slot = window_slot(w, at)
    lines_judge_past(w, at)
    if unlikely(at >= w.milestone):
        pace_pass_milestone(w, at, hash, now_ns)
    slot_deliver(slot, d, object)
    slot.key = at
    slot.hash = hash
    if at > line.highest:
        line.highest = at
    w.next = at + 1


cdef inline void slot_deliver(Slot* slot, const Datagram* d, uint32_t object) noexcept nogil:
    # All but key and hash of a message that is delivered at once.
    slot.received_ns = d.received_ns
    slot.fragments = FRAGMENTS_NONE
    slot.cell = object
    slot.state = SLOT_DELIVERED
    slot.fragment_max = 0
    slot.line = d.line
    slot.lines = <uint8_t>(1 << d.line)


cdef inline void pipeline_make_ready(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, uint32_t skipped,
) noexcept nogil:
    # take() hands out the messages of a unit, behind the first `skipped` ones.
    pieces_place(p.places, d, unit, p.each_message)
    p.ready = d
    p.ready_window = w
    p.unit = unit
    p.ready_piece = skipped
    p.ready_at = w.next


cdef inline void pipeline_pass_slots(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, uint32_t count,
    int64_t now_ns,
) noexcept nogil:
    # The slots of a unit's last messages. They differ in key and hash alone, and nothing else is
    # looked at for each, but in the first ones of a numbering.
    cdef Slot made
    cdef const uint8_t* data
    cdef int64_t at = w.next
    cdef int64_t end = at + count
    cdef uint32_t n = unit.count - count
    cdef uint32_t offset, size, hash
    cdef bint simple = end <= w.milestone and count <= w.size
    if likely(simple):
        lines_judge_past(w, end - 1)
        slot_deliver(&made, d, unit.object)
    while at < end:
        piece_at(p.places, unit, n, p.each_message, &offset, &size)
        data = d.data + offset
        hash = fingerprint(data, size) if w.several else fingerprint_edges(data, size)
        if likely(simple):
            made.key = at
            made.hash = hash
            window_slot(w, at)[0] = made
        else:
            pipeline_pass_slot(w, line, d, unit.object, hash, now_ns)
        at += 1
        n += 1
    w.next = end
    line.highest = max(line.highest, end - 1)


cdef inline void pipeline_pass_unit(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, uint32_t behind,
    int64_t now_ns,
) noexcept nogil:
    # Its first `behind` messages had come before and were compared (pipeline_past), the next one is
    # next in order, nothing waits.
    pipeline_make_ready(p, w, d, unit, behind)
    pipeline_pass_slots(p, w, line, d, unit, unit.count - behind, now_ns)
    # Where streams take turns, the next slot would come from far away.
    prefetch_write(window_slot(w, w.next + 1))
    line.heard_ns = now_ns
    waiting_note_sent(w, unit)
    line.sent_ns = max(line.sent_ns, unit.sent_ns)
    pace_count(w, unit.count, now_ns)
    counter_add(&line.counters[LINE_WINS], unit.count - behind)


# --- known ----------------------------------------------------------------------------------------

cdef inline void pipeline_past(
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
        window_past(w, d, &piece, at + n, pipeline_hash(p, w, d, &piece), &unasked)


cdef inline int pipeline_compare(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, int64_t at, int64_t now_ns,
    Evidence* e,
) noexcept nogil:
    # A unit that brings nothing new is compared with what is known. Its last message's verdict.
    cdef MessageWalk walk
    cdef Unit piece
    cdef int verdict = VERDICT_DUPLICATE
    cdef uint32_t n
    evidence_begin(e)
    if likely(not p.each_message):
        return pipeline_hold_piece(p, w, d, unit, at, now_ns, e)
    pieces_begin(&walk, d, unit)
    for n in range(unit.count):
        piece_next(&walk, unit, n, p.each_message, &piece)
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
        return window_past(w, d, piece, at, pipeline_hash(p, w, d, piece), e)
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
