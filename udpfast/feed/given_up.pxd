# Which holes are given up.
#
# A HOLE is a run of seqnos that are not whole, with something behind it: a later seqno came, or a
# later fragment of the same message, or a heartbeat that names a later one. It is first seen then.
# A message of which the first fragments came in order is no hole, however long its line takes for
# the rest. Holes are declared lost by two criteria, whichever is met first:
#   time    lost_packet_wait has passed since the hole was first seen. Each hole for itself: that
#           one is lost says nothing about the next, which another line may be about to fill. A
#           message whose rest does not come, and nothing else, is lost after inactivity_timeout.
#   count   an arriving seqno exceeds last accepted + interval, on every live line. Then every hole
#           is lost that all live lines have passed. A line that brought nothing for line_dead_ns
#           is not waited for: else one dead line would switch this criterion off.
# A jump that the window cannot span, or a slab without a free cell, forces the oldest hole
# (GAP_WINDOW_FULL): what waited longest is the least likely to come, and giving it up frees most.

from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from udpfast.core.layout cimport GAP_COUNT, GAP_FINISH, GAP_TIME, GAP_WINDOW_FULL
from udpfast.feed.lines cimport lines_reached
from udpfast.feed.named cimport named_before, named_since
from udpfast.feed.window cimport window_is_whole
from udpfast.feed.window_state cimport FragmentRun, Slot, Window, window_early, window_slot


cdef inline int64_t waiting_overtaken_since(
    Window* w, int64_t at, int64_t* frontier,
) noexcept nogil:
    # When a seqno behind `at` came first, which is the next one that was the furthest when it came;
    # INT64_MAX: none did. Keys of one numbering only grow, and so do those that each caller asks
    # for: with a cache of its own, its search goes over each seqno once.
    if w.pending == 0 or at >= w.waiting.highest:
        return INT64_MAX
    if frontier[0] <= at:
        frontier[0] = at + 1
        while frontier[0] < w.waiting.highest:
            if window_slot(w, frontier[0]).key == frontier[0]:
                if window_early(w, frontier[0]).frontier:
                    break
            frontier[0] += 1
    return window_early(w, frontier[0]).frontier_ns


cdef inline int64_t waiting_hole_seen(
    Window* w, int64_t at, int64_t* frontier,
) noexcept nogil:
    # When the seqno `at`, which is not whole, was first known to be missing, or a part of it;
    # INT64_MAX: it is not, its line may still be sending it.
    cdef const Slot* slot = window_slot(w, at)
    cdef int64_t seen_ns = waiting_overtaken_since(w, at, frontier)
    seen_ns = min(seen_ns, named_since(&w.waiting.names, at))
    if slot.key == at and slot.fragment_max:
        seen_ns = min(
            seen_ns, (<FragmentRun*>&w.waiting.fragments[slot.fragments - 1]).overtaken_ns)
    return seen_ns


cdef inline bint waiting_is_given_up(Window* w, int64_t at, int64_t now_ns) noexcept nogil:
    # Whether the time has come for the seqno `at`, which is not whole, and not beyond the highest.
    cdef int64_t seen_ns = waiting_hole_seen(w, at, &w.waiting.decide_frontier)
    if seen_ns != INT64_MAX:
        return now_ns - seen_ns >= w.waiting.wait_ns
    return now_ns - window_early(w, at).seen_ns >= w.waiting.silence_ns


cdef inline int64_t waiting_waited(Window* w, int64_t at, int64_t now_ns) noexcept nogil:
    # How long a seqno that is given up was known to be missing; of the rest of a message, which
    # nothing has shown to be missing, since its latest fragment.
    cdef int64_t seen_ns = waiting_hole_seen(w, at, &w.waiting.gap_frontier)
    if seen_ns != INT64_MAX:
        return max(now_ns - seen_ns, 0)  # the clock may have been set in a turn
    return now_ns - window_early(w, at).seen_ns if w.pending and at <= w.waiting.highest else 0


cdef inline bint waiting_decide(Window* w, int64_t now_ns) noexcept nogil:
    # What is due is not there: is it lost?
    cdef int64_t until = w.next
    cdef int64_t reached
    if w.pending and w.waiting.highest - w.next >= w.waiting.interval:
        reached = lines_reached(w, now_ns)
        if reached - w.next >= w.waiting.interval:    # reached > last accepted + interval
            waiting_decide_until(w, reached, GAP_COUNT)
            return True
    if w.pending:
        while until <= w.waiting.highest and not window_is_whole(w, until):
            if not waiting_is_given_up(w, until, now_ns):
                break
            until += 1
    if w.pending == 0 or until > w.waiting.highest:
        until = named_before(&w.waiting.names, until, now_ns - w.waiting.wait_ns)
    if until == w.next:
        return False
    waiting_decide_until(w, until, GAP_TIME)
    return True


cdef inline void waiting_decide_until(Window* w, int64_t until, uint32_t reason) noexcept nogil:
    # Holes before `until` are lost. With on_gap = latest_run, so is all but the most recent run of
    # whole messages: the gap then reaches up to where that begins. What is incomplete behind that
    # run is walked over for every hole, at most a window of it. (Remembering the furthest whole
    # one instead made the compiler lay out the common path 1.5 ns slower: 17.2 to 18.7 ns.)
    cdef int64_t run = w.waiting.highest
    if w.waiting.latest_run and not w.waiting.finishing and w.pending:
        while run > w.next and not window_is_whole(w, run):
            run -= 1
        if run > w.next:
            while window_is_whole(w, run - 1) and run - 1 > w.next:
                run -= 1
            until = run
    if until > w.waiting.decided:
        w.waiting.decided = until
        w.waiting.decided_reason = reason


cdef inline void waiting_force(Window* w, int64_t limit) noexcept nogil:
    # No room: give up the oldest hole, or what of it lies before `limit`. A sender can make every
    # datagram come here, so the search ends where the hole does that is given up: each seqno is
    # looked at once. Only what an adopted run held comes again before anything is taken, as often
    # as datagrams were held.
    cdef int64_t end = w.next
    while end < limit and end <= w.waiting.highest and not window_is_whole(w, end):
        end += 1
    waiting_decide_until(w, end, GAP_WINDOW_FULL)


cdef inline void waiting_jump(Window* w, int64_t at, int64_t now_ns) noexcept nogil:
    # A datagram beyond the window: make room for it. What still fits with it is kept open, for
    # the lines that have not come so far.
    cdef int64_t reached = lines_reached(w, now_ns)
    cdef int64_t until = at - w.size + 1
    cdef uint32_t reason = GAP_WINDOW_FULL
    if reached - w.next >= w.waiting.interval and reached >= until:
        until = reached
        reason = GAP_COUNT
    if until > w.waiting.jump_from:              # it may have come behind others of its run
        until = w.waiting.jump_from
    if until <= at - w.size:
        until = at - w.size + 1
    if until > w.waiting.decided:
        w.waiting.decided = until
        w.waiting.decided_reason = reason


cdef inline void waiting_finish(Window* w) noexcept nogil:
    # Nothing comes any more: all holes are given up.
    if w.pending and w.waiting.highest >= w.waiting.decided:
        w.waiting.decided = w.waiting.highest + 1
        w.waiting.decided_reason = GAP_FINISH
    if w.waiting.named > w.next and w.waiting.named > w.waiting.decided:
        w.waiting.decided = w.waiting.named
        w.waiting.decided_reason = GAP_FINISH
