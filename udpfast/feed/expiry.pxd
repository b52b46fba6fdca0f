# What the passing of time, or the end of the input, does. Holes are given up, lines and channels
# fall silent, a session that has waited for its other lines begins. pipeline_take then says it.

from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport CHANNEL_GAPS, CHANNEL_GAPS_BY_TIME
from udpfast.core.layout cimport CHANNEL_COUNT, CHANNEL_INCREMENTAL
from udpfast.feed.given_up cimport waiting_finish
from udpfast.feed.lines cimport (
    lines_channel_heard_ns, lines_choose_waits, lines_settle_due, lines_note_silence, lines_watch,
    lines_went_on,
)
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_look
from udpfast.feed.streams cimport streams_say_refused
from udpfast.feed.window_state cimport Window


cdef inline void pipeline_expire(Pipeline* p, int64_t now_ns) noexcept nogil:
    # Time has passed: take() then declares holes that waited too long, and says which line or
    # channel fell silent, and which line speaks again.
    cdef Window* w
    cdef uint32_t i
    cdef int channel
    cdef bint silent
    p.now_ns = now_ns
    lines_watch(p, now_ns)
    streams_say_refused(p)
    if unlikely(now_ns >= p.wait_due_ns) and lines_went_on(p):
        lines_choose_waits(p, now_ns)
    for i in range(p.windows):
        w = &p.window[i]
        lines_settle_due(w, now_ns)
        if w.pending or w.waiting.named > w.next or unlikely(now_ns >= w.numbering.opening_ns):
            pipeline_look(p, w)
    if unlikely(now_ns >= p.silence_due_ns) and p.inactivity_ns:
        p.silence_due_ns = INT64_MAX
        silent = p.carrier[CHANNEL_INCREMENTAL].silent
        for channel in range(CHANNEL_COUNT):
            lines_note_silence(p, <uint32_t>channel, now_ns)
        if p.doubt_when_silent and p.carrier[CHANNEL_INCREMENTAL].silent and not silent:
            for i in range(p.windows):
                pipeline_doubt(p, &p.window[i])


cdef inline void pipeline_doubt(Pipeline* p, Window* w) noexcept nogil:
    # Nothing is missing that is known, but much may have happened since.
    if w.channel != CHANNEL_INCREMENTAL or not w.started:
        return
    w.waiting.silent = True
    counter_add(&w.counters[CHANNEL_GAPS], 1)
    counter_add(&w.counters[CHANNEL_GAPS_BY_TIME], 1)
    pipeline_look(p, w)


cdef inline void pipeline_doubt_streams(Pipeline* p, int64_t now_ns) noexcept nogil:
    # The kernel dropped something, and no number that came since tells what. (Of a silent channel
    # the doubt may have been said already.)
    cdef uint32_t i
    p.now_ns = now_ns
    if p.carrier[CHANNEL_INCREMENTAL].silent:
        if p.doubt_when_silent:
            return
    else:
        p.carrier[CHANNEL_INCREMENTAL].heard_ns = lines_channel_heard_ns(p, CHANNEL_INCREMENTAL)
    for i in range(p.windows):
        pipeline_doubt(p, &p.window[i])


cdef inline void pipeline_finish(Pipeline* p, int64_t now_ns) noexcept nogil:
    # The input ended: open holes become gaps, everything whole is delivered by take().
    cdef Window* w
    cdef uint32_t i
    p.now_ns = now_ns
    p.refused.due_ns = now_ns
    streams_say_refused(p)
    for i in range(p.windows):
        w = &p.window[i]
        if w.numbering.opening_ns != INT64_MAX:
            w.numbering.opening_ns = now_ns
        w.waiting.finishing = True
        waiting_finish(w)
        pipeline_look(p, w)
