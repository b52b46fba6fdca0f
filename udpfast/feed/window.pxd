# The window of one stream: arbitration between lines, reassembly of fragments and reorder ask one
# truth, the slot of a number. Here is that truth, and what it says of a unit: which lines brought
# a message, in which order, whether they agree. `window_order` is about what waits. A unit here is
# one message, or a fragment of one: of a unit with several, the pipeline hands in each.
#
#        next - size                    next                            next + size
#   -----------|--------------------------|---------------------------------|-----------
#    forgotten |  delivered, or LOST      |  nothing, PARTIAL or WHOLE      |  too far ahead
#
# Numbers become keys of 64 bits at the door (window_unwrap: RFC 1982 with as many bits as they
# have), so that no comparison behind it can wrap, and every numbering starts behind a fresh
# multiple of 2^32, so that a slot's key alone says whether it belongs to this numbering. The low
# half of a key is that of the number.

from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    CHANNEL_DISAGREEMENTS, LINE_DISAGREEMENTS, LINE_LEADS, LINE_LEAD_NS, LINE_LOSSES,
    LINE_TIES_LOST, VERDICT_DUPLICATE, VERDICT_FRAGMENT_MAX_CHANGED, VERDICT_LATE, VERDICT_REPLAY,
)
from udpfast.core.layout cimport KIND_DISAGREEMENT, Datagram
from udpfast.feed.control cimport Control, ControlQueue, control_push
from udpfast.feed.candidate cimport (
    CLAIM_AHEAD, CLAIM_OLD_ID, EVIDENCE_NEUTRAL, EVIDENCE_NEW, EVIDENCE_NONE, EVIDENCE_OTHER,
    EVIDENCE_REPEATED, EVIDENCE_SAME, Candidate, Packing, candidate_refute, number_step,
)
from udpfast.feed.line cimport Line, line_spoke_ns, line_steps_back
from udpfast.feed.named cimport NamedQueue
from udpfast.feed.session cimport SessionBook
from udpfast.feed.slab cimport Slab
from udpfast.wire.unit cimport UNIT_HEARTBEAT, UNIT_SNAPSHOT, Unit

cdef enum:
    WINDOW_EARLY = 8             # messages that loss and reordering cut off a session's beginning
    WINDOW_START = 64            # fingerprints of a session's first messages that are kept
    # The pace of a numbering is measured by so many datagrams at a time (of Roq: messages). Longer
    # than they take, and it is quieter than it used to be: few enough to see that soon, and that a
    # burst is not a pace.
    WINDOW_PACE = 8
    WINDOW_PACE_UNKNOWN_NS = 50000000
    WINDOW_FORK_MAX = 256        # datagrams between gaps: so many are a feed with loss
    WINDOW_JUDGE_MAX = 256       # messages whose losses are counted per turn, at most
    FRAGMENTS_NONE = 0x7FFFFFFF  # this slot's fragments are not (or no longer) told apart
    # 2^30: further ahead is no jump (18 minutes of a million messages a second) but another
    # numbering, and unwrapping stays unambiguous.
    WINDOW_FOREIGN = 1073741824

cdef enum:  # SlotState
    SLOT_PARTIAL = 1
    SLOT_WHOLE = 2
    SLOT_DELIVERED = 3
    SLOT_LOST = 4

cdef struct Slot:                # 32 bytes; what is kept for `size` seqnos behind and ahead
    int64_t key                  # unwrapped seqno
    int64_t received_ns          # first receipt of its first datagram
    uint32_t hash                # of its only fragment
    uint32_t fragments           # index of its Fragment run, or FRAGMENTS_NONE
    uint32_t cell                # of its only fragment; DELIVERED: its object instead
    uint8_t state
    uint8_t fragment_max
    uint8_t line                 # that brought the only fragment first, or completed the message
    uint8_t lines                # bit mask: the lines that brought any of it

cdef struct Early:               # 64 bytes; only for what waits: [next, next + size)
    int64_t seen_ns              # when it came; later: when its latest fragment came
    int64_t frontier_ns          # when it became the furthest so far
    int64_t sent_ns              # these as its unit has them
    uint64_t detail
    uint32_t object
    uint32_t unit_flags
    uint16_t final_size          # payload bytes of the last fragment
    uint16_t flags               # RecordFlag
    uint16_t arrived             # fragments that are there
    uint8_t other_line           # + 1: brought other bytes for one of its fragments; 0: none did
    uint8_t other_fragment
    uint32_t other_hash
    uint32_t other_object        # of the other bytes
    bint frontier                # it was the furthest when it came

cdef struct Fragment:            # 24 bytes
    int64_t came_ns              # by the loop's clock
    uint32_t hash
    int32_t delay_ns             # its first receipt, after the message's
    uint32_t cell
    uint8_t present
    uint8_t line                 # that brought it first
    uint8_t lines
    uint8_t frontier             # it was the furthest when it came

cdef struct FragmentRun:         # 24 bytes: precedes the Fragments of one message
    int64_t key                  # of its slot; 0: padding at the end of the ring
    uint32_t count
    uint16_t head                # the first one that is missing
    uint16_t end                 # behind the furthest that came
    int64_t passed_ns            # when one behind `head` came; INT64_MAX: none did

cdef struct Window:
    # what every datagram reads: two cache lines, of as many windows as there are streams
    int64_t next                 # the key to deliver next
    int64_t mask                 # of slots: 2 * size - 1
    uint64_t session_id          # as published; of Roq's snapshot window that of the other one
    uint64_t zero                # a number less its key; of 32 bits: the 0 of its first circle
    uint32_t pending             # messages that wait, whole or partial
    uint16_t stream              # ordinal, as records carry it
    uint16_t session             # ordinal, as records carry it
    bint contested               # a line may hold evidence against the numbering at hand
    bint started                 # `next` is set: this numbering's first datagram came
    bint several                 # more than one line
    bint connected               # CONNECTION READY was said
    bint latest_run              # on_gap
    uint8_t channel              # whose lines
    uint8_t shift                # as a Candidate's
    Slot* slots
    int64_t* counters            # of core/counter's ChannelCounter
    int64_t milestone            # from this seqno on, window_pass_milestone has something to do
    int64_t judged               # losses are counted of what lies before
    int64_t forward_ns           # when this numbering last went on, on any line
    int64_t begun_sent_ns        # when its first unit was sent
    int64_t sent_ns              # the latest sending time of what was accepted
    # what waits
    int64_t size
    int64_t highest              # furthest seqno that waits; valid while pending > 0
    int64_t decided              # holes before this one are lost
    int64_t decide_frontier      # cache of window_hole_seen, for each of those who ask
    int64_t gap_frontier
    int64_t resumed_at           # what follows the last gap
    int64_t fork_from            # first seqno of the gaps since which little came in one piece
    int64_t fork_came            # what was delivered between these gaps
    int64_t jump_from            # a datagram beyond the window: the first of its run
    int64_t start_end            # base + WINDOW_START
    int64_t pace_at              # the seqno that ends the messages which are being timed
    uint32_t pace_left           # not Roq: so many datagrams end them
    bint pace_known              # not Roq: a pace was measured
    bint each_datagram           # Roq: each datagram takes a number, or a part of one
    int64_t pace_from
    int64_t pace_from_ns
    int64_t pace_ns              # the longest of late that WINDOW_PACE messages took
    int64_t judge_until          # what was delivered by judge_ns
    int64_t judge_ns
    int64_t base                 # first key of this numbering
    int64_t origin               # ... and of all that it resumed
    int64_t begun_ns
    int64_t named                # the furthest that a heartbeat named as the next one
    int64_t opening_ns           # a session that is proven begins by then; INT64_MAX: none waits
    int64_t interval
    int64_t wait_ns
    int64_t silence_ns           # a message whose rest does not come is given up after this long
    int64_t line_dead_ns
    uint32_t decided_reason      # GapReason
    bint finishing               # input ended: latest_run is suspended
    uint32_t lines
    uint32_t stream_key          # what the publisher calls the stream
    uint32_t fragments_capacity
    uint64_t fragments_head      # positions in the ring of fragments; they only grow
    uint64_t fragments_tail
    Early* early
    Fragment* fragments
    uint8_t* scratch             # MESSAGE_SIZE_MAX: the message at `next`, in its final place
    ControlQueue* controls
    SessionBook* book            # Roq's two windows share one
    Window* follower             # Roq's snapshot window, which has the sessions of this one
    bint follows                 # this is one
    bint busy                    # in the pipeline's list of those to look at in take()
    Window* busy_next
    # the numbering before a restart with the same id: its stragglers must not look like a jump
    uint64_t previous_next
    int64_t previous_until_ns
    Slab* slab                   # Roq's windows have one each, others share one
    bint slab_shared
    uint32_t start_hash[64]      # WINDOW_START
    uint64_t start_known
    Packing packing
    Line line[8]                 # LINES_MAX
    NamedQueue names             # when heartbeats named which, while what lies before is missing


# --- numbers -------------------------------------------------------------------------------------

cdef inline uint64_t window_number(const Window* w, int64_t key) noexcept nogil:
    # As records carry it: the publisher's, and on beyond its wraps.
    return <uint64_t>key - w.zero


cdef inline int64_t window_unwrap(const Window* w, uint64_t number) noexcept nogil:
    cdef int64_t step = number_step(number, window_number(w, w.next), w.shift)
    # Beyond 2^40 all is equally far. (A constant of 64 bits would widen its whole enumeration.)
    if unlikely(step > <int64_t>1 << 40):
        step = <int64_t>1 << 40
    elif unlikely(step < -(<int64_t>1 << 40)):
        step = -(<int64_t>1 << 40)
    return w.next + step


cdef inline Slot* window_slot(Window* w, int64_t key) noexcept nogil:
    return &w.slots[key & w.mask]


cdef inline Early* window_early(Window* w, int64_t key) noexcept nogil:
    return &w.early[key & (w.mask >> 1)]


cdef inline bint window_is_whole(Window* w, int64_t key) noexcept nogil:
    cdef Slot* slot = window_slot(w, key)
    return slot.key == key and slot.state == SLOT_WHOLE


cdef inline int64_t window_furthest(const Window* w) noexcept nogil:
    # The furthest seqno that was accepted.
    return w.highest if w.pending else w.next - 1


cdef inline bint window_is_filled_by(Window* w, const Line* line) noexcept nogil:
    # Whether the message at `next`, behind which others wait, is simply late on its line.
    return window_slot(w, w.next).key != w.next and not line_steps_back(line, w.next)


cdef inline bint window_is_copy(Window* w, const Unit* unit, int64_t at) noexcept nogil:
    # Whether this fragment of a message of [next, next + size) is there.
    cdef const Slot* slot = window_slot(w, at)
    if slot.key != at:
        return False
    if slot.fragment_max != unit.fragments - 1:
        return True
    if slot.fragment_max == 0:
        return slot.state == SLOT_WHOLE
    return w.fragments[slot.fragments + unit.fragment].present


cdef inline void window_start(Window* w, uint64_t number, int64_t now_ns) noexcept nogil:
    # The first unit of a numbering sets its base.
    w.base = (((w.next >> 32) + 4) << 32) | <uint32_t>number
    w.zero = <uint64_t>w.base - number
    w.next = w.base
    w.origin = w.base
    w.named = w.base
    w.names.count = 0
    w.begun_sent_ns = 0
    w.sent_ns = 0
    w.decided = w.base
    w.decide_frontier = 0
    w.gap_frontier = 0
    w.resumed_at = w.base
    w.fork_from = w.base
    w.fork_came = 0
    w.milestone = w.base
    w.start_end = w.base + WINDOW_START
    w.start_known = 0
    w.pace_at = w.base + WINDOW_PACE if w.each_datagram else INT64_MAX
    w.pace_left = WINDOW_PACE + 1        # the first one begins them
    w.pace_known = False
    w.pace_from = w.base
    w.pace_from_ns = now_ns
    w.pace_ns = 0
    w.judged = w.base
    w.judge_until = w.base
    w.begun_ns = now_ns
    w.forward_ns = now_ns
    w.started = True
    w.finishing = False


# --- pace -----------------------------------------------------------------------------------------

cdef inline void window_pass_milestone(
    Window* w, int64_t at, uint32_t hash, int64_t now_ns,
) noexcept nogil:
    # The first messages of a numbering are remembered; then time is taken now and again.
    if at < w.start_end:
        w.start_hash[at - w.base] = hash
        w.start_known |= <uint64_t>1 << (at - w.base)
    if at >= w.pace_at:
        window_time_pace(w, now_ns)
        w.pace_from = at
        w.pace_at = at + WINDOW_PACE
    w.milestone = w.pace_at if at + 1 >= w.start_end else w.base


cdef inline void window_time_pace(Window* w, int64_t now_ns) noexcept nogil:
    cdef int64_t took_ns = now_ns - w.pace_from_ns
    if took_ns < w.pace_ns:              # what took long is forgotten over some dozens
        took_ns = w.pace_ns - ((w.pace_ns - took_ns) >> 4)
    w.pace_ns = took_ns
    w.pace_from_ns = now_ns


cdef inline void window_count_datagram(
    Window* w, uint32_t numbers, int64_t now_ns,
) noexcept nogil:
    # Not Roq: a unit of a datagram carried the numbering further.
    cdef Packing* packing = &w.packing
    if likely(packing.counted != packing.datagram):
        packing.counted = packing.datagram
        w.pace_left -= 1
        if unlikely(w.pace_left == 0):
            window_time_pace(w, now_ns)
            w.pace_left = WINDOW_PACE
            w.pace_known = True
            packing.wide = max(packing.widest, packing.wide - (packing.wide >> 4), 1)
            packing.widest = 0
    else:
        numbers += packing.numbers
    packing.numbers = numbers
    if unlikely(numbers > packing.widest):
        packing.widest = numbers
        if numbers > packing.wide:
            packing.wide = numbers


cdef inline int64_t window_span(const Window* w, int64_t datagrams) noexcept nogil:
    # How many numbers so many datagrams of this stream may take.
    return datagrams * w.packing.wide


cdef inline int64_t window_pace(const Window* w) noexcept nogil:
    # How long WINDOW_PACE datagrams of the numbering at hand used to take.
    cdef int64_t pace_ns = w.forward_ns - w.pace_from_ns
    cdef int64_t steps = window_furthest(w) - w.pace_from
    cdef bint known = w.pace_from != w.base
    if not w.each_datagram:
        steps = WINDOW_PACE - w.pace_left        # behind the first one
        known = w.pace_known
    if w.pace_ns > pace_ns:
        return w.pace_ns
    if not known:                        # not one measured yet; what was held came all at once
        if steps <= 0 or pace_ns <= 0:
            return WINDOW_PACE_UNKNOWN_NS
        return pace_ns * WINDOW_PACE // steps
    return pace_ns


cdef inline int64_t window_takes_ns(const Window* w, int64_t numbers) noexcept nogil:
    # How long so many numbers take, at the pace of the current numbering.
    return window_pace(w) // WINDOW_PACE * (numbers // w.packing.wide)


cdef inline bint window_is_quiet(
    const Window* w, int64_t datagrams, int64_t now_ns,
) noexcept nogil:
    # Has the numbering at hand stopped? Measured against its own pace: a replay into a feed that
    # is alive is interrupted before, whatever the feed's rate.
    return (now_ns - w.forward_ns) * WINDOW_PACE >= window_pace(w) * datagrams


cdef inline bint window_is_doubtful(const Window* w) noexcept nogil:
    # Behind gaps so recent that the little which followed them may not be of the feed. What counts
    # is what came, not how far ahead of the next hole it lies. Small ones are common loss; if they
    # were forged, the feed passes them before that could be noticed.
    return (
        w.next - w.resumed_at + w.pending < window_span(w, WINDOW_START)
        and w.resumed_at - w.fork_from - w.fork_came >= window_span(w, WINDOW_START)
    )


cdef inline int64_t window_left_at(const Window* w) noexcept nogil:
    # Where the numbering at hand goes on, if it does.
    return w.fork_from if window_is_doubtful(w) else w.next


# --- accounts of the lines ----------------------------------------------------------------------

cdef inline bint window_line_is_alive(
    const Window* w, const Line* line, int64_t now_ns,
) noexcept nogil:
    return line.highest != INT64_MIN and now_ns - line_spoke_ns(line) <= w.line_dead_ns


cdef inline uint32_t window_awaited(const Window* w, int64_t now_ns) noexcept nogil:
    # From which lines what they have not come to yet may still come: those that are alive, or were
    # not heard since the numbering began a moment ago.
    cdef const Line* line
    cdef int64_t since_ns
    cdef uint32_t awaited = 0
    cdef uint32_t i
    for i in range(w.lines):
        line = &w.line[i]
        since_ns = w.begun_ns if line.highest == INT64_MIN else line_spoke_ns(line)
        if now_ns - since_ns <= w.line_dead_ns:
            awaited |= <uint32_t>1 << i
    return awaited


cdef inline uint32_t window_may_bring(
    const Window* w, uint32_t lines, int64_t at,
) noexcept nogil:
    # Those of these lines that have not come as far as this seqno yet.
    cdef uint32_t i = 0
    cdef uint32_t found = 0
    while lines >> i:
        if (lines >> i) & 1 and w.line[i].highest <= at:
            found |= <uint32_t>1 << i
        i += 1
    return found


cdef inline void window_blame(Window* w, uint32_t lines) noexcept nogil:
    # These lines never brought a single datagram of a message that another one did.
    cdef uint32_t i = 0
    while lines:
        if lines & 1:
            counter_add(&w.line[i].counters[LINE_LOSSES], 1)
        lines >>= 1
        i += 1


cdef inline void window_judge_until(
    Window* w, int64_t until, int64_t now_ns, bint last,
) noexcept nogil:
    # Count the losses of what lies before `until`: each message once, and none that may still come.
    # For that it waits, unless this is its `last` time: then nobody is blamed.
    cdef uint32_t all_lines = (<uint32_t>1 << w.lines) - 1
    cdef uint32_t missing, coming
    cdef uint32_t awaited = 0
    cdef bint asked = False
    cdef int64_t at = w.judged
    cdef Slot* slot
    while at < until:
        slot = window_slot(w, at)
        missing = all_lines & ~<uint32_t>slot.lines
        if unlikely(missing) and slot.key == at and slot.state == SLOT_DELIVERED:
            if not asked:
                awaited = window_awaited(w, now_ns)
                asked = True
            coming = window_may_bring(w, missing & awaited, at)
            if coming and not last:
                break
            window_blame(w, missing & ~coming)
        at += 1
    w.judged = at


cdef inline void window_judge_past(Window* w, int64_t at) noexcept nogil:
    # The slot of `at` is needed: what it remembers is judged, and, since a call costs more than
    # the few behind it, those too. They are older than any copy that would count.
    if w.several and unlikely(at - w.judged > w.mask):
        window_judge_until(w, at - w.mask + (w.size >> 7), w.forward_ns, True)


cdef inline void window_judge_due(Window* w, int64_t now_ns) noexcept nogil:
    # Once per turn: losses of what was delivered a wait ago, so that all lines had their time.
    cdef int64_t until = w.judge_until
    if not w.several or not w.started:
        return
    if w.judged < until:
        if now_ns - w.judge_ns >= w.wait_ns:
            if until - w.judged > WINDOW_JUDGE_MAX:
                until = w.judged + WINDOW_JUDGE_MAX
            window_judge_until(w, until, now_ns, False)
    elif w.judge_until < w.next:
        w.judge_until = w.next
        w.judge_ns = now_ns


cdef inline void window_note_lagging(
    Window* w, Line* line, uint8_t index, int64_t before, int64_t first, int64_t last,
) noexcept nogil:
    # A line further behind than copies are told goes on with these seqnos. It brought them, as far
    # as slots are left to say so; of what was judged before, its own numbers tell what it lost.
    cdef int64_t judged = min(first, w.judged)
    cdef Slot* slot
    if w.several and w.base <= before < judged - 1:
        counter_add(&line.counters[LINE_LOSSES], judged - 1 - before)
    while first <= last:
        slot = window_slot(w, first)
        if slot.key == first:
            slot.lines |= <uint8_t>(1 << index)
        first += 1


cdef inline void window_judge_end(Window* w) noexcept nogil:
    # The numbering ends: a line is blamed for what it has passed, not for what was still to come.
    cdef Slot* slot
    cdef uint32_t i
    if not w.several or not w.started:
        return
    while w.judged < w.next:
        slot = window_slot(w, w.judged)
        if slot.key == w.judged and slot.state == SLOT_DELIVERED:
            for i in range(w.lines):
                if not (slot.lines >> i) & 1 and w.line[i].highest > slot.key:
                    counter_add(&w.line[i].counters[LINE_LOSSES], 1)
        w.judged += 1


cdef inline void window_refute(Window* w, Line* line) noexcept nogil:
    # The numbering at hand is alive, on this line: what lines hold of another one has yet to prove
    # itself. A session never heard of, and a jump, are the business of their own line.
    cdef Line* other
    cdef uint32_t i
    w.contested = False
    for i in range(w.lines):
        other = &w.line[i]
        if other == line or other.candidate.claim != CLAIM_AHEAD:
            candidate_refute(&other.candidate)
        if other == line or other.foreign.claim == CLAIM_OLD_ID:
            candidate_refute(&other.foreign)
        if other.candidate.count or other.foreign.count:
            w.contested = True


cdef inline int64_t window_passed(const Window* w, int64_t now_ns) noexcept nogil:
    # How far all live lines have come.
    cdef int64_t passed = INT64_MAX
    cdef uint32_t i
    for i in range(w.lines):
        if window_line_is_alive(w, &w.line[i], now_ns) and w.line[i].highest < passed:
            passed = w.line[i].highest
    return passed if passed != INT64_MAX else w.next


cdef inline int64_t window_accepted_ns(const Window* w, int64_t at) noexcept nogil:
    # When this seqno came first; of one from before the numbering's first, when that came.
    cdef const Slot* slot = &w.slots[at & w.mask]
    return slot.received_ns if slot.key == at else w.begun_ns


cdef inline bint window_is_delivered(Window* w, int64_t at) noexcept nogil:
    cdef const Slot* slot = window_slot(w, at)
    return slot.key == at and slot.state == SLOT_DELIVERED


cdef inline bint window_is_before(const Window* w, const Slot* slot, int64_t at) noexcept nogil:
    # Whether a slot still knows this seqno of the numbering before the one at hand.
    return slot.key < w.base and <uint32_t>slot.key == <uint32_t>at


cdef inline int window_evidence_before(
    Window* w, const Unit* unit, int64_t at, uint32_t hash,
) noexcept nogil:
    # What a datagram near where the numbering before was left tells: one of its stragglers is what
    # it delivered, byte for byte. Of messages in fragments no bytes are remembered.
    cdef const Slot* slot = window_slot(w, at)
    if not window_is_before(w, slot, at) or slot.state != SLOT_DELIVERED:
        return EVIDENCE_NEW
    if unit.fragments > 1 or slot.fragment_max:
        return EVIDENCE_NONE if unit.fragments - 1 == slot.fragment_max else EVIDENCE_OTHER
    return window_compare(unit, slot.hash, hash, False)


cdef inline bint window_is_unproven(const Window* w, const Unit* unit) noexcept nogil:
    # A snapshot that came while two runs contended, where snapshots are rare: who believes it
    # believes nothing else, and nobody can tell whose it is.
    return not w.follows and unit.flags & UNIT_SNAPSHOT


cdef inline bint window_was_other(
    Window* w, const Unit* unit, int64_t at, uint32_t hash,
) noexcept nogil:
    # Whether the numbering before this one delivered other bytes for a seqno, for all we know.
    cdef const Slot* slot = window_slot(w, at)
    return (
        window_is_before(w, slot, at) and slot.state == SLOT_DELIVERED
        and (unit.fragments > 1 or slot.fragment_max or slot.hash != hash)
    )


cdef inline void window_dispute(
    Early* early, const Datagram* d, const Unit* unit, uint32_t hash_other,
) noexcept nogil:
    # To be said behind the message that waits.
    early.other_hash = hash_other
    early.other_object = unit.object
    early.other_fragment = <uint8_t>unit.fragment
    early.other_line = <uint8_t>(d.line + 1)


cdef inline void window_disagree(
    Window* w, const Slot* slot, const Datagram* d, const Unit* unit, uint8_t line_first,
    uint32_t hash_first, uint32_t hash_other,
) noexcept nogil:
    # Nobody can tell which of them is the publisher's: the objects of both are in doubt, and each
    # of them gets a record, behind the message that it is about. One that is given up instead needs
    # none: the gap puts all objects in doubt.
    cdef Early* early = window_early(w, slot.key)
    counter_add(&w.line[d.line].counters[LINE_DISAGREEMENTS], 1)
    counter_add(&w.counters[CHANNEL_DISAGREEMENTS], 1)
    if slot.state == SLOT_DELIVERED:
        window_say_both(
            w, slot.cell, unit.object, d.received_ns, slot.key, <uint8_t>unit.fragment, line_first,
            d.line, hash_first, hash_other)
        return
    if early.other_line and early.other_object != unit.object:
        window_say_disagreement(         # no room for a third one
            w, early.other_object, d.received_ns, slot.key, early.other_fragment, line_first,
            early.other_line - 1, hash_first, early.other_hash)
    window_dispute(early, d, unit, hash_other)


cdef inline void window_say_both(
    Window* w, uint32_t first, uint32_t other, int64_t received_ns, int64_t key, uint8_t fragment,
    uint8_t line_first, uint8_t line_other, uint32_t hash_first, uint32_t hash_other,
) noexcept nogil:
    window_say_disagreement(
        w, first, received_ns, key, fragment, line_first, line_other, hash_first, hash_other)
    if other != first:
        window_say_disagreement(
            w, other, received_ns, key, fragment, line_first, line_other, hash_first, hash_other)


cdef inline void window_say_disagreement(
    Window* w, uint32_t object_key, int64_t received_ns, int64_t key, uint8_t fragment,
    uint8_t line_first, uint8_t line_other, uint32_t hash_first, uint32_t hash_other,
) noexcept nogil:
    cdef Control* control = window_control(w, KIND_DISAGREEMENT)
    if control == NULL:
        return
    control.line = line_other
    control.received_ns = received_ns
    control.number = window_number(w, key)
    control.object_key = object_key
    control.size = sizeof(control.payload.disagreement)
    control.payload.disagreement.number = control.number
    control.payload.disagreement.fragment = fragment
    control.payload.disagreement.line_first = line_first
    control.payload.disagreement.line_other = line_other
    control.payload.disagreement.hash_first = hash_first
    control.payload.disagreement.hash_other = hash_other


cdef inline Control* window_control(Window* w, uint16_t kind) noexcept nogil:
    # Something to say of this stream; NULL: too much waits to be said.
    cdef Control* control = control_push(w.controls)
    if control != NULL:
        control.kind = kind
        control.channel = w.channel
        control.stream = w.stream
        control.session = w.session
        control.session_id = w.session_id
    return control


cdef inline int window_copy(
    Window* w, Slot* slot, const Datagram* d, const Unit* unit, uint32_t hash,
) noexcept nogil:
    # A further copy of a fragment: the race between the lines, and whether it is one. Returns
    # Evidence. A line is compared with the first copy once, and the line that brought it always: of
    # a forged one that came first, the true one is but a repetition on the same line.
    cdef Fragment* fragment
    cdef uint8_t bit = <uint8_t>(1 << d.line)
    cdef uint8_t lines, line_first
    cdef uint32_t hash_first
    cdef int64_t lead_ns = d.received_ns - slot.received_ns
    if slot.fragment_max == 0:
        lines = slot.lines
        line_first = slot.line
        hash_first = slot.hash
    else:
        slot.lines |= bit
        if slot.fragments == FRAGMENTS_NONE:
            return EVIDENCE_NEW
        fragment = &w.fragments[slot.fragments + unit.fragment]
        lines = fragment.lines
        line_first = fragment.line
        hash_first = fragment.hash
        lead_ns -= fragment.delay_ns
        fragment.lines |= bit
    if not lines & bit:
        slot.lines |= bit
        counter_add(&w.line[d.line].counters[LINE_TIES_LOST], 1)
        if not lines & (lines - 1):          # the second line to bring it
            # Negative where the stamps of two NICs contradict the order.
            counter_add(&w.line[line_first].counters[LINE_LEADS], 1)
            counter_add(&w.line[line_first].counters[LINE_LEAD_NS], lead_ns)
    elif d.line != line_first:
        return window_compare(unit, hash_first, hash, True)
    if unlikely(hash != hash_first):
        window_disagree(w, slot, d, unit, line_first, hash_first, hash)
    return window_compare(unit, hash_first, hash, lines & bit)


# --- what is behind -----------------------------------------------------------------------------

cdef inline int window_compare(
    const Unit* unit, uint32_t hash_known, uint32_t hash, bint repeated,
) noexcept nogil:
    if hash != hash_known:
        return EVIDENCE_OTHER
    if unit.size:
        return EVIDENCE_SAME
    return EVIDENCE_REPEATED if repeated else EVIDENCE_NEUTRAL


cdef inline int window_past(
    Window* w, const Datagram* d, const Unit* unit, int64_t at, uint32_t hash, int* evidence,
) noexcept nogil:
    # The verdict on a seqno before `next`, and whether we know this very datagram.
    cdef Slot* slot = window_slot(w, at)
    evidence[0] = EVIDENCE_NEW
    if at < w.base or w.next - at > w.size:
        if at >= w.base and at < w.start_end and unit.fragment == 0:
            if (w.start_known >> (at - w.base)) & 1:
                evidence[0] = window_compare(unit, w.start_hash[at - w.base], hash, True)
        elif w.base - WINDOW_EARLY <= at < w.base and unit.flags & UNIT_HEARTBEAT:
            evidence[0] = EVIDENCE_NEUTRAL   # the first that came was not the first sent
        return VERDICT_REPLAY
    if slot.key != at or slot.state != SLOT_DELIVERED:
        return VERDICT_LATE
    if slot.fragment_max != unit.fragments - 1:
        window_disagree(w, slot, d, unit, slot.line, slot.hash, hash)
        evidence[0] = EVIDENCE_OTHER
        return VERDICT_FRAGMENT_MAX_CHANGED
    evidence[0] = window_copy(w, slot, d, unit, hash)
    return VERDICT_DUPLICATE
