# READ FIRST. What becomes of a unit, from the socket's slot to messages in order. One if-chain
# (pipeline_judge, pipeline_judge_unit) gives every unit exactly one verdict; pipeline_take hands
# out what is due. Nothing here asks the time, allocates, locks or calls back: the owner does
#
#     pipeline_accept(p, datagram, now_ns)           # Roq: one unit, one verdict, one counter
#     while pipeline_take(p, &message): ...          # always until it returns 0
#     pipeline_expire(p, now_ns)                     # once per turn (expiry.pxd), then take again
#
# and of any other framing, whose datagrams may hold several units or none:
#
#     for i in range(pipeline_units(p, datagram)):   # none: that was its verdict
#         pipeline_order(p, datagram, &p.units[i], now_ns)
#         while pipeline_take(p, &message): ...
#
# The common case (this session, next in order, whole) touches one 32-byte slot per message and
# copies nothing: a message's payload is the datagram's own memory.

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport invariant, likely, unlikely
from udpfast.core.counter cimport (
    LINE_UNUSED_BITS, VERDICT_DELIVERED, VERDICT_DUPLICATE, VERDICT_HEARTBEAT, VERDICT_HELD,
    VERDICT_REPLAY, VERDICT_SENDER_REFUSED, VERDICT_SESSION_FOREIGN, VERDICT_SESSION_PENDING,
    VERDICT_STREAM_REFUSED, VERDICT_UNSEQUENCED,
)
from udpfast.core.layout cimport DATAGRAM_SENDER_REFUSED, FRAGMENT_SIZE, FRAME_SIZE, Datagram, Frame
from udpfast.feed.adoption cimport adoption_adopt
from udpfast.feed.fingerprint cimport datagram_hash, message_hash
from udpfast.feed.lines cimport (
    line_bring, line_reach, line_steps_back, lines_go_on, lines_hear,
)
from udpfast.feed.locating cimport pipeline_is_packed_otherwise, pipeline_locate
from udpfast.feed.named cimport named_add
from udpfast.feed.numbering cimport numbering_weigh
from udpfast.feed.pace cimport pace_count
from udpfast.feed.pieces cimport pieces_place
from udpfast.feed.pipeline_state cimport Pipeline, PipelineSettings, pipeline_hash, pipeline_look
from udpfast.feed.placing cimport (
    pipeline_compare, pipeline_hold, pipeline_make_ready, pipeline_deliver, pipeline_deliver_unit,
    pipeline_compare_delivered,
)
from udpfast.feed.run cimport Evidence
from udpfast.feed.runs cimport runs_refute
from udpfast.feed.slab cimport CELL_SCRATCH
from udpfast.feed.streams cimport streams_find, streams_refuse
from udpfast.feed.waiting cimport waiting_note_stored
from udpfast.feed.weighed cimport (
    PLACE_KNOWN, PLACE_NAMED, PLACE_PACKED, PLACE_SESSION, WEIGHED_CONTINUES, WEIGHED_ASIDE,
    Adoption, Located,
)
from udpfast.feed.window cimport window_is_filled_by
from udpfast.feed.window_state cimport (
    SLOT_WHOLE, WINDOW_FOREIGN, Early, LineAccount, Slot, Window, window_begin, window_early,
    window_furthest, window_number, window_slot, window_unwrap,
)
from udpfast.wire.frame cimport FRAME_UNUSED_BITS, frame_object, frame_read
from udpfast.wire.roq cimport roq_units
from udpfast.wire.unit cimport (
    UNIT_END_OF_SESSION, UNIT_HEARTBEAT, UNIT_RETRANSMISSION, UNIT_UNSEQUENCED, Unit,
)

# --- accept: Roq, whose datagrams are one unit each -----------------------------------------------

cdef inline int pipeline_accept(Pipeline* p, const Datagram* d, int64_t now_ns) noexcept nogil:
    # Returns the Verdict. The datagram's memory must stay until take() has returned 0.
    cdef Window* w = &p.window[d.channel]
    cdef LineAccount* line = &w.line[d.line]
    cdef int verdict = pipeline_judge(p, w, line, d, now_ns)
    counter_add(&line.counters[verdict], 1)
    return verdict


cdef inline int pipeline_judge(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, int64_t now_ns,
) noexcept nogil:
    # The common case needs five fields of the header, and no unit.
    cdef Frame frame
    cdef int verdict
    invariant(p.ready == NULL and p.parked == NULL)      # the owner takes until there is nothing
    p.now_ns = now_ns
    p.received_ns = d.received_ns
    if unlikely(d.flags & DATAGRAM_SENDER_REFUSED):
        return VERDICT_SENDER_REFUSED
    verdict = frame_read(&p.reader, d.data, d.size, d.flags, &frame)
    if unlikely(verdict != VERDICT_DELIVERED):
        return verdict
    if unlikely(p.reader.traits[frame.control] & FRAME_UNUSED_BITS):
        counter_add(&line.counters[LINE_UNUSED_BITS], 1)
    if likely(
        frame.session_id == w.session_id and frame.seqno == <uint32_t>w.next
        and frame.fragment_max == 0 and w.started and not w.has_runs and w.connected
        and (w.pending == 0 or window_is_filled_by(w, line))
    ):
        lines_go_on(w, now_ns)
        pipeline_deliver(
            p, w, line, d, frame_object(&frame),
            datagram_hash(d.data, d.size, w.several),
            now_ns)
        return VERDICT_DELIVERED
    if frame.fragment and pipeline_adds_fragment(p, w, line, d, &frame, now_ns):
        return VERDICT_HELD
    return pipeline_judge_frame(p, w, line, d, now_ns)


cdef inline bint pipeline_adds_fragment(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Frame* frame,
    int64_t now_ns,
) noexcept nogil:
    # Another fragment of the message at `next`, behind which nothing waits: it goes to its place,
    # and take() has nothing to look at before the last of them. What is not that simple is judged
    # like anything else (False).
    cdef int64_t at = w.next
    cdef Slot* slot = window_slot(w, at)
    cdef Early* early
    cdef uint32_t size = d.size - FRAME_SIZE
    if not (
        frame.session_id == w.session_id and frame.seqno == <uint32_t>at and w.started
        and not w.has_runs and w.connected and w.waiting.highest == at and w.pending
        and slot.key == at and slot.fragment_max == frame.fragment_max and size
        and not w.waiting.fragments[slot.fragments + frame.fragment].present
        and not line_steps_back(w, line, at)
    ):
        return False
    early = window_early(w, at)
    memcpy(
        w.waiting.scratch + <size_t>frame.fragment * FRAGMENT_SIZE, d.data + FRAME_SIZE, size)
    waiting_note_stored(
        w, slot, early, d, frame.fragment, size, CELL_SCRATCH,
        message_hash(d.data, d.size, w.several), now_ns)
    line.heard_ns = now_ns
    line_reach(line, frame.fragment, at)
    if slot.state == SLOT_WHOLE:
        pipeline_look(p, w)
    return True


cdef inline int pipeline_judge_frame(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, int64_t now_ns,
) noexcept nogil:
    # A sound datagram of Roq that is not simply next.
    cdef Unit unit
    p.datagram += 1
    w.packing.datagram = p.datagram
    roq_units(d.data, d.size, &unit, p.legacy, p.reader.big_endian)
    return pipeline_weigh(p, w, line, d, &unit, now_ns)


# --- accept: any other framing --------------------------------------------------------------------

cdef inline int pipeline_order(
    Pipeline* p, const Datagram* d, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # Returns the Verdict. Datagram and unit must stay until take() has returned 0.
    cdef Window* w = streams_find(p, d.channel, unit.stream)
    cdef int verdict = VERDICT_STREAM_REFUSED
    invariant(p.ready == NULL and p.parked == NULL)
    p.now_ns = now_ns
    if likely(w != NULL):
        w.packing.datagram = p.datagram
        verdict = pipeline_judge_unit(p, w, &w.line[d.line], d, unit, now_ns)
    else:
        streams_refuse(p, d, unit)
    counter_add(&p.counters.line[d.channel][d.line][verdict], 1)
    return verdict


cdef inline int pipeline_judge_unit(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    cdef int64_t behind = 0
    if unlikely(unit.flags & (UNIT_UNSEQUENCED | UNIT_RETRANSMISSION)):
        if unit.flags & UNIT_UNSEQUENCED:
            return pipeline_deliver_unsequenced(p, w, line, d, unit, now_ns)
        return pipeline_sent_again(p, w, line, d, unit, now_ns)
    if likely(
        unit.session == w.session_id and w.started and not w.has_runs and w.connected
        and w.pending == 0 and unit.count
    ):
        if unlikely(unit.number != window_number(w, w.next)):
            behind = w.next - window_unwrap(w, unit.number)
            if unlikely(p.undelimited and behind):
                behind = -1              # it cannot be cut
        if likely(0 <= behind < unit.count):
            lines_go_on(w, now_ns)
            if unlikely(behind):
                pipeline_compare_delivered(p, w, d, unit, <uint32_t>behind)
            pipeline_deliver_unit(p, w, line, d, unit, <uint32_t>behind, now_ns)
            return VERDICT_DELIVERED
    return pipeline_weigh(p, w, line, d, unit, now_ns)


cdef inline int pipeline_sent_again(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # What its sender flags as a retransmission fills holes, or is a copy. It proves nothing: no
    # other numbering, not that the current one goes on, and not how far its line has come.
    cdef Evidence unasked
    cdef int64_t at
    cdef int64_t end = window_furthest(w) + 1
    if not w.started or unit.session != w.session_id:
        return VERDICT_SESSION_FOREIGN
    if unit.count == 0:
        return VERDICT_HEARTBEAT
    pipeline_look(p, w)
    at = window_unwrap(w, unit.number)
    if at > max(end, w.waiting.named) or at + unit.count > w.next + w.size:
        return VERDICT_REPLAY            # nothing is known to be missing there
    if unlikely(p.undelimited) and pipeline_is_packed_otherwise(p, w, d, unit, at):
        return VERDICT_DUPLICATE
    if at + unit.count <= w.next:
        return pipeline_compare(p, w, d, unit, at, now_ns, &unasked)
    return pipeline_hold(p, w, line, d, unit, at, now_ns)


cdef inline int pipeline_deliver_unsequenced(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # It cannot be known whether it is a copy, or what came before.
    lines_hear(p, w, line, now_ns)
    if unit.flags & UNIT_HEARTBEAT or unit.count == 0:
        return VERDICT_HEARTBEAT
    pieces_place(p.places, d, unit, p.each_message)
    pipeline_make_ready(p, w, d, unit, 0)
    return VERDICT_UNSEQUENCED


# --- accept: what is not simply next --------------------------------------------------------------

cdef inline int pipeline_weigh(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # Where it lies, which numbering it is of, and what becomes of it then.
    cdef Located where
    cdef Adoption adoption
    cdef int weighed
    cdef bint adopted = False
    while True:
        pipeline_locate(p, w, line, d, unit, adopted, &where, now_ns)
        weighed = numbering_weigh(p, w, line, d, unit, &where, now_ns, &adoption)
        if likely(weighed == WEIGHED_CONTINUES):
            return pipeline_place(p, w, line, d, unit, &where, now_ns)
        if likely(weighed == WEIGHED_ASIDE):
            return where.verdict
        adoption_adopt(p, w, &adoption, unit, now_ns)
        if where.place != PLACE_SESSION and not where.announced:
            lines_hear(p, w, line, now_ns)       # it was kept with its run, and comes with it
            return where.verdict
        adopted = True


cdef inline int pipeline_place(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    const Located* where, int64_t now_ns,
) noexcept nogil:
    # It is of the current numbering. A whole one at `next` goes straight on, others wait.
    cdef int64_t at = where.at
    if where.place == PLACE_NAMED:
        return pipeline_name_next(p, w, line, d, unit, now_ns)
    if where.place == PLACE_KNOWN:
        return where.verdict
    if where.place == PLACE_PACKED:
        lines_hear(p, w, line, now_ns)
        line_bring(line, unit, where.last)
        return VERDICT_DUPLICATE
    if where.forward:
        lines_go_on(w, now_ns)
    if at <= w.next and unit.fragments == 1 and window_slot(w, w.next).key != w.next and (
        w.pending == 0 or unit.count == 1
    ):
        lines_hear(p, w, line, now_ns)
        if p.roq:
            pipeline_deliver(p, w, line, d, unit.object, pipeline_hash(p, w, d, unit), now_ns)
            return VERDICT_DELIVERED
        if at < w.next:
            pipeline_compare_delivered(p, w, d, unit, <uint32_t>(w.next - at))
        pipeline_deliver_unit(p, w, line, d, unit, <uint32_t>(w.next - at), now_ns)
        if w.pending:
            pipeline_look(p, w)
        return VERDICT_DELIVERED
    if where.forward and not p.roq:
        pace_count(w, unit.count, now_ns)
    return pipeline_hold(p, w, line, d, unit, at, now_ns)


cdef inline int pipeline_name_next(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # A heartbeat: what lies before the number that it names has been sent. What of it does not come
    # in time is lost, though nothing comes behind it.
    cdef int64_t at
    if not w.started:
        window_begin(w, unit.number, now_ns)
    lines_hear(p, w, line, now_ns)
    at = window_unwrap(w, unit.number)
    if at > w.next + WINDOW_FOREIGN:
        return VERDICT_REPLAY
    if at > w.next + w.size and not line.named <= at <= line.named + w.size:
        line.named = at                  # one that names so far a number proves nothing
        return VERDICT_SESSION_PENDING
    if at == w.next:
        lines_go_on(w, now_ns)
        pace_count(w, 0, now_ns)
        if unlikely(w.has_runs):
            runs_refute(w, line)
    if unlikely(unit.flags & UNIT_END_OF_SESSION):
        w.numbering.ended_at = at
    if at >= w.next and at - 1 > line.highest:
        line.highest = at - 1
    if at > w.waiting.named and at > w.next:
        w.waiting.named = at
        named_add(&w.waiting.names, w.next, at, now_ns + p.late_ns)
    return VERDICT_HEARTBEAT


cdef void pipeline_settings_framing(PipelineSettings* s, framing) except *
