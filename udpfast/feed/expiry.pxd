# What the passing of time, or the end of the input, does: holes are given up, lines and channels
# fall silent, a session that has waited for its other lines begins. pipeline_take then says it.

from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport CHANNEL_GAPS, CHANNEL_GAPS_BY_TIME
from udpfast.core.layout cimport CHANNEL_COUNT, CHANNEL_INCREMENTAL, GAP_FINISH, GAP_TIME, KIND_GAP
from udpfast.feed.adoption cimport adoption_adopt
from udpfast.feed.beginning cimport beginning_is_due
from udpfast.feed.control cimport Control
from udpfast.feed.lines cimport (
    lines_channel_heard_ns, lines_choose_waits, lines_settle_due, lines_note_silence, lines_watch,
)
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_look
from udpfast.feed.streams cimport streams_say_refused
from udpfast.feed.weighed cimport Adoption
from udpfast.feed.window cimport window_control
from udpfast.feed.window_state cimport Window, window_number


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
    if unlikely(now_ns >= p.wait_due_ns):
        lines_choose_waits(p, now_ns)
    for i in range(p.windows):
        w = &p.window[i]
        lines_settle_due(w, now_ns)
        if unlikely(now_ns >= w.numbering.opening_ns):
            pipeline_open(p, w, now_ns)
        if w.pending or w.waiting.named > w.next:
            pipeline_look(p, w)
    if unlikely(now_ns >= p.silence_due_ns) and p.inactivity_ns:
        p.silence_due_ns = INT64_MAX
        silent = p.carrier[CHANNEL_INCREMENTAL].silent
        for channel in range(CHANNEL_COUNT):
            lines_note_silence(p, <uint32_t>channel, now_ns)
        if p.doubt_when_silent and p.carrier[CHANNEL_INCREMENTAL].silent and not silent:
            for i in range(p.windows):
                pipeline_doubt(p, &p.window[i], now_ns)


cdef inline void pipeline_doubt(Pipeline* p, Window* w, int64_t now_ns) noexcept nogil:
    # Nothing is missing that is known, but much may have happened since: a GAP of no number, behind
    # the last one that was handed out.
    cdef Control* control
    if w.channel != CHANNEL_INCREMENTAL or not w.started:
        return
    control = window_control(w, KIND_GAP)
    if control != NULL:
        control.received_ns = p.received_ns
        control.number = window_number(w, w.next)
        control.size = sizeof(control.payload.gap)
        control.payload.gap.first = control.number
        control.payload.gap.last = window_number(w, w.next - 1)
        control.payload.gap.count = 0
        control.payload.gap.reason = GAP_TIME
        control.payload.gap.waited_ns = now_ns - lines_channel_heard_ns(p, w.channel)
    counter_add(&w.counters[CHANNEL_GAPS], 1)
    counter_add(&w.counters[CHANNEL_GAPS_BY_TIME], 1)


cdef inline void pipeline_open(Pipeline* p, Window* w, int64_t now_ns) noexcept nogil:
    # A proven session has waited long enough for the other lines.
    cdef Adoption adoption
    if beginning_is_due(p, w, now_ns, &adoption):
        adoption_adopt(p, w, &adoption, NULL, now_ns)


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
            pipeline_open(p, w, now_ns)
        w.waiting.finishing = True
        if w.pending and w.waiting.highest >= w.waiting.decided:
            w.waiting.decided = w.waiting.highest + 1
            w.waiting.decided_reason = GAP_FINISH
        if w.waiting.named > w.next and w.waiting.named > w.waiting.decided:
            w.waiting.decided = w.waiting.named
            w.waiting.decided_reason = GAP_FINISH
        pipeline_look(p, w)
