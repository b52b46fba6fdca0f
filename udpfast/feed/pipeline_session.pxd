# Which session, and which numbering of it, a stream has: one question, whether a unit continues the
# numbering at hand or another one. What does not is held beside, as its
# line's candidate; here is what each claim has to prove, and what happens once it has.

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport (
    CHANNEL_GAPS, CHANNEL_LOST, CHANNEL_SESSIONS, CHANNEL_SESSION_DISCARDED,
    CHANNEL_SESSION_RESTARTS, VERDICT_DELIVERED, VERDICT_SESSION_FOREIGN, VERDICT_SESSION_PENDING,
    VERDICT_SESSION_RETIRED,
)
from udpfast.core.layout cimport (
    GAP_ANEW, KIND_GAP, KIND_SESSION, SESSION_FIRST, SESSION_NEW_ID, SESSION_RESUMED,
    SESSION_SAME_ID, Datagram,
)
from udpfast.feed.candidate cimport (
    CANDIDATE_BACK_MAX, CANDIDATE_ESTABLISHED, CANDIDATE_SAME_PER_OTHER, CANDIDATE_STEP_MAX,
    CLAIM_AHEAD, CLAIM_BEHIND,
    CLAIM_BELIEVED, CLAIM_NEW_ID, CLAIM_NONE, CLAIM_OLD_ID, EVIDENCE_FILLED, EVIDENCE_NEW,
    EVIDENCE_OTHER, Candidate, HeldUnit, candidate_begin_at, candidate_first, candidate_follows,
    candidate_forget, candidate_held, candidate_held_count, candidate_hold, candidate_hold_known,
    candidate_is_copy, candidate_is_full, candidate_is_replay, candidate_is_same,
    candidate_leads_to, candidate_note, candidate_returns, candidate_span, candidate_step,
    held_data, number_step,
)
from udpfast.feed.control cimport Control
from udpfast.feed.line cimport Line, line_claims
from udpfast.feed.pipeline_state cimport (
    Pipeline, pipeline_hash, pipeline_hear, pipeline_look,
)
from udpfast.feed.session cimport (
    RetiredSession, session_begin, session_goes_on, session_ordinal,
    session_retired, session_was_at,
)
from udpfast.feed.window cimport (
    WINDOW_FOREIGN, WINDOW_PACE, WINDOW_START, Window, window_control, window_dispute,
    window_early, window_evidence_before, window_furthest, window_is_delivered, window_is_doubtful,
    window_is_quiet, window_is_unproven, window_left_at, window_line_is_alive, window_number,
    window_slot, window_span, window_start,
    window_unwrap, window_was_other,
)
from udpfast.feed.window_order cimport window_hold, window_reset
from udpfast.feed.pieces cimport piece_next, pieces_begin
from udpfast.wire.framing cimport framing_units_seldom
from udpfast.wire.messages cimport MessageWalk
from udpfast.wire.unit cimport UNITS_MAX, Unit

cdef enum:
    # What goes on beyond the point where it was left was not over: few datagrams prove it, but
    # more than reordering brings of a session that is.
    RESUME_DATAGRAMS = 8
    RESUME_AT_ONCE = 112         # and so many, that nothing held is lost, whatever the lines' skew
    JUMP_DATAGRAMS = 2
    # Heartbeats alone prove a numbering too, but more of them: they repeat by nature.
    NEUTRAL_FACTOR = 2
    # A run of so many is more than anybody forges by chance. Where that is only a few messages, on
    # many lines or in many fragments, the numbering at hand need not be quiet for longer than so
    # many take, but for this many at least: some are lost, or late.
    RUN_LONG = 64
    # What began anew repeats by chance, and fills holes by chance. A run that mostly does is of the
    # numbering at hand, which went elsewhere meanwhile.
    SAME_PER_OTHER = 4
    QUIET_MIN = 3
    # Nothing is under way for longer than this: neither a straggler nor a slower line.
    STRAGGLER_MAX_NS = 1000000000
    # Publishers number from 1. What lies further ahead than this and begins so near to 0 did not
    # lose thousands of messages to arrive just there.
    ANEW_SEQNO_MAX = 64
    ANEW_AHEAD_MIN = 8192
    # A session whose first number that came lies below this one has just begun.
    START_MAX = 64

cdef struct Run:                 # on all lines that bring it
    uint32_t count
    uint32_t fresh
    uint32_t repeated
    uint32_t same                # what the numbering at hand has, too
    uint32_t known               # ... or had a hole for, which was filled
    uint32_t other
    int64_t messages
    uint64_t first_fresh         # where it leaves what we know


# --- another session ----------------------------------------------------------------------------

cdef inline int pipeline_other_session(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # The verdict; DELIVERED: it belongs to the session at hand now, to be placed like any other.
    # The very first session is believed at once: there is nothing that it could disturb.
    cdef Candidate* c = &line.foreign
    cdef const RetiredSession* retired
    cdef uint32_t needed, line_number
    cdef bint goes_on = False
    cdef int evidence = EVIDENCE_NEW
    cdef int64_t at
    if w.follows:
        pipeline_hear(p, w, line, now_ns)
        if session_retired(w.book, unit.session, now_ns) == NULL:
            if candidate_note(c, CLAIM_NEW_ID, unit, EVIDENCE_NEW, now_ns):
                candidate_hold(c, d, unit)       # it may be heard here first
        return VERDICT_SESSION_FOREIGN
    if not w.book.begun:
        if not p.awaits_start:
            pipeline_begin(p, w, unit.session, SESSION_FIRST, unit.number,
                           pipeline_went_by(unit.number), now_ns)
            return VERDICT_DELIVERED
        # Of one that has just begun, the beginning may have been overtaken: a hole like any other,
        # since books that begin empty are known from there on.
        pipeline_begin(
            p, w, unit.session, SESSION_FIRST, unit.number - pipeline_went_by(unit.number), 0,
            now_ns)
        return VERDICT_DELIVERED
    retired = session_retired(w.book, unit.session, now_ns)
    w.contested = True
    if retired == NULL:
        pipeline_hear(p, w, line, now_ns)
        return pipeline_new_session(p, w, c, d, unit, SESSION_NEW_ID, now_ns)
    goes_on = session_goes_on(w.book, retired, unit.number, w.size)
    needed = RESUME_DATAGRAMS
    if not goes_on:                      # drawn again, unless it is a straggler or a replay
        if p.restart_datagrams == 0:
            return VERDICT_SESSION_RETIRED
        at = window_unwrap(w, unit.number)
        evidence = window_evidence_before(w, unit, at, pipeline_hash(p, w, d, unit))
        needed = p.restart_datagrams
        if now_ns - w.forward_ns < STRAGGLER_MAX_NS and c.other < RUN_LONG:
            needed = <uint32_t>-1
    if not candidate_note(c, CLAIM_OLD_ID, unit, evidence, now_ns):
        return VERDICT_SESSION_RETIRED
    if goes_on and now_ns - w.forward_ns <= w.line_dead_ns:
        needed = RESUME_AT_ONCE          # a slower line may be that far behind
    if c.count < needed or (not goes_on and candidate_is_replay(c)):
        candidate_hold(c, d, unit)
        return VERDICT_SESSION_RETIRED
    if goes_on:
        for line_number in range(w.lines):
            candidate_begin_at(&w.line[line_number].foreign, unit.session, retired.next)
        pipeline_adopt(p, w, c, unit.number, SESSION_RESUMED, retired.next, now_ns)
    elif session_was_at(w.book, retired, c.first, w.size):
        pipeline_adopt(p, w, c, unit.number, SESSION_RESUMED, c.first, now_ns)
    else:
        pipeline_adopt(p, w, c, unit.number, SESSION_NEW_ID, c.first, now_ns)
    return VERDICT_DELIVERED


cdef inline int pipeline_new_session(
    Pipeline* p, Window* w, Candidate* c, const Datagram* d, const Unit* unit, uint32_t reason,
    int64_t now_ns,
) noexcept nogil:
    # One that says itself that it is another one: believed when its line brings it again. Then the
    # other lines that are alive are waited for, as for a hole: what this one lost of the beginning
    # they may still bring. Until then all of it is held.
    cdef int64_t due_ns
    if not candidate_note(c, CLAIM_NEW_ID, unit, EVIDENCE_NEW, now_ns):
        return VERDICT_SESSION_PENDING
    if c.count >= p.adopt_datagrams:
        due_ns = c.since_ns + min(w.wait_ns, <int64_t>STRAGGLER_MAX_NS)
        if now_ns >= due_ns or candidate_is_full(c) or pipeline_is_from_first(w, c, now_ns):
            pipeline_adopt_new(p, w, c, unit.number, reason, now_ns)
            return VERDICT_DELIVERED
        w.opening_ns = min(w.opening_ns, due_ns)
    candidate_hold(c, d, unit)
    return VERDICT_SESSION_PENDING


cdef inline bint pipeline_is_from_first(
    Window* w, const Candidate* c, int64_t now_ns,
) noexcept nogil:
    # Whether nothing of a new session can come from before what its lines brought: it begins with
    # the first number, or all lines that are alive are in it.
    cdef uint32_t i
    if pipeline_earliest(w, c) <= 1:
        return True
    for i in range(w.lines):
        if window_line_is_alive(w, &w.line[i], now_ns):
            if not candidate_is_same(c, &w.line[i].foreign):
                return False
    return True


cdef inline uint64_t pipeline_earliest(Window* w, const Candidate* c) noexcept nogil:
    # The earliest number that any line brought of a new session.
    cdef uint64_t first = candidate_first(c)
    cdef Candidate* other
    cdef uint32_t i
    for i in range(w.lines):
        other = &w.line[i].foreign
        if candidate_is_same(c, other) and candidate_step(c, candidate_first(other), first) < 0:
            first = candidate_first(other)
    return first


cdef inline uint64_t pipeline_went_by(uint64_t first) noexcept nogil:
    # Publishers number from 1: how many numbers a session lacks that begins a little behind that.
    return first - 1 if 1 < first < START_MAX else 0


cdef inline void pipeline_adopt_new(
    Pipeline* p, Window* w, Candidate* c, uint64_t number, uint32_t reason, int64_t now_ns,
) noexcept nogil:
    cdef uint64_t unseen_from
    if reason == SESSION_SAME_ID:
        pipeline_take_back(p, w, c.session_id, now_ns)
    unseen_from = pipeline_earliest(w, c)
    pipeline_adopt(
        p, w, c, number, reason, unseen_from - pipeline_went_by(unseen_from), now_ns)


cdef inline void pipeline_open(Pipeline* p, Window* w, int64_t now_ns) noexcept nogil:
    # The time is over in which lines might bring what lies before a session's first number.
    cdef Candidate* c
    cdef uint32_t i
    cdef uint32_t reason = SESSION_NEW_ID
    w.opening_ns = INT64_MAX
    for i in range(w.lines):
        c = &w.line[i].foreign
        if c.claim == CLAIM_NEW_ID and c.count >= p.adopt_datagrams:
            if c.session_id == w.book.session_id:
                reason = SESSION_SAME_ID
            pipeline_adopt_new(p, w, c, c.furthest, reason, now_ns)
            return


cdef inline void pipeline_recall(
    const Window* w, uint32_t line, HeldUnit* held, Datagram* d,
) noexcept nogil:
    # The datagram that is held, as its line brought it.
    d.data = held_data(held)
    d.size = held.size
    d.flags = held.flags
    d.received_ns = held.received_ns
    d.channel = w.channel
    d.line = <uint8_t>line


cdef inline void pipeline_take_back(
    Pipeline* p, Window* w, uint64_t session_id, int64_t now_ns,
) noexcept nogil:
    # What lines brought before one of them told that the session began anew was taken for old
    # numbers. What was sent behind all of those is of the new ones.
    cdef Candidate* behind
    cdef Candidate* anew
    cdef HeldUnit* held
    cdef Datagram d
    cdef uint32_t line, i
    for line in range(w.lines):
        behind = &w.line[line].candidate
        anew = &w.line[line].foreign
        if behind.claim != CLAIM_BEHIND or (
            anew.claim != CLAIM_NONE and anew.session_id != session_id
        ):
            continue
        for i in range(candidate_held_count(behind)):
            held = candidate_held(behind, i)
            if held.unit.sent_ns <= w.sent_ns:
                continue
            w.packing.datagram = held.datagram
            pipeline_recall(w, line, held, &d)
            if candidate_note(anew, CLAIM_NEW_ID, &held.unit, EVIDENCE_NEW, now_ns):
                candidate_hold(anew, &d, &held.unit)
    w.packing.datagram = p.datagram


# --- this session, numbered otherwise -------------------------------------------------------------

cdef inline bint pipeline_is_previous(
    const Window* w, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # Near where the numbering before a restart with the same id was left.
    cdef int64_t ahead = number_step(unit.number, w.previous_next, w.shift)
    return now_ns < w.previous_until_ns and -w.size <= ahead <= w.size


cdef inline bint pipeline_is_straggler(
    const Pipeline* p, const Window* w, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # Right after a restart with the same id, a snapshot near the old numbers may be of the old
    # numbering: it must not set the new one's base.
    return (
        w.follows and now_ns - p.window.begun_ns < STRAGGLER_MAX_NS
        and pipeline_is_previous(w, unit, now_ns)
    )


cdef inline bint pipeline_resumes(
    const Window* w, uint64_t first, int64_t now_ns,
) noexcept nogil:
    # Whether a run goes on where the numbering before a restart with the same id was left.
    cdef int64_t ahead = number_step(first, w.previous_next, w.shift)
    return now_ns < w.previous_until_ns and 0 <= ahead <= w.size


cdef inline bint pipeline_is_foreign(
    const Window* w, const Line* line, const Unit* unit, int64_t at,
) noexcept nogil:
    # Ahead of the window: too far for a jump, or numbers that began anew behind the wrap?
    cdef const Candidate* c = &line.candidate
    if candidate_follows(c, CLAIM_AHEAD, unit):
        return False
    if at >= w.next + WINDOW_FOREIGN or candidate_follows(c, CLAIM_BEHIND, unit):
        return True
    return (
        at >= w.next + ANEW_AHEAD_MIN and unit.number < <uint64_t>window_span(w, ANEW_SEQNO_MAX)
        and unit.number < <uint32_t>w.next
    )


cdef inline bint pipeline_jump(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Unit* unit, int64_t at,
    int64_t now_ns,
) noexcept nogil:
    # Beyond the window: is it believed? One datagram proves nothing, unless what was accepted
    # reaches up to it: then the window is too small, but the numbers are right.
    cdef Candidate* c = &line.candidate
    cdef uint64_t first
    w.contested = True
    w.jump_from = at
    if at - window_furthest(w) <= candidate_span(c, CANDIDATE_STEP_MAX):
        return True
    if not candidate_note(c, CLAIM_AHEAD, unit, EVIDENCE_NEW, now_ns):
        return False
    if c.count < JUMP_DATAGRAMS:
        candidate_hold(c, d, unit)
        return False
    first = c.first
    # Delivered when take() has made room.
    w.jump_from = window_unwrap(w, pipeline_gather(w, c, unit.number, &first))
    return True


cdef inline bint pipeline_numbered_anew(
    Pipeline* p, Window* w, Line* line, const Datagram* d, const Unit* unit, int evidence,
    bint proven, int64_t now_ns,
) noexcept nogil:
    # A datagram that does not continue the numbering at hand, or not that alone: a replay, or
    # numbers that began anew? True: the window follows them from now on.
    cdef Candidate* c = &line.candidate
    cdef uint32_t reason = SESSION_SAME_ID
    cdef uint32_t needed = p.restart_datagrams
    cdef bint inside
    cdef Run run
    w.contested = True
    if pipeline_is_elsewhere(w, line):
        if candidate_returns(c, d, unit) or pipeline_is_copy_of_late(w, line, unit, evidence):
            return False
    if not candidate_note(c, CLAIM_BEHIND, unit, evidence, now_ns):
        return False
    candidate_hold_known(c, d, unit, evidence)
    run = pipeline_run(w, c)
    # A publisher that began anew began where it did before, or further back.
    inside = window_unwrap(w, candidate_first(c)) > w.origin
    if inside and pipeline_fills_gap(w, window_unwrap(w, c.first_fresh)):
        reason = SESSION_RESUMED
        if c.total >= RESUME_AT_ONCE and not candidate_is_replay(c):
            proven = True
    if pipeline_resumes(w, c.first, now_ns):
        reason = SESSION_RESUMED
        needed = RESUME_DATAGRAMS
    elif inside and pipeline_was_here(w, window_unwrap(w, run.first_fresh)) or (
        run.known >= RESUME_DATAGRAMS and run.known > SAME_PER_OTHER * run.other
    ):
        reason = SESSION_RESUMED
    if not proven and not pipeline_is_proven(w, c, &run, needed, now_ns):
        return False
    if not w.follows:
        pipeline_adopt(p, w, c, unit.number, reason, c.first, now_ns)
    elif p.window.forward_ns > c.since_ns:
        # A publisher that began anew says so on the incremental channel. If that one goes on
        # meanwhile, it is only this window that went astray.
        pipeline_rebase(p, w, c, now_ns)
    else:
        return False
    pipeline_hear(p, w, line, now_ns)
    return True


cdef inline bint pipeline_is_elsewhere(const Window* w, const Line* line) noexcept nogil:
    # Whether a run is not just copies of what its line brought last of the numbering at hand.
    cdef int64_t at = window_unwrap(w, line.candidate.furthest)
    cdef int64_t near = candidate_span(&line.candidate, CANDIDATE_BACK_MAX)
    return (
        line.candidate.claim == CLAIM_BEHIND
        and not at - near <= line.highest <= at + near
    )


cdef inline bint pipeline_is_copy_of_late(
    const Window* w, const Line* line, const Unit* unit, int evidence,
) noexcept nogil:
    # What tells nothing new and is of the latest that its line brought of the numbering at hand:
    # what has begun elsewhere may go on behind it.
    cdef const Candidate* c = &line.candidate
    if evidence == EVIDENCE_NEW or evidence == EVIDENCE_OTHER or evidence == EVIDENCE_FILLED:
        return False
    return (
        c.total and not candidate_is_replay(c) and not candidate_follows(c, CLAIM_BEHIND, unit)
        and w.base <= line.highest
        and line.highest <= window_unwrap(w, unit.number) + candidate_span(c, CANDIDATE_BACK_MAX)
    )


cdef inline Run pipeline_run(const Window* w, const Candidate* c) noexcept nogil:
    # A run on all lines that bring it.
    cdef const Candidate* other
    cdef Run run
    cdef uint64_t first = c.since_first
    cdef uint64_t furthest = c.furthest
    cdef uint32_t longest = 0
    cdef uint32_t i
    run.count = 0
    run.fresh = 0
    run.first_fresh = c.first_fresh
    run.repeated = 0
    run.same = 0
    run.known = 0
    run.other = 0
    for i in range(w.lines):
        other = &w.line[i].candidate
        if not candidate_is_same(c, other):
            continue
        run.count += other.count
        longest = max(longest, other.count)
        run.fresh += other.fresh
        run.repeated += other.repeated
        run.same += other.same
        run.known += other.same + other.filled
        run.other += other.other
        if candidate_step(c, other.since_first, first) < 0:
            first = other.since_first
        if candidate_step(c, other.furthest, furthest) > 0:
            furthest = other.furthest
        if candidate_step(c, other.first_fresh, run.first_fresh) < 0:
            run.first_fresh = other.first_fresh
    run.messages = min(candidate_step(c, furthest, first) + 1, <int64_t>longest)
    return run


cdef inline bint pipeline_fills_gap(Window* w, int64_t first) noexcept nogil:
    # A run goes on where a gap began, and behind the gap came little: that was not the feed.
    return (
        window_is_doubtful(w) and w.fork_from <= first < w.resumed_at
        and not window_is_delivered(w, first)
    )


cdef inline bint pipeline_was_here(const Window* w, int64_t first) noexcept nogil:
    # A run goes on from where the numbering at hand was a moment ago, or before it jumped: what
    # was accepted since was not the feed's.
    if window_is_doubtful(w):
        return w.fork_from - window_span(w, WINDOW_START) <= first < w.resumed_at
    return window_furthest(w) - window_span(w, WINDOW_START) < first <= window_furthest(w)


cdef inline bint pipeline_is_proven(
    const Window* w, const Candidate* c, const Run* run, uint32_t needed, int64_t now_ns,
) noexcept nogil:
    # A dense run of so many datagrams, on all lines that bring it, which is no replay, while the
    # numbering at hand is quiet. Heartbeats alone prove less, and those that their lines had not
    # brought before may be a slower line's, for as long as one can be under way. A long run that
    # contradicts what was accepted, byte for byte, is no replay, whatever their paces.
    cdef int64_t datagrams = WINDOW_PACE
    if needed == 0 or 4 * c.count < needed or candidate_is_replay(c):
        return False
    if c.fresh == 0 and run.same > CANDIDATE_SAME_PER_OTHER * run.other:
        return False                     # of slower lines, this one of which brought heartbeats
    if run.fresh == 0:
        needed *= NEUTRAL_FACTOR
        if run.repeated < needed and now_ns - w.forward_ns <= w.line_dead_ns:
            return False
    if run.count >= RUN_LONG and run.other >= RUN_LONG:
        return True
    if run.count >= RUN_LONG and run.messages < WINDOW_PACE:
        datagrams = run.messages if run.messages > QUIET_MIN else QUIET_MIN
    return run.count >= needed and window_is_quiet(w, datagrams, now_ns)


cdef inline bint pipeline_follows_run(const Window* w, const Unit* unit) noexcept nogil:
    # Whether a datagram belongs to a run that any line brings, of more than a few.
    cdef const Candidate* c
    cdef uint32_t i
    for i in range(w.lines):
        c = &w.line[i].candidate
        if c.count >= CANDIDATE_ESTABLISHED and candidate_follows(c, CLAIM_BEHIND, unit):
            return True
    return False


cdef inline bint pipeline_is_overtaken(
    const Pipeline* p, const Window* w, const Unit* unit, int64_t at,
) noexcept nogil:
    # Whether what lies beyond all that was accepted belongs to a run that has come up to there from
    # behind, with other bytes than were accepted: it does not continue the numbering at hand.
    cdef const Candidate* c
    cdef uint32_t needed = p.restart_datagrams
    cdef uint32_t i
    if needed == 0 or at <= window_furthest(w):
        return False
    if needed < RUN_LONG:
        needed = RUN_LONG
    for i in range(w.lines):
        c = &w.line[i].candidate
        if c.other and candidate_follows(c, CLAIM_BEHIND, unit) and not candidate_is_replay(c):
            if pipeline_run(w, c).count >= needed:
                return True
    return False


# --- a candidate is believed ----------------------------------------------------------------------

cdef inline uint64_t pipeline_gather(
    Window* w, Candidate* c, uint64_t number, uint64_t* unseen_from,
) noexcept nogil:
    # All lines' candidates of this numbering are believed, others forgotten. Returns the earliest
    # number held, or this one, and makes `unseen_from` the earliest one that came at all.
    cdef HeldUnit* held
    cdef Candidate* other
    cdef uint64_t first = number
    cdef uint32_t line, i
    cdef uint8_t claim = c.claim
    for line in range(w.lines):
        other = line_claims(&w.line[line], claim)
        if not candidate_is_same(c, other):
            continue
        if candidate_step(c, candidate_first(other), unseen_from[0]) < 0:
            unseen_from[0] = candidate_first(other)
        for i in range(candidate_held_count(other)):
            held = candidate_held(other, i)
            if candidate_is_copy(other, held):
                continue
            if candidate_step(c, held.unit.number, first) < 0:
                first = held.unit.number
    for line in range(w.lines):
        other = line_claims(&w.line[line], claim)
        if candidate_is_same(c, other):
            continue
        if candidate_leads_to(other, c, unseen_from[0]):
            unseen_from[0] = candidate_first(other)
        candidate_forget(other)
    for line in range(w.lines):
        other = line_claims(&w.line[line], claim)
        if other.claim != CLAIM_NONE:
            other.claim = CLAIM_BELIEVED
    return first


cdef inline uint64_t pipeline_unseen(Window* w, uint64_t first, uint64_t count) noexcept nogil:
    # How many of these were not delivered by the numbering at hand, which goes on. What it does not
    # remember counts, too.
    cdef int64_t at = window_unwrap(w, first)
    cdef int64_t end = at + <int64_t>count
    cdef uint64_t unseen = count
    if end - at > w.size:
        at = end - w.size
    while at < end:
        unseen -= window_is_delivered(w, at)
        at += 1
    return unseen


cdef inline void pipeline_adopt(
    Pipeline* p, Window* w, Candidate* c, uint64_t number, uint32_t reason, uint64_t unseen_from,
    int64_t now_ns,
) noexcept nogil:
    # The stream follows this numbering from now on: another session.
    cdef uint64_t session_id = c.session_id
    cdef bint disputed = reason == SESSION_RESUMED and session_id == w.book.session_id
    cdef uint64_t first = pipeline_gather(w, c, number, &unseen_from)
    cdef uint64_t unseen = <uint64_t>candidate_step(c, first, unseen_from)
    if disputed:
        unseen = pipeline_unseen(w, unseen_from, unseen)
    pipeline_begin(p, w, session_id, reason, first, unseen, now_ns)
    pipeline_deliver_believed(p, w, reason == SESSION_RESUMED, disputed, now_ns)


cdef inline void pipeline_rebase(
    Pipeline* p, Window* w, Candidate* c, int64_t now_ns,
) noexcept nogil:
    # The snapshot channel follows this numbering from now on; its session goes on. Seqnos lie on a
    # circle: from the one that was due to the new first one is a gap, around all of it.
    cdef uint64_t unseen_from = c.first
    cdef uint64_t first = pipeline_gather(w, c, c.furthest, &unseen_from)
    cdef Control* control = window_control(w, KIND_GAP)
    cdef uint32_t skipped = <uint32_t>first - <uint32_t>w.next
    if control != NULL:
        control.received_ns = p.received_ns
        control.number = window_number(w, w.next)
        control.size = sizeof(control.payload.gap)
        control.payload.gap.first = control.number
        control.payload.gap.last = control.number + skipped - 1
        control.payload.gap.count = skipped
        control.payload.gap.reason = GAP_ANEW
    counter_add(&w.counters[CHANNEL_GAPS], 1)
    counter_add(&w.counters[CHANNEL_LOST], skipped)
    counter_add(&w.counters[CHANNEL_SESSION_DISCARDED], w.pending)
    counter_add(&w.counters[CHANNEL_SESSION_RESTARTS], 1)
    window_reset(w)
    window_start(w, first, now_ns)
    pipeline_deliver_believed(p, w, True, True, now_ns)


cdef inline void pipeline_begin(
    Pipeline* p, Window* w, uint64_t session_id, uint32_t reason, uint64_t first_number,
    uint64_t unseen, int64_t now_ns,
) noexcept nogil:
    # Another session: nothing of the one before is ever mixed with it.
    cdef Control* control
    cdef int64_t left_at = window_left_at(w)
    cdef bint same_id = w.book.begun and w.book.session_id == session_id
    cdef int64_t behind = 0              # what this numbering had before its first
    cdef uint32_t discarded
    cdef uint64_t follower_first = 0
    cdef bint follower_begun = False
    if same_id and reason == SESSION_RESUMED:
        behind = window_unwrap(w, first_number) - w.origin
    p.session = session_ordinal(p.session)
    discarded = pipeline_end_numbering(w, same_id, p.session, session_id, now_ns)
    if w.follower != NULL:
        if same_id and reason == SESSION_RESUMED:
            w.follower.session = p.session           # it goes on
        else:
            follower_begun = pipeline_gather_follower(w.follower, session_id, &follower_first)
            discarded += pipeline_end_numbering(
                w.follower, same_id, p.session, session_id, now_ns)
    control = window_control(w, KIND_SESSION)
    if control != NULL:
        control.received_ns = p.received_ns
        control.number = first_number
        control.size = sizeof(control.payload.session)
        control.payload.session.old_id = w.book.session_id if w.book.begun else 0
        control.payload.session.new_id = session_id
        control.payload.session.reason = reason
        control.payload.session.discarded = discarded
        control.payload.session.first_number = first_number
        control.payload.session.unseen = unseen
        control.payload.session.stream = w.stream_key
    counter_add(&w.counters[CHANNEL_SESSIONS], 1)
    if same_id:
        counter_add(&w.counters[CHANNEL_SESSION_RESTARTS], 1)
    session_begin(
        w.book, session_id, reason == SESSION_RESUMED, window_number(w, left_at), left_at - w.base,
        now_ns)
    window_start(w, first_number, now_ns)
    if behind > 0:
        w.origin = w.base - behind
    pipeline_look(p, w)
    if w.follower != NULL:
        pipeline_look(p, w.follower)
        if follower_begun:
            window_start(w.follower, follower_first, now_ns)
            pipeline_deliver_believed(p, w.follower, False, False, now_ns)


cdef inline bint pipeline_gather_follower(
    Window* follower, uint64_t session_id, uint64_t* first,
) noexcept nogil:
    # Whether the snapshot channel's lines brought anything of this session before it was known, and
    # from which number on: that is believed with it.
    cdef Candidate* c
    cdef uint64_t unseen_from
    cdef uint32_t i
    for i in range(follower.lines):
        c = &follower.line[i].foreign
        if c.claim == CLAIM_NEW_ID and c.session_id == session_id and c.count:
            unseen_from = c.furthest
            first[0] = pipeline_gather(follower, c, c.furthest, &unseen_from)
            return True
    return False


cdef inline uint32_t pipeline_end_numbering(
    Window* w, bint same_id, uint16_t session, uint64_t session_id, int64_t now_ns,
) noexcept nogil:
    # Returns how many messages waited in it.
    cdef uint32_t discarded = w.pending
    cdef uint32_t i
    counter_add(&w.counters[CHANNEL_SESSION_DISCARDED], discarded)
    w.previous_next = window_number(w, w.next)
    w.previous_until_ns = INT64_MIN
    if same_id and w.started:
        w.previous_until_ns = now_ns + w.book.grace_ns
    window_reset(w)
    w.opening_ns = INT64_MAX
    w.session = session
    w.session_id = session_id
    for i in range(w.lines):
        if w.line[i].candidate.claim != CLAIM_BELIEVED:
            candidate_forget(&w.line[i].candidate)
        if w.line[i].foreign.claim != CLAIM_BELIEVED:
            candidate_forget(&w.line[i].foreign)
    return discarded


cdef inline void pipeline_deliver_believed(
    Pipeline* p, Window* w, bint resumed, bint disputed, int64_t now_ns,
) noexcept nogil:
    # What was held of a numbering that is believed now.
    cdef Line* line
    cdef uint32_t i
    for i in range(w.lines):
        line = &w.line[i]
        if line.foreign.claim == CLAIM_BELIEVED:
            pipeline_deliver_held(p, w, i, &line.foreign, resumed, disputed, now_ns)
            candidate_forget(&line.foreign)
        elif line.candidate.claim == CLAIM_BELIEVED:
            pipeline_deliver_held(p, w, i, &line.candidate, resumed, disputed, now_ns)
        candidate_forget(&line.candidate)


cdef inline void pipeline_deliver_held(
    Pipeline* p, Window* w, uint32_t line, Candidate* c, bint resumed, bint disputed,
    int64_t now_ns,
) noexcept nogil:
    # It has had its verdicts; what does not fit is missing like anything lost, and becomes a gap.
    # `disputed`: of a numbering that goes on, other bytes may have been delivered already, and
    # nobody can tell which are right.
    cdef HeldUnit* held
    cdef Datagram d
    cdef uint32_t i
    for i in range(candidate_held_count(c)):
        held = candidate_held(c, i)
        if candidate_is_copy(c, held):
            continue
        pipeline_recall(w, line, held, &d)
        pipeline_deliver_unit(p, w, line, &d, &held.unit, resumed, disputed, now_ns)
        if unlikely(held.units > 1):
            pipeline_deliver_rest(p, w, line, &d, held, resumed, disputed, now_ns)


cdef inline void pipeline_deliver_rest(
    Pipeline* p, Window* w, uint32_t line, const Datagram* d, const HeldUnit* held, bint resumed,
    bint disputed, int64_t now_ns,
) noexcept nogil:
    # The further units of a held datagram.
    cdef const Unit* unit
    cdef uint32_t left = held.units
    cdef int i
    for i in range(framing_units_seldom(p.framing, d.data, d.size, p.held_units, UNITS_MAX)):
        unit = &p.held_units[i]
        if unit.offset <= held.unit.offset or unit.session != held.unit.session:
            continue
        left -= 1
        if left == 0:
            return
        pipeline_deliver_unit(p, w, line, d, unit, resumed, disputed, now_ns)


cdef inline void pipeline_deliver_unit(
    Pipeline* p, Window* w, uint32_t line, const Datagram* d, const Unit* unit, bint resumed,
    bint disputed, int64_t now_ns,
) noexcept nogil:
    cdef Unit piece
    cdef MessageWalk walk
    cdef int64_t at
    cdef uint32_t hash, n
    cdef bint other
    pieces_begin(&walk, d, unit)
    for n in range(unit.count):
        piece_next(&walk, unit, n, p.each_message, &piece)
        at = window_unwrap(w, piece.number)
        if at < w.next or at >= w.next + w.size:
            continue
        if at > w.line[line].highest:
            w.line[line].highest = at
        hash = pipeline_hash(p, w, d, &piece)
        other = (resumed and window_is_unproven(w, &piece)
                 or disputed and window_was_other(w, &piece, at, hash))
        window_hold(w, d, &piece, at, hash, now_ns, NULL)
        if other and window_slot(w, at).key == at:
            window_dispute(window_early(w, at), d, &piece, hash)
