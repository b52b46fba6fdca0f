# A run is believed: the stream follows its numbering from now on, and what lines kept of it is
# delivered.

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint16_t, uint32_t, uint64_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport (
    CHANNEL_GAPS, CHANNEL_LOST, CHANNEL_SESSIONS, CHANNEL_SESSION_DISCARDED,
    CHANNEL_SESSION_RESTARTS,
)
from udpfast.core.layout cimport GAP_ANEW, KIND_GAP, KIND_SESSION, SESSION_RESUMED, Datagram
from udpfast.feed.control cimport Control
from udpfast.feed.kept cimport run_kept, run_kept_count, run_is_copy
from udpfast.feed.pieces cimport piece_next, pieces_begin
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_hash, pipeline_look
from udpfast.feed.run cimport (
    CLAIM_SESSION, RUN_BELIEVED, RUN_PROVING, Evidence, KeptUnit, Run, evidence_begin, run_forget,
    run_step,
)
from udpfast.feed.runs cimport run_recall, runs_gather
from udpfast.feed.session cimport session_begin, session_ordinal
from udpfast.feed.waiting cimport waiting_hold, waiting_reset
from udpfast.feed.weighed cimport Adoption
from udpfast.feed.whereabouts cimport window_left_at
from udpfast.feed.window cimport (
    window_control, window_dispute, window_is_delivered, window_is_unproven, window_was_other,
)
from udpfast.feed.window_state cimport (
    LineAccount, Window, window_begin, window_early, window_number, window_slot, window_unwrap,
)
from udpfast.wire.framing cimport framing_units_seldom
from udpfast.wire.messages cimport MessageWalk
from udpfast.wire.unit cimport UNITS_MAX, Unit


cdef inline uint64_t adoption_unseen(Window* w, uint64_t first, uint64_t count) noexcept nogil:
    # How many of these were not delivered by the current numbering, which goes on. What it does not
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


cdef inline void adoption_adopt(
    Pipeline* p, Window* w, const Adoption* adoption, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # The stream follows this numbering from now on: another session. `unit` was the last that it
    # took; of one that only waited for other lines there is none (NULL).
    cdef Run* run = adoption.run
    cdef uint64_t session_id, first, unseen
    cdef uint64_t unseen_from = adoption.first
    cdef bint resumed = adoption.reason == SESSION_RESUMED
    cdef bint disputed
    if run == NULL:
        adoption_begin(
            p, w, unit.session, adoption.reason, adoption.first, adoption.unseen, now_ns)
        return
    if w.numbering.follows:
        adoption_rebase(p, w, run, now_ns)
        return
    session_id = run.session_id
    disputed = resumed and session_id == w.numbering.sessions.session_id
    first = runs_gather(w, run, run.furthest if unit == NULL else unit.number, &unseen_from)
    unseen = <uint64_t>run_step(run, first, unseen_from)
    if disputed:
        unseen = adoption_unseen(w, unseen_from, unseen)
    adoption_begin(p, w, session_id, adoption.reason, first, unseen, now_ns)
    adoption_deliver_believed(p, w, resumed, disputed, now_ns)


cdef inline void adoption_rebase(
    Pipeline* p, Window* w, Run* run, int64_t now_ns,
) noexcept nogil:
    # The snapshot channel follows this numbering from now on; its session goes on. Seqnos lie on a
    # circle: from the one that was due to the new first one is a gap, around all of it.
    cdef uint64_t unseen_from = run.first
    cdef uint64_t first = runs_gather(w, run, run.furthest, &unseen_from)
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
    waiting_reset(w)
    window_begin(w, first, now_ns)
    adoption_deliver_believed(p, w, True, True, now_ns)


cdef inline void adoption_begin(
    Pipeline* p, Window* w, uint64_t session_id, uint32_t reason, uint64_t first_number,
    uint64_t unseen, int64_t now_ns,
) noexcept nogil:
    # Another session: nothing of the one before is ever mixed with it.
    cdef int64_t left_at = window_left_at(w)
    cdef bint same_id = w.numbering.sessions.begun and w.numbering.sessions.session_id == session_id
    cdef int64_t behind = 0              # what this numbering had before its first
    cdef uint32_t discarded
    cdef uint64_t follower_first = 0
    cdef bint follower_begun = False
    if same_id and reason == SESSION_RESUMED:
        behind = window_unwrap(w, first_number) - w.numbering.origin
    p.session = session_ordinal(p.session)
    discarded = adoption_end_numbering(w, same_id, p.session, session_id, now_ns)
    if w.numbering.follower != NULL:
        if same_id and reason == SESSION_RESUMED:
            w.numbering.follower.session = p.session           # it goes on
        else:
            follower_begun = adoption_gather_follower(
                w.numbering.follower, session_id, &follower_first)
            discarded += adoption_end_numbering(
                w.numbering.follower, same_id, p.session, session_id, now_ns)
    adoption_say(w, p.received_ns, session_id, reason, first_number, unseen, discarded)
    counter_add(&w.counters[CHANNEL_SESSIONS], 1)
    if same_id:
        counter_add(&w.counters[CHANNEL_SESSION_RESTARTS], 1)
    session_begin(
        w.numbering.sessions, session_id, reason == SESSION_RESUMED, window_number(w, left_at),
        left_at - w.numbering.base, now_ns)
    window_begin(w, first_number, now_ns)
    if behind > 0:
        w.numbering.origin = w.numbering.base - behind
    pipeline_look(p, w)
    if w.numbering.follower != NULL:
        pipeline_look(p, w.numbering.follower)
        if follower_begun:
            window_begin(w.numbering.follower, follower_first, now_ns)
            adoption_deliver_believed(p, w.numbering.follower, False, False, now_ns)


cdef inline void adoption_say(
    Window* w, int64_t received_ns, uint64_t session_id, uint32_t reason, uint64_t first_number,
    uint64_t unseen, uint32_t discarded,
) noexcept nogil:
    # The SESSION record.
    cdef Control* control = window_control(w, KIND_SESSION)
    if control != NULL:
        control.received_ns = received_ns
        control.number = first_number
        control.size = sizeof(control.payload.session)
        if w.numbering.sessions.begun:
            control.payload.session.old_id = w.numbering.sessions.session_id
        control.payload.session.new_id = session_id
        control.payload.session.reason = reason
        control.payload.session.discarded = discarded
        control.payload.session.first_number = first_number
        control.payload.session.unseen = unseen
        control.payload.session.stream = w.stream_key


cdef inline bint adoption_gather_follower(
    Window* follower, uint64_t session_id, uint64_t* first,
) noexcept nogil:
    # Whether the snapshot channel's lines brought anything of this session before it was known, and
    # from which number on: that is believed with it.
    cdef Run* run
    cdef uint64_t unseen_from
    cdef uint32_t i
    for i in range(follower.lines):
        run = &follower.line[i].foreign
        if run.claim == CLAIM_SESSION and run.session_id == session_id and run.mode == RUN_PROVING:
            unseen_from = run.furthest
            first[0] = runs_gather(follower, run, run.furthest, &unseen_from)
            return True
    return False


cdef inline uint32_t adoption_end_numbering(
    Window* w, bint same_id, uint16_t session, uint64_t session_id, int64_t now_ns,
) noexcept nogil:
    # Returns how many messages waited in it.
    cdef uint32_t discarded = w.pending
    cdef uint32_t i
    counter_add(&w.counters[CHANNEL_SESSION_DISCARDED], discarded)
    w.numbering.previous_next = window_number(w, w.next)
    w.numbering.previous_until_ns = INT64_MIN
    if same_id and w.started:
        w.numbering.previous_until_ns = now_ns + w.numbering.sessions.grace_ns
    waiting_reset(w)
    w.numbering.opening_ns = INT64_MAX
    w.session = session
    w.session_id = session_id
    for i in range(w.lines):
        if w.line[i].run.mode != RUN_BELIEVED:
            run_forget(&w.line[i].run)
        if w.line[i].foreign.mode != RUN_BELIEVED:
            run_forget(&w.line[i].foreign)
    return discarded


cdef inline void adoption_deliver_believed(
    Pipeline* p, Window* w, bint resumed, bint disputed, int64_t now_ns,
) noexcept nogil:
    # What was kept of a numbering that is believed now.
    cdef LineAccount* line
    cdef uint32_t i
    for i in range(w.lines):
        line = &w.line[i]
        if line.foreign.mode == RUN_BELIEVED:
            adoption_deliver_kept(p, w, i, &line.foreign, resumed, disputed, now_ns)
            run_forget(&line.foreign)
        elif line.run.mode == RUN_BELIEVED:
            adoption_deliver_kept(p, w, i, &line.run, resumed, disputed, now_ns)
        run_forget(&line.run)


cdef inline void adoption_deliver_kept(
    Pipeline* p, Window* w, uint32_t line, Run* run, bint resumed, bint disputed,
    int64_t now_ns,
) noexcept nogil:
    # It has had its verdicts; what does not fit is missing like anything lost, and becomes a gap.
    # `disputed`: of a numbering that goes on, other bytes may have been delivered already, and
    # nobody can tell which are right.
    cdef KeptUnit* kept
    cdef Datagram d
    cdef uint32_t i
    for i in range(run_kept_count(run)):
        kept = run_kept(run, i)
        if run_is_copy(run, kept):
            continue
        run_recall(w, line, kept, &d)
        adoption_deliver_unit(p, w, line, &d, &kept.unit, resumed, disputed, now_ns)
        if unlikely(kept.units > 1):
            adoption_deliver_rest(p, w, line, &d, kept, resumed, disputed, now_ns)


cdef inline void adoption_deliver_rest(
    Pipeline* p, Window* w, uint32_t line, const Datagram* d, const KeptUnit* kept, bint resumed,
    bint disputed, int64_t now_ns,
) noexcept nogil:
    # The further units of a kept datagram.
    cdef const Unit* unit
    cdef uint32_t left = kept.units
    cdef int i
    for i in range(framing_units_seldom(p.framing, d.data, d.size, p.kept_units, UNITS_MAX)):
        unit = &p.kept_units[i]
        if unit.offset <= kept.unit.offset or unit.session != kept.unit.session:
            continue
        left -= 1
        if left == 0:
            return
        adoption_deliver_unit(p, w, line, d, unit, resumed, disputed, now_ns)


cdef inline void adoption_deliver_unit(
    Pipeline* p, Window* w, uint32_t line, const Datagram* d, const Unit* unit, bint resumed,
    bint disputed, int64_t now_ns,
) noexcept nogil:
    cdef Unit piece
    cdef MessageWalk walk
    cdef int64_t at
    cdef uint32_t hash, n
    cdef bint other
    cdef Evidence unasked
    evidence_begin(&unasked)
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
        waiting_hold(w, d, &piece, at, hash, now_ns, &unasked)
        if other and window_slot(w, at).key == at:
            window_dispute(window_early(w, at), d, &piece, hash)
