# Which session, and which numbering of it, the pipeline believes in. A datagram of another is
# refused, kept as evidence, or the one that convinces: then everything begins anew, with what the
# lines held of it.

from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.counter cimport (
    CHANNEL_SESSIONS, CHANNEL_SESSION_DISCARDED, CHANNEL_SESSION_RESTARTS, VERDICT_DELIVERED,
    VERDICT_SESSION_FOREIGN, VERDICT_SESSION_PENDING, VERDICT_SESSION_RETIRED,
)
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, KIND_SESSION, SESSION_FIRST,
    SESSION_NEW_ID, SESSION_SAME_ID, Datagram, Frame,
)
from udpfast.feed.control cimport Control, control_push
from udpfast.feed.frame cimport frame_read
from udpfast.feed.line cimport (
    SUSPICION_RESTART, SUSPICION_SESSION, HeldDatagram, Line, line_held, line_held_count, line_hold,
    line_suspect_restart, line_suspect_session, line_trust,
)
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_hash, pipeline_hear
from udpfast.feed.session cimport session_begin, session_is_retired
from udpfast.feed.window cimport Window, window_advance_line, window_start, window_unwrap
from udpfast.feed.window_order cimport window_hold, window_reset

cdef enum:
    # A restart with the same id is believed when the old numbering has been quiet for 16 of its
    # mean intervals, 50 ms at most: a replay into a live session is interrupted before.
    RESTART_QUIET_INTERVALS = 16
    RESTART_QUIET_MAX_NS = 50000000
    # A retired id is believed again only when the session that followed it was silent this long.
    RETIRED_QUIET_NS = 1000000000


cdef inline int pipeline_other_session(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int64_t now_ns,
) noexcept nogil:
    # The verdict; DELIVERED: it belongs to the session at hand now, to be placed like any other.
    # The very first session is believed at once: there is nothing that it could disturb.
    cdef uint32_t count, needed, first, i
    cdef uint32_t totals[8]      # LINES_MAX
    cdef bint retired
    memset(totals, 0, sizeof(totals))
    if w.channel == CHANNEL_SNAPSHOT:
        pipeline_hear(p, w, line, now_ns)
        return VERDICT_SESSION_FOREIGN
    if not p.book.begun:
        pipeline_begin(p, frame.session_id, SESSION_FIRST, frame.seqno, now_ns)
        return VERDICT_DELIVERED
    retired = session_is_retired(&p.book, frame.session_id, now_ns)
    needed = p.adopt_datagrams
    if retired:
        if now_ns - w.forward_ns < RETIRED_QUIET_NS or p.restart_datagrams == 0:
            return VERDICT_SESSION_RETIRED
        needed = p.restart_datagrams
    else:
        pipeline_hear(p, w, line, now_ns)
    count = line_suspect_session(line, frame)
    if count < needed:
        if count:
            line_hold(line, d)
        return VERDICT_SESSION_RETIRED if retired else VERDICT_SESSION_PENDING
    # What the other lines hold of this session belongs to it too: nothing is lost.
    first = pipeline_first_held(p, line, frame.seqno, INT32_MAX)
    for i in range(w.lines):
        if w.line[i].suspicion == SUSPICION_SESSION and w.line[i].suspect_id == frame.session_id:
            totals[i] = w.line[i].held_total
            first = pipeline_first_held(p, &w.line[i], first, w.size)
    pipeline_begin(p, frame.session_id, SESSION_NEW_ID, first, now_ns)
    pipeline_replay(p, w, totals, now_ns)
    return VERDICT_DELIVERED


cdef inline uint32_t pipeline_first_held(
    Pipeline* p, Line* line, uint32_t seqno, int64_t reach,
) noexcept nogil:
    # The earliest seqno among those that a line holds and this one, at most `reach` before it.
    cdef Frame frame
    cdef HeldDatagram* held
    cdef uint32_t first = seqno
    cdef uint32_t i
    cdef int32_t ahead
    for i in range(line_held_count(line)):
        held = line_held(line, i)
        frame_read(&p.reader, held.data, held.size, held.flags, &frame)
        ahead = <int32_t>(frame.seqno - seqno)
        if ahead < <int32_t>(first - seqno) and -<int64_t>ahead < reach:
            first = frame.seqno
    return first


cdef inline void pipeline_begin(
    Pipeline* p, uint16_t session_id, uint32_t reason, uint32_t first_seqno, int64_t now_ns,
) noexcept nogil:
    # Another session: nothing of the one before is ever mixed with it.
    cdef Control* control
    cdef Window* w
    cdef int channel
    cdef uint32_t discarded = 0
    for channel in range(CHANNEL_COUNT):
        w = &p.window[channel]
        discarded += w.pending
        counter_add(&w.counters[CHANNEL_SESSION_DISCARDED], w.pending)
        w.previous_next = <uint32_t>w.next
        w.previous_until_ns = INT64_MIN
        if reason == SESSION_SAME_ID and w.started:
            w.previous_until_ns = now_ns + p.book.grace_ns
        window_reset(w)
    control = control_push(&p.controls)
    if control != NULL:
        control.kind = KIND_SESSION
        control.channel = CHANNEL_INCREMENTAL
        control.received_ns = p.received_ns
        control.session_id = session_id
        control.seqno = first_seqno
        control.size = sizeof(control.payload.session)
        control.payload.session.old_id = p.book.session_id if p.book.begun else 0
        control.payload.session.new_id = session_id
        control.payload.session.reason = reason
        control.payload.session.discarded = discarded
        control.payload.session.first_seqno = first_seqno
    w = &p.window[CHANNEL_INCREMENTAL]
    counter_add(&w.counters[CHANNEL_SESSIONS], 1)
    if reason == SESSION_SAME_ID:
        counter_add(&w.counters[CHANNEL_SESSION_RESTARTS], 1)
    session_begin(&p.book, session_id, now_ns)
    window_start(w, first_seqno, now_ns)
    p.busy = 3


cdef inline void pipeline_replay(
    Pipeline* p, Window* w, const uint32_t* totals, int64_t now_ns,
) noexcept nogil:
    # The datagrams that were held while their session or numbering was in doubt. They have had
    # their verdicts; what does not fit now is missing like anything lost, and becomes a gap.
    cdef uint32_t line, i
    cdef HeldDatagram* held
    cdef Datagram d
    cdef Frame frame
    cdef int64_t at
    for line in range(w.lines):
        w.line[line].held_total = totals[line]
        for i in range(line_held_count(&w.line[line])):
            held = line_held(&w.line[line], i)
            d.data = held.data
            d.size = held.size
            d.flags = held.flags
            d.received_ns = held.received_ns
            d.channel = w.channel
            d.line = <uint8_t>line
            frame_read(&p.reader, d.data, d.size, d.flags, &frame)
            at = window_unwrap(w, frame.seqno)
            if at >= w.next and at < w.next + w.size:
                window_advance_line(w, &w.line[line], at, now_ns)
                window_hold(w, &d, &frame, at, pipeline_hash(w, &d), now_ns)
        line_trust(&w.line[line])


cdef inline bint pipeline_is_previous(
    const Window* w, const Frame* frame, int64_t now_ns,
) noexcept nogil:
    # A straggler of the numbering before a restart with the same id.
    cdef int32_t ahead = <int32_t>(frame.seqno - w.previous_next)
    return now_ns < w.previous_until_ns and -w.size <= ahead <= w.size


cdef inline bint pipeline_is_straggler(
    const Pipeline* p, const Window* w, const Frame* frame, int64_t now_ns,
) noexcept nogil:
    # Right after a restart with the same id, a snapshot near the old numbers may be of the old
    # numbering: it must not set the new one's base.
    return (
        now_ns - p.window[CHANNEL_INCREMENTAL].begun_ns < RETIRED_QUIET_NS
        and pipeline_is_previous(w, frame, now_ns)
    )


cdef inline bint pipeline_is_quiet(const Window* w, int64_t now_ns) noexcept nogil:
    # Has the numbering at hand stopped? Measured against its own pace: see RESTART_QUIET_*.
    cdef int64_t steps = w.next - w.base
    cdef int64_t needed = RESTART_QUIET_MAX_NS
    if steps > 0 and (w.forward_ns - w.begun_ns) // steps < needed // RESTART_QUIET_INTERVALS:
        needed = (w.forward_ns - w.begun_ns) // steps * RESTART_QUIET_INTERVALS
    return now_ns - w.forward_ns >= needed


cdef inline void pipeline_suspect_restart(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int known,
    int64_t now_ns,
) noexcept nogil:
    # A datagram that goes backwards on its own line: a replay, or a restart with the same id?
    # The snapshot channel never begins a session; it starts anew with the incremental one.
    cdef uint32_t totals[8]      # LINES_MAX
    cdef uint32_t first, i
    cdef uint32_t count = line_suspect_restart(line, frame, known)
    w.suspects = 1
    if count == 0 or w.channel == CHANNEL_SNAPSHOT:
        return
    line_hold(line, d)
    if count < p.restart_datagrams or not pipeline_is_quiet(w, now_ns):
        return
    # Other lines may hold earlier datagrams of the same run: begin with the earliest.
    first = pipeline_first_held(p, line, frame.seqno, w.size)
    for i in range(w.lines):
        totals[i] = 0
        if w.line[i].suspicion == SUSPICION_RESTART:
            totals[i] = w.line[i].held_total
            first = pipeline_first_held(p, &w.line[i], first, w.size)
    pipeline_begin(p, frame.session_id, SESSION_SAME_ID, first, now_ns)
    pipeline_replay(p, w, totals, now_ns)
