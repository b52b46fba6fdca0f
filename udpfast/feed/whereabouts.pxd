# Where a unit or a run lies, seen from the numberings that a stream has had: the questions that
# `numbering` asks before it decides.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.core.counter cimport VERDICT_LATE
from udpfast.feed.lines cimport line_advances, line_spoke_ns
from udpfast.feed.pace cimport pace_is_quiet, pace_since, pace_takes_ns
from udpfast.feed.pipeline_state cimport Pipeline
from udpfast.feed.proof cimport STRAGGLER_MAX_NS
from udpfast.feed.run cimport (
    BYTES_EMPTY, BYTES_NEW, BYTES_OTHER, BYTES_SAME, CLAIM_AHEAD, CLAIM_BACK, RUN_BACK_MAX,
    RUN_PROVING, Evidence, Run, number_step, run_follows, run_is_replay, run_note, run_span,
)
from udpfast.feed.weighed cimport Located
from udpfast.feed.window cimport window_accepted_ns, window_is_before, window_is_delivered
from udpfast.feed.window_state cimport (
    WINDOW_FOREIGN, WINDOW_PACE, WINDOW_START, LineAccount, Numbering, Slot, Window,
    window_furthest, window_slot, window_span, window_unwrap,
)
from udpfast.wire.unit cimport Unit

cdef enum:
    # Publishers number from 1. What lies further ahead than this and begins so near to 0 did not
    # lose thousands of messages to arrive just there.
    ANEW_SEQNO_MAX = 64
    ANEW_AHEAD_MIN = 8192


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
    cdef const Run* run = &line.run
    if e.bytes >= BYTES_NEW or e.filled:
        return False
    return (
        run.total and not run_is_replay(run) and not run_follows(run, CLAIM_BACK, unit)
        and w.numbering.base <= line.highest
        and line.highest <= window_unwrap(w, unit.number) + run_span(run, RUN_BACK_MAX)
    )


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


cdef inline bint numbering_is_previous(
    const Window* w, uint64_t number, int64_t back, int64_t now_ns,
) noexcept nogil:
    # Within a window behind where the numbering before a restart with the same id was left, or so
    # far before.
    cdef int64_t ahead = number_step(number, w.numbering.previous_next, w.shift)
    return now_ns < w.numbering.previous_until_ns and -back <= ahead <= w.size


cdef inline bint numbering_is_straggler(
    const Pipeline* p, const Window* w, const Unit* unit, int64_t now_ns,
) noexcept nogil:
    # Right after a restart with the same id, a snapshot near the old numbers may be of the old
    # numbering: it must not set the new one's base.
    return (
        w.numbering.follows and now_ns - p.window.numbering.begun_ns < STRAGGLER_MAX_NS
        and numbering_is_previous(w, unit.number, w.size, now_ns)
    )


cdef inline bint numbering_is_foreign(
    const Window* w, const LineAccount* line, const Unit* unit, int64_t at,
) noexcept nogil:
    # Ahead of the window: too far for a jump, or numbers that began anew behind the wrap?
    cdef const Run* run = &line.run
    if run_follows(run, CLAIM_AHEAD, unit):
        return False
    if at >= w.next + WINDOW_FOREIGN or run_follows(run, CLAIM_BACK, unit):
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
    return first <= window_furthest(w) and pace_since(w, first) < WINDOW_START


cdef inline bint window_is_doubtful(const Window* w) noexcept nogil:
    # Behind gaps so recent that the little which followed them may not be of the feed. What counts
    # is what came, not how far ahead of the next hole it lies. Small ones are common loss; if they
    # were forged, the feed passes them before that could be noticed.
    cdef const Numbering* n = &w.numbering
    return (
        w.next - n.resumed_at + w.pending < window_span(w, WINDOW_START)
        and n.resumed_at - n.fork_from - n.fork_came >= window_span(w, WINDOW_START)
    )


cdef inline int64_t window_left_at(const Window* w) noexcept nogil:
    # Where the current numbering goes on, if it does.
    return w.numbering.fork_from if window_is_doubtful(w) else w.next
