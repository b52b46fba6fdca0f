# What waits in a window until it is its turn: early messages in cells, and fragments until they are
# complete. It is handed out in order, with the gaps that `given_up` decides.

from libc.stdint cimport (
    INT32_MAX, INT64_MAX, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t,
)
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    CHANNEL_DISREGARDED, CHANNEL_FRAGMENTED, CHANNEL_GAPS, CHANNEL_GAPS_BY_COUNT,
    CHANNEL_GAPS_BY_TIME, CHANNEL_GAPS_WINDOW_FULL, CHANNEL_HEARTBEATS, CHANNEL_INCOMPLETE,
    CHANNEL_LOST, CHANNEL_MESSAGES, LINE_WINS, VERDICT_DUPLICATE, VERDICT_FRAGMENT_MAX_CHANGED,
    VERDICT_HELD, VERDICT_SLAB_FULL,
)
from udpfast.core.layout cimport (
    DATAGRAM_NO_TIMESTAMP, FRAGMENT_SIZE, GAP_COUNT, GAP_TIME, GAP_WINDOW_FULL, KIND_MESSAGE,
    RECORD_HEARTBEAT, RECORD_NO_TIMESTAMP, RECORD_SNAPSHOT, Datagram, Gap, Message,
)
from udpfast.feed.given_up cimport waiting_force, waiting_waited
from udpfast.feed.lines cimport lines_settle_end, lines_settle_past, lines_settle_until
from udpfast.feed.pace cimport pace_pass_milestone
from udpfast.feed.run cimport Evidence
from udpfast.feed.slab cimport CELL_NONE, CELL_SCRATCH, slab_cell, slab_give, slab_reset, slab_take
from udpfast.feed.window cimport window_copy, window_disagree, window_is_copy, window_say_both
from udpfast.feed.window_state cimport (
    FRAGMENTS_NONE, SLOT_DELIVERED, SLOT_LOST, SLOT_PARTIAL, SLOT_WHOLE, WINDOW_FORK_MAX,
    WINDOW_START, Early, Fragment, FragmentRun, Numbering, Slot, Waiting, Window, line_reset,
    window_early, window_number, window_slot, window_span,
)
from udpfast.wire.unit cimport UNIT_HEARTBEAT, UNIT_SNAPSHOT, Unit

cdef enum:
    WAITING_PARK = -1             # waiting_hold: no cell; take first, then try again


# --- what waits -----------------------------------------------------------------------------------

cdef inline uint32_t waiting_run_take(Window* w, uint32_t count, int64_t key) noexcept nogil:
    # Room for the fragments of one message, in order of arrival in a ring. What is overwritten
    # belongs to messages that were delivered (their copies are then no longer compared) or lost;
    # a message that still waits is never overwritten: FRAGMENTS_NONE.
    cdef Waiting* waits = &w.waiting
    cdef uint32_t need = count + 1
    cdef uint32_t start = <uint32_t>(waits.fragments_head % waits.fragments_capacity)
    cdef uint32_t rest = waits.fragments_capacity - start
    cdef uint32_t padding = rest if rest < need else 0
    cdef FragmentRun* run
    cdef Slot* slot
    while waits.fragments_head + padding + need - waits.fragments_tail > waits.fragments_capacity:
        run = <FragmentRun*>&waits.fragments[waits.fragments_tail % waits.fragments_capacity]
        if run.key != 0:
            slot = window_slot(w, run.key)
            if slot.key == run.key:
                if slot.state == SLOT_PARTIAL or slot.state == SLOT_WHOLE:
                    return FRAGMENTS_NONE
                slot.fragments = FRAGMENTS_NONE
        waits.fragments_tail += run.count + 1
    if padding:
        run = <FragmentRun*>&waits.fragments[start]
        run.key = 0
        run.count = padding - 1
        waits.fragments_head += padding
        start = 0
    run = <FragmentRun*>&waits.fragments[start]
    run.key = key
    run.count = count
    run.head = 0
    run.end = 0
    run.overtaken_ns = INT64_MAX
    memset(&waits.fragments[start + 1], 0, count * sizeof(Fragment))
    waits.fragments_head += need
    return start + 1


cdef inline bint waiting_claim(
    Window* w, const Datagram* d, const Unit* unit, int64_t at, int64_t now_ns,
) noexcept nogil:
    # A slot for the first datagram of a message that must wait; False without room.
    cdef Slot* slot = window_slot(w, at)
    cdef Early* early = window_early(w, at)
    cdef uint32_t run = FRAGMENTS_NONE
    if unit.fragments > 1:
        run = waiting_run_take(w, unit.fragments, at)
        if run == FRAGMENTS_NONE:
            return False
    lines_settle_past(w, at)
    slot.key = at
    slot.received_ns = d.received_ns
    slot.hash = 0
    slot.fragments = run
    slot.cell = CELL_NONE
    slot.state = SLOT_PARTIAL
    slot.fragment_max = <uint8_t>(unit.fragments - 1)
    slot.line = d.line
    slot.lines = 0
    early.sent_ns = unit.sent_ns
    early.detail = unit.detail
    early.object = unit.object
    early.unit_flags = unit.flags
    early.flags = RECORD_NO_TIMESTAMP if d.flags & DATAGRAM_NO_TIMESTAMP else 0
    early.final_size = 0
    early.arrived = 0
    early.other_line = 0
    early.frontier = w.pending == 0 or at > w.waiting.highest
    early.frontier_ns = now_ns + w.waiting.late_ns[0]
    early.seen_ns = early.frontier_ns    # without a cell it has to wait for: not long ago
    if early.frontier:
        w.waiting.highest = at
    w.pending += 1
    return True


cdef inline int waiting_store(
    Window* w, Slot* slot, const Datagram* d, const Unit* unit, int64_t at, uint32_t hash,
    int64_t now_ns,
) noexcept nogil:
    # The bytes of a fragment that is not there yet. The message at `next` is put together in its
    # final place; all others wait in cells.
    cdef Early* early = window_early(w, at)
    cdef const uint8_t* data = d.data + unit.offset
    cdef uint32_t size = unit.size
    cdef uint32_t cell = CELL_NONE
    if at == w.next:
        cell = CELL_SCRATCH
        memcpy(w.waiting.scratch + <size_t>unit.fragment * FRAGMENT_SIZE, data, size)
    elif size:
        cell = slab_take(w.waiting.slab)
        if cell == CELL_NONE:
            return WAITING_PARK
        memcpy(slab_cell(w.waiting.slab, cell), data, size)
    waiting_note_sent(w, unit)
    if unit.fragment == 0 and (at >= w.milestone or at < w.known.start_end):
        pace_pass_milestone(w, at, hash, now_ns)
    waiting_note_stored(w, slot, early, d, unit.fragment, size, cell, hash, now_ns)
    return VERDICT_HELD


cdef inline void waiting_note_stored(
    Window* w, Slot* slot, Early* early, const Datagram* d, uint32_t index, uint32_t size,
    uint32_t cell, uint32_t hash, int64_t now_ns,
) noexcept nogil:
    # The fragment of this index of a message is there.
    cdef Fragment* fragment
    cdef int64_t came_ns = now_ns + w.waiting.late_ns[0]
    slot.lines |= <uint8_t>(1 << d.line)
    slot.line = d.line
    early.seen_ns = came_ns
    early.arrived += 1
    if index == slot.fragment_max:
        early.final_size = <uint16_t>size
    if slot.fragment_max == 0:
        slot.hash = hash
        slot.cell = cell
    else:
        fragment = &w.waiting.fragments[slot.fragments + index]
        fragment.present = 1
        fragment.hash = hash
        fragment.cell = cell
        fragment.line = d.line
        fragment.lines = <uint8_t>(1 << d.line)
        fragment.delay_ns = waiting_delay(d.received_ns - slot.received_ns)
        waiting_note_overtaken(w, slot.fragments, index, came_ns)
    if early.arrived == slot.fragment_max + 1:
        slot.state = SLOT_WHOLE
    counter_add(&w.line[d.line].counters[LINE_WINS], 1)


cdef inline void waiting_note_overtaken(
    Window* w, uint32_t fragments, uint32_t index, int64_t came_ns,
) noexcept nogil:
    # What the fragment of this index shows to be missing: all of its message before it that did not
    # come.
    cdef Fragment* first = &w.waiting.fragments[fragments]
    cdef FragmentRun* run = <FragmentRun*>(first - 1)
    cdef Fragment* fragment = first + index
    cdef uint32_t i = index + 1
    fragment.came_ns = came_ns
    if likely(index == run.head and index == run.end):   # in order: nothing is missing
        fragment.frontier = True
        run.head = run.end = <uint16_t>i
        return
    fragment.frontier = index >= run.end
    if fragment.frontier:
        run.end = <uint16_t>i
    if index != run.head:
        if run.overtaken_ns == INT64_MAX:
            run.overtaken_ns = came_ns
        return
    while i < run.end and first[i].present:
        i += 1
    run.head = <uint16_t>i
    if i == run.end:
        run.overtaken_ns = INT64_MAX
        return
    while not (first[i].present and first[i].frontier):
        i += 1
    run.overtaken_ns = first[i].came_ns


cdef inline void waiting_note_sent(Window* w, const Unit* unit) noexcept nogil:
    if unit.sent_ns > w.sent_ns:
        w.sent_ns = unit.sent_ns
    if w.begun_sent_ns == 0:
        w.begun_sent_ns = unit.sent_ns


cdef inline int32_t waiting_delay(int64_t delay_ns) noexcept nogil:
    if delay_ns > INT32_MAX:
        return INT32_MAX
    if delay_ns < -INT32_MAX:
        return -INT32_MAX
    return <int32_t>delay_ns


cdef inline int waiting_hold(
    Window* w, const Datagram* d, const Unit* unit, int64_t at, uint32_t hash, int64_t now_ns,
    Evidence* e,
) noexcept nogil:
    # One of [next, next + size): the verdict, or WAITING_PARK; and what a copy tells.
    cdef Slot* slot = window_slot(w, at)
    if slot.key != at:
        if unlikely(not waiting_claim(w, d, unit, at, now_ns)):
            waiting_force(w, at if at > w.next else w.next + 1)
            return VERDICT_SLAB_FULL
        return waiting_store(w, slot, d, unit, at, hash, now_ns)
    if unlikely(slot.fragment_max != unit.fragments - 1):
        window_disagree(w, slot, d, unit, slot.line, slot.hash, hash)
        return VERDICT_FRAGMENT_MAX_CHANGED      # nothing of that number was delivered yet
    if window_is_copy(w, unit, at):
        window_copy(w, slot, d, unit, hash, e)
        return VERDICT_DUPLICATE
    return waiting_store(w, slot, d, unit, at, hash, now_ns)


cdef inline void waiting_drop(Window* w, Slot* slot) noexcept nogil:
    # A message that waited is lost; its cells are free again.
    cdef uint32_t i
    cdef Fragment* fragment
    if slot.fragment_max == 0:
        slab_give(w.waiting.slab, slot.cell)
    else:
        for i in range(<uint32_t>slot.fragment_max + 1):
            fragment = &w.waiting.fragments[slot.fragments + i]
            if fragment.present:
                slab_give(w.waiting.slab, fragment.cell)
    slot.state = SLOT_LOST
    w.pending -= 1


cdef inline void waiting_reset(Window* w) noexcept nogil:
    # Another numbering begins: forget what waits and how far the lines came. Slots need no
    # clearing, since keys of the next numbering differ from all of this one.
    cdef uint32_t i
    lines_settle_end(w)
    if w.waiting.slab_shared:
        waiting_drop_all(w)
    else:
        slab_reset(w.waiting.slab)
    w.waiting.fragments_tail = w.waiting.fragments_head
    w.pending = 0
    w.has_runs = False
    w.started = False
    for i in range(w.lines):
        line_reset(&w.line[i])


cdef inline void waiting_drop_all(Window* w) noexcept nogil:
    # Cells of what waits, when others have cells of the same slab.
    cdef int64_t at = w.next
    cdef Slot* slot
    while w.pending and at <= w.waiting.highest:
        slot = window_slot(w, at)
        if slot.key == at and (slot.state == SLOT_WHOLE or slot.state == SLOT_PARTIAL):
            waiting_drop(w, slot)
        at += 1


# --- taking ---------------------------------------------------------------------------------------

cdef inline void waiting_gap(Window* w, Gap* gap, int64_t now_ns) noexcept nogil:
    # Give up [next, the first that is delivered or still open).
    cdef int64_t first = w.next
    cdef int64_t end
    gap.waited_ns = waiting_waited(w, first, now_ns)
    end = waiting_give_up(w)
    gap.first = window_number(w, first)
    gap.last = window_number(w, end - 1)
    gap.count = <uint64_t>(end - first)
    gap.reason = w.waiting.decided_reason
    gap.reserved = 0
    w.next = end
    waiting_note_fork(w, first, end)
    if w.several and end - w.settled > w.mask:
        lines_settle_until(w, first, w.forward_ns, True)
        w.settled = end
    counter_add(&w.counters[CHANNEL_GAPS], 1)
    counter_add(&w.counters[CHANNEL_LOST], end - first)
    if gap.reason == GAP_COUNT:
        counter_add(&w.counters[CHANNEL_GAPS_BY_COUNT], 1)
    elif gap.reason == GAP_TIME:
        counter_add(&w.counters[CHANNEL_GAPS_BY_TIME], 1)
    elif gap.reason == GAP_WINDOW_FULL:
        counter_add(&w.counters[CHANNEL_GAPS_WINDOW_FULL], 1)


cdef inline int64_t waiting_give_up(Window* w) noexcept nogil:
    # Where the gap from `next` on ends; what waited inside it is lost.
    cdef bint discard = w.waiting.latest_run and not w.waiting.finishing
    cdef int64_t end = w.next
    cdef Slot* slot
    while end < w.waiting.decided and w.pending:
        slot = window_slot(w, end)
        if slot.key == end:
            if slot.state == SLOT_WHOLE:
                if not discard:
                    break
                counter_add(&w.counters[CHANNEL_DISREGARDED], 1)
            else:
                counter_add(&w.counters[CHANNEL_INCOMPLETE], 1)
            waiting_drop(w, slot)
        end += 1
    return end if w.pending else w.waiting.decided


cdef inline void waiting_note_fork(Window* w, int64_t first, int64_t end) noexcept nogil:
    # Gaps between which little came may be where another numbering left the current one.
    cdef Numbering* n = &w.numbering
    n.fork_came += first - n.resumed_at
    if (n.resumed_at == n.base or first - n.resumed_at >= window_span(w, WINDOW_START)
            or n.fork_came >= window_span(w, WINDOW_FORK_MAX)):
        n.fork_from = first
        n.fork_came = 0
    n.resumed_at = end


cdef inline void waiting_gather(Window* w, Slot* slot, uint32_t final_size) noexcept nogil:
    # The fragments that waited in cells, to their place in the scratch.
    cdef uint32_t i, size
    cdef Fragment* fragment
    for i in range(<uint32_t>slot.fragment_max + 1):
        fragment = &w.waiting.fragments[slot.fragments + i]
        if fragment.cell < w.waiting.slab.capacity:
            size = final_size if i == slot.fragment_max else FRAGMENT_SIZE
            memcpy(
                w.waiting.scratch + <size_t>i * FRAGMENT_SIZE,
                slab_cell(w.waiting.slab, fragment.cell), size)
            slab_give(w.waiting.slab, fragment.cell)


cdef inline void waiting_deliver(Window* w, Message* m) noexcept nogil:
    # The whole message at `next`.
    cdef Slot* slot = window_slot(w, w.next)
    cdef Early* early = window_early(w, w.next)
    waiting_put_together(w, slot, early, m)
    m.kind = KIND_MESSAGE
    m.flags = early.flags
    if early.unit_flags & UNIT_SNAPSHOT:
        m.flags |= RECORD_SNAPSHOT
    if early.unit_flags & UNIT_HEARTBEAT:
        m.flags |= RECORD_HEARTBEAT
        counter_add(&w.counters[CHANNEL_HEARTBEATS], 1)
    m.received_ns = slot.received_ns
    m.number = window_number(w, w.next)
    m.session = w.session
    m.stream = w.stream
    m.channel = w.channel
    m.line = slot.line
    m.tag = 0
    m.object = early.object
    m.detail = early.detail
    m.session_id = w.session_id
    m.sent_ns = early.sent_ns
    m.unit_flags = early.unit_flags
    m.stream_key = w.stream_key
    slot.state = SLOT_DELIVERED
    slot.cell = early.object
    if unlikely(early.other_line):
        window_say_both(
            w, slot.cell, early.other_object, slot.received_ns, w.next, early.other_fragment,
            slot.line, early.other_line - 1, slot.hash, early.other_hash)
    w.pending -= 1
    w.next += 1
    counter_add(&w.counters[CHANNEL_MESSAGES], 1)


cdef inline void waiting_put_together(
    Window* w, Slot* slot, const Early* early, Message* m,
) noexcept nogil:
    # Its bytes. Its cell is free at once: cells are only given out again by the next accept, and
    # until then the payload stays valid.
    m.payload = w.waiting.scratch
    m.size = <uint32_t>slot.fragment_max * FRAGMENT_SIZE + early.final_size
    m.fragments = <uint16_t>(slot.fragment_max + 1)
    if slot.fragment_max:
        waiting_gather(w, slot, early.final_size)
        counter_add(&w.counters[CHANNEL_FRAGMENTED], 1)
    elif slot.cell < w.waiting.slab.capacity:
        m.payload = slab_cell(w.waiting.slab, slot.cell)
        slab_give(w.waiting.slab, slot.cell)
