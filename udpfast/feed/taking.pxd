# What is due, in order: messages of the datagram at hand, what had waited, and what the feed itself
# has to say.

from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport CHANNEL_HEARTBEATS, CHANNEL_MESSAGES
from udpfast.core.layout cimport (
    DATAGRAM_NO_TIMESTAMP, FRAME_SIZE, GAP_TIME, KIND_GAP, KIND_MESSAGE, RECORD_HEARTBEAT,
    RECORD_NO_TIMESTAMP, RECORD_SNAPSHOT, Datagram, Gap, Message,
)
from udpfast.feed.adoption cimport adoption_adopt, adoption_deliver_believed
from udpfast.feed.beginning cimport beginning_is_due
from udpfast.feed.control cimport Control, control_pop
from udpfast.feed.given_up cimport waiting_decide, waiting_finish
from udpfast.feed.lines cimport lines_settle_until
from udpfast.feed.pieces cimport piece_at, piece_is_empty, piece_next, pieces_begin
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_hash
from udpfast.feed.placing cimport pipeline_park
from udpfast.feed.run cimport Evidence, evidence_begin
from udpfast.feed.waiting cimport WAITING_PARK, waiting_deliver, waiting_gap, waiting_hold
from udpfast.feed.weighed cimport Adoption
from udpfast.feed.window cimport window_is_whole
from udpfast.feed.window_state cimport Window, window_number
from udpfast.wire.frame cimport FRAME_SNAPSHOT
from udpfast.wire.messages cimport MessageWalk
from udpfast.wire.roq cimport ROQ_CONTROL, roq_origin
from udpfast.wire.unit cimport UNIT_SNAPSHOT, Unit


cdef inline bint pipeline_take(Pipeline* p, Message* m) noexcept nogil:
    # The next message, or what the feed itself has to say; 0 when nothing more is due. The payload
    # is valid until the next call, which gets `m` as this one left it.
    if likely(p.ready != NULL and p.controls.count == 0):
        if likely(p.roq):
            pipeline_take_ready(p, m)
        else:
            pipeline_take_piece(p, m)
        return True
    if likely(p.busy == NULL and p.controls.count == 0):
        return False
    return pipeline_take_waiting(p, m)


cdef inline void message_begin(const Datagram* d, const Window* w, Message* m) noexcept nogil:
    # What a message in a datagram of its own, or in one piece of it, has of both.
    m.kind = KIND_MESSAGE
    m.flags = 0
    if unlikely(d.flags & DATAGRAM_NO_TIMESTAMP):
        m.flags = RECORD_NO_TIMESTAMP
    m.received_ns = d.received_ns
    m.session = w.session
    m.stream = w.stream
    m.channel = d.channel
    m.line = d.line
    m.fragments = 1
    m.tag = 0


cdef inline void pipeline_take_ready(Pipeline* p, Message* m) noexcept nogil:
    # The framing is Roq's.
    cdef const Datagram* d = p.ready
    cdef const Window* w = p.ready_window
    cdef int64_t* counters = w.counters
    p.ready = NULL
    message_begin(d, w, m)
    m.payload = d.data + FRAME_SIZE
    m.size = d.size - FRAME_SIZE
    roq_origin(d.data, p.reader.big_endian, &m.object, &m.detail)
    m.session_id = w.session_id
    if p.reader.traits[d.data[ROQ_CONTROL]] & FRAME_SNAPSHOT:
        m.flags |= RECORD_SNAPSHOT
    if m.size == 0:
        m.flags |= RECORD_HEARTBEAT
        counter_add(&counters[CHANNEL_HEARTBEATS], 1)
    m.number = window_number(w, w.next - 1)
    counter_add(&counters[CHANNEL_MESSAGES], 1)


cdef inline void pipeline_take_piece(Pipeline* p, Message* m) noexcept nogil:
    # The framing is any but Roq's: take the next message of what is ready. Those behind the first
    # one differ from it in place and number, and nothing comes between them: while `p.ready` is
    # not NULL, who has the first one may call this for the others.
    cdef const Unit* unit = p.unit
    cdef uint32_t offset
    if p.ready_piece == p.ready_first:
        message_of_unit(p.ready, p.ready_window, unit, m)
        m.number = p.ready_number
        counter_add(&p.ready_window.counters[CHANNEL_MESSAGES], unit.count - p.ready_first)
    else:
        m.number += p.ready_step
    piece_at(p.places, unit, p.ready_piece, p.ready_placed, &offset, &m.size)
    m.payload = p.ready.data + offset
    if unlikely(piece_is_empty(unit, m.size)):
        m.flags |= RECORD_HEARTBEAT
        counter_add(&p.ready_window.counters[CHANNEL_HEARTBEATS], 1)
    p.ready_piece += 1
    if p.ready_piece == unit.count:
        p.ready = NULL


cdef inline void message_of_unit(
    const Datagram* d, const Window* w, const Unit* unit, Message* m,
) noexcept nogil:
    # What all messages of a unit have.
    message_begin(d, w, m)
    if unit.flags & UNIT_SNAPSHOT:
        m.flags |= RECORD_SNAPSHOT
    m.object = unit.object
    m.detail = unit.detail
    m.session_id = unit.session
    m.sent_ns = unit.sent_ns
    m.unit_flags = unit.flags
    m.stream_key = w.stream_key


cdef inline uint32_t pipeline_peek(
        Pipeline* p, uint32_t n, const uint8_t** payload) noexcept nogil:
    # Bytes of the n-th message, from 0, of the unit of which pipeline_take gave one and has more;
    # 0: it has not so many. Whether it will be given, nobody knows yet.
    cdef uint32_t offset, size
    if n >= p.unit.count:
        return 0
    piece_at(p.places, p.unit, n, p.ready_placed, &offset, &size)
    payload[0] = p.ready.data + offset
    return size


cdef inline bint pipeline_take_waiting(Pipeline* p, Message* m) noexcept nogil:
    cdef Window* w
    if p.controls.count:
        pipeline_say(p, control_pop(&p.controls), m)
        return True
    while p.busy != NULL:
        w = p.busy
        if unlikely(p.now_ns >= w.numbering.opening_ns):
            pipeline_open(p, w)
            if p.controls.count:
                pipeline_say(p, control_pop(&p.controls), m)
                return True
        if pipeline_take_window(p, w, m):
            return True
        if p.parked != NULL and p.parked_window == w:
            pipeline_unpark(p, w)
            continue
        if w.waiting.finishing:
            if w.several and w.started:
                lines_settle_until(w, w.next, p.now_ns, True)
            w.waiting.finishing = False
        p.busy = w.busy_next
        w.busy = False
    if p.controls.count:                 # unparking found two lines that disagree
        pipeline_say(p, control_pop(&p.controls), m)
        return True
    return False


cdef inline void pipeline_open(Pipeline* p, Window* w) noexcept nogil:
    # A proven session has waited long enough for the other lines, or the input ended.
    cdef Adoption adoption
    cdef bint finishing = w.waiting.finishing
    if beginning_is_due(p, w, p.now_ns, &adoption):
        adoption_adopt(p, w, &adoption, NULL, p.now_ns)
        if finishing:
            w.waiting.finishing = True
            waiting_finish(w)


cdef inline void pipeline_doubt_all(Pipeline* p, Window* w) noexcept nogil:
    # A gap of no number, behind the last one that was handed out.
    memset(&p.gap, 0, sizeof(Gap))
    p.gap.first = window_number(w, w.next)
    p.gap.last = window_number(w, w.next - 1)
    p.gap.reason = GAP_TIME
    p.gap.waited_ns = p.now_ns - p.carrier[w.channel].heard_ns


cdef inline bint pipeline_take_window(Pipeline* p, Window* w, Message* m) noexcept nogil:
    cdef bint discard = w.waiting.latest_run and not w.waiting.finishing
    if unlikely(w.waiting.silent):
        w.waiting.silent = False
        pipeline_doubt_all(p, w)
        pipeline_say_gap(p, w, m)
        return True
    while w.pending or w.next < w.waiting.decided or w.next < w.waiting.named:
        if window_is_whole(w, w.next) and not (discard and w.next < w.waiting.decided):
            waiting_deliver(w, m)
            return True
        if w.next < w.waiting.decided:
            waiting_gap(w, &p.gap, p.now_ns + p.late_ns)
            pipeline_say_gap(p, w, m)
            return True
        if not waiting_decide(w, p.now_ns):
            return False
    return False


cdef inline void pipeline_unpark(Pipeline* p, Window* w) noexcept nogil:
    # take() has made room as far as it can; if that was not enough, give up one more hole. Ends at
    # the latest when the parked one is next: that one needs no cell.
    cdef const Datagram* d = p.parked
    cdef const Unit* unit = &p.parked_unit
    cdef MessageWalk walk
    cdef Unit piece
    cdef Evidence unasked
    cdef int64_t at = p.parked_at - p.parked_piece
    cdef uint32_t n
    p.parked = NULL
    evidence_begin(&unasked)
    adoption_deliver_believed(p, w, False, False, p.now_ns)
    pieces_begin(&walk, d, unit)
    for n in range(unit.count):
        piece_next(&walk, unit, n, p.each_message, &piece)
        if n < p.parked_piece or at + n < w.next:
            continue                     # on_gap = latest_run gave it up with the rest
        if at + n >= w.next + w.size or waiting_hold(
            w, d, &piece, at + n, pipeline_hash(p, w, d, &piece), p.now_ns, &unasked,
        ) == WAITING_PARK:
            pipeline_park(p, w, d, unit, n, at + n, p.now_ns)
            return


cdef inline void pipeline_say(Pipeline* p, const Control* control, Message* m) noexcept nogil:
    memset(m, 0, sizeof(Message))
    m.payload = <const uint8_t*>&control.payload
    m.size = control.size
    m.kind = control.kind
    m.received_ns = control.received_ns
    m.number = control.number
    m.session = control.session
    m.stream = control.stream
    m.object = control.object_key
    m.session_id = control.session_id
    m.channel = control.channel
    m.line = control.line


cdef inline void pipeline_say_gap(Pipeline* p, Window* w, Message* m) noexcept nogil:
    memset(m, 0, sizeof(Message))
    m.payload = <const uint8_t*>&p.gap
    m.size = sizeof(Gap)
    m.kind = KIND_GAP
    m.received_ns = p.received_ns
    m.number = p.gap.first
    m.session = w.session
    m.stream = w.stream
    m.session_id = w.session_id
    m.channel = w.channel
