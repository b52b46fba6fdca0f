# Another session, or this one announced anew: what proves it, and where it begins. It is part of
# `numbering`.

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from udpfast.core.counter cimport (
    VERDICT_SESSION_FOREIGN, VERDICT_SESSION_PENDING, VERDICT_SESSION_RETIRED,
)
from udpfast.core.layout cimport (
    SESSION_FIRST, SESSION_NEW_ID, SESSION_RESUMED, SESSION_SAME_ID, Datagram,
)
from udpfast.feed.kept cimport run_begin_at, run_kept, run_kept_count, run_keep, run_is_full
from udpfast.feed.lines cimport line_was_beyond, lines_hear
from udpfast.feed.pieces cimport piece_next, pieces_begin
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_first_hash, pipeline_hash
from udpfast.feed.proof cimport (
    PROOF_DRAWN, PROOF_ENDED, PROOF_SESSION, STRAGGLER_MAX_NS, Brought, Proof, proof_is_met,
)
from udpfast.feed.run cimport (
    BYTES_NEW, BYTES_NONE, CLAIM_BACK, CLAIM_ENDED, CLAIM_NONE, CLAIM_SESSION, Evidence, KeptUnit,
    Run, evidence_begin, run_note, run_span,
)
from udpfast.feed.runs cimport (
    run_brought, run_recall, runs_earliest, runs_from_first, runs_go_on_anew,
)
from udpfast.feed.session cimport RetiredSession, session_goes_on, session_retired, session_was_at
from udpfast.feed.weighed cimport WEIGHED_ADOPT, WEIGHED_ASIDE, Adoption, Located
from udpfast.feed.window cimport window_compare_before
from udpfast.feed.window_state cimport (
    LineAccount, Slot, Window, window_furthest, window_slot, window_unwrap,
)
from udpfast.wire.messages cimport MessageWalk
from udpfast.wire.unit cimport UNIT_RESET, UNIT_START_OF_SESSION, Unit

cdef enum:
    # A session has just begun if what it lacks of its beginning is less than so many datagrams.
    START_MAX = 64


cdef inline int beginning_weigh(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # The very first session is believed at once: there is nothing that it could disturb.
    cdef const RetiredSession* retired
    where.verdict = VERDICT_SESSION_FOREIGN
    if w.numbering.follows:
        lines_hear(p, w, line, now_ns)
        if session_retired(w.numbering.sessions, unit.session, now_ns) == NULL:
            if run_note(&line.foreign, CLAIM_SESSION, unit, &where.evidence, now_ns):
                run_keep(&line.foreign, d, unit)     # it may be heard here first
        return WEIGHED_ASIDE
    if not w.numbering.sessions.begun:
        adoption.run = NULL
        adoption.reason = SESSION_FIRST
        adoption.first = unit.number
        adoption.unseen = beginning_went_by(unit.number, max(unit.count, 1))
        if p.awaits_start:
            # The beginning of a session that has just begun may have been overtaken: a hole like
            # any other, since what is said there is not said again.
            adoption.first -= adoption.unseen
            adoption.unseen = 0
        return WEIGHED_ADOPT
    retired = session_retired(w.numbering.sessions, unit.session, now_ns)
    w.has_runs = True
    if retired != NULL:
        where.verdict = VERDICT_SESSION_RETIRED
        return beginning_prove_ended(p, w, line, retired, d, unit, where, now_ns, adoption)
    where.verdict = VERDICT_SESSION_PENDING
    lines_hear(p, w, line, now_ns)
    adoption.reason = SESSION_NEW_ID
    return beginning_prove(
        p, w, line, &p.proofs[PROOF_SESSION], d, unit, now_ns, adoption)


cdef inline int beginning_prove(
    Pipeline* p, Window* w, LineAccount* line, const Proof* proof, const Datagram* d,
    const Unit* unit, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # One that says itself that it is another one: proven when its line brings it again. Then the
    # other lines that are alive are waited for, as for a hole: what this one lost of the beginning
    # they may still bring. Until then all of it is kept.
    cdef Run* run = &line.foreign
    cdef Evidence evidence
    cdef int64_t due_ns
    evidence_begin(&evidence)
    evidence.bytes = BYTES_NEW
    if not run_note(run, CLAIM_SESSION, unit, &evidence, now_ns + p.late_ns):
        return WEIGHED_ASIDE
    if run.since_count >= proof.datagrams:
        due_ns = run.since_ns + min(w.waiting.wait_ns, <int64_t>STRAGGLER_MAX_NS)
        if now_ns >= due_ns or run_is_full(run) or runs_from_first(w, run, now_ns):
            beginning_at(p, w, run, now_ns, adoption)
            return WEIGHED_ADOPT
        w.numbering.opening_ns = min(w.numbering.opening_ns, due_ns)
    run_keep(run, d, unit)
    return WEIGHED_ASIDE


cdef inline int beginning_prove_ended(
    Pipeline* p, Window* w, LineAccount* line, const RetiredSession* retired, const Datagram* d,
    const Unit* unit, Located* where, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # A session that is over goes on where it was left; or it was drawn again, unless this is a
    # straggler or a replay.
    cdef Run* run = &line.foreign
    cdef const Proof* proof = &p.proofs[PROOF_ENDED]
    cdef Brought brought
    cdef bint goes_on = session_goes_on(w.numbering.sessions, retired, unit.number, w.size)
    cdef uint32_t i
    if not goes_on:
        proof = &p.proofs[PROOF_DRAWN]
        if proof.datagrams == 0:
            return WEIGHED_ASIDE
        where.evidence.bytes = BYTES_NONE
        window_compare_before(
            w, unit, window_unwrap(w, unit.number), pipeline_first_hash(p, w, d, unit),
            &where.evidence)
    if not run_note(run, CLAIM_ENDED, unit, &where.evidence, now_ns):
        return WEIGHED_ASIDE
    brought = run_brought(run)
    if not proof_is_met(proof, run, &brought, w, now_ns):
        run_keep(run, d, unit)
        return WEIGHED_ASIDE
    adoption.run = run
    adoption.reason = SESSION_RESUMED
    adoption.first = run.first
    if goes_on:
        adoption.first = retired.next
        for i in range(w.lines):
            run_begin_at(&w.line[i].foreign, unit.session, retired.next)
    elif not session_was_at(w.numbering.sessions, retired, run.first, w.size):
        adoption.reason = SESSION_NEW_ID
    return WEIGHED_ADOPT


cdef inline uint64_t beginning_went_by(uint64_t first, int64_t wide) noexcept nogil:
    # Publishers number from 1: how many numbers a session lacks that begins a little behind that,
    # if a datagram has so many.
    return first - 1 if 1 < first < <uint64_t>(START_MAX * wide) else 0


cdef inline void beginning_at(
    Pipeline* p, Window* w, Run* run, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # Where a proven session begins.
    if adoption.reason == SESSION_SAME_ID:
        beginning_take_back(p, w, run.session_id, now_ns)
    adoption.run = run
    adoption.first = runs_earliest(w, run)
    adoption.first -= beginning_went_by(adoption.first, run_span(run, 1))


cdef inline bint beginning_is_due(
    Pipeline* p, Window* w, int64_t now_ns, Adoption* adoption,
) noexcept nogil:
    # The time is over in which lines might bring what lies before a session's first number. True: a
    # session waited for that.
    cdef Run* run
    cdef uint32_t i
    adoption.reason = SESSION_NEW_ID
    w.numbering.opening_ns = INT64_MAX
    for i in range(w.lines):
        run = &w.line[i].foreign
        if run.claim == CLAIM_SESSION and run.since_count >= p.proofs[PROOF_SESSION].datagrams:
            if run.session_id == w.numbering.sessions.session_id:
                adoption.reason = SESSION_SAME_ID
            beginning_at(p, w, run, now_ns, adoption)
            return True
    return False


cdef inline void beginning_take_back(
    Pipeline* p, Window* w, uint64_t session_id, int64_t now_ns,
) noexcept nogil:
    # What lines brought before one of them told that the session began anew was taken for old
    # numbers. What was sent behind all of those is of the new ones.
    cdef Run* behind
    cdef Run* anew
    cdef KeptUnit* kept
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
        for i in range(run_kept_count(behind)):
            kept = run_kept(behind, i)
            if kept.unit.sent_ns <= w.sent_ns:
                continue
            w.packing.datagram = kept.datagram
            run_recall(w, line, kept, &d)
            if run_note(anew, CLAIM_SESSION, &kept.unit, &evidence, now_ns):
                run_keep(anew, &d, &kept.unit)
    w.packing.datagram = p.datagram


# --- this session, announced anew -----------------------------------------------------------------

cdef inline bint beginning_is_announced(
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
            line_was_beyond(line, at, unit) or not beginning_is_known(p, w, d, unit)
        ):
            return True
    return w.has_runs and runs_go_on_anew(w, line, unit)


cdef inline bint beginning_is_known(
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
