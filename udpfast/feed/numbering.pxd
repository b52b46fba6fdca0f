# Which session, and which numbering of it, a stream has. numbering_weigh is the one door: whatever
# is not simply next comes here, and either it CONTINUES the current numbering, or it is HELD with a
# run of its line, or a run is proven with it: then the stream is to ADOPT that (`adoption`). The
# modes of a run:
#
#   ABSENT --first unit--> PROVING --proof--> BELIEVED --delivered--> ABSENT
#     ^                     |   ^
#     |        the current  |   |  the next one
#     |  numbering goes on  v   |  of the run
#     +--another run---- REFUTED <-------> REVIVED
#                           copies, late ones
#
# What is proof is in `proof`, a row for each claim.

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t

from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    VERDICT_DUPLICATE, VERDICT_LATE, VERDICT_REPLAY, VERDICT_SESSION_FOREIGN,
    VERDICT_SESSION_PENDING, VERDICT_SESSION_RETIRED,
)
from udpfast.core.layout cimport (
    SESSION_FIRST, SESSION_NEW_ID, SESSION_RESUMED, SESSION_SAME_ID, Datagram,
)
from udpfast.feed.lines cimport (
    line_advances, line_claims, line_is_alive, line_reach, line_spoke_ns, line_steps_back,
    line_was_beyond, lines_hear, lines_note_lagging,
)
from udpfast.feed.pace cimport pace_apart, pace_is_quiet, pace_takes_ns
from udpfast.feed.pieces cimport piece_next, pieces_begin
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_first_hash, pipeline_hash
from udpfast.feed.proof cimport (
    PROOF_AHEAD, PROOF_BACK, PROOF_DRAWN, PROOF_ENDED, PROOF_GAP, PROOF_LONG, PROOF_RESET,
    PROOF_RESUMED, PROOF_SESSION, PROOF_START, STRAGGLER_MAX_NS, Brought, Proof, proof_is_met,
)
from udpfast.feed.run cimport (
    BYTES_EMPTY, BYTES_NEW, BYTES_NONE, BYTES_OTHER, BYTES_SAME, CLAIM_AHEAD, CLAIM_BACK,
    CLAIM_ENDED, CLAIM_NONE, CLAIM_SESSION, RUN_ABSENT, RUN_BACK_MAX, RUN_ESTABLISHED, RUN_PROVING,
    RUN_STEP_MAX, Evidence, HeldUnit, Run, evidence_begin, number_step, run_begin_at, run_believe,
    run_first, run_follows, run_forget, run_held, run_held_count, run_held_data, run_hold,
    run_hold_known, run_is_copy, run_is_full, run_is_replay, run_is_same, run_leads_to, run_note,
    run_refute, run_returns, run_set_aside, run_span, run_step,
)
from udpfast.feed.session cimport RetiredSession, session_goes_on, session_retired, session_was_at
from udpfast.feed.waiting cimport window_is_doubtful
from udpfast.feed.window cimport (
    window_accepted_ns, window_compare_before, window_copy, window_is_before, window_is_copy,
    window_is_delivered, window_past,
)
from udpfast.feed.window_state cimport (
    WINDOW_FOREIGN, WINDOW_PACE, WINDOW_START, LineAccount, Slot, Window, window_furthest,
    window_slot, window_span, window_unwrap,
)
from udpfast.wire.messages cimport MessageWalk
from udpfast.wire.unit cimport UNIT_RESET, UNIT_START_OF_SESSION, Unit

cdef enum:
    # What began anew repeats by chance, and fills holes by chance. A run that mostly does is of the
    # current numbering, which went elsewhere meanwhile.
    SAME_PER_OTHER = 4
    KNOWN_MIN = 8
    # Publishers number from 1. What lies further ahead than this and begins so near to 0 did not
    # lose thousands of messages to arrive just there.
    ANEW_SEQNO_MAX = 64
    ANEW_AHEAD_MIN = 8192
    # A session has just begun if what it lacks of its beginning is less than so many datagrams.
    START_MAX = 64

cdef enum:  # Weighed
    WEIGHED_CONTINUES = 0        # it is of the current numbering
    WEIGHED_HELD = 1             # it is not, for all that is proven: `verdict`
    WEIGHED_ADOPT = 2            # it is not, and its run is proven: `adoption`

cdef enum:  # Place: where a unit lies, seen from the current numbering
    PLACE_SESSION = 0            # in another session, or none has begun
    PLACE_NAMED = 1              # it takes no number, and names the next one
    PLACE_KNOWN = 2              # all of it came before, or was given up: it was compared
    PLACE_PACKED = 3             # it overlaps what is known, and cannot be cut
    PLACE_WITHIN = 4             # in the window
    PLACE_BEYOND = 5             # ahead of it
    PLACE_OLD = 6                # in the numbering before the current one

cdef struct Located:             # a unit, as the window sees it
    int64_t at                   # key of its first number
    int64_t last                 # ... and of its last one
    uint8_t place                # Place
    bint announced               # its sender says that this session begins anew
    bint left_over               # byte for byte what the numbering before delivered
    bint sent_after              # sent later than what its line brought from further on
    bint forward                 # it carries the current numbering further
    int verdict                  # KNOWN: what it is; HELD: what it gets
    Evidence evidence

cdef struct Adoption:
    Run* run                     # that is proven; NULL: the very first session
    uint32_t reason              # SessionReason
    uint64_t first               # where it begins, for all that is known
    uint64_t unseen              # of the very first session: numbers before it


cdef inline int numbering_weigh(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # THE decision: Weighed. What a sender flags as a retransmission does not come here: it proves
    # nothing.
    cdef int weighed
    if where.place == PLACE_KNOWN:
        return numbering_weigh_known(p, w, line, d, unit, where, now_ns, adoption)
    if where.place == PLACE_SESSION:
        return numbering_weigh_session(p, w, line, d, unit, where, now_ns, adoption)
    if unlikely(where.announced):
        where.verdict = VERDICT_SESSION_PENDING
        w.contested = True
        lines_hear(p, w, line, now_ns)
        adoption.reason = SESSION_SAME_ID
        return numbering_prove_session(
            p, w, line, &p.proofs[PROOF_RESET if unit.flags & UNIT_RESET else PROOF_START], d, unit,
            now_ns, adoption)
    if unlikely(where.place == PLACE_OLD):
        where.verdict = VERDICT_SESSION_RETIRED
        return WEIGHED_HELD
    if where.place == PLACE_BEYOND:
        weighed = numbering_weigh_beyond(p, w, line, d, unit, where, now_ns, adoption)
        if weighed != WEIGHED_CONTINUES:
            return weighed
    elif where.place != PLACE_WITHIN:
        return WEIGHED_CONTINUES
    return numbering_weigh_next(p, w, line, d, unit, where, now_ns, adoption)


# --- another session ----------------------------------------------------------------------------

cdef inline int numbering_weigh_session(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # The very first session is believed at once: there is nothing that it could disturb.
    cdef const RetiredSession* retired
    where.verdict = VERDICT_SESSION_FOREIGN
    if w.numbering.follows:
        lines_hear(p, w, line, now_ns)
        if session_retired(w.numbering.book, unit.session, now_ns) == NULL:
            if run_note(&line.foreign, CLAIM_SESSION, unit, &where.evidence, now_ns):
                run_hold(&line.foreign, d, unit)     # it may be heard here first
        return WEIGHED_HELD
    if not w.numbering.book.begun:
        adoption.run = NULL
        adoption.reason = SESSION_FIRST
        adoption.first = unit.number
        adoption.unseen = numbering_went_by(unit.number, max(unit.count, 1))
        if p.awaits_start:
            # The beginning of a session that has just begun may have been overtaken: a hole like
            # any other, since books that begin empty are known from there on.
            adoption.first -= adoption.unseen
            adoption.unseen = 0
        return WEIGHED_ADOPT
    retired = session_retired(w.numbering.book, unit.session, now_ns)
    w.contested = True
    if retired != NULL:
        where.verdict = VERDICT_SESSION_RETIRED
        return numbering_prove_ended(p, w, line, retired, d, unit, where, now_ns, adoption)
    where.verdict = VERDICT_SESSION_PENDING
    lines_hear(p, w, line, now_ns)
    adoption.reason = SESSION_NEW_ID
    return numbering_prove_session(
        p, w, line, &p.proofs[PROOF_SESSION], d, unit, now_ns, adoption)


cdef inline int numbering_prove_session(
    Pipeline* p, Window* w, LineAccount* line, const Proof* proof, const Datagram* d,
    const Unit* unit, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # One that says itself that it is another one: proven when its line brings it again. Then the
    # other lines that are alive are waited for, as for a hole: what this one lost of the beginning
    # they may still bring. Until then all of it is held.
    cdef Run* c = &line.foreign
    cdef Evidence evidence
    cdef int64_t due_ns
    evidence_begin(&evidence)
    evidence.bytes = BYTES_NEW
    if not run_note(c, CLAIM_SESSION, unit, &evidence, now_ns):
        return WEIGHED_HELD
    if c.count >= proof.datagrams:
        due_ns = c.since_ns + min(w.waiting.wait_ns, <int64_t>STRAGGLER_MAX_NS)
        if now_ns >= due_ns or run_is_full(c) or numbering_is_from_first(w, c, now_ns):
            numbering_begin_session(p, w, c, now_ns, adoption)
            return WEIGHED_ADOPT
        w.numbering.opening_ns = min(w.numbering.opening_ns, due_ns)
    run_hold(c, d, unit)
    return WEIGHED_HELD


cdef inline int numbering_prove_ended(
    Pipeline* p, Window* w, LineAccount* line, const RetiredSession* retired, const Datagram* d,
    const Unit* unit, Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # A session that is over goes on where it was left; or it was drawn again, unless this is a
    # straggler or a replay.
    cdef Run* c = &line.foreign
    cdef const Proof* proof = &p.proofs[PROOF_ENDED]
    cdef Brought brought
    cdef bint goes_on = session_goes_on(w.numbering.book, retired, unit.number, w.size)
    cdef uint32_t i
    if not goes_on:
        proof = &p.proofs[PROOF_DRAWN]
        if proof.datagrams == 0:
            return WEIGHED_HELD
        where.evidence.bytes = BYTES_NONE
        window_compare_before(
            w, unit, window_unwrap(w, unit.number), pipeline_first_hash(p, w, d, unit),
            &where.evidence)
    if not run_note(c, CLAIM_ENDED, unit, &where.evidence, now_ns):
        return WEIGHED_HELD
    brought_by_one(&brought, c)
    if not proof_is_met(proof, c, &brought, w, now_ns):
        run_hold(c, d, unit)
        return WEIGHED_HELD
    adoption.run = c
    adoption.reason = SESSION_RESUMED
    adoption.first = c.first
    if goes_on:
        adoption.first = retired.next
        for i in range(w.lines):
            run_begin_at(&w.line[i].foreign, unit.session, retired.next)
    elif not session_was_at(w.numbering.book, retired, c.first, w.size):
        adoption.reason = SESSION_NEW_ID
    return WEIGHED_ADOPT


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


cdef inline uint64_t numbering_went_by(uint64_t first, int64_t wide) noexcept nogil:
    # Publishers number from 1: how many numbers a session lacks that begins a little behind that,
    # if a datagram has so many.
    return first - 1 if 1 < first < <uint64_t>(START_MAX * wide) else 0


cdef inline void numbering_begin_session(
    Pipeline* p, Window* w, Run* c, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # Where a proven session begins.
    if adoption.reason == SESSION_SAME_ID:
        numbering_take_back(p, w, c.session_id, now_ns)
    adoption.run = c
    adoption.first = numbering_earliest(w, c)
    adoption.first -= numbering_went_by(adoption.first, run_span(c, 1))


cdef inline bint numbering_opens(
    Pipeline* p, Window* w, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # The time is over in which lines might bring what lies before a session's first number. True: a
    # session waited for that.
    cdef Run* c
    cdef uint32_t i
    adoption.reason = SESSION_NEW_ID
    w.numbering.opening_ns = INT64_MAX
    for i in range(w.lines):
        c = &w.line[i].foreign
        if c.claim == CLAIM_SESSION and c.count >= p.proofs[PROOF_SESSION].datagrams:
            if c.session_id == w.numbering.book.session_id:
                adoption.reason = SESSION_SAME_ID
            numbering_begin_session(p, w, c, now_ns, adoption)
            return True
    return False


cdef inline void numbering_take_back(
    Pipeline* p, Window* w, uint64_t session_id, int64_t now_ns,
) noexcept nogil:
    # What lines brought before one of them told that the session began anew was taken for old
    # numbers. What was sent behind all of those is of the new ones.
    cdef Run* behind
    cdef Run* anew
    cdef HeldUnit* held
    cdef Datagram d
    cdef Evidence evidence
    cdef uint32_t line, i
    evidence_begin(&evidence)
    evidence.bytes = BYTES_NEW
    for line in range(w.lines):
        behind = &w.line[line].run
        anew = &w.line[line].foreign
        if behind.claim != CLAIM_BACK or (
            anew.claim != CLAIM_NONE and anew.session_id != session_id
        ):
            continue
        for i in range(run_held_count(behind)):
            held = run_held(behind, i)
            if held.unit.sent_ns <= w.sent_ns:
                continue
            w.packing.datagram = held.datagram
            numbering_recall(w, line, held, &d)
            if run_note(anew, CLAIM_SESSION, &held.unit, &evidence, now_ns):
                run_hold(anew, &d, &held.unit)
    w.packing.datagram = p.datagram


cdef inline void numbering_recall(
    const Window* w, uint32_t line, HeldUnit* held, Datagram* d,
) noexcept nogil:
    # The datagram that is held, as its line brought it.
    d.data = run_held_data(held)
    d.size = held.size
    d.flags = held.flags
    d.received_ns = held.received_ns
    d.channel = w.channel
    d.line = <uint8_t>line


# --- this session, announced anew -----------------------------------------------------------------

cdef inline bint numbering_is_announced(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
) noexcept nogil:
    # Whether a unit of the current session, by its id, is of one that began anew. One unit that
    # says so proves nothing.
    cdef int64_t at
    if unit.flags & UNIT_RESET or unit.flags & UNIT_START_OF_SESSION and (
        unit.count and unit.sent_ns > w.sent_ns
        or w.numbering.ended_at == window_furthest(w) + 1
    ):
        at = window_unwrap(w, unit.number)
        if at < w.next and (
            line_was_beyond(line, at, unit) or not numbering_is_known(p, w, d, unit)
        ):
            return True
    return w.contested and numbering_goes_on_anew(w, line, unit)


cdef inline bint numbering_goes_on_anew(
    const Window* w, const LineAccount* line, const Unit* unit,
) noexcept nogil:
    # Whether some line has said that this session began anew, and this unit goes on there. A line
    # may have lost that beginning; then the sender's clock tells.
    cdef const Run* c
    cdef int64_t step
    cdef uint32_t i
    for i in range(w.lines):
        c = &w.line[i].foreign
        if c.claim != CLAIM_SESSION or c.session_id != unit.session or c.mode != RUN_PROVING:
            continue
        step = run_step(c, unit.number, c.furthest)
        if not -run_span(c, RUN_BACK_MAX) <= step <= run_span(
            c, RUN_STEP_MAX,
        ):
            continue
        if unit.sent_ns >= c.sent_ns if line == &w.line[i] else unit.sent_ns > w.sent_ns:
            return True
    return False


cdef inline bint numbering_is_known(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit,
) noexcept nogil:
    # Whether the current numbering had a message of this unit, with its very bytes: then it is a
    # copy, which another line may have sent later and packed in its own way.
    cdef Unit piece
    cdef MessageWalk walk
    cdef int64_t at = window_unwrap(w, unit.number)
    cdef const Slot* slot
    cdef uint32_t n
    pieces_begin(&walk, d, unit)
    for n in range(unit.count):
        piece_next(&walk, unit, n, p.each_message, &piece)
        slot = window_slot(w, at + n)
        if slot.key == at + n and slot.hash == pipeline_hash(p, w, d, &piece):
            return True
    return False


# --- this session, numbered otherwise -------------------------------------------------------------

cdef inline int numbering_weigh_known(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # What a datagram tells that the current numbering has no need of. It refutes nothing.
    cdef const Evidence* e = &where.evidence
    cdef int64_t at = where.last
    cdef int64_t before
    if unit.sent_ns > line.sent_ns and at >= line.highest:
        line.sent_ns = unit.sent_ns
    if likely(where.verdict == VERDICT_DUPLICATE and e.bytes == BYTES_SAME
              and line.run.mode == RUN_ABSENT and line_advances(line, unit, at)):
        line_reach(line, unit.fragment, at)      # the common copy
        lines_hear(p, w, line, now_ns)
    elif numbering_line_goes_on(w, line, unit, where, now_ns):
        # Behind the others, but it goes on: gaps by count have to wait for it.
        before = line.highest
        line_reach(line, unit.fragment, at)
        if line.run.claim == CLAIM_BACK and line.run.mode != RUN_PROVING:
            run_set_aside(&line.run)
        elif line.run.claim == CLAIM_AHEAD:
            run_refute(&line.run)        # a line whose jump is refuted continues the old numbers
        if where.verdict == VERDICT_REPLAY:
            line.lagged_ns = now_ns
            lines_note_lagging(w, line, d.line, before, where.at, at)
        else:
            lines_hear(p, w, line, now_ns)
    elif at < line.highest or e.bytes != BYTES_SAME:
        if at > line.highest and where.verdict == VERDICT_REPLAY:
            if numbering_is_slower(w, line, at, now_ns):
                lines_note_lagging(w, line, d.line, line.highest, where.at, at)
                line.highest = at
                line.lagged_ns = now_ns
        return numbering_prove_back(p, w, line, d, unit, e, False, now_ns, adoption)
    return WEIGHED_CONTINUES


cdef inline bint numbering_is_slower(
    const Window* w, const LineAccount* line, int64_t at, int64_t now_ns,
) noexcept nogil:
    # Whether a line that goes on further back than the window remembers may just be that far
    # behind: while the current numbering goes on, and not further than anything can be under way.
    if now_ns - w.numbering.begun_ns >= STRAGGLER_MAX_NS and pace_is_quiet(w, WINDOW_PACE, now_ns):
        return False
    return line.highest < w.numbering.base or pace_takes_ns(w, w.next - at) < STRAGGLER_MAX_NS


cdef inline bint numbering_line_goes_on(
    const Window* w, LineAccount* line, const Unit* unit, const Located* where, int64_t now_ns,
) noexcept nogil:
    # Whether a datagram from behind carries its own line further in the current numbering.
    cdef const Evidence* e = &where.evidence
    cdef int64_t at = where.last
    cdef bint follows
    cdef bint near = (
        line.highest >= w.numbering.base
        and at - line.highest <= run_span(&line.run, RUN_BACK_MAX)
        and now_ns - line_spoke_ns(line) < STRAGGLER_MAX_NS
    )
    if where.verdict == VERDICT_LATE and near and at >= line.highest:
        if not window_is_doubtful(w):
            # The line is still in what was given up on another one's word, which on a thin line may
            # take seconds: the next number, or the rest of a message.
            return at > line.highest or unit.fragments > 1
    if not line_advances(line, unit, at):
        return False
    follows = run_follows(&line.run, CLAIM_BACK, unit)
    if e.bytes == BYTES_SAME:
        if follows and line.run.mode == RUN_PROVING:
            run_note(&line.run, CLAIM_BACK, unit, e, now_ns)
        return True
    if follows:
        # Heartbeats tell nothing; as long as they may be under way they are of the current
        # numbering.
        return (
            e.bytes == BYTES_EMPTY and not e.repeated and line.run.mode != RUN_PROVING
            and now_ns - window_accepted_ns(w, at) < STRAGGLER_MAX_NS
        )
    if where.verdict == VERDICT_LATE:
        return e.straggler
    if e.bytes == BYTES_OTHER and pace_is_quiet(w, WINDOW_PACE, now_ns):
        return False
    return near


cdef inline int numbering_weigh_next(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # What the current numbering has a place for: it goes on with it, unless it is of a run that a
    # line holds, or may be.
    cdef int64_t at = max(where.at, w.next)
    cdef int64_t last = where.last
    cdef bint follows = w.contested and numbering_follows_run(w, unit)
    cdef bint further = last > window_furthest(w)
    cdef bint next_one = where.at <= w.next and window_slot(w, at).key != at
    where.forward = further or (next_one and not follows)
    if where.left_over:
        where.verdict = VERDICT_SESSION_RETIRED
        return WEIGHED_HELD
    where.verdict = VERDICT_SESSION_PENDING
    if unlikely(where.sent_after or not further and (
            unit.count > 1 and numbering_contradicts(p, w, d, unit, where)
            or w.contested and numbering_fills_run(w, line, unit, where))):
        return numbering_prove_back(p, w, line, d, unit, &where.evidence, False, now_ns, adoption)
    if likely(not w.contested and not line_steps_back(w, line, last)):
        return WEIGHED_CONTINUES
    if follows and numbering_is_overtaken(p, w, unit, last):
        return numbering_also_of(p, w, line, d, unit, where, True, now_ns, adoption)
    if where.forward:
        numbering_refute(w, line)
    if last <= window_furthest(w) and (follows or line_steps_back(w, line, last)):
        # It fills a hole of whichever it is, if only with some of its messages: held, it is lost to
        # neither, and proves nothing.
        where.evidence.bytes = BYTES_NONE
        where.evidence.filled = True
        return numbering_also_of(p, w, line, d, unit, where, False, now_ns, adoption)
    return WEIGHED_CONTINUES


cdef inline bint numbering_contradicts(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, Located* where,
) noexcept nogil:
    # Whether a unit that would fill a hole has other messages which the current numbering knows by
    # other bytes: then what fills the hole is not of it either.
    cdef MessageWalk walk
    cdef Unit piece
    cdef Evidence e
    cdef uint32_t n, hash
    evidence_begin(&e)
    pieces_begin(&walk, d, unit)
    for n in range(unit.count):
        piece_next(&walk, unit, n, p.each_message, &piece)
        hash = pipeline_hash(p, w, d, &piece)
        if where.at + n < w.next:
            window_past(w, d, &piece, where.at + n, hash, &e)
        elif window_is_copy(w, &piece, where.at + n):
            window_copy(w, window_slot(w, where.at + n), d, &piece, hash, &e)
    if e.bytes != BYTES_OTHER:
        return False
    where.evidence.bytes = BYTES_OTHER
    return True


cdef inline bint numbering_fills_run(
    const Window* w, const LineAccount* line, const Unit* unit, Located* where,
) noexcept nogil:
    # Whether a unit that would fill a hole, and that its line should have brought long ago, goes on
    # with a run that contradicts what was accepted: then it is of that one alone.
    cdef const Run* c
    cdef uint32_t i
    if not line_steps_back(w, line, where.last):
        return False
    for i in range(w.lines):
        c = &w.line[i].run
        if c.count >= RUN_ESTABLISHED and c.other >= RUN_ESTABLISHED and not run_is_replay(c):
            if run_follows(c, CLAIM_BACK, unit):
                where.evidence.bytes = BYTES_NONE
                return True
    return False


cdef inline int numbering_also_of(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, bint proven, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # Held for its run, and accepted, unless that is proven with it.
    cdef int weighed = numbering_prove_back(
        p, w, line, d, unit, &where.evidence, proven, now_ns, adoption)
    return weighed if weighed == WEIGHED_ADOPT else WEIGHED_CONTINUES


cdef inline int numbering_weigh_beyond(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # Beyond the window. One datagram proves nothing, unless what was accepted reaches up to it:
    # then the window is too small, but the numbers are right.
    cdef Run* c = &line.run
    if numbering_is_foreign(w, line, unit, where.at):
        where.verdict = VERDICT_REPLAY
        return numbering_prove_back(p, w, line, d, unit, &where.evidence, False, now_ns, adoption)
    w.contested = True
    w.waiting.jump_from = where.at
    if where.at - window_furthest(w) <= run_span(c, RUN_STEP_MAX):
        return WEIGHED_CONTINUES
    if numbering_is_previous(w, unit, now_ns):
        where.verdict = VERDICT_SESSION_RETIRED
        where.evidence.bytes = BYTES_NONE
        window_compare_before(
            w, unit, where.at, pipeline_first_hash(p, w, d, unit), &where.evidence)
        return numbering_prove_back(p, w, line, d, unit, &where.evidence, False, now_ns, adoption)
    where.verdict = VERDICT_SESSION_PENDING
    if not run_note(c, CLAIM_AHEAD, unit, &where.evidence, now_ns):
        return WEIGHED_HELD
    if c.count < p.proofs[PROOF_AHEAD].datagrams:
        run_hold(c, d, unit)
        return WEIGHED_HELD
    # What is held is delivered when take() has made room.
    adoption.first = c.first
    w.waiting.jump_from = window_unwrap(w, numbering_gather(w, c, unit.number, &adoption.first))
    return WEIGHED_CONTINUES


cdef inline int numbering_prove_back(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    const Evidence* e, bint proven, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # A datagram that does not continue the current numbering, or not that alone: a replay, or
    # numbers that began anew?
    cdef Run* c = &line.run
    cdef Brought brought
    cdef int row
    w.contested = True
    if numbering_is_elsewhere(w, line):
        if run_returns(c, d, unit) or numbering_is_copy_of_late(w, line, unit, e):
            return WEIGHED_HELD
    if not run_note(c, CLAIM_BACK, unit, e, now_ns):
        return WEIGHED_HELD
    run_hold_known(c, d, unit, e)
    brought = numbering_brought(w, c)
    row = numbering_falls_to(p, w, c, &brought, now_ns, &adoption.reason)
    if not proven and not proof_is_met(&p.proofs[row], c, &brought, w, now_ns):
        return WEIGHED_HELD
    # A publisher that began anew says so on the incremental channel. If that one goes on meanwhile,
    # it is only this window that went astray.
    if w.numbering.follows and p.window.forward_ns <= c.since_ns:
        return WEIGHED_HELD
    adoption.run = c
    adoption.first = c.first
    return WEIGHED_ADOPT


cdef inline int numbering_falls_to(
    const Pipeline* p, Window* w, const Run* c, const Brought* brought, int64_t now_ns,
    uint32_t* reason,
) noexcept nogil:
    # Which row of the proofs it has to meet, and what that will be called. A publisher that began
    # anew began where it did before, or further back.
    cdef bint inside = window_unwrap(w, run_first(c)) > w.numbering.origin
    cdef bint resumes = numbering_resumes(w, c.first, now_ns)
    reason[0] = SESSION_RESUMED
    if inside and numbering_fills_gap(w, window_unwrap(w, c.first_fresh)):
        if not resumes or brought.unquiet >= p.proofs[PROOF_GAP].unquiet:
            return PROOF_GAP
    if resumes:
        return PROOF_RESUMED
    if not (inside and numbering_was_here(w, window_unwrap(w, brought.first_fresh))) and not (
        brought.known >= KNOWN_MIN and brought.known > SAME_PER_OTHER * brought.other
    ):
        reason[0] = SESSION_SAME_ID
    return PROOF_BACK


cdef inline Brought numbering_brought(const Window* w, const Run* c) noexcept nogil:
    # A run on all lines that bring it.
    cdef const Run* other
    cdef Brought brought
    cdef uint64_t first = c.since_first
    cdef uint64_t furthest = c.furthest
    cdef uint32_t longest = 0
    cdef uint32_t i
    brought.count = 0
    brought.unquiet = c.total
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


cdef inline void brought_by_one(Brought* brought, const Run* c) noexcept nogil:
    # Where lines prove each for itself.
    brought.count = c.count
    brought.unquiet = c.count
    brought.fresh = c.fresh
    brought.repeated = c.repeated
    brought.same = c.same
    brought.known = c.same + c.filled
    brought.other = c.other
    brought.messages = c.count
    brought.first_fresh = c.first_fresh


cdef inline bint numbering_is_elsewhere(const Window* w, const LineAccount* line) noexcept nogil:
    # Whether a run is not just copies of what its line brought last of the current numbering.
    cdef int64_t at = window_unwrap(w, line.run.furthest)
    cdef int64_t near = run_span(&line.run, RUN_BACK_MAX)
    return (
        line.run.claim == CLAIM_BACK
        and not at - near <= line.highest <= at + near
    )


cdef inline bint numbering_is_copy_of_late(
    const Window* w, const LineAccount* line, const Unit* unit, const Evidence* e,
) noexcept nogil:
    # What tells nothing new and is of the latest that its line brought of the current numbering:
    # what has begun elsewhere may go on behind it.
    cdef const Run* c = &line.run
    if e.bytes >= BYTES_NEW or e.filled:
        return False
    return (
        c.total and not run_is_replay(c) and not run_follows(c, CLAIM_BACK, unit)
        and w.numbering.base <= line.highest
        and line.highest <= window_unwrap(w, unit.number) + run_span(c, RUN_BACK_MAX)
    )


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
    if at >= w.next + WINDOW_FOREIGN or run_follows(c, CLAIM_BACK, unit):
        return True
    return (
        at >= w.next + ANEW_AHEAD_MIN and unit.number < <uint64_t>window_span(w, ANEW_SEQNO_MAX)
        and unit.number < <uint32_t>w.next
    )


cdef inline bint numbering_is_left_over(
    Window* w, const Unit* unit, int64_t at, uint32_t hash,
) noexcept nogil:
    # A straggler of the numbering before a restart with the same id, which the window remembers?
    # Not if the sender's clock says that it is of this numbering. (Heartbeats look alike in both,
    # and it does not matter of which one they are.)
    cdef const Slot* slot = window_slot(w, at)
    if unit.sent_ns != 0 and unit.sent_ns >= w.begun_sent_ns:
        return False
    return (
        window_is_before(w, slot, at) and slot.hash == hash and at != w.next
        and unit.size
    )


cdef inline bint numbering_may_be_late(const Window* w, int64_t now_ns) noexcept nogil:
    # Whether what was given up may only have come too late.
    if window_is_doubtful(w):
        return False
    return now_ns - w.forward_ns < STRAGGLER_MAX_NS or not pace_is_quiet(w, WINDOW_PACE, now_ns)


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
    return first <= window_furthest(w) and (
        pace_apart(w, first, window_furthest(w)) < WINDOW_START)


cdef inline bint numbering_follows_run(const Window* w, const Unit* unit) noexcept nogil:
    # Whether a datagram belongs to a run that any line brings, of more than a few.
    cdef const Run* c
    cdef uint32_t i
    for i in range(w.lines):
        c = &w.line[i].run
        if c.count >= RUN_ESTABLISHED and run_follows(c, CLAIM_BACK, unit):
            return True
    return False


cdef inline bint numbering_is_overtaken(
    const Pipeline* p, const Window* w, const Unit* unit, int64_t at,
) noexcept nogil:
    # Whether what lies beyond all that was accepted belongs to a run that has come up to there from
    # behind, with other bytes than were accepted: it does not continue the current numbering.
    cdef const Run* c
    cdef uint32_t needed = p.proofs[PROOF_BACK].datagrams
    cdef uint32_t i
    if needed == 0 or at <= window_furthest(w):
        return False
    if needed < PROOF_LONG:
        needed = PROOF_LONG
    for i in range(w.lines):
        c = &w.line[i].run
        if c.other and run_follows(c, CLAIM_BACK, unit) and not run_is_replay(c):
            if numbering_brought(w, c).count >= needed:
                return True
    return False


# --- what is decided ------------------------------------------------------------------------------

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
        if other == line or other.foreign.claim == CLAIM_ENDED:
            run_refute(&other.foreign)
        if other.run.mode == RUN_PROVING or other.foreign.mode == RUN_PROVING:
            w.contested = True


cdef inline uint64_t numbering_gather(
    Window* w, Run* c, uint64_t number, uint64_t* unseen_from,
) noexcept nogil:
    # All lines' runs of this numbering are believed, others forgotten. Returns the earliest
    # number held, or this one, and makes `unseen_from` the earliest one that came at all.
    cdef HeldUnit* held
    cdef Run* other
    cdef uint64_t first = number
    cdef uint32_t line, i
    cdef uint8_t claim = c.claim
    for line in range(w.lines):
        other = line_claims(&w.line[line], claim)
        if not run_is_same(c, other):
            continue
        if run_step(c, run_first(other), unseen_from[0]) < 0:
            unseen_from[0] = run_first(other)
        for i in range(run_held_count(other)):
            held = run_held(other, i)
            if run_is_copy(other, held):
                continue
            if run_step(c, held.unit.number, first) < 0:
                first = held.unit.number
    for line in range(w.lines):
        other = line_claims(&w.line[line], claim)
        if run_is_same(c, other):
            continue
        if run_leads_to(other, c, unseen_from[0]):
            unseen_from[0] = run_first(other)
        run_forget(other)
    for line in range(w.lines):
        other = line_claims(&w.line[line], claim)
        if other.claim != CLAIM_NONE:
            run_believe(other)
    return first
