# The window of one channel: arbitration between lines, reassembly of fragments and reorder ask one
# truth, the slot of a seqno. One window knows
#
#        next - size                    next                            next + size
#   -----------|--------------------------|---------------------------------|-----------
#    forgotten |  delivered, or LOST      |  nothing, PARTIAL or WHOLE      |  too far ahead
#
# Seqnos are unwrapped to 64 bits at the door (window_unwrap: RFC 1982 with 32 bits), so that no
# comparison behind it can wrap, and every numbering starts at a fresh multiple of 2^32, so that a
# slot's key alone says whether it belongs to this numbering. The low half of a key is the seqno.
#
# A HOLE is a run of seqnos that are not whole. It is first seen when something behind it arrives;
# an incomplete message with nothing behind it is a hole since its latest fragment. Holes are
# declared lost by two criteria, whichever is met first (seed 003):
#   time    lost_packet_wait has passed since the hole was first seen. Each hole for itself: that
#           one is lost says nothing about the next, which another line may be about to fill.
#   count   an arriving seqno exceeds last accepted + interval, on every live line. Then every hole
#           is lost that all live lines have passed. A line that brought nothing for line_dead_ns
#           is not waited for: else one dead line would switch this criterion off.
# A jump that the window cannot span, or a slab without a free cell, forces the oldest hole
# (GAP_WINDOW_FULL): what waited longest is the least likely to come, and giving it up frees most.

from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    CHANNEL_DISAGREEMENTS, CHANNEL_DISREGARDED, CHANNEL_FRAGMENTED, CHANNEL_GAPS,
    CHANNEL_GAPS_BY_COUNT, CHANNEL_GAPS_BY_TIME, CHANNEL_GAPS_WINDOW_FULL, CHANNEL_HEARTBEATS,
    CHANNEL_INCOMPLETE, CHANNEL_LOST, CHANNEL_MESSAGES, LINE_DISAGREEMENTS, LINE_LEAD_NS,
    LINE_LEADS, LINE_LOSSES, LINE_TIES_LOST, LINE_WINS, VERDICT_DUPLICATE,
    VERDICT_FRAGMENT_MAX_CHANGED, VERDICT_HELD, VERDICT_LATE, VERDICT_REPLAY,
    VERDICT_SESSION_RETIRED, VERDICT_SLAB_FULL,
)
from udpfast.core.layout cimport (
    DATAGRAM_NO_TIMESTAMP, FRAGMENT_SIZE, FRAME_SIZE, GAP_COUNT, GAP_TIME, GAP_WINDOW_FULL,
    KIND_DISAGREEMENT, KIND_MESSAGE, LINES_MAX, RECORD_HEARTBEAT, RECORD_NO_TIMESTAMP,
    RECORD_SNAPSHOT, Datagram, Frame, Gap, Message,
)
from udpfast.feed.control cimport Control, ControlQueue, control_push
from udpfast.feed.frame cimport FRAME_SNAPSHOT, FrameReader
from udpfast.feed.line cimport (
    KNOWN_OTHER, KNOWN_SAME, KNOWN_UNKNOWN, Line, line_reset, line_trust,
)
from udpfast.feed.slab cimport (
    CELL_NONE, CELL_SCRATCH, Slab, slab_cell, slab_give, slab_reset, slab_take,
)

cdef enum:
    WINDOW_START = 64            # fingerprints of a session's first messages that are kept
    FRAGMENTS_NONE = 0x7FFFFFFF  # this slot's fragments are not (or no longer) told apart
    WINDOW_PARK = -1             # window_hold: no cell; take first, then try again
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
    uint32_t cell                # of its only fragment
    uint8_t state
    uint8_t fragment_max
    uint8_t line                 # that brought the only fragment first, or completed the message
    uint8_t lines                # bit mask: the lines that brought any of it

cdef struct Early:               # 40 bytes; only for what waits: seqnos [next, next + size)
    int64_t seen_ns              # when it came; later: when its latest fragment came
    int64_t frontier_ns          # when it became the furthest seqno so far
    uint32_t last_seqno
    uint16_t object_id
    uint16_t final_size          # payload bytes of the last fragment
    uint16_t flags               # RecordFlag
    uint16_t arrived             # fragments that are there
    uint8_t object_type
    uint8_t control
    bint frontier                # it was the furthest seqno when it came

cdef struct Fragment:            # 16 bytes
    uint32_t hash
    int32_t delay_ns             # its first receipt, after the message's
    uint32_t cell
    uint8_t present
    uint8_t line                 # that brought it first
    uint8_t lines
    uint8_t reserved

cdef struct FragmentRun:         # 16 bytes: precedes the Fragments of one message
    int64_t key                  # of its slot; 0: padding at the end of the ring
    uint32_t count
    uint32_t reserved

cdef struct Window:
    # what every datagram reads
    int64_t next                 # the seqno to deliver next
    int64_t mask                 # of slots: 2 * size - 1
    uint32_t pending             # messages that wait, whole or partial
    uint32_t suspects            # lines may be under suspicion of a restart
    bint started                 # `next` is set: this numbering's first datagram came
    bint several                 # more than one line
    bint connected               # CONNECTION READY was said
    bint silent                  # CONNECTION DISCONNECTED was said
    bint latest_run              # on_gap
    Slot* slots
    int64_t* counters            # of core/counter's ChannelCounter
    int64_t start_end            # base + WINDOW_START
    int64_t forward_ns           # when this numbering last advanced, on any line
    # what waits
    int64_t size
    int64_t highest              # furthest seqno that waits; valid while pending > 0
    int64_t decided              # holes before this one are lost
    int64_t frontier             # cache of window_hole_seen
    int64_t base                 # first seqno of this numbering
    int64_t begun_ns
    int64_t interval
    int64_t wait_ns
    int64_t line_dead_ns
    uint32_t decided_reason      # GapReason
    bint finishing               # input ended: latest_run is suspended
    uint32_t lines
    uint8_t channel
    uint32_t fragments_capacity
    uint64_t fragments_head      # positions in the ring of fragments; they only grow
    uint64_t fragments_tail
    Early* early
    Fragment* fragments
    uint8_t* scratch             # MESSAGE_SIZE_MAX: the message at `next`, in its final place
    ControlQueue* controls
    const FrameReader* reader
    # the numbering before a restart with the same id: its stragglers must not look like a jump
    uint32_t previous_next
    int64_t previous_until_ns
    Slab slab
    uint32_t start_hash[64]      # WINDOW_START
    uint64_t start_known
    Line line[8]                 # LINES_MAX


# --- numbers -------------------------------------------------------------------------------------

cdef inline int64_t window_unwrap(const Window* w, uint32_t seqno) noexcept nogil:
    return w.next + <int32_t>(seqno - <uint32_t>w.next)


cdef inline Slot* window_slot(Window* w, int64_t key) noexcept nogil:
    return &w.slots[key & w.mask]


cdef inline Early* window_early(Window* w, int64_t key) noexcept nogil:
    return &w.early[key & (w.mask >> 1)]


cdef inline bint window_is_whole(Window* w, int64_t key) noexcept nogil:
    cdef Slot* slot = window_slot(w, key)
    return slot.key == key and slot.state == SLOT_WHOLE


cdef inline void window_start(Window* w, uint32_t seqno, int64_t now_ns) noexcept nogil:
    # The first datagram of a numbering sets its base.
    w.base = (((w.next >> 32) + 4) << 32) | seqno
    w.next = w.base
    w.decided = w.base
    w.frontier = 0
    w.start_end = w.base + WINDOW_START
    w.start_known = 0
    w.begun_ns = now_ns
    w.forward_ns = now_ns
    w.started = True
    w.finishing = False


# --- accounts of the lines ----------------------------------------------------------------------

cdef inline void window_judge(Window* w, const Slot* slot, bint passed_only) noexcept nogil:
    # A message leaves the memory: which lines never brought a single datagram of it? With
    # passed_only, lines that have not yet come so far are not blamed.
    cdef uint32_t i
    if slot.state != SLOT_DELIVERED or slot.key < w.base:
        return
    for i in range(w.lines):
        if not (slot.lines >> i) & 1 and (not passed_only or w.line[i].highest > slot.key):
            counter_add(&w.line[i].counters[LINE_LOSSES], 1)


cdef inline void window_judge_all(Window* w, bint passed_only) noexcept nogil:
    cdef int64_t key = w.next - 2 * w.size
    cdef Slot* slot
    if not w.started or not w.several:
        return
    if key < w.base:
        key = w.base
    while key < w.next:
        slot = window_slot(w, key)
        if slot.key == key:
            window_judge(w, slot, passed_only)
            slot.lines = 0xFF            # judged
        key += 1


cdef inline void window_refute(Window* w) noexcept nogil:
    # The numbering at hand is alive: nothing that goes backwards is a restart.
    cdef uint32_t i
    w.suspects = 0
    for i in range(w.lines):
        if w.line[i].suspicion != 0:
            line_trust(&w.line[i])


cdef inline bint window_advance_line(
    Window* w, Line* line, int64_t at, int64_t now_ns,
) noexcept nogil:
    # Whether this datagram advances its own line.
    if at <= line.highest:
        return False
    line.highest = at
    w.forward_ns = now_ns
    if unlikely(w.suspects):
        window_refute(w)
    return True


cdef inline int64_t window_passed(const Window* w, int64_t now_ns) noexcept nogil:
    # How far all live lines have come.
    cdef int64_t passed = INT64_MAX
    cdef uint32_t i
    for i in range(w.lines):
        if w.line[i].highest != INT64_MIN and now_ns - w.line[i].heard_ns <= w.line_dead_ns:
            if w.line[i].highest < passed:
                passed = w.line[i].highest
    return passed if passed != INT64_MAX else w.next


cdef inline void window_disagree(
    Window* w, const Datagram* d, const Frame* frame, uint8_t line_first,
    uint32_t hash_first, uint32_t hash_other,
) noexcept nogil:
    cdef Control* control
    counter_add(&w.line[d.line].counters[LINE_DISAGREEMENTS], 1)
    counter_add(&w.counters[CHANNEL_DISAGREEMENTS], 1)
    control = control_push(w.controls)
    if control == NULL:
        return
    control.kind = KIND_DISAGREEMENT
    control.channel = w.channel
    control.line = d.line
    control.received_ns = d.received_ns
    control.session_id = frame.session_id
    control.seqno = frame.seqno
    control.size = sizeof(control.payload.disagreement)
    control.payload.disagreement.seqno = frame.seqno
    control.payload.disagreement.fragment = frame.fragment
    control.payload.disagreement.line_first = line_first
    control.payload.disagreement.line_other = d.line
    control.payload.disagreement.hash_first = hash_first
    control.payload.disagreement.hash_other = hash_other


cdef inline int window_copy(
    Window* w, Slot* slot, const Datagram* d, const Frame* frame, uint32_t hash,
) noexcept nogil:
    # A further copy of a fragment: the race between the lines, and whether they agree. Returns
    # Known. A line is compared with the first copy once; its own repetitions prove nothing.
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
            return KNOWN_UNKNOWN
        fragment = &w.fragments[slot.fragments + frame.fragment]
        lines = fragment.lines
        line_first = fragment.line
        hash_first = fragment.hash
        lead_ns -= fragment.delay_ns
        fragment.lines |= bit
    if not lines & bit:
        slot.lines |= bit
        counter_add(&w.line[d.line].counters[LINE_TIES_LOST], 1)
        if not lines & (lines - 1):          # the second line to bring it
            counter_add(&w.line[line_first].counters[LINE_LEADS], 1)
            if lead_ns > 0:                  # stamps of two NICs may contradict the order
                counter_add(&w.line[line_first].counters[LINE_LEAD_NS], lead_ns)
        if unlikely(hash != hash_first):
            window_disagree(w, d, frame, line_first, hash_first, hash)
    return KNOWN_SAME if hash == hash_first else KNOWN_OTHER


# --- what is behind -----------------------------------------------------------------------------

cdef inline void window_remember_start(Window* w, int64_t at, uint32_t hash) noexcept nogil:
    if at < w.start_end:
        w.start_hash[at - w.base] = hash
        w.start_known |= <uint64_t>1 << (at - w.base)


cdef inline int window_past(
    Window* w, const Datagram* d, const Frame* frame, int64_t at, uint32_t hash, int* known,
) noexcept nogil:
    # The verdict on a seqno before `next`, and whether we know this very datagram.
    cdef Slot* slot = window_slot(w, at)
    known[0] = KNOWN_UNKNOWN
    if at < w.base or w.next - at > w.size:
        if at >= w.base and at < w.start_end and frame.fragment == 0:
            if (w.start_known >> (at - w.base)) & 1:
                known[0] = KNOWN_SAME if w.start_hash[at - w.base] == hash else KNOWN_OTHER
        return VERDICT_REPLAY
    if slot.key != at or slot.state != SLOT_DELIVERED:
        return VERDICT_LATE
    if slot.fragment_max != frame.fragment_max:
        known[0] = KNOWN_OTHER
        return VERDICT_FRAGMENT_MAX_CHANGED
    known[0] = window_copy(w, slot, d, frame, hash)
    return VERDICT_DUPLICATE


# --- what waits ---------------------------------------------------------------------------------

cdef inline uint32_t window_run_take(Window* w, uint32_t count, int64_t key) noexcept nogil:
    # Room for the fragments of one message, in order of arrival in a ring. What is overwritten
    # belongs to messages that were delivered (their copies are then no longer compared) or lost;
    # a message that still waits is never overwritten: FRAGMENTS_NONE.
    cdef uint32_t need = count + 1
    cdef uint32_t start = <uint32_t>(w.fragments_head % w.fragments_capacity)
    cdef uint32_t rest = w.fragments_capacity - start
    cdef uint32_t padding = rest if rest < need else 0
    cdef FragmentRun* run
    cdef Slot* slot
    while w.fragments_head + padding + need - w.fragments_tail > w.fragments_capacity:
        run = <FragmentRun*>&w.fragments[w.fragments_tail % w.fragments_capacity]
        if run.key != 0:
            slot = window_slot(w, run.key)
            if slot.key == run.key:
                if slot.state == SLOT_PARTIAL or slot.state == SLOT_WHOLE:
                    return FRAGMENTS_NONE
                slot.fragments = FRAGMENTS_NONE
        w.fragments_tail += run.count + 1
    if padding:
        run = <FragmentRun*>&w.fragments[start]
        run.key = 0
        run.count = padding - 1
        w.fragments_head += padding
        start = 0
    run = <FragmentRun*>&w.fragments[start]
    run.key = key
    run.count = count
    memset(&w.fragments[start + 1], 0, count * sizeof(Fragment))
    w.fragments_head += need
    return start + 1


cdef inline bint window_claim(
    Window* w, const Datagram* d, const Frame* frame, int64_t at, int64_t now_ns,
) noexcept nogil:
    # A slot for the first datagram of a message that must wait; False without room.
    cdef Slot* slot = window_slot(w, at)
    cdef Early* early = window_early(w, at)
    cdef uint32_t run = FRAGMENTS_NONE
    if frame.fragment_max:
        run = window_run_take(w, <uint32_t>frame.fragment_max + 1, at)
        if run == FRAGMENTS_NONE:
            return False
    if w.several:
        window_judge(w, slot, False)
    slot.key = at
    slot.received_ns = d.received_ns
    slot.hash = 0
    slot.fragments = run
    slot.cell = CELL_NONE
    slot.state = SLOT_PARTIAL
    slot.fragment_max = frame.fragment_max
    slot.line = d.line
    slot.lines = 0
    early.last_seqno = frame.last_seqno
    early.object_id = frame.object_id
    early.object_type = frame.object_type
    early.control = frame.control
    early.flags = RECORD_NO_TIMESTAMP if d.flags & DATAGRAM_NO_TIMESTAMP else 0
    early.final_size = 0
    early.arrived = 0
    early.frontier = w.pending == 0 or at > w.highest
    early.frontier_ns = now_ns
    early.seen_ns = now_ns               # without a cell it has to wait for: not long ago
    if early.frontier:
        w.highest = at
    w.pending += 1
    return True


cdef inline int window_store(
    Window* w, Slot* slot, const Datagram* d, const Frame* frame, int64_t at, uint32_t hash,
    int64_t now_ns,
) noexcept nogil:
    # The bytes of a fragment that is not there yet. The message at `next` is put together in its
    # final place; all others wait in cells.
    cdef Early* early = window_early(w, at)
    cdef Fragment* fragment
    cdef uint32_t size = d.size - FRAME_SIZE
    cdef uint32_t cell = CELL_NONE
    if at == w.next:
        cell = CELL_SCRATCH
        memcpy(w.scratch + <size_t>frame.fragment * FRAGMENT_SIZE, d.data + FRAME_SIZE, size)
    elif size:
        cell = slab_take(&w.slab)
        if cell == CELL_NONE:
            return WINDOW_PARK
        memcpy(slab_cell(&w.slab, cell), d.data + FRAME_SIZE, size)
    slot.lines |= <uint8_t>(1 << d.line)
    slot.line = d.line
    early.seen_ns = now_ns
    early.arrived += 1
    if frame.fragment == frame.fragment_max:
        early.final_size = <uint16_t>size
    if frame.fragment == 0:
        window_remember_start(w, at, hash)
    if frame.fragment_max == 0:
        slot.hash = hash
        slot.cell = cell
    else:
        fragment = &w.fragments[slot.fragments + frame.fragment]
        fragment.present = 1
        fragment.hash = hash
        fragment.cell = cell
        fragment.line = d.line
        fragment.lines = <uint8_t>(1 << d.line)
        fragment.delay_ns = window_delay(d.received_ns - slot.received_ns)
    if early.arrived > frame.fragment_max:
        slot.state = SLOT_WHOLE
    counter_add(&w.line[d.line].counters[LINE_WINS], 1)
    return VERDICT_HELD


cdef inline int32_t window_delay(int64_t delay_ns) noexcept nogil:
    if delay_ns > INT32_MAX:
        return INT32_MAX
    if delay_ns < -INT32_MAX:
        return -INT32_MAX
    return <int32_t>delay_ns


cdef inline int window_hold(
    Window* w, const Datagram* d, const Frame* frame, int64_t at, uint32_t hash, int64_t now_ns,
) noexcept nogil:
    # A datagram of [next, next + size): the verdict, or WINDOW_PARK.
    cdef Slot* slot = window_slot(w, at)
    cdef bint present
    if slot.key != at:
        if unlikely(now_ns < w.previous_until_ns):
            if slot.key < w.base and <uint32_t>slot.key == frame.seqno and slot.hash == hash:
                return VERDICT_SESSION_RETIRED   # of the numbering before the restart
        if unlikely(not window_claim(w, d, frame, at, now_ns)):
            window_force(w, at if at > w.next else w.next + 1)
            return VERDICT_SLAB_FULL
    elif unlikely(slot.fragment_max != frame.fragment_max):
        return VERDICT_FRAGMENT_MAX_CHANGED
    else:
        if frame.fragment_max == 0:
            present = slot.state == SLOT_WHOLE
        else:
            present = w.fragments[slot.fragments + frame.fragment].present
        if present:
            window_copy(w, slot, d, frame, hash)
            return VERDICT_DUPLICATE
    return window_store(w, slot, d, frame, at, hash, now_ns)


cdef inline void window_drop(Window* w, Slot* slot) noexcept nogil:
    # A message that waited is lost; its cells are free again.
    cdef uint32_t i
    cdef Fragment* fragment
    if slot.fragment_max == 0:
        slab_give(&w.slab, slot.cell)
    else:
        for i in range(<uint32_t>slot.fragment_max + 1):
            fragment = &w.fragments[slot.fragments + i]
            if fragment.present:
                slab_give(&w.slab, fragment.cell)
    slot.state = SLOT_LOST
    w.pending -= 1


cdef inline void window_reset(Window* w) noexcept nogil:
    # Another numbering begins: forget what waits and how far the lines came.
    cdef uint32_t i
    window_judge_all(w, True)
    slab_reset(&w.slab)
    w.fragments_tail = w.fragments_head
    w.pending = 0
    w.suspects = 0
    w.started = False
    for i in range(w.lines):
        line_reset(&w.line[i])


# --- decisions ----------------------------------------------------------------------------------

cdef inline int64_t window_hole_seen(Window* w, int64_t at) noexcept nogil:
    # When the hole at `at` <= highest was first seen: when the first seqno behind it arrived,
    # which is the next one that was the furthest when it came. Keys of one numbering only grow,
    # and so do those that are asked for: the search goes over each seqno once.
    if at == w.highest:
        return window_early(w, at).seen_ns
    if w.frontier <= at:
        w.frontier = at + 1
        while w.frontier < w.highest:
            if window_slot(w, w.frontier).key == w.frontier:
                if window_early(w, w.frontier).frontier:
                    break
            w.frontier += 1
    return window_early(w, w.frontier).frontier_ns


cdef inline int64_t window_hole_end(Window* w) noexcept nogil:
    # The first seqno behind `next` that is whole, or the first behind all that waits.
    cdef int64_t end = w.next
    while end <= w.highest and not window_is_whole(w, end):
        end += 1
    return end


cdef inline void window_decide_until(Window* w, int64_t until, uint32_t reason) noexcept nogil:
    # Holes before `until` are lost. With on_gap = latest_run, so is all but the most recent run of
    # whole messages: the gap then reaches up to where that begins.
    cdef int64_t run = w.highest
    if w.latest_run and not w.finishing and w.pending:
        while run > w.next and not window_is_whole(w, run):
            run -= 1
        if run > w.next:
            while window_is_whole(w, run - 1) and run - 1 > w.next:
                run -= 1
            until = run
    if until > w.decided:
        w.decided = until
        w.decided_reason = reason


cdef inline void window_force(Window* w, int64_t limit) noexcept nogil:
    # No room: give up the oldest hole, or what of it lies before `limit`.
    cdef int64_t end = window_hole_end(w)
    window_decide_until(w, end if end < limit else limit, GAP_WINDOW_FULL)


cdef inline bint window_decide(Window* w, int64_t now_ns) noexcept nogil:
    # Something waits behind a hole at `next`: is the hole lost?
    cdef int64_t until = w.next
    cdef int64_t passed
    if w.highest - w.next >= w.interval:
        passed = window_passed(w, now_ns)
        if passed - w.next >= w.interval:    # passed > last accepted + interval
            window_decide_until(w, passed, GAP_COUNT)
            return True
    while until <= w.highest and not window_is_whole(w, until):
        if now_ns - window_hole_seen(w, until) < w.wait_ns:
            break
        until += 1
    if until == w.next:
        return False
    window_decide_until(w, until, GAP_TIME)
    return True


cdef inline void window_jump(Window* w, int64_t at, int64_t now_ns) noexcept nogil:
    # A datagram beyond the window: make room for it. What still fits with it is kept open, for
    # the lines that have not come so far.
    cdef int64_t passed = window_passed(w, now_ns)
    cdef int64_t until = at - w.size + 1
    cdef uint32_t reason = GAP_WINDOW_FULL
    if passed - w.next >= w.interval and passed >= until:
        until = passed
        reason = GAP_COUNT
    if until > w.decided:
        w.decided = until
        w.decided_reason = reason


# --- taking -------------------------------------------------------------------------------------

cdef inline void window_gap(Window* w, Gap* gap, int64_t now_ns) noexcept nogil:
    # Give up [next, the first that is delivered or still open).
    cdef int64_t first = w.next
    cdef int64_t end = first
    cdef bint discard = w.latest_run and not w.finishing
    cdef Slot* slot
    gap.waited_ns = 0
    if w.pending and first <= w.highest:
        gap.waited_ns = now_ns - window_hole_seen(w, first)
    while end < w.decided and w.pending:
        slot = window_slot(w, end)
        if slot.key == end:
            if slot.state == SLOT_WHOLE:
                if not discard:
                    break
                counter_add(&w.counters[CHANNEL_DISREGARDED], 1)
            else:
                counter_add(&w.counters[CHANNEL_INCOMPLETE], 1)
            window_drop(w, slot)
        end += 1
    if w.pending == 0:
        end = w.decided
    gap.first = <uint32_t>first
    gap.last = <uint32_t>(end - 1)
    gap.count = <uint32_t>(end - first)
    gap.reason = w.decided_reason
    w.next = end
    counter_add(&w.counters[CHANNEL_GAPS], 1)
    counter_add(&w.counters[CHANNEL_LOST], end - first)
    if gap.reason == GAP_COUNT:
        counter_add(&w.counters[CHANNEL_GAPS_BY_COUNT], 1)
    elif gap.reason == GAP_TIME:
        counter_add(&w.counters[CHANNEL_GAPS_BY_TIME], 1)
    elif gap.reason == GAP_WINDOW_FULL:
        counter_add(&w.counters[CHANNEL_GAPS_WINDOW_FULL], 1)


cdef inline void window_gather(Window* w, Slot* slot, uint32_t final_size) noexcept nogil:
    # The fragments that waited in cells, to their place in the scratch.
    cdef uint32_t i, size
    cdef Fragment* fragment
    for i in range(<uint32_t>slot.fragment_max + 1):
        fragment = &w.fragments[slot.fragments + i]
        if fragment.cell < w.slab.capacity:
            size = final_size if i == slot.fragment_max else FRAGMENT_SIZE
            memcpy(w.scratch + <size_t>i * FRAGMENT_SIZE, slab_cell(&w.slab, fragment.cell), size)
            slab_give(&w.slab, fragment.cell)


cdef inline void window_deliver(Window* w, Message* m, uint16_t session_id) noexcept nogil:
    # The whole message at `next`. Its cell is free at once: cells are only given out again by the
    # next accept, and until then the payload stays valid.
    cdef Slot* slot = window_slot(w, w.next)
    cdef Early* early = window_early(w, w.next)
    m.payload = w.scratch
    m.size = <uint32_t>slot.fragment_max * FRAGMENT_SIZE + early.final_size
    if slot.fragment_max:
        window_gather(w, slot, early.final_size)
        counter_add(&w.counters[CHANNEL_FRAGMENTED], 1)
    elif slot.cell < w.slab.capacity:
        m.payload = slab_cell(&w.slab, slot.cell)
        slab_give(&w.slab, slot.cell)
    m.kind = KIND_MESSAGE
    m.flags = early.flags
    if w.reader.traits[early.control] & FRAME_SNAPSHOT:
        m.flags |= RECORD_SNAPSHOT
    if m.size == 0:
        m.flags |= RECORD_HEARTBEAT
        counter_add(&w.counters[CHANNEL_HEARTBEATS], 1)
    m.received_ns = slot.received_ns
    m.frame.control = early.control
    m.frame.fragment = 0
    m.frame.fragment_max = slot.fragment_max
    m.frame.object_type = early.object_type
    m.frame.object_id = early.object_id
    m.frame.session_id = session_id
    m.frame.seqno = <uint32_t>w.next
    m.frame.last_seqno = early.last_seqno
    m.channel = w.channel
    m.line = slot.line
    m.fragments = <uint16_t>(slot.fragment_max + 1)
    m.tag = 0
    slot.state = SLOT_DELIVERED
    w.pending -= 1
    w.next += 1
    counter_add(&w.counters[CHANNEL_MESSAGES], 1)
