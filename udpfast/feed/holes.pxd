# Holes that a server may be asked for: numbers that no line is likely to bring any more. They have
# been known to be missing for long enough.

from libc.stdint cimport INT64_MIN, int64_t, uint32_t, uint64_t

from udpfast.core.layout cimport CHANNEL_INCREMENTAL
from udpfast.feed.given_up cimport waiting_hole_seen
from udpfast.feed.named cimport named_before
from udpfast.feed.pipeline_state cimport Pipeline
from udpfast.feed.window cimport window_is_whole
from udpfast.feed.window_state cimport Window, window_number

cdef enum:
    # Slots of one stream that one search looks at: 10 to 30 us. Holes behind them are found when
    # those before them are filled, or lost.
    HOLES_SLOTS_MAX = 8192

cdef struct Hole:
    uint64_t session             # as published
    uint64_t first
    uint64_t last
    uint32_t stream              # as its publisher calls it
    uint32_t numbering           # ordinal of the session


cdef inline uint32_t window_holes(
    Window* w, int64_t before_ns, Hole* holes, uint32_t room, uint32_t slots,
) noexcept nogil:
    # Those that were known before that time, from the oldest on: how many.
    cdef int64_t frontier = INT64_MIN
    cdef int64_t at = w.next
    cdef int64_t end = w.waiting.highest + 1 if w.pending else at
    cdef uint32_t count = 0
    cdef bint open = False
    end = min(max(end, named_before(&w.waiting.names, at, before_ns)), at + slots)
    while at < end:
        if (w.pending and at <= w.waiting.highest and window_is_whole(w, at)) or (
                waiting_hole_seen(w, at, &frontier) > before_ns):
            open = False
        elif open:
            holes[count - 1].last = window_number(w, at)
        elif count == room:
            break
        else:
            open = True
            holes[count].session = w.session_id
            holes[count].stream = w.stream_key
            holes[count].numbering = w.session
            holes[count].first = holes[count].last = window_number(w, at)
            count += 1
        at += 1
    return count


cdef inline uint32_t pipeline_holes(
    Pipeline* p, int64_t before_ns, Hole* holes, uint32_t room,
) noexcept nogil:
    # The same of all streams.
    cdef Window* w
    cdef uint32_t i, count = 0
    for i in range(p.windows):
        w = &p.window[i]
        if w.channel == CHANNEL_INCREMENTAL and w.started and (
                w.pending or w.waiting.named > w.next):
            count += window_holes(w, before_ns, holes + count, room - count, HOLES_SLOTS_MAX)
    return count
