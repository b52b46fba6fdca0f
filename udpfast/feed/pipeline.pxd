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

from libc.stdint cimport int64_t
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport invariant, likely, unlikely
from udpfast.core.counter cimport (
    CHANNEL_DISCONNECTED, CHANNEL_HEARTBEATS, CHANNEL_MESSAGES, LINE_EMPTY_FINAL, LINE_UNUSED_BITS,
    LINE_WINS, VERDICT_DELIVERED, VERDICT_HELD, VERDICT_LATE, VERDICT_REPLAY,
    VERDICT_SENDER_REFUSED, VERDICT_SESSION_RETIRED,
)
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CONNECTION_DISCONNECTED, DATAGRAM_NO_TIMESTAMP, DATAGRAM_SENDER_REFUSED,
    FRAME_SIZE, GAP_FINISH, KIND_GAP, KIND_MESSAGE, RECORD_HEARTBEAT, RECORD_NO_TIMESTAMP,
    RECORD_SNAPSHOT, Datagram, Frame, Gap, Message,
)
from udpfast.feed.control cimport Control, control_pop
from udpfast.feed.frame cimport FRAME_SNAPSHOT, FRAME_UNUSED_BITS, frame_read
from udpfast.feed.line cimport KNOWN_UNKNOWN, SUSPICION_NONE, SUSPICION_RESTART, Line, line_trust
from udpfast.feed.pipeline_session cimport (
    pipeline_is_previous, pipeline_is_straggler, pipeline_other_session, pipeline_suspect_restart,
)
from udpfast.feed.pipeline_state cimport (
    Pipeline, pipeline_hash, pipeline_hear, pipeline_say_connection, pipeline_silent_ns,
    pipeline_watch,
)
from udpfast.feed.window cimport (
    FRAGMENTS_NONE, SLOT_DELIVERED, WINDOW_FOREIGN, Slot, Window, window_advance_line,
    window_is_whole, window_judge, window_judge_all, window_past, window_remember_start,
    window_slot, window_start, window_unwrap,
)
from udpfast.feed.window_order cimport (
    WINDOW_PARK, window_decide, window_deliver, window_force, window_gap, window_hold, window_jump,
)


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
        verdict = pipeline_other_session(p, w, line, d, &frame, now_ns)
        if verdict != VERDICT_DELIVERED:
            return verdict
        return pipeline_place(p, w, line, d, &frame, now_ns)
    if likely(
        frame.seqno == <uint32_t>w.next and frame.fragment_max == 0 and w.started
        and (w.pending == 0 or window_slot(w, w.next).key != w.next)
        and line.suspicion == SUSPICION_NONE and w.connected
    ):
        pipeline_pass(p, w, line, d, &frame, now_ns)
        return VERDICT_DELIVERED
    return pipeline_place(p, w, line, d, &frame, now_ns)


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


# --- time -----------------------------------------------------------------------------------------

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
