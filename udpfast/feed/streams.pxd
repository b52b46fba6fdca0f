# Which window a stream has: a table of those that were found on the lines, by channel and by what
# the publisher calls them. A stream is PROVEN once its numbers have gone on from one datagram to
# another. Anybody's single datagram can name one: where no window is left, those that are not
# proven give way to what comes.

from libc.stdint cimport INT64_MAX, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely
from udpfast.core.counter cimport FEED_STREAMS, FEED_STREAMS_REPLACED
from udpfast.core.keyed cimport keyed_word
from udpfast.core.layout cimport (
    GAP_STREAM_REFUSED, KIND_GAP, STREAM_FIRST, STREAM_NONE, Datagram,
)
from udpfast.feed.control cimport Control, control_push
from udpfast.feed.pipeline_state cimport Pipeline, Refused, StreamSlot, window_give, window_open
from udpfast.feed.session cimport Sessions
from udpfast.feed.waiting cimport waiting_reset
from udpfast.feed.window_state cimport WINDOW_PACE, Window
from udpfast.wire.unit cimport Unit

cdef enum:
    # Windows that are asked to give way for one datagram: a flood of names costs no more.
    STREAMS_ASKED = 16
    REFUSED_EVERY_NS = 1_000_000_000


cdef inline Window* streams_find(
    Pipeline* p, uint32_t channel, uint32_t stream_key,
) noexcept nogil:
    # The window of a stream, which may be a new one; NULL: there are too many.
    cdef uint64_t key = (<uint64_t>channel << 32) | stream_key
    cdef StreamSlot* slot = p.latest
    cdef Window* w
    if likely(slot.window != NULL and slot.key == key):
        return slot.window
    slot = streams_slot(p, key)
    if slot.window == NULL:
        if p.streams < p.streams_max:
            w = window_open(p, channel, <uint16_t>(STREAM_FIRST + p.streams), stream_key)
            p.streams += 1
            counter_add(&p.counters.feed[FEED_STREAMS], 1)
        else:
            w = streams_give_way(p)
            if w == NULL:
                return NULL
            window_give(p, w, channel, w.stream, stream_key)
            counter_add(&p.counters.feed[FEED_STREAMS_REPLACED], 1)
            slot = streams_slot(p, key)  # others were moved
        slot.key = key
        slot.window = w
    p.latest = slot
    return slot.window


cdef inline void streams_refuse(Pipeline* p, const Datagram* d, const Unit* unit) noexcept nogil:
    # There is no window for it: what it brings is lost, and readers are told how much.
    if unit.count == 0:
        return
    p.refused.count += unit.count
    p.refused.number = unit.number
    p.refused.last = unit.number + unit.count - 1
    p.refused.stream_key = unit.stream
    p.refused.channel = d.channel
    p.refused.line = d.line
    p.refused.received_ns = d.received_ns
    streams_say_refused(p)


cdef inline void streams_say_refused(Pipeline* p) noexcept nogil:
    # At once, if the last time is a second ago: a flood of names makes no flood of records.
    cdef Refused* refused = &p.refused
    cdef Control* control
    if likely(refused.count == 0) or p.now_ns < refused.due_ns:
        return
    control = control_push(&p.controls)
    if control == NULL:
        return
    control.kind = KIND_GAP
    control.stream = STREAM_NONE
    control.session = p.session
    control.channel = refused.channel
    control.line = refused.line
    control.object_key = refused.stream_key
    control.received_ns = refused.received_ns
    control.number = refused.number
    control.size = sizeof(control.payload.gap)
    control.payload.gap.first = refused.number
    control.payload.gap.last = refused.last
    control.payload.gap.count = refused.count
    control.payload.gap.reason = GAP_STREAM_REFUSED
    refused.count = 0
    refused.due_ns = p.now_ns + REFUSED_EVERY_NS


cdef inline StreamSlot* streams_slot(Pipeline* p, uint64_t key) noexcept nogil:
    # Where a stream is in the table, or would be.
    cdef uint32_t place = <uint32_t>keyed_word(&p.key, key)
    cdef StreamSlot* slot
    while True:
        slot = &p.slots[place & p.slots_mask]
        if slot.window == NULL or slot.key == key:
            return slot
        place += 1


cdef inline Window* streams_give_way(Pipeline* p) noexcept nogil:
    # The window of a stream that is not proven, as if nothing had come there; NULL: none is found.
    # Its slots keep what they have: keys of the next numbering differ from all of these.
    cdef Window* w
    cdef Sessions* sessions
    cdef uint32_t _i
    for _i in range(<uint32_t>STREAMS_ASKED):
        w = &p.window[p.asked % p.windows]
        p.asked += 1
        if window_is_proven(w):
            continue
        streams_remove(p, (<uint64_t>w.channel << 32) | w.stream_key)
        p.carrier[w.channel].windows -= 1
        waiting_reset(w)
        sessions = w.numbering.sessions
        sessions.begun = False
        sessions.resumed = False
        sessions.session_id = 0
        memset(sessions.retired, 0, sizeof(sessions.retired))
        w.session_id = 0
        w.numbering.opening_ns = INT64_MAX
        w.numbering.previous_until_ns = 0
        memset(&w.packing, 0, sizeof(w.packing))
        return w
    return NULL


cdef inline bint window_is_proven(const Window* w) noexcept nogil:
    # Whether a second datagram carried its numbers further than the first, or some are held.
    return w.busy or w.pending != 0 or (
        w.started and (w.numbering.pace_known or w.numbering.pace_left < WINDOW_PACE))


cdef inline void streams_remove(Pipeline* p, uint64_t key) noexcept nogil:
    # Without a hole that would hide those behind it: each moves there that may lie there.
    cdef uint32_t hole = <uint32_t>(streams_slot(p, key) - p.slots)
    cdef uint32_t at = hole
    cdef uint32_t home
    while True:
        p.slots[hole].window = NULL
        while True:
            at = (at + 1) & p.slots_mask
            if p.slots[at].window == NULL:
                return
            home = <uint32_t>keyed_word(&p.key, p.slots[at].key) & p.slots_mask
            if ((at - home) & p.slots_mask) >= ((at - hole) & p.slots_mask):
                break
        p.slots[hole] = p.slots[at]
        hole = at
