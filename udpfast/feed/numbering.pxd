# Which session, and which numbering of it, a stream has: one question, whether a unit continues the
# current numbering or another one. What does not is held beside, as a run of its line; here is what
# each claim has to prove. What happens once it has is in `adoption`.

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from udpfast.core.counter cimport (
    VERDICT_DELIVERED, VERDICT_SESSION_FOREIGN, VERDICT_SESSION_PENDING, VERDICT_SESSION_RETIRED,
)
from udpfast.core.layout cimport (
    SESSION_FIRST, SESSION_NEW_ID, SESSION_RESUMED, SESSION_SAME_ID, Datagram,
)
from udpfast.feed.adoption cimport (
    adoption_adopt, adoption_begin, adoption_gather, adoption_rebase, adoption_recall,
)
from udpfast.feed.lines cimport line_is_alive, lines_hear
from udpfast.feed.pace cimport pace_is_quiet
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_hash
from udpfast.feed.run cimport (
    CLAIM_AHEAD, CLAIM_BEHIND, CLAIM_NEW_ID, CLAIM_NONE, CLAIM_OLD_ID, EVIDENCE_FILLED,
    EVIDENCE_NEW, EVIDENCE_OTHER, RUN_BACK_MAX, RUN_ESTABLISHED, RUN_SAME_PER_OTHER, RUN_STEP_MAX,
    HeldUnit, Run, number_step, run_begin_at, run_first, run_follows, run_held, run_held_count,
    run_hold, run_hold_known, run_is_full, run_is_replay, run_is_same, run_note, run_refute,
    run_returns, run_span, run_step,
)
from udpfast.feed.session cimport RetiredSession, session_goes_on, session_retired, session_was_at
from udpfast.feed.waiting cimport window_is_doubtful
from udpfast.feed.window cimport window_evidence_before, window_is_delivered
from udpfast.feed.window_state cimport (
    WINDOW_FOREIGN, WINDOW_PACE, WINDOW_START, LineAccount, Window, window_furthest, window_span,
    window_unwrap,
)
from udpfast.wire.unit cimport Unit

cdef enum:
    # What goes on beyond the point where it was left was not over: few datagrams prove it, but
    # more than reordering brings of a session that is.
    RESUME_DATAGRAMS = 8
    RESUME_AT_ONCE = 112         # and so many, that nothing held is lost, whatever the lines' skew
    JUMP_DATAGRAMS = 2
    # Heartbeats alone prove a numbering too, but more of them: they repeat by nature.
    NEUTRAL_FACTOR = 2
    # A run of so many is more than anybody forges by chance. Where that is only a few messages, on
    # many lines or in many fragments, the current numbering need not be quiet for longer than so
    # many take, but for this many at least: some are lost, or late.
    PROOF_LONG = 64
    # What began anew repeats by chance, and fills holes by chance. A run that mostly does is of the
    # current numbering, which went elsewhere meanwhile.
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

cdef struct Brought:             # a run, on all lines that bring it
    uint32_t count
    uint32_t fresh
    uint32_t repeated
    uint32_t same                # what the current numbering has, too
    uint32_t known               # ... or had a hole for, which was filled
    uint32_t other
    int64_t messages
    uint64_t first_fresh         # where it leaves what we know


# --- another session ----------------------------------------------------------------------------

cdef inline int numbering_other_session(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # The verdict; DELIVERED: it belongs to the current session now, to be placed like any other.
    # The very first session is believed at once: there is nothing that it could disturb.
    cdef Run* c = &line.foreign
    cdef const RetiredSession* retired
    cdef uint32_t needed, line_number
    cdef bint goes_on = False
    cdef int evidence = EVIDENCE_NEW
    cdef int64_t at
    if w.numbering.follows:
        lines_hear(p, w, line, now_ns)
        if session_retired(w.numbering.book, unit.session, now_ns) == NULL:
            if run_note(c, CLAIM_NEW_ID, unit, EVIDENCE_NEW, now_ns):
                run_hold(c, d, unit)       # it may be heard here first
        return VERDICT_SESSION_FOREIGN
    if not w.numbering.book.begun:
        if not p.awaits_start:
            adoption_begin(p, w, unit.session, SESSION_FIRST, unit.number,
                           numbering_went_by(unit.number), now_ns)
            return VERDICT_DELIVERED
        # Of one that has just begun, the beginning may have been overtaken: a hole like any other,
        # since books that begin empty are known from there on.
        adoption_begin(
            p, w, unit.session, SESSION_FIRST, unit.number - numbering_went_by(unit.number), 0,
            now_ns)
        return VERDICT_DELIVERED
    retired = session_retired(w.numbering.book, unit.session, now_ns)
    w.contested = True
    if retired == NULL:
        lines_hear(p, w, line, now_ns)
        return numbering_new_session(p, w, c, d, unit, SESSION_NEW_ID, now_ns)
    goes_on = session_goes_on(w.numbering.book, retired, unit.number, w.size)
    needed = RESUME_DATAGRAMS
    if not goes_on:                      # drawn again, unless it is a straggler or a replay
        if p.restart_datagrams == 0:
            return VERDICT_SESSION_RETIRED
        at = window_unwrap(w, unit.number)
        evidence = window_evidence_before(w, unit, at, pipeline_hash(p, w, d, unit))
        needed = p.restart_datagrams
        if now_ns - w.forward_ns < STRAGGLER_MAX_NS and c.other < PROOF_LONG:
            needed = <uint32_t>-1
    if not run_note(c, CLAIM_OLD_ID, unit, evidence, now_ns):
        return VERDICT_SESSION_RETIRED
    if goes_on and now_ns - w.forward_ns <= w.line_dead_ns:
        needed = RESUME_AT_ONCE          # a slower line may be that far behind
    if c.count < needed or (not goes_on and run_is_replay(c)):
        run_hold(c, d, unit)
        return VERDICT_SESSION_RETIRED
    if goes_on:
        for line_number in range(w.lines):
            run_begin_at(&w.line[line_number].foreign, unit.session, retired.next)
        adoption_adopt(p, w, c, unit.number, SESSION_RESUMED, retired.next, now_ns)
    elif session_was_at(w.numbering.book, retired, c.first, w.size):
        adoption_adopt(p, w, c, unit.number, SESSION_RESUMED, c.first, now_ns)
    else:
        adoption_adopt(p, w, c, unit.number, SESSION_NEW_ID, c.first, now_ns)
    return VERDICT_DELIVERED


cdef inline int numbering_new_session(
    Pipeline* p, Window* w, Run* c, const Datagram* d, const Unit* unit, uint32_t reason,
    int64_t now_ns,
) noexcept nogil:
    # One that says itself that it is another one: believed when its line brings it again. Then the
    # other lines that are alive are waited for, as for a hole: what this one lost of the beginning
    # they may still bring. Until then all of it is held.
    cdef int64_t due_ns
    if not run_note(c, CLAIM_NEW_ID, unit, EVIDENCE_NEW, now_ns):
        return VERDICT_SESSION_PENDING
    if c.count >= p.adopt_datagrams:
        due_ns = c.since_ns + min(w.waiting.wait_ns, <int64_t>STRAGGLER_MAX_NS)
        if now_ns >= due_ns or run_is_full(c) or numbering_is_from_first(w, c, now_ns):
            numbering_adopt_new(p, w, c, unit.number, reason, now_ns)
            return VERDICT_DELIVERED
        w.numbering.opening_ns = min(w.numbering.opening_ns, due_ns)
    run_hold(c, d, unit)
    return VERDICT_SESSION_PENDING


cdef inline bint numbering_is_from_first(
    Window* w, const Run* c, int64_t now_ns,
) noexcept nogil:
    # Whether nothing of a new session can come from before what its lines brought: it begins with
    # the first number, or all lines that are alive are in it.
    cdef uint32_t i
    if numbering_earliest(w, c) <= 1:
        return True
    for i in range(w.lines):
        if line_is_alive(w, &w.line[i], now_ns):
            if not run_is_same(c, &w.line[i].foreign):
                return False
    return True


cdef inline uint64_t numbering_earliest(Window* w, const Run* c) noexcept nogil:
    # The earliest number that any line brought of a new session.
    cdef uint64_t first = run_first(c)
    cdef Run* other
    cdef uint32_t i
    for i in range(w.lines):
        other = &w.line[i].foreign
        if run_is_same(c, other) and run_step(c, run_first(other), first) < 0:
            first = run_first(other)
    return first


cdef inline uint64_t numbering_went_by(uint64_t first) noexcept nogil:
    # Publishers number from 1: how many numbers a session lacks that begins a little behind that.
    return first - 1 if 1 < first < START_MAX else 0


cdef inline void numbering_adopt_new(
    Pipeline* p, Window* w, Run* c, uint64_t number, uint32_t reason, int64_t now_ns,
) noexcept nogil:
    cdef uint64_t unseen_from
    if reason == SESSION_SAME_ID:
        numbering_take_back(p, w, c.session_id, now_ns)
    unseen_from = numbering_earliest(w, c)
    adoption_adopt(
        p, w, c, number, reason, unseen_from - numbering_went_by(unseen_from), now_ns)


cdef inline void numbering_open(Pipeline* p, Window* w, int64_t now_ns) noexcept nogil:
    # The time is over in which lines might bring what lies before a session's first number.
    cdef Run* c
    cdef uint32_t i
    cdef uint32_t reason = SESSION_NEW_ID
    w.numbering.opening_ns = INT64_MAX
    for i in range(w.lines):
        c = &w.line[i].foreign
        if c.claim == CLAIM_NEW_ID and c.count >= p.adopt_datagrams:
            if c.session_id == w.numbering.book.session_id:
                reason = SESSION_SAME_ID
            numbering_adopt_new(p, w, c, c.furthest, reason, now_ns)
            return


cdef inline void numbering_take_back(
    Pipeline* p, Window* w, uint64_t session_id, int64_t now_ns,
) noexcept nogil:
    # What lines brought before one of them told that the session began anew was taken for old
    # numbers. What was sent behind all of those is of the new ones.
    cdef Run* behind
    cdef Run* anew
    cdef HeldUnit* held
    cdef Datagram d
    cdef uint32_t line, i
    for line in range(w.lines):
        behind = &w.line[line].run
        anew = &w.line[line].foreign
        if behind.claim != CLAIM_BEHIND or (
            anew.claim != CLAIM_NONE and anew.session_id != session_id
        ):
            continue
        for i in range(run_held_count(behind)):
            held = run_held(behind, i)
            if held.unit.sent_ns <= w.sent_ns:
                continue
            w.packing.datagram = held.datagram
            adoption_recall(w, line, held, &d)
            if run_note(anew, CLAIM_NEW_ID, &held.unit, EVIDENCE_NEW, now_ns):
                run_hold(anew, &d, &held.unit)
    w.packing.datagram = p.datagram


# --- this session, numbered otherwise -------------------------------------------------------------

cdef inline bint numbering_is_previous(
    const Window* w, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # Near where the numbering before a restart with the same id was left.
    cdef int64_t ahead = number_step(unit.number, w.numbering.previous_next, w.shift)
    return now_ns < w.numbering.previous_until_ns and -w.size <= ahead <= w.size


cdef inline bint numbering_is_straggler(
    const Pipeline* p, const Window* w, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # Right after a restart with the same id, a snapshot near the old numbers may be of the old
    # numbering: it must not set the new one's base.
    return (
        w.numbering.follows and now_ns - p.window.numbering.begun_ns < STRAGGLER_MAX_NS
        and numbering_is_previous(w, unit, now_ns)
    )


cdef inline bint numbering_resumes(
    const Window* w, uint64_t first, int64_t now_ns,
) noexcept nogil:
    # Whether a run goes on where the numbering before a restart with the same id was left.
    cdef int64_t ahead = number_step(first, w.numbering.previous_next, w.shift)
    return now_ns < w.numbering.previous_until_ns and 0 <= ahead <= w.size


cdef inline bint numbering_is_foreign(
    const Window* w, const LineAccount* line, const Unit* unit, int64_t at,
) noexcept nogil:
    # Ahead of the window: too far for a jump, or numbers that began anew behind the wrap?
    cdef const Run* c = &line.run
    if run_follows(c, CLAIM_AHEAD, unit):
        return False
    if at >= w.next + WINDOW_FOREIGN or run_follows(c, CLAIM_BEHIND, unit):
        return True
    return (
        at >= w.next + ANEW_AHEAD_MIN and unit.number < <uint64_t>window_span(w, ANEW_SEQNO_MAX)
        and unit.number < <uint32_t>w.next
    )


cdef inline bint numbering_jump(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, int64_t at,
    int64_t now_ns,
) noexcept nogil:
    # Beyond the window: is it believed? One datagram proves nothing, unless what was accepted
    # reaches up to it: then the window is too small, but the numbers are right.
    cdef Run* c = &line.run
    cdef uint64_t first
    w.contested = True
    w.waiting.jump_from = at
    if at - window_furthest(w) <= run_span(c, RUN_STEP_MAX):
        return True
    if not run_note(c, CLAIM_AHEAD, unit, EVIDENCE_NEW, now_ns):
        return False
    if c.count < JUMP_DATAGRAMS:
        run_hold(c, d, unit)
        return False
    first = c.first
    # Delivered when take() has made room.
    w.waiting.jump_from = window_unwrap(w, adoption_gather(w, c, unit.number, &first))
    return True


cdef inline bint numbering_numbered_anew(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, int evidence,
    bint proven, int64_t now_ns,
) noexcept nogil:
    # A datagram that does not continue the current numbering, or not that alone: a replay, or
    # numbers that began anew? True: the window follows them from now on.
    cdef Run* c = &line.run
    cdef uint32_t reason = SESSION_SAME_ID
    cdef uint32_t needed = p.restart_datagrams
    cdef bint inside
    cdef Brought brought
    w.contested = True
    if numbering_is_elsewhere(w, line):
        if run_returns(c, d, unit) or numbering_is_copy_of_late(w, line, unit, evidence):
            return False
    if not run_note(c, CLAIM_BEHIND, unit, evidence, now_ns):
        return False
    run_hold_known(c, d, unit, evidence)
    brought = numbering_brought(w, c)
    # A publisher that began anew began where it did before, or further back.
    inside = window_unwrap(w, run_first(c)) > w.numbering.origin
    if inside and numbering_fills_gap(w, window_unwrap(w, c.first_fresh)):
        reason = SESSION_RESUMED
        if c.total >= RESUME_AT_ONCE and not run_is_replay(c):
            proven = True
    if numbering_resumes(w, c.first, now_ns):
        reason = SESSION_RESUMED
        needed = RESUME_DATAGRAMS
    elif inside and numbering_was_here(w, window_unwrap(w, brought.first_fresh)) or (
        brought.known >= RESUME_DATAGRAMS and brought.known > SAME_PER_OTHER * brought.other
    ):
        reason = SESSION_RESUMED
    if not proven and not numbering_is_proven(w, c, &brought, needed, now_ns):
        return False
    if not w.numbering.follows:
        adoption_adopt(p, w, c, unit.number, reason, c.first, now_ns)
    elif p.window.forward_ns > c.since_ns:
        # A publisher that began anew says so on the incremental channel. If that one goes on
        # meanwhile, it is only this window that went astray.
        adoption_rebase(p, w, c, now_ns)
    else:
        return False
    lines_hear(p, w, line, now_ns)
    return True


cdef inline bint numbering_is_elsewhere(const Window* w, const LineAccount* line) noexcept nogil:
    # Whether a run is not just copies of what its line brought last of the current numbering.
    cdef int64_t at = window_unwrap(w, line.run.furthest)
    cdef int64_t near = run_span(&line.run, RUN_BACK_MAX)
    return (
        line.run.claim == CLAIM_BEHIND
        and not at - near <= line.highest <= at + near
    )


cdef inline bint numbering_is_copy_of_late(
    const Window* w, const LineAccount* line, const Unit* unit, int evidence,
) noexcept nogil:
    # What tells nothing new and is of the latest that its line brought of the current numbering:
    # what has begun elsewhere may go on behind it.
    cdef const Run* c = &line.run
    if evidence == EVIDENCE_NEW or evidence == EVIDENCE_OTHER or evidence == EVIDENCE_FILLED:
        return False
    return (
        c.total and not run_is_replay(c) and not run_follows(c, CLAIM_BEHIND, unit)
        and w.numbering.base <= line.highest
        and line.highest <= window_unwrap(w, unit.number) + run_span(c, RUN_BACK_MAX)
    )


cdef inline Brought numbering_brought(const Window* w, const Run* c) noexcept nogil:
    # A run on all lines that bring it.
    cdef const Run* other
    cdef Brought brought
    cdef uint64_t first = c.since_first
    cdef uint64_t furthest = c.furthest
    cdef uint32_t longest = 0
    cdef uint32_t i
    brought.count = 0
    brought.fresh = 0
    brought.first_fresh = c.first_fresh
    brought.repeated = 0
    brought.same = 0
    brought.known = 0
    brought.other = 0
    for i in range(w.lines):
        other = &w.line[i].run
        if not run_is_same(c, other):
            continue
        brought.count += other.count
        longest = max(longest, other.count)
        brought.fresh += other.fresh
        brought.repeated += other.repeated
        brought.same += other.same
        brought.known += other.same + other.filled
        brought.other += other.other
        if run_step(c, other.since_first, first) < 0:
            first = other.since_first
        if run_step(c, other.furthest, furthest) > 0:
            furthest = other.furthest
        if run_step(c, other.first_fresh, brought.first_fresh) < 0:
            brought.first_fresh = other.first_fresh
    brought.messages = min(run_step(c, furthest, first) + 1, <int64_t>longest)
    return brought


cdef inline bint numbering_fills_gap(Window* w, int64_t first) noexcept nogil:
    # A run goes on where a gap began, and behind the gap came little: that was not the feed.
    return (
        window_is_doubtful(w) and w.numbering.fork_from <= first < w.numbering.resumed_at
        and not window_is_delivered(w, first)
    )


cdef inline bint numbering_was_here(const Window* w, int64_t first) noexcept nogil:
    # A run goes on from where the current numbering was a moment ago, or before it jumped: what
    # was accepted since was not the feed's.
    if window_is_doubtful(w):
        return -window_span(w, WINDOW_START) <= first - w.numbering.fork_from and (
            first < w.numbering.resumed_at)
    return window_furthest(w) - window_span(w, WINDOW_START) < first <= window_furthest(w)


cdef inline bint numbering_is_proven(
    const Window* w, const Run* c, const Brought* brought, uint32_t needed, int64_t now_ns,
) noexcept nogil:
    # A dense run of so many datagrams, on all lines that bring it, which is no replay, while the
    # current numbering is quiet. Heartbeats alone prove less, and those that their lines had not
    # brought before may be a slower line's, for as long as one can be under way. A long run that
    # contradicts what was accepted, byte for byte, is no replay, whatever their paces.
    cdef int64_t datagrams = WINDOW_PACE
    if needed == 0 or 4 * c.count < needed or run_is_replay(c):
        return False
    if c.fresh == 0 and brought.same > RUN_SAME_PER_OTHER * brought.other:
        return False                     # of slower lines, this one of which brought heartbeats
    if brought.fresh == 0:
        needed *= NEUTRAL_FACTOR
        if brought.repeated < needed and now_ns - w.forward_ns <= w.line_dead_ns:
            return False
    if brought.count >= PROOF_LONG and brought.other >= PROOF_LONG:
        return True
    if brought.count >= PROOF_LONG and brought.messages < WINDOW_PACE:
        datagrams = brought.messages if brought.messages > QUIET_MIN else QUIET_MIN
    return brought.count >= needed and pace_is_quiet(w, datagrams, now_ns)


cdef inline bint numbering_follows_run(const Window* w, const Unit* unit) noexcept nogil:
    # Whether a datagram belongs to a run that any line brings, of more than a few.
    cdef const Run* c
    cdef uint32_t i
    for i in range(w.lines):
        c = &w.line[i].run
        if c.count >= RUN_ESTABLISHED and run_follows(c, CLAIM_BEHIND, unit):
            return True
    return False


cdef inline bint numbering_is_overtaken(
    const Pipeline* p, const Window* w, const Unit* unit, int64_t at,
) noexcept nogil:
    # Whether what lies beyond all that was accepted belongs to a run that has come up to there from
    # behind, with other bytes than were accepted: it does not continue the current numbering.
    cdef const Run* c
    cdef uint32_t needed = p.restart_datagrams
    cdef uint32_t i
    if needed == 0 or at <= window_furthest(w):
        return False
    if needed < PROOF_LONG:
        needed = PROOF_LONG
    for i in range(w.lines):
        c = &w.line[i].run
        if c.other and run_follows(c, CLAIM_BEHIND, unit) and not run_is_replay(c):
            if numbering_brought(w, c).count >= needed:
                return True
    return False


cdef inline void numbering_refute(Window* w, LineAccount* line) noexcept nogil:
    # The current numbering is alive, on this line: what lines hold of another one has yet to prove
    # itself. A session never heard of, and a jump, are the business of their own line.
    cdef LineAccount* other
    cdef uint32_t i
    w.contested = False
    for i in range(w.lines):
        other = &w.line[i]
        if other == line or other.run.claim != CLAIM_AHEAD:
            run_refute(&other.run)
        if other == line or other.foreign.claim == CLAIM_OLD_ID:
            run_refute(&other.foreign)
        if other.run.count or other.foreign.count:
            w.contested = True
