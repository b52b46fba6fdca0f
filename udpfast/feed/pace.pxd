# How fast the current numbering goes, hence whether it is quiet.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.core.check cimport likely, unlikely
from udpfast.feed.run cimport Packing
from udpfast.feed.window_state cimport (
    WINDOW_PACE, WINDOW_PACE_UNKNOWN_NS, Numbering, Window, window_furthest,
)

cdef enum:
    PACE_MARKS = 16              # twice as far back as anything that is counted in datagrams


cdef inline void pace_pass_milestone(
    Window* w, int64_t at, uint32_t hash, int64_t now_ns,
) noexcept nogil:
    # The first messages of a numbering are remembered; then time is taken now and again.
    if at < w.known.start_end:
        w.known.start_hash[at - w.numbering.base] = hash
        w.known.start_known |= <uint64_t>1 << (at - w.numbering.base)
    if at >= w.numbering.pace_at:
        pace_time(w, now_ns)
        w.numbering.pace_from = at
        w.numbering.pace_at = at + WINDOW_PACE
    w.milestone = w.numbering.pace_at if at + 1 >= w.known.start_end else w.numbering.base


cdef inline void pace_time(Window* w, int64_t now_ns) noexcept nogil:
    cdef int64_t took_ns = now_ns - w.numbering.pace_from_ns
    if took_ns < w.numbering.pace_ns:     # what took long is forgotten over some dozens
        took_ns = w.numbering.pace_ns - ((w.numbering.pace_ns - took_ns) >> 4)
    w.numbering.pace_ns = took_ns
    w.numbering.pace_from_ns = now_ns


cdef inline void pace_count(
    Window* w, uint32_t numbers, int64_t now_ns,
) noexcept nogil:
    # Not Roq: a unit of a datagram carried the numbering further.
    cdef Packing* packing = &w.packing
    if likely(packing.counted != packing.datagram):
        packing.counted = packing.datagram
        w.numbering.pace_left -= 1
        if unlikely(w.numbering.pace_left == 0):
            pace_time(w, now_ns)
            w.numbering.pace_left = WINDOW_PACE
            w.numbering.pace_known = True
            w.numbering.marks[w.numbering.marked % PACE_MARKS] = window_furthest(w)
            w.numbering.marked += 1
            packing.wide = max(packing.widest, packing.wide - (packing.wide >> 4), 1)
            packing.widest = 0
    else:
        numbers += packing.numbers
    packing.numbers = numbers
    if unlikely(numbers > packing.widest):
        packing.widest = numbers
        if numbers > packing.wide:
            packing.wide = numbers


cdef inline int64_t pace_now_ns(const Window* w) noexcept nogil:
    # How long WINDOW_PACE datagrams of the current numbering used to take.
    cdef int64_t pace_ns = w.forward_ns - w.numbering.pace_from_ns
    cdef int64_t steps = window_furthest(w) - w.numbering.pace_from
    cdef bint known = w.numbering.pace_from != w.numbering.base
    if not w.numbering.each_datagram:
        steps = WINDOW_PACE - w.numbering.pace_left        # behind the first one
        known = w.numbering.pace_known
    if w.numbering.pace_ns > pace_ns:
        return w.numbering.pace_ns
    if not known:                        # not one measured yet; what was held came all at once
        if steps <= 0 or pace_ns <= 0:
            return WINDOW_PACE_UNKNOWN_NS
        return pace_ns * WINDOW_PACE // steps
    return pace_ns


cdef inline int64_t pace_apart(const Window* w, int64_t before, int64_t at) noexcept nogil:
    # How many datagrams of the current numbering lie between these seqnos, at least. Marks tell of
    # the latest ones; of what they do not, as many as the widest of them would be.
    cdef const Numbering* n = &w.numbering
    cdef int64_t between = 0
    cdef int64_t first = at
    cdef int64_t last = at
    cdef int64_t mark
    cdef uint32_t i
    if n.each_datagram:
        return at - before
    for i in range(min(n.marked, <uint32_t>PACE_MARKS)):
        mark = n.marks[i]
        if before < mark <= at:
            first = min(first, mark)
            last = mark if between == 0 else max(last, mark)
            between += WINDOW_PACE
    if between:
        between -= WINDOW_PACE
    return between + (first - before + at - last) // w.packing.wide


cdef inline int64_t pace_marked(const Window* w, int64_t at) noexcept nogil:
    # Not Roq: how many datagrams that marks know went on beyond a seqno. Marks that are equal tell
    # of one: what is forged far ahead stays the furthest while the feed goes on behind it.
    cdef const Numbering* n = &w.numbering
    cdef uint32_t count = min(n.marked, <uint32_t>PACE_MARKS)
    cdef int64_t furthest = at
    cdef int64_t found = 0
    cdef int64_t mark
    cdef uint32_t i
    for i in range(n.marked - count, n.marked):
        mark = n.marks[i % PACE_MARKS]
        if mark > furthest:
            furthest = mark
            found += WINDOW_PACE
    return found


cdef inline int64_t pace_since(const Window* w, int64_t first) noexcept nogil:
    # How many datagrams of the current numbering came from this seqno on. Of those that wait, what
    # counts is how many they are, not how far ahead they lie.
    return pace_apart(w, first, w.next - 1) + max(
        w.pending // w.packing.wide, pace_marked(w, w.next))


cdef inline int64_t pace_takes_ns(const Window* w, int64_t numbers) noexcept nogil:
    # How long so many numbers take, at the pace of the current numbering.
    return pace_now_ns(w) // WINDOW_PACE * (numbers // w.packing.wide)


cdef inline bint pace_is_quiet(
    const Window* w, int64_t datagrams, int64_t now_ns,
) noexcept nogil:
    # Has the current numbering stopped? Measured against its own pace: a replay into a feed that
    # is alive is interrupted before, whatever the feed's rate.
    return (now_ns - w.forward_ns) * WINDOW_PACE >= pace_now_ns(w) * datagrams
