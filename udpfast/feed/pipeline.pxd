# READ FIRST. What becomes of a datagram, from the socket's slot to a message in order. One
# if-chain (pipeline_judge) gives every datagram exactly one verdict; pipeline_take hands out what
# is due. Nothing here asks the time, allocates, locks or calls back: the owner does
#
#     pipeline_accept(p, datagram, now_ns)           # one verdict, one counter
#     while pipeline_take(p, &message): ...          # always until it returns 0
#     pipeline_expire(p, now_ns)                     # once per turn, then take again
#
# The common case (this session, next in order, whole) touches one 32-byte slot and copies
# nothing: the message's payload is the datagram's own memory.

from libc.errno cimport EINVAL
from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport invariant, likely, unlikely
from udpfast.core.counter cimport (
    CHANNEL_DISCONNECTED, CHANNEL_HEARTBEATS, CHANNEL_MESSAGES, CHANNEL_READY,
    CHANNEL_SESSION_DISCARDED, CHANNEL_SESSION_RESTARTS, CHANNEL_SESSIONS, LINE_EMPTY_FINAL,
    LINE_UNUSED_BITS, LINE_WINS, VERDICT_DELIVERED, VERDICT_DUPLICATE,
    VERDICT_FRAGMENT_MAX_CHANGED, VERDICT_HELD, VERDICT_LATE, VERDICT_REPLAY,
    VERDICT_SENDER_REFUSED, VERDICT_SESSION_FOREIGN, VERDICT_SESSION_PENDING,
    VERDICT_SESSION_RETIRED, Counters,
)
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, CONNECTION_DISCONNECTED,
    CONNECTION_READY, DATAGRAM_NO_TIMESTAMP, DATAGRAM_SENDER_REFUSED, FRAME_SIZE, GAP_FINISH,
    KIND_CONNECTION, KIND_GAP, KIND_MESSAGE, KIND_SESSION, LINES_MAX, MESSAGE_SIZE_MAX,
    RECORD_HEARTBEAT, RECORD_NO_TIMESTAMP, RECORD_SNAPSHOT, SESSION_FIRST, SESSION_NEW_ID,
    SESSION_SAME_ID, Datagram, Frame, Gap, Message,
)
from udpfast.feed.control cimport Control, ControlQueue, control_pop, control_push
from udpfast.feed.fingerprint cimport fingerprint, fingerprint_edges
from udpfast.feed.frame cimport (
    FRAME_SNAPSHOT, FRAME_UNUSED_BITS, FrameReader, frame_read, frame_reader_init,
)
from udpfast.feed.line cimport (
    KNOWN_UNKNOWN, SUSPICION_NONE, SUSPICION_RESTART, SUSPICION_SESSION, HeldDatagram, Line,
    line_held, line_held_count, line_hold, line_reset, line_suspect_restart, line_suspect_session,
    line_trust,
)
from udpfast.feed.session cimport SessionBook, session_begin, session_is_retired
from udpfast.feed.slab cimport carve, slab_reset
from udpfast.feed.window cimport (
    FRAGMENTS_NONE, SLOT_DELIVERED, WINDOW_FOREIGN, WINDOW_PARK, Early, Fragment, Slot, Window,
    window_advance_line, window_decide, window_deliver, window_force, window_gap, window_hold,
    window_is_whole, window_judge, window_judge_all, window_jump, window_past,
    window_remember_start, window_reset, window_slot, window_start, window_unwrap,
)

cdef enum:
    # A restart with the same id is believed when the old numbering has been quiet for 16 of its
    # mean intervals, 50 ms at most: a replay into a live session is interrupted before.
    RESTART_QUIET_INTERVALS = 16
    RESTART_QUIET_MAX_NS = 50000000
    # A retired id is believed again only when the session that followed it was silent this long.
    RETIRED_QUIET_NS = 1000000000

cdef struct PipelineSettings:
    uint32_t revision                    # Revision: 0 current, 1 legacy
    bint big_endian
    uint64_t encodings                   # bit n: encoding n may be delivered
    uint32_t lines_incremental           # 1..8
    uint32_t lines_snapshot              # 0..8
    uint32_t window                      # messages per channel, a power of two
    uint32_t slab_cells                  # fragments that may wait, per channel
    uint32_t out_of_order_max_interval   # messages, 1..window
    int64_t lost_packet_wait_ns
    uint32_t on_gap                      # 0 keep_all, 1 latest_run
    uint32_t session_adopt_datagrams     # 1..32
    int64_t stale_session_grace_ns
    uint32_t restart_datagrams           # 2..256; 0: never believe a restart with the same id
    int64_t inactivity_timeout_ns
    int64_t line_dead_ns

cdef struct Pipeline:
    const Datagram* ready        # next in order and whole: its own memory is the message
    Frame frame                  # of `ready`
    uint32_t busy                # bit mask: channels with something to look at in take()
    uint32_t adopt_datagrams
    uint32_t restart_datagrams
    bint watching                # watch_ns is set
    int64_t now_ns
    int64_t received_ns          # of the latest datagram: the UNIX time of what the feed says
    int64_t watch_ns             # first call: inactivity counts from there
    int64_t inactivity_ns
    const Datagram* parked       # waits until take() has made room
    Frame parked_frame
    int64_t parked_at
    uint32_t parked_hash
    Gap gap                      # payload of the GAP that was taken last
    Counters counters
    FrameReader reader
    SessionBook book
    ControlQueue controls
    Window window[2]             # CHANNEL_COUNT


# --- creation -----------------------------------------------------------------------------------

cdef inline void pipeline_settings_default(PipelineSettings* s) noexcept nogil:
    memset(s, 0, sizeof(PipelineSettings))
    s.encodings = (1 << 1) | (1 << 2)    # native, FlatBuffers
    s.lines_incremental = 1
    s.lines_snapshot = 1
    s.window = 8192                      # 5 ms between lines at a million messages a second
    s.slab_cells = 8192
    s.out_of_order_max_interval = 8192
    s.lost_packet_wait_ns = 5000000
    s.session_adopt_datagrams = 2
    # Two hours, so that a capture of the hour before cannot bring its session back.
    s.stale_session_grace_ns = 7200 * <int64_t>1000000000
    s.restart_datagrams = 32
    s.inactivity_timeout_ns = 10 * <int64_t>1000000000
    s.line_dead_ns = 100000000           # twice the largest skew between lines that is foreseen


cdef inline size_t pipeline_carve(
    Pipeline* p, const PipelineSettings* s, uint8_t* memory,
) noexcept nogil:
    # Lay the windows' arrays into `memory`; with NULL only measure.
    cdef size_t used = 0
    cdef uint32_t fragments = 2 * s.slab_cells + 1024
    cdef uint32_t held = s.restart_datagrams
    cdef int channel, i
    cdef Window* w
    if s.session_adopt_datagrams > held:
        held = s.session_adopt_datagrams
    if held < 32:
        held = 32
    for channel in range(CHANNEL_COUNT):
        w = &p.window[channel]
        w.slots = <Slot*>carve(memory, &used, 2 * <size_t>s.window * sizeof(Slot))
        w.early = <Early*>carve(memory, &used, s.window * sizeof(Early))
        w.fragments = <Fragment*>carve(memory, &used, fragments * sizeof(Fragment))
        w.fragments_capacity = fragments
        w.scratch = <uint8_t*>carve(memory, &used, MESSAGE_SIZE_MAX)
        w.slab.free = <uint32_t*>carve(memory, &used, s.slab_cells * sizeof(uint32_t))
        w.slab.cells = <uint8_t*>carve(memory, &used, <size_t>s.slab_cells * 512)
        w.slab.capacity = s.slab_cells
        for i in range(LINES_MAX):
            w.line[i].held = <HeldDatagram*>carve(memory, &used, held * sizeof(HeldDatagram))
            w.line[i].held_capacity = held
    return used


cdef inline size_t pipeline_memory_size(const PipelineSettings* s) noexcept nogil:
    cdef Pipeline measured
    return pipeline_carve(&measured, s, NULL)


cdef inline int pipeline_init(
    Pipeline* p, const PipelineSettings* s, void* memory, size_t size, Counters* counters,
) noexcept nogil:
    # `memory` must be aligned to 64 bytes and outlive the pipeline; it is cleared here, which
    # faults every page in. 0 or -EINVAL.
    cdef int channel, i
    cdef Window* w
    if size < pipeline_memory_size(s) or s.window & (s.window - 1) or s.window == 0:
        return -EINVAL
    memset(p, 0, sizeof(Pipeline))
    memset(memory, 0, size)
    pipeline_carve(p, s, <uint8_t*>memory)
    p.counters = counters[0]
    p.adopt_datagrams = s.session_adopt_datagrams
    p.restart_datagrams = s.restart_datagrams
    p.inactivity_ns = s.inactivity_timeout_ns
    p.book.grace_ns = s.stale_session_grace_ns
    frame_reader_init(&p.reader, <int>s.revision, s.big_endian, s.encodings)
    for channel in range(CHANNEL_COUNT):
        w = &p.window[channel]
        w.channel = <uint8_t>channel
        w.lines = s.lines_incremental if channel == CHANNEL_INCREMENTAL else s.lines_snapshot
        w.several = w.lines > 1
        w.size = s.window
        w.mask = 2 * <int64_t>s.window - 1
        w.interval = s.out_of_order_max_interval
        w.wait_ns = s.lost_packet_wait_ns
        w.line_dead_ns = s.line_dead_ns
        w.latest_run = s.on_gap == 1
        w.counters = counters.channel[channel]
        w.controls = &p.controls
        w.reader = &p.reader
        slab_reset(&w.slab)
        for i in range(LINES_MAX):
            w.line[i].counters = counters.line[channel][i]
            w.line[i].heard_ns = INT64_MIN
            line_reset(&w.line[i])
    return 0


# --- accept: one datagram, one verdict -----------------------------------------------------------

cdef inline int pipeline_accept(Pipeline* p, const Datagram* d, int64_t now_ns) noexcept nogil:
    # Returns the Verdict. The datagram's memory must stay until take() has returned 0.
    cdef int verdict = pipeline_judge(p, d, now_ns)
    counter_add(&p.window[d.channel].line[d.line].counters[verdict], 1)
    return verdict


cdef inline int pipeline_judge(Pipeline* p, const Datagram* d, int64_t now_ns) noexcept nogil:
    cdef Window* w = &p.window[d.channel]
    cdef Line* line = &w.line[d.line]
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
    if unlikely(frame.session_id != p.book.session_id or not p.book.begun):
        return pipeline_other_session(p, w, line, d, &frame, now_ns)
    if likely(
        frame.seqno == <uint32_t>w.next and frame.fragment_max == 0 and w.started
        and (w.pending == 0 or window_slot(w, w.next).key != w.next)
        and line.suspicion == SUSPICION_NONE and w.connected
    ):
        pipeline_pass(p, w, line, d, &frame, now_ns)
        return VERDICT_DELIVERED
    return pipeline_place(p, w, line, d, &frame, now_ns)


cdef inline uint32_t pipeline_hash(const Window* w, const Datagram* d) noexcept nogil:
    # One line alone needs to know its past again; several must agree in every byte.
    return fingerprint(d.data, d.size) if w.several else fingerprint_edges(d.data, d.size)


cdef inline void pipeline_pass(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int64_t now_ns,
) noexcept nogil:
    # Next in order and whole: only its slot is written, for copies that may follow.
    cdef int64_t at = w.next
    cdef Slot* slot = window_slot(w, at)
    cdef uint32_t hash
    hash = pipeline_hash(w, d)
    if w.several:
        window_judge(w, slot, False)
    if unlikely(at < w.start_end):
        window_remember_start(w, at, hash)
    slot.key = at
    slot.received_ns = d.received_ns
    slot.hash = hash
    slot.fragments = FRAGMENTS_NONE
    slot.state = SLOT_DELIVERED
    slot.fragment_max = 0
    slot.line = d.line
    slot.lines = <uint8_t>(1 << d.line)
    window_advance_line(w, line, at, now_ns)
    w.forward_ns = now_ns
    w.next = at + 1
    line.heard_ns = now_ns
    counter_add(&line.counters[LINE_WINS], 1)
    p.ready = d
    p.frame = frame[0]
    if w.pending:
        p.busy |= <uint32_t>1 << w.channel


cdef inline int pipeline_place(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int64_t now_ns,
) noexcept nogil:
    # Everything of the session at hand that is not simply next.
    cdef int64_t at
    cdef uint32_t hash
    cdef int verdict
    cdef int known = KNOWN_UNKNOWN
    p.busy |= <uint32_t>1 << w.channel
    if unlikely(frame.fragment_max and d.size == FRAME_SIZE):
        counter_add(&line.counters[LINE_EMPTY_FINAL], 1)
    if line.suspicion != SUSPICION_NONE and line.suspicion != SUSPICION_RESTART:
        line_trust(line)                 # the session at hand speaks on this line: no other does
    if unlikely(not w.started):
        if pipeline_is_straggler(p, w, frame, now_ns):
            return VERDICT_SESSION_RETIRED
        window_start(w, frame.seqno, now_ns)
    hash = pipeline_hash(w, d)
    at = window_unwrap(w, frame.seqno)
    if at >= w.next + w.size and pipeline_is_previous(w, frame, now_ns):
        return VERDICT_SESSION_RETIRED
    if at >= w.next + WINDOW_FOREIGN:
        verdict = VERDICT_REPLAY
    elif at < w.next:
        verdict = window_past(w, d, frame, at, hash, &known)
    else:
        return pipeline_ahead(p, w, line, d, frame, at, hash, now_ns)
    if verdict != VERDICT_REPLAY:
        pipeline_hear(p, w, line, now_ns)
    if verdict == VERDICT_REPLAY and at >= w.next or at < line.highest:
        if verdict != VERDICT_LATE and p.restart_datagrams:
            pipeline_suspect_restart(p, w, line, d, frame, known, now_ns)
    elif window_advance_line(w, line, at, now_ns):
        # Behind the others, but it goes on: gaps by count have to wait for it.
        line.heard_ns = now_ns
    return verdict


cdef inline int pipeline_ahead(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int64_t at,
    uint32_t hash, int64_t now_ns,
) noexcept nogil:
    # At `next` or behind it. A whole one at `next` goes straight on, others wait.
    cdef int verdict
    pipeline_hear(p, w, line, now_ns)
    if line.suspicion != SUSPICION_NONE:
        line_trust(line)
    if at == w.next and frame.fragment_max == 0 and window_slot(w, at).key != at:
        pipeline_pass(p, w, line, d, frame, now_ns)
        return VERDICT_DELIVERED
    window_advance_line(w, line, at, now_ns)
    if at < w.next + w.size:
        verdict = window_hold(w, d, frame, at, hash, now_ns)
        if verdict != WINDOW_PARK:
            return verdict
        window_force(w, at)
    else:
        window_jump(w, at, now_ns)
    p.parked = d
    p.parked_frame = frame[0]
    p.parked_at = at
    p.parked_hash = hash
    return VERDICT_HELD


# --- sessions -------------------------------------------------------------------------------------

cdef inline int pipeline_other_session(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int64_t now_ns,
) noexcept nogil:
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
        return pipeline_place(p, w, line, d, frame, now_ns)
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
    return pipeline_place(p, w, line, d, frame, now_ns)


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


# --- take: what is due, in order ------------------------------------------------------------------

cdef inline bint pipeline_take(Pipeline* p, Message* m) noexcept nogil:
    # The next message, or what the feed itself has to say; 0 when nothing more is due. The payload
    # is valid until the next call.
    if likely(p.ready != NULL and p.controls.count == 0):
        pipeline_take_ready(p, m)
        return True
    if likely(p.busy == 0 and p.controls.count == 0):
        return False
    return pipeline_take_waiting(p, m)


cdef inline void pipeline_take_ready(Pipeline* p, Message* m) noexcept nogil:
    cdef const Datagram* d = p.ready
    cdef int64_t* counters = p.window[d.channel].counters
    p.ready = NULL
    m.payload = d.data + FRAME_SIZE
    m.size = d.size - FRAME_SIZE
    m.kind = KIND_MESSAGE
    m.flags = 0
    if p.reader.traits[p.frame.control] & FRAME_SNAPSHOT:
        m.flags = RECORD_SNAPSHOT
    if unlikely(d.flags & DATAGRAM_NO_TIMESTAMP):
        m.flags |= RECORD_NO_TIMESTAMP
    if m.size == 0:
        m.flags |= RECORD_HEARTBEAT
        counter_add(&counters[CHANNEL_HEARTBEATS], 1)
    m.received_ns = d.received_ns
    m.frame = p.frame
    m.channel = d.channel
    m.line = d.line
    m.fragments = 1
    m.tag = 0
    counter_add(&counters[CHANNEL_MESSAGES], 1)


cdef inline bint pipeline_take_waiting(Pipeline* p, Message* m) noexcept nogil:
    cdef int channel = 0
    cdef Window* w
    if p.controls.count:
        pipeline_say(p, control_pop(&p.controls), m)
        return True
    while channel < CHANNEL_COUNT:
        w = &p.window[channel]
        if (p.busy >> channel) & 1:
            if pipeline_take_window(p, w, m):
                return True
            if p.parked != NULL and p.parked.channel == channel:
                pipeline_unpark(p, w)
                continue
            if w.finishing:
                window_judge_all(w, False)
                w.finishing = False
            p.busy &= ~(<uint32_t>1 << channel)
        channel += 1
    if p.controls.count:                 # unparking found two lines that disagree
        pipeline_say(p, control_pop(&p.controls), m)
        return True
    return False


cdef inline bint pipeline_take_window(Pipeline* p, Window* w, Message* m) noexcept nogil:
    cdef bint discard = w.latest_run and not w.finishing
    while w.pending or w.next < w.decided:
        if window_is_whole(w, w.next) and not (discard and w.next < w.decided):
            window_deliver(w, m, p.book.session_id)
            return True
        if w.next < w.decided:
            window_gap(w, &p.gap, p.now_ns)
            pipeline_say_gap(p, w, m)
            return True
        if not window_decide(w, p.now_ns):
            return False
    return False


cdef inline void pipeline_unpark(Pipeline* p, Window* w) noexcept nogil:
    # take() has made room as far as it can; if that was not enough, give up one more hole. Ends at
    # the latest when the parked one is next: that one needs no cell.
    cdef const Datagram* d = p.parked
    p.parked = NULL
    if p.parked_at < w.next:
        return                           # on_gap = latest_run gave it up with the rest
    invariant(p.parked_at < w.next + w.size)
    if window_hold(w, d, &p.parked_frame, p.parked_at, p.parked_hash, p.now_ns) == WINDOW_PARK:
        window_force(w, p.parked_at)
        p.parked = d


cdef inline void pipeline_say(Pipeline* p, const Control* control, Message* m) noexcept nogil:
    memset(m, 0, sizeof(Message))
    m.payload = <const uint8_t*>&control.payload
    m.size = control.size
    m.kind = control.kind
    m.received_ns = control.received_ns
    m.frame.session_id = control.session_id
    m.frame.seqno = control.seqno
    m.channel = control.channel
    m.line = control.line


cdef inline void pipeline_say_gap(Pipeline* p, Window* w, Message* m) noexcept nogil:
    memset(m, 0, sizeof(Message))
    m.payload = <const uint8_t*>&p.gap
    m.size = sizeof(Gap)
    m.kind = KIND_GAP
    m.received_ns = p.received_ns
    m.frame.session_id = p.book.session_id
    m.frame.seqno = p.gap.first
    m.channel = w.channel


cdef inline void pipeline_say_connection(
    Pipeline* p, Window* w, uint32_t status, int64_t silent_ns,
) noexcept nogil:
    cdef Control* control = control_push(&p.controls)
    if control == NULL:
        return
    control.kind = KIND_CONNECTION
    control.channel = w.channel
    control.received_ns = p.received_ns
    control.session_id = p.book.session_id
    control.size = sizeof(control.payload.connection)
    control.payload.connection.status = status
    control.payload.connection.silent_ns = silent_ns


# --- time -----------------------------------------------------------------------------------------

cdef inline int64_t pipeline_silent_ns(Pipeline* p, const Window* w, int64_t now_ns) noexcept nogil:
    # How long nothing of this channel has been heard.
    cdef int64_t heard_ns = p.watch_ns
    cdef uint32_t i
    for i in range(w.lines):
        if w.line[i].heard_ns > heard_ns:
            heard_ns = w.line[i].heard_ns
    return now_ns - heard_ns


cdef inline void pipeline_hear(Pipeline* p, Window* w, Line* line, int64_t now_ns) noexcept nogil:
    # A sign of life of this line, hence of its channel.
    if unlikely(not w.connected):
        w.connected = True
        w.silent = False
        counter_add(&w.counters[CHANNEL_READY], 1)
        pipeline_watch(p, now_ns)
        pipeline_say_connection(p, w, CONNECTION_READY, pipeline_silent_ns(p, w, now_ns))
    line.heard_ns = now_ns


cdef inline void pipeline_watch(Pipeline* p, int64_t now_ns) noexcept nogil:
    if not p.watching:
        p.watching = True
        p.watch_ns = now_ns


cdef inline void pipeline_expire(Pipeline* p, int64_t now_ns) noexcept nogil:
    # Time has passed: take() then declares holes that waited too long, and says which channel
    # fell silent. A channel that never spoke is declared silent too, once.
    cdef Window* w
    cdef int channel
    cdef int64_t silent_ns
    p.now_ns = now_ns
    pipeline_watch(p, now_ns)
    for channel in range(CHANNEL_COUNT):
        w = &p.window[channel]
        if w.pending:
            p.busy |= <uint32_t>1 << channel
        if w.silent or w.lines == 0 or p.inactivity_ns == 0:
            continue
        silent_ns = pipeline_silent_ns(p, w, now_ns)
        if silent_ns >= p.inactivity_ns:
            w.silent = True
            w.connected = False
            counter_add(&w.counters[CHANNEL_DISCONNECTED], 1)
            pipeline_say_connection(p, w, CONNECTION_DISCONNECTED, silent_ns)


cdef inline void pipeline_finish(Pipeline* p, int64_t now_ns) noexcept nogil:
    # The input ended: open holes become gaps, everything whole is delivered by take().
    cdef Window* w
    cdef int channel
    p.now_ns = now_ns
    for channel in range(CHANNEL_COUNT):
        w = &p.window[channel]
        w.finishing = True
        if w.pending and w.highest >= w.decided:
            w.decided = w.highest + 1
            w.decided_reason = GAP_FINISH
    p.busy = 3
