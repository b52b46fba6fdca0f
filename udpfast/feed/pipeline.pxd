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

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport invariant, likely, unlikely
from udpfast.core.counter cimport (
    CHANNEL_DISCONNECTED, CHANNEL_HEARTBEATS, CHANNEL_MESSAGES, LINE_DISCONNECTED,
    LINE_EMPTY_FINAL, LINE_READY, LINE_UNUSED_BITS, LINE_WINS, VERDICT_DELIVERED,
    VERDICT_DUPLICATE, VERDICT_FRAGMENT_MAX_CHANGED, VERDICT_HELD, VERDICT_LATE, VERDICT_REPLAY,
    VERDICT_SENDER_REFUSED, VERDICT_SESSION_PENDING, VERDICT_SESSION_RETIRED,
)
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CONNECTION_CHANNEL, CONNECTION_DISCONNECTED, CONNECTION_LINE, CONNECTION_READY,
    DATAGRAM_NO_TIMESTAMP, DATAGRAM_SENDER_REFUSED, FRAME_SIZE, GAP_FINISH, KIND_GAP, KIND_MESSAGE,
    RECORD_HEARTBEAT, RECORD_NO_TIMESTAMP, RECORD_SNAPSHOT, Datagram, Frame, Gap, Message,
)
from udpfast.feed.candidate cimport (
    CANDIDATE_BACK_MAX, CLAIM_AHEAD, CLAIM_BEHIND, CLAIM_NEW_ID, CLAIM_NONE, EVIDENCE_FILLED,
    EVIDENCE_NEUTRAL, EVIDENCE_NEW, EVIDENCE_NONE, EVIDENCE_OTHER, EVIDENCE_SAME, candidate_follows,
    candidate_forget, candidate_note, candidate_refute,
)
from udpfast.feed.control cimport Control, control_pop
from udpfast.feed.frame cimport FRAME_SNAPSHOT, FRAME_UNUSED_BITS, frame_object, frame_read
from udpfast.feed.line cimport Line, line_spoke_ns, line_steps_back
from udpfast.feed.pipeline_session cimport (
    STRAGGLER_MAX_NS, pipeline_deliver_believed, pipeline_follows_run, pipeline_is_foreign,
    pipeline_is_overtaken, pipeline_is_previous, pipeline_is_straggler, pipeline_jump,
    pipeline_numbered_anew, pipeline_other_session, pipeline_resumes,
)
from udpfast.feed.pipeline_state cimport (
    Pipeline, pipeline_hash, pipeline_hear, pipeline_say_connection, pipeline_silent_ns,
    pipeline_watch,
)
from udpfast.feed.window cimport (
    FRAGMENTS_NONE, SLOT_DELIVERED, WINDOW_PACE, Slot, Window, window_evidence_before,
    window_furthest, window_is_before, window_is_copy, window_is_doubtful, window_is_filled_by,
    window_is_quiet, window_is_whole, window_judge_due, window_judge_until, window_number,
    window_pass_milestone, window_past, window_refute, window_slot, window_start, window_unwrap,
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
        and not w.contested and w.connected
        and (w.pending == 0 or window_is_filled_by(w, line))
    ):
        w.forward_ns = now_ns
        pipeline_pass(p, w, line, d, &frame, pipeline_hash(w, d), now_ns)
        return VERDICT_DELIVERED
    return pipeline_place(p, w, line, d, &frame, now_ns)


cdef inline void pipeline_pass(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, uint32_t hash,
    int64_t now_ns,
) noexcept nogil:
    # Next in order and whole: only its slot is written, for copies that may follow.
    cdef int64_t at = w.next
    cdef Slot* slot = window_slot(w, at)
    if w.several and at - w.judged > w.mask:
        window_judge_until(w, at - w.mask, INT64_MIN)    # its slot is needed
    if unlikely(at >= w.milestone):
        window_pass_milestone(w, at, hash, now_ns)
    slot.key = at
    slot.received_ns = d.received_ns
    slot.hash = hash
    slot.fragments = FRAGMENTS_NONE
    slot.cell = frame_object(frame)
    slot.state = SLOT_DELIVERED
    slot.fragment_max = 0
    slot.line = d.line
    slot.lines = <uint8_t>(1 << d.line)
    if at > line.highest:
        line.highest = at
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
    p.busy |= <uint32_t>1 << w.channel
    if unlikely(frame.fragment_max and d.size == FRAME_SIZE):
        counter_add(&line.counters[LINE_EMPTY_FINAL], 1)
    if line.foreign.claim == CLAIM_NEW_ID:
        candidate_refute(&line.foreign)      # the session at hand speaks on this line
    if unlikely(not w.started):
        if pipeline_is_straggler(p, w, frame, now_ns):
            return VERDICT_SESSION_RETIRED
        window_start(w, frame.seqno, now_ns)
    hash = pipeline_hash(w, d)
    at = window_unwrap(w, frame.seqno)
    if at < w.next:
        return pipeline_behind(p, w, line, d, frame, at, hash, now_ns)
    if at < w.next + w.size:
        return pipeline_ahead(p, w, line, d, frame, at, hash, now_ns)
    if pipeline_is_foreign(w, line, frame, at):
        pipeline_numbered_anew(p, w, line, d, frame, EVIDENCE_NEW, False, now_ns)
        return VERDICT_REPLAY
    if pipeline_is_previous(w, frame, now_ns):
        pipeline_numbered_anew(
            p, w, line, d, frame, window_evidence_before(w, d, frame, at, hash), False, now_ns)
        return VERDICT_SESSION_RETIRED
    if not pipeline_jump(p, w, line, d, frame, at, now_ns):
        return VERDICT_SESSION_PENDING
    return pipeline_ahead(p, w, line, d, frame, at, hash, now_ns)


cdef inline int pipeline_behind(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int64_t at,
    uint32_t hash, int64_t now_ns,
) noexcept nogil:
    # Before `next`: a copy, a late one, or not of the numbering at hand.
    cdef int evidence
    cdef int verdict = window_past(w, d, frame, at, hash, &evidence)
    if verdict == VERDICT_LATE and not window_is_doubtful(w):
        if now_ns - w.forward_ns < STRAGGLER_MAX_NS:
            evidence = EVIDENCE_NONE
    pipeline_weigh(p, w, line, d, frame, at, verdict, evidence, now_ns)
    return verdict


cdef inline void pipeline_weigh(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int64_t at,
    int verdict, int evidence, int64_t now_ns,
) noexcept nogil:
    # What a datagram tells that the numbering at hand has no need of. It refutes nothing.
    if likely(verdict == VERDICT_DUPLICATE and evidence == EVIDENCE_SAME
              and line.candidate.claim == CLAIM_NONE and at > line.highest):
        line.highest = at                # the common copy
        pipeline_hear(p, w, line, now_ns)
    elif pipeline_line_goes_on(w, line, frame, at, verdict, evidence, now_ns):
        # Behind the others, but it goes on: gaps by count have to wait for it.
        line.highest = at
        if line.candidate.claim == CLAIM_BEHIND and line.candidate.count == 0:
            candidate_forget(&line.candidate)
        elif line.candidate.claim == CLAIM_AHEAD:
            candidate_refute(&line.candidate)    # who has jumped does not come back
        if verdict == VERDICT_REPLAY:
            line.lagged_ns = now_ns
        else:
            pipeline_hear(p, w, line, now_ns)
    elif at < line.highest or evidence != EVIDENCE_SAME:
        if line.highest < w.base and verdict == VERDICT_REPLAY:
            if not window_is_quiet(w, WINDOW_PACE, now_ns):
                line.highest = at        # or a slower line, when the numbering has just begun
                line.lagged_ns = now_ns
        pipeline_numbered_anew(p, w, line, d, frame, evidence, False, now_ns)


cdef inline bint pipeline_line_goes_on(
    const Window* w, Line* line, const Frame* frame, int64_t at, int verdict, int evidence,
    int64_t now_ns,
) noexcept nogil:
    # Whether a datagram from behind carries its own line further in the numbering at hand.
    cdef bint follows
    cdef int64_t spoke_ns = line_spoke_ns(line)
    if at <= line.highest:
        return False
    follows = candidate_follows(&line.candidate, CLAIM_BEHIND, frame)
    if evidence == EVIDENCE_SAME:
        if follows and line.candidate.count:
            candidate_note(&line.candidate, CLAIM_BEHIND, frame, evidence, now_ns)
        return True
    if follows:
        # Heartbeats tell nothing; while the numbering at hand is alive they are of it.
        return evidence == EVIDENCE_NEUTRAL and line.candidate.count == 0
    if verdict == VERDICT_LATE:
        return evidence == EVIDENCE_NONE
    if evidence == EVIDENCE_OTHER and window_is_quiet(w, WINDOW_PACE, now_ns):
        return False
    return (
        line.highest >= w.base and at - line.highest <= CANDIDATE_BACK_MAX
        and now_ns - spoke_ns < STRAGGLER_MAX_NS
    )


cdef inline bint window_is_left_over(
    Window* w, const Datagram* d, int64_t at, uint32_t hash,
) noexcept nogil:
    # A straggler of the numbering before a restart with the same id, which the window remembers?
    # (Heartbeats look alike in both, and it does not matter of which one they are.)
    cdef const Slot* slot = window_slot(w, at)
    return (
        window_is_before(w, slot, at) and slot.hash == hash and at != w.next
        and d.size > FRAME_SIZE
    )


cdef inline bint pipeline_is_taken(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int64_t at,
    bint forward, bint follows, int64_t now_ns,
) noexcept nogil:
    # What is accepted for its number may as well be of a run that a line holds. True: it is, and
    # the run is believed.
    if follows and pipeline_is_overtaken(p, w, frame, at):
        return pipeline_numbered_anew(p, w, line, d, frame, EVIDENCE_NEW, True, now_ns)
    if forward:
        window_refute(w, line)
    if at > window_furthest(w) or window_is_copy(w, frame, at):
        return False
    if follows or line_steps_back(line, at):
        # It fills a hole of whichever it is: held, it is lost to neither, and it proves nothing.
        return pipeline_numbered_anew(p, w, line, d, frame, EVIDENCE_FILLED, False, now_ns)
    return False


cdef inline int pipeline_ahead(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Frame* frame, int64_t at,
    uint32_t hash, int64_t now_ns,
) noexcept nogil:
    # At `next` or behind it. A whole one at `next` goes straight on, others wait.
    cdef bint follows = w.contested and pipeline_follows_run(w, frame)
    cdef bint empty = window_slot(w, at).key != at
    cdef bint forward = at > window_furthest(w) or (at == w.next and empty and not follows)
    cdef int verdict = WINDOW_PARK
    cdef int evidence
    if unlikely(now_ns < w.previous_until_ns and window_is_left_over(w, d, at, hash)):
        return VERDICT_SESSION_RETIRED
    if unlikely(w.contested or line_steps_back(line, at)):
        if pipeline_is_taken(p, w, line, d, frame, at, forward, follows, now_ns):
            return VERDICT_SESSION_PENDING
    if forward:
        w.forward_ns = now_ns
    if at == w.next and frame.fragment_max == 0 and empty:
        pipeline_hear(p, w, line, now_ns)
        pipeline_pass(p, w, line, d, frame, hash, now_ns)
        return VERDICT_DELIVERED
    if at < w.next + w.size:
        verdict = window_hold(w, d, frame, at, hash, now_ns, &evidence)
        if verdict == VERDICT_DUPLICATE or verdict == VERDICT_FRAGMENT_MAX_CHANGED:
            pipeline_weigh(p, w, line, d, frame, at, verdict, evidence, now_ns)
            return verdict
    pipeline_hear(p, w, line, now_ns)
    if at > line.highest:
        line.highest = at
    if at >= w.next + w.size:
        window_jump(w, at, now_ns)
    elif verdict == WINDOW_PARK:
        window_force(w, at)
    else:
        return verdict
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
    cdef const Window* w = &p.window[d.channel]
    cdef int64_t* counters = w.counters
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
    m.number = window_number(w, w.next - 1)
    m.session = w.session
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
                if w.several and w.started:
                    window_judge_until(w, w.next, INT64_MIN)
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
    pipeline_deliver_believed(p, w, False, p.now_ns)
    if p.parked_at < w.next:
        return                           # on_gap = latest_run gave it up with the rest
    invariant(p.parked_at < w.next + w.size)
    if window_hold(
        w, d, &p.parked_frame, p.parked_at, p.parked_hash, p.now_ns, NULL,
    ) == WINDOW_PARK:
        window_force(w, p.parked_at)
        p.parked = d


cdef inline void pipeline_say(Pipeline* p, const Control* control, Message* m) noexcept nogil:
    memset(m, 0, sizeof(Message))
    m.payload = <const uint8_t*>&control.payload
    m.size = control.size
    m.kind = control.kind
    m.received_ns = control.received_ns
    m.frame.session_id = control.session_id
    m.number = control.number
    m.session = control.session
    m.frame.seqno = <uint32_t>control.number
    m.frame.object_type = <uint8_t>(control.object_key >> 16)
    m.frame.object_id = <uint16_t>control.object_key
    m.channel = control.channel
    m.line = control.line


cdef inline void pipeline_say_gap(Pipeline* p, Window* w, Message* m) noexcept nogil:
    memset(m, 0, sizeof(Message))
    m.payload = <const uint8_t*>&p.gap
    m.size = sizeof(Gap)
    m.kind = KIND_GAP
    m.received_ns = p.received_ns
    m.frame.session_id = p.book.session_id
    m.number = p.gap.first
    m.session = w.session
    m.frame.seqno = <uint32_t>p.gap.first
    m.channel = w.channel


# --- time -----------------------------------------------------------------------------------------

cdef inline void pipeline_expire(Pipeline* p, int64_t now_ns) noexcept nogil:
    # Time has passed: take() then declares holes that waited too long, and says which line or
    # channel fell silent, and which line speaks again.
    cdef Window* w
    cdef int channel
    p.now_ns = now_ns
    pipeline_watch(p, now_ns)
    for channel in range(CHANNEL_COUNT):
        w = &p.window[channel]
        window_judge_due(w, now_ns)
        if w.pending:
            p.busy |= <uint32_t>1 << channel
    if unlikely(now_ns >= p.silence_due_ns) and p.inactivity_ns:
        p.silence_due_ns = INT64_MAX
        for channel in range(CHANNEL_COUNT):
            pipeline_note_silence(p, &p.window[channel], now_ns)


cdef inline void pipeline_note_silence(Pipeline* p, Window* w, int64_t now_ns) noexcept nogil:
    # Says what changed, each line's part before the channel's (of one line that one says it all).
    # Who never spoke is silent too, once.
    # When a line is heard it says no more than that (it is the hot path): it is looked at here.
    cdef int64_t silent_ns, due_ns
    cdef uint32_t i
    for i in range(w.lines):
        due_ns = pipeline_note_line(p, w, i, now_ns)
        if due_ns < p.silence_due_ns:
            p.silence_due_ns = due_ns
    if w.silent or w.lines == 0:
        return
    silent_ns = pipeline_silent_ns(p, w, now_ns)
    if silent_ns >= p.inactivity_ns:
        w.silent = True
        w.connected = False
        counter_add(&w.counters[CHANNEL_DISCONNECTED], 1)
        pipeline_say_connection(p, w, CONNECTION_DISCONNECTED, CONNECTION_CHANNEL, 0, silent_ns)
    elif now_ns - silent_ns + p.inactivity_ns < p.silence_due_ns:
        p.silence_due_ns = now_ns - silent_ns + p.inactivity_ns


cdef inline int64_t pipeline_note_line(
    Pipeline* p, Window* w, uint32_t index, int64_t now_ns,
) noexcept nogil:
    # Returns when it may have something to say next.
    cdef Line* line = &w.line[index]
    cdef int64_t spoke_ns = line_spoke_ns(line)
    if spoke_ns < p.watch_ns:
        spoke_ns = p.watch_ns
    if line.silent_since_ns != INT64_MIN:
        if spoke_ns <= line.silent_since_ns:
            return now_ns
        counter_add(&line.counters[LINE_READY], 1)
        if w.several:
            pipeline_say_connection(
                p, w, CONNECTION_READY, CONNECTION_LINE, index, spoke_ns - line.silent_since_ns)
        line.silent_since_ns = INT64_MIN
    if now_ns - spoke_ns >= p.inactivity_ns:
        line.silent_since_ns = spoke_ns
        counter_add(&line.counters[LINE_DISCONNECTED], 1)
        if w.several:
            pipeline_say_connection(
                p, w, CONNECTION_DISCONNECTED, CONNECTION_LINE, index, now_ns - spoke_ns)
        return now_ns
    return spoke_ns + p.inactivity_ns


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
