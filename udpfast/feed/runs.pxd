# The runs of all lines together. Here is what they have brought of one numbering, which of them a
# unit goes on with, and what becomes of them when the current numbering goes on, or one of them is
# believed.

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memset

from udpfast.core.layout cimport Datagram
from udpfast.feed.kept cimport run_kept, run_kept_count, run_kept_data, run_is_copy
from udpfast.feed.lines cimport line_claims, line_is_alive
from udpfast.feed.proof cimport Brought
from udpfast.feed.run cimport (
    CLAIM_AHEAD, CLAIM_BACK, CLAIM_ENDED, CLAIM_NONE, CLAIM_SESSION, RUN_BACK_MAX, RUN_ESTABLISHED,
    RUN_PROVING, RUN_STEP_MAX, KeptUnit, Run, run_believe, run_first, run_follows, run_forget,
    run_is_same, run_leads_to, run_refute, run_span, run_step,
)
from udpfast.feed.window_state cimport LineAccount, Window
from udpfast.wire.unit cimport Unit


cdef inline Brought runs_brought(const Window* w, const Run* run) noexcept nogil:
    # A run on all lines that bring it, where they prove it together.
    cdef const Run* other
    cdef Brought brought
    cdef uint64_t first = run.since_first
    cdef uint64_t furthest = run.furthest
    cdef uint32_t longest = 0
    cdef uint32_t i
    brought_begin(&brought, run)
    brought.datagrams_ever = run.total
    for i in range(w.lines):
        other = &w.line[i].run
        if not run_is_same(run, other):
            continue
        brought_add(&brought, run, other)
        longest = max(longest, other.since_count)
        if run_step(run, other.since_first, first) < 0:
            first = other.since_first
        if run_step(run, other.furthest, furthest) > 0:
            furthest = other.furthest
    brought.messages = min(run_step(run, furthest, first) + 1, <int64_t>longest)
    return brought


cdef inline Brought run_brought(const Run* run) noexcept nogil:
    # The same where each line proves for itself.
    cdef Brought brought
    brought_begin(&brought, run)
    brought_add(&brought, run, run)
    brought.datagrams_ever = run.since_count
    brought.messages = run.since_count
    return brought


cdef inline void brought_begin(Brought* brought, const Run* run) noexcept nogil:
    memset(brought, 0, sizeof(Brought))
    brought.first_new = run.first_new


cdef inline void brought_add(Brought* brought, const Run* run, const Run* other) noexcept nogil:
    brought.datagrams += other.since_count
    brought.new_bytes += other.new_bytes
    brought.repeated += other.repeated
    brought.same += other.same
    brought.same_or_filled += other.same + other.filled
    brought.contradicting += other.contradicting
    if run_step(run, other.first_new, brought.first_new) < 0:
        brought.first_new = other.first_new


cdef inline const Run* runs_lead_to(const Window* w, const Unit* unit) noexcept nogil:
    # The run of more than a few datagrams that a unit goes on with, on any line; of several, the
    # one that contradicts the current numbering most. One that did so more than a few times is it,
    # though what filled holes refuted it meanwhile. NULL: none.
    cdef const Run* run
    cdef const Run* found = NULL
    cdef uint32_t i
    for i in range(w.lines):
        run = &w.line[i].run
        if max(run.since_count, run.contradicting) < RUN_ESTABLISHED:
            continue
        if run_follows(run, CLAIM_BACK, unit):
            if found == NULL or run.contradicting > found.contradicting:
                found = run
    return found


cdef inline bint runs_go_on_anew(
    const Window* w, const LineAccount* line, const Unit* unit,
) noexcept nogil:
    # Whether some line has said that this session began anew, and this unit goes on there. A line
    # may have lost that beginning; then the sender's clock tells.
    cdef const Run* run
    cdef int64_t step
    cdef uint32_t i
    for i in range(w.lines):
        run = &w.line[i].foreign
        if run.claim != CLAIM_SESSION or run.session_id != unit.session or run.mode != RUN_PROVING:
            continue
        step = run_step(run, unit.number, run.furthest)
        if not -run_span(run, RUN_BACK_MAX) <= step <= run_span(
            run, RUN_STEP_MAX,
        ):
            continue
        if unit.sent_ns >= run.sent_ns if line == &w.line[i] else unit.sent_ns > w.sent_ns:
            return True
    return False


cdef inline uint64_t runs_earliest(Window* w, const Run* run) noexcept nogil:
    # The earliest number that any line brought of a new session.
    cdef uint64_t first = run_first(run)
    cdef Run* other
    cdef uint32_t i
    for i in range(w.lines):
        other = &w.line[i].foreign
        if run_is_same(run, other) and run_step(run, run_first(other), first) < 0:
            first = run_first(other)
    return first


cdef inline bint runs_from_first(
    Window* w, const Run* run, int64_t now_ns,
) noexcept nogil:
    # Whether nothing of a new session can come from before what its lines brought: it begins with
    # the first number, or all lines that are alive are in it.
    cdef uint32_t i
    if runs_earliest(w, run) <= 1:
        return True
    for i in range(w.lines):
        if line_is_alive(w, &w.line[i], now_ns):
            if not run_is_same(run, &w.line[i].foreign):
                return False
    return True


cdef inline void run_recall(
    const Window* w, uint32_t line, KeptUnit* kept, Datagram* d,
) noexcept nogil:
    # The datagram that is kept, as its line brought it.
    d.data = run_kept_data(kept)
    d.size = kept.size
    d.flags = kept.flags
    d.received_ns = kept.received_ns
    d.channel = w.channel
    d.line = <uint8_t>line


cdef inline void runs_refute(Window* w, LineAccount* line) noexcept nogil:
    # The current numbering is alive, on this line: what lines hold of another one has yet to prove
    # itself. A session never heard of, and a jump, are the business of their own line.
    cdef LineAccount* other
    cdef uint32_t i
    w.has_runs = False
    for i in range(w.lines):
        other = &w.line[i]
        if other == line or other.run.claim != CLAIM_AHEAD:
            run_refute(&other.run)
        if other == line or other.foreign.claim == CLAIM_ENDED:
            run_refute(&other.foreign)
        if other.run.mode == RUN_PROVING or other.foreign.mode == RUN_PROVING:
            w.has_runs = True


cdef inline uint64_t runs_gather(
    Window* w, Run* run, uint64_t number, uint64_t* unseen_from,
) noexcept nogil:
    # All lines' runs of this numbering are believed, others forgotten. Returns the earliest
    # number kept, or this one, and makes `unseen_from` the earliest one that came at all.
    cdef KeptUnit* kept
    cdef Run* other
    cdef uint64_t first = number
    cdef uint32_t line, i
    cdef uint8_t claim = run.claim
    for line in range(w.lines):
        other = line_claims(&w.line[line], claim)
        if not run_is_same(run, other):
            continue
        if run_step(run, run_first(other), unseen_from[0]) < 0:
            unseen_from[0] = run_first(other)
        for i in range(run_kept_count(other)):
            kept = run_kept(other, i)
            if run_is_copy(other, kept):
                continue
            if run_step(run, kept.unit.number, first) < 0:
                first = kept.unit.number
    for line in range(w.lines):
        other = line_claims(&w.line[line], claim)
        if run_is_same(run, other):
            continue
        if run_leads_to(other, run, unseen_from[0]):
            unseen_from[0] = run_first(other)
        run_forget(other)
    for line in range(w.lines):
        other = line_claims(&w.line[line], claim)
        if other.claim != CLAIM_NONE:
            run_believe(other)
    return first
