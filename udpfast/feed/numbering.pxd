# Which session a stream is in, and which numbering of that session it follows. Each unit that is
# not simply next in order comes here (numbering_weigh). There are three answers:
#   CONTINUES   the unit belongs to the current numbering
#   ASIDE       it is kept with a run of its line, and counted as where.verdict
#   ADOPT       it completes the proof of a run, and the stream follows that run (`adoption`)
#
# While any line may have a run (Window.has_runs), units that are next in order come here as well:
# they show that the current numbering is alive, unless they go on with a run.
#
# Read docs/protocol.md, section 3, first: it has these rules in prose. Then read `weighed` (where a
# unit lies, and what is said of it) and `run` (what is kept beside the numbering, and its modes).
# `proof` has the table of proofs: one row for each thing that a run can say of itself.

from libc.stdint cimport int64_t, uint32_t

from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    VERDICT_DUPLICATE, VERDICT_REPLAY, VERDICT_SESSION_PENDING, VERDICT_SESSION_RETIRED,
)
from udpfast.core.layout cimport SESSION_RESUMED, SESSION_SAME_ID, Datagram
from udpfast.feed.beginning cimport beginning_prove, beginning_weigh
from udpfast.feed.kept cimport run_keep, run_keep_known, run_returns
from udpfast.feed.lines cimport (
    line_advances, line_carries_on, line_reach, line_steps_back, lines_hear, lines_note_lagging,
)
from udpfast.feed.pieces cimport piece_next, pieces_begin
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_first_hash, pipeline_hash
from udpfast.feed.proof cimport (
    PROOF_AHEAD, PROOF_BACK, PROOF_GAP, PROOF_LONG, PROOF_RESET, PROOF_RESUMED, PROOF_START,
    Brought, proof_is_met,
)
from udpfast.feed.run cimport (
    BYTES_NONE, BYTES_OTHER, BYTES_SAME, CLAIM_AHEAD, CLAIM_BACK, RUN_ABSENT, RUN_ESTABLISHED,
    RUN_PROVING, RUN_STEP_MAX, Evidence, Run, evidence_begin, run_first, run_is_replay, run_note,
    run_refute, run_set_aside, run_span,
)
from udpfast.feed.runs cimport runs_brought, runs_gather, runs_lead_to, runs_refute
from udpfast.feed.weighed cimport (
    PLACE_BEYOND, PLACE_KNOWN, PLACE_OLD, PLACE_SESSION, PLACE_WITHIN, WEIGHED_ADOPT,
    WEIGHED_CONTINUES, WEIGHED_ASIDE, Adoption, Located,
)
from udpfast.feed.whereabouts cimport (
    numbering_fills_gap, numbering_is_copy_of_late, numbering_is_elsewhere, numbering_is_foreign,
    numbering_is_previous, numbering_is_slower, numbering_line_goes_on, numbering_was_here,
)
from udpfast.feed.window cimport (
    window_came_beyond, window_compare_before, window_compare_delivered, window_copy,
    window_is_copy,
)
from udpfast.feed.window_state cimport (
    LineAccount, Window, window_furthest, window_slot, window_unwrap,
)
from udpfast.wire.messages cimport MessageWalk
from udpfast.wire.unit cimport UNIT_RESET, Unit

cdef enum:
    # A restarted publisher repeats known bytes, or fills open holes, only by chance. If more than
    # four fifths of a run do, and at least KNOWN_MIN datagrams, the old numbering came back.
    KNOWN_PER_CONTRADICTING = 4
    KNOWN_MIN = 8


cdef inline int numbering_weigh(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # THE decision: Weighed. What its sender flags as a retransmission does not come here, because
    # it proves nothing.
    cdef int weighed
    if where.place == PLACE_KNOWN:
        return numbering_weigh_known(p, w, line, d, unit, where, now_ns, adoption)
    if where.place == PLACE_SESSION:
        return beginning_weigh(p, w, line, d, unit, where, now_ns, adoption)
    if unlikely(where.announced):
        where.verdict = VERDICT_SESSION_PENDING
        w.has_runs = True
        lines_hear(p, w, line, now_ns)
        adoption.reason = SESSION_SAME_ID
        return beginning_prove(
            p, w, line, &p.proofs[PROOF_RESET if unit.flags & UNIT_RESET else PROOF_START], d, unit,
            now_ns, adoption)
    if unlikely(where.place == PLACE_OLD):
        where.verdict = VERDICT_SESSION_RETIRED
        return WEIGHED_ASIDE
    if where.place == PLACE_BEYOND:
        weighed = numbering_weigh_beyond(p, w, line, d, unit, where, now_ns, adoption)
        if weighed != WEIGHED_CONTINUES:
            return weighed
    elif where.place != PLACE_WITHIN:
        return WEIGHED_CONTINUES
    return numbering_weigh_next(p, w, line, d, unit, where, now_ns, adoption)


# --- known: delivered, waiting or given up --------------------------------------------------------

cdef inline int numbering_weigh_known(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # The current numbering does not need this datagram, but it tells something of its line. It
    # refutes nothing, and keeps the verdict that it was located with.
    #
    #   what comes                                    what becomes of it
    #   --------------------------------------------  --------------------------------------------
    #   the next copy of a line that holds no run     CONTINUES: its line is heard
    #   from behind, and its line goes on with it     CONTINUES: heard (REPLAY: it lags), and what
    #                                                 its run said is voided
    #   from before what its line brought, or not     kept with its line's run: ASIDE, or ADOPT
    #     with the bytes that are known
    #   any other copy                                CONTINUES
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


# --- inside the window ----------------------------------------------------------------------------

cdef inline int numbering_weigh_next(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # The current numbering has a place for this unit and goes on with it, unless the unit belongs
    # to a line's run, or may belong to one.
    #
    #   what comes                                    what becomes of it
    #   --------------------------------------------  --------------------------------------------
    #   bytes that the numbering before delivered     ASIDE, as of a numbering that is over
    #   sent too late for a hole, or contradicting    kept with its line's run: ASIDE, or ADOPT
    #   its line does not step back, and no line      CONTINUES
    #     has a run
    #   further than all, behind a contradicting      kept with that run, which is believed: ADOPT
    #     run that has overtaken all
    #   a hole's, and a run goes on with it, or its   CONTINUES, and a copy is kept with the run
    #     line steps back
    #   any other                                     CONTINUES; if it leads on, or carries its line
    #                                                 on, it refutes all runs
    cdef int64_t at = max(where.at, w.next)
    cdef int64_t last = where.last
    cdef const Run* run = runs_lead_to(w, unit) if w.has_runs else NULL
    cdef bint contradicted = (
        run != NULL and run.contradicting != 0 and not run_is_replay(run))
    cdef bint back = line_steps_back(w, line, last)
    where.further = last > window_furthest(w)
    where.forward = where.further or (
        run == NULL and window_slot(w, at).key != at
        and (where.at <= w.next or line_carries_on(line, w, last)))
    if where.left_over:
        where.verdict = VERDICT_SESSION_RETIRED
        return WEIGHED_ASIDE
    if unlikely(where.sent_after or not where.further and numbering_denies(
            p, w, d, unit, where, run if back and contradicted else NULL)):
        where.verdict = VERDICT_SESSION_PENDING
        return numbering_prove_back(p, w, line, d, unit, &where.evidence, False, now_ns, adoption)
    if likely(not w.has_runs and not back):
        return WEIGHED_CONTINUES
    if where.further and contradicted and numbering_is_overtaken(p, w, run):
        return numbering_also_of(p, w, line, d, unit, where, True, now_ns, adoption)
    if where.forward:
        runs_refute(w, line)
    if not where.further and (run != NULL or back):
        # It may be of the run or of the current numbering: deliver it, keep a copy with the run,
        # let it prove neither.
        where.evidence.bytes = BYTES_NONE
        where.evidence.filled = True
        return numbering_also_of(p, w, line, d, unit, where, False, now_ns, adoption)
    return WEIGHED_CONTINUES


cdef inline bint numbering_denies(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, Located* where, const Run* run,
) noexcept nogil:
    # Whether a unit that would fill a hole does not belong to the current numbering. Either other
    # messages of the unit contradict what was accepted, or the unit goes on with a run that did so,
    # and lies far behind what its line brought. A few datagrams forged ahead of a feed contradict
    # it, too, and lead its line astray: what they are denied would be the feed itself.
    if unit.count > 1 and numbering_contradicts(p, w, d, unit, where):
        return True
    if run == NULL or run.contradicting < RUN_ESTABLISHED:
        return False
    if not window_came_beyond(w, d.line, where.last, PROOF_LONG):
        return False
    where.evidence.bytes = BYTES_NONE    # of these numbers nothing is known
    return True


cdef inline bint numbering_contradicts(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, Located* where,
) noexcept nogil:
    # Whether the current numbering has other bytes for some messages of a unit that would fill a
    # hole. Then the message that fills the hole does not belong to it either.
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
            window_compare_delivered(w, d, &piece, where.at + n, hash, &e)
        elif window_is_copy(w, &piece, where.at + n):
            window_copy(w, window_slot(w, where.at + n), d, &piece, hash, &e)
    if e.bytes != BYTES_OTHER:
        return False
    where.evidence.bytes = BYTES_OTHER
    return True


cdef inline bint numbering_is_overtaken(
    const Pipeline* p, const Window* w, const Run* run,
) noexcept nogil:
    # Whether a run with other bytes has come from behind to beyond all that was accepted. What
    # follows such a run does not continue the current numbering.
    cdef uint32_t needed = p.proofs[PROOF_BACK].datagrams
    return needed != 0 and runs_brought(w, run).datagrams >= max(needed, <uint32_t>PROOF_LONG)


cdef inline int numbering_also_of(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, bint proven, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # The unit is kept with its run, and accepted as well, unless it completes the run's proof.
    cdef int weighed
    where.verdict = VERDICT_SESSION_PENDING
    weighed = numbering_prove_back(
        p, w, line, d, unit, &where.evidence, proven, now_ns, adoption)
    return weighed if weighed == WEIGHED_ADOPT else WEIGHED_CONTINUES


# --- what lies beyond its window ------------------------------------------------------------------

cdef inline int numbering_weigh_beyond(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # One datagram beyond the window proves nothing. The exception is one within a run's step of the
    # furthest accepted number: then the window is too small, and nothing has jumped.
    cdef Run* run = &line.run
    if numbering_is_foreign(w, line, unit, where.at):
        where.verdict = VERDICT_REPLAY
        return numbering_prove_back(p, w, line, d, unit, &where.evidence, False, now_ns, adoption)
    w.has_runs = True
    w.waiting.jump_from = where.at
    if where.at - window_furthest(w) <= run_span(run, RUN_STEP_MAX):
        return WEIGHED_CONTINUES
    if numbering_is_previous(w, unit.number, w.size, now_ns):
        where.verdict = VERDICT_SESSION_RETIRED
        where.evidence.bytes = BYTES_NONE
        window_compare_before(
            w, unit, where.at, pipeline_first_hash(p, w, d, unit), &where.evidence)
        return numbering_prove_back(p, w, line, d, unit, &where.evidence, False, now_ns, adoption)
    where.verdict = VERDICT_SESSION_PENDING
    if not run_note(run, CLAIM_AHEAD, unit, &where.evidence, now_ns):
        return WEIGHED_ASIDE
    if run.since_count < p.proofs[PROOF_AHEAD].datagrams:
        run_keep(run, d, unit)
        return WEIGHED_ASIDE
    # What is kept is delivered when take() has made room.
    adoption.first = run.first
    w.waiting.jump_from = window_unwrap(w, runs_gather(w, run, unit.number, &adoption.first))
    return WEIGHED_CONTINUES


# --- what may be numbered anew --------------------------------------------------------------------

cdef inline int numbering_prove_back(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    const Evidence* e, bint proven, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # This datagram does not continue the current numbering, or may continue a run as well. It is of
    # a replay, or of numbers that began anew: it is kept with its line's run until that is proven.
    cdef Run* run = &line.run
    cdef Brought brought
    cdef int row
    w.has_runs = True
    if numbering_is_elsewhere(w, line):
        if run_returns(run, d, unit) or numbering_is_copy_of_late(w, line, unit, e):
            return WEIGHED_ASIDE
    if not run_note(run, CLAIM_BACK, unit, e, now_ns):
        return WEIGHED_ASIDE
    run_keep_known(run, d, unit, e)
    brought = runs_brought(w, run)
    row = numbering_choose_proof(p, w, run, &brought, now_ns, &adoption.reason)
    if not proven and not proof_is_met(&p.proofs[row], run, &brought, w, now_ns):
        return WEIGHED_ASIDE
    # A publisher that began anew says so on the incremental channel. If that one goes on meanwhile,
    # it is only this window that went astray.
    if w.numbering.follows and p.window.forward_ns <= run.since_ns:
        return WEIGHED_ASIDE
    adoption.run = run
    adoption.first = run.first
    return WEIGHED_ADOPT


cdef inline int numbering_choose_proof(
    const Pipeline* p, Window* w, const Run* run, const Brought* brought, int64_t now_ns,
    uint32_t* reason,
) noexcept nogil:
    # Which row of the table of proofs a run of numbers that fall back has to meet, and which reason
    # its SESSION record will give. A publisher that began anew began where it did before, or
    # further back; what goes on from inside the current numbering may be that one, led astray.
    cdef bint inside = window_unwrap(w, run_first(run)) > w.numbering.origin
    cdef bint resumes = numbering_is_previous(w, run.first, 0, now_ns)
    reason[0] = SESSION_RESUMED
    if inside and numbering_fills_gap(w, window_unwrap(w, run.first_new)):
        if not resumes or brought.datagrams_ever >= p.proofs[PROOF_GAP].unquiet:
            return PROOF_GAP
    if resumes:
        return PROOF_RESUMED
    if not (inside and numbering_was_here(w, window_unwrap(w, brought.first_new))) and not (
        brought.same_or_filled >= KNOWN_MIN
        and brought.same_or_filled > KNOWN_PER_CONTRADICTING * brought.contradicting
    ):
        reason[0] = SESSION_SAME_ID
    return PROOF_BACK
