# The lines of a stream: how far each has come, what it lost, whether it is alive, and what the feed
# says when one falls silent or speaks again.

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport (
    CHANNEL_DISCONNECTED, CHANNEL_READY, CHANNEL_WAIT_NS, LINE_DISCONNECTED, LINE_LOSSES,
    LINE_READY,
)
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CONNECTION_CHANNEL, CONNECTION_DISCONNECTED, CONNECTION_LINE, CONNECTION_READY,
    KIND_CONNECTION,
)
from udpfast.feed.control cimport Control, control_push
from udpfast.feed.pace cimport pace_apart
from udpfast.feed.pipeline_state cimport Carrier, Pipeline
from udpfast.feed.run cimport (
    CLAIM_ENDED, CLAIM_SESSION, RUN_BACK_MAX, RUN_STEP_MAX, Run, run_span,
)
from udpfast.feed.window_state cimport (
    SLOT_DELIVERED, WINDOW_JUDGE_MAX, LineAccount, Slot, Window, window_slot,
)
from udpfast.wire.unit cimport UNIT_RETRANSMISSION, Unit

cdef enum:
    # Nobody's lines between two cities are further apart (fibre and microwave: 80 ms), and a feed
    # that waits longer for what no line brings is of no use.
    WAIT_MAX_NS = 250000000
    WAIT_CHOSEN_NS = 100000000   # so often: it changes with a line's way, not with a datagram


cdef inline int64_t line_spoke_ns(const LineAccount* line) noexcept nogil:
    # When it brought anything of the current numbering, or of a new session.
    return line.heard_ns if line.heard_ns > line.lagged_ns else line.lagged_ns


cdef inline int64_t line_silence_ns(
    const Window* w, const LineAccount* line, int64_t now_ns,
) noexcept nogil:
    # For how long the stream has gone on without this line. A pause of all lines shows nothing of
    # any of them, so little of it counts.
    return min(now_ns, w.forward_ns + w.pause_ns) - line_silent_since_ns(w, line)


cdef inline int64_t line_silent_since_ns(
    const Window* w, const LineAccount* line,
) noexcept nogil:
    # Since it spoke, or since the numbering began, without the pauses in between. (What a run held
    # was brought before the numbering began.)
    cdef int64_t since_ns = w.numbering.begun_ns
    if line.highest != INT64_MIN:
        since_ns = max(since_ns, line_spoke_ns(line))
    return max(since_ns, line.excused_ns)


cdef inline void lines_go_on(Window* w, int64_t now_ns) noexcept nogil:
    # A line brought something new. Each datagram asks whether a pause ended, and no turn of the
    # loop does: a replay of the datagrams has other turns, and finds the same lines dead.
    cdef LineAccount* line
    cdef uint32_t i
    if unlikely(now_ns - w.forward_ns > w.pause_ns):
        for i in range(w.lines):
            line = &w.line[i]
            line.excused_ns = min(
                line_silent_since_ns(w, line) + now_ns - w.forward_ns - w.pause_ns, now_ns)
    w.forward_ns = now_ns


cdef inline bint line_advances(
    const LineAccount* line, const Unit* unit, int64_t at,
) noexcept nogil:
    # Whether a unit that ends with this seqno carries the line further: a later number, or a later
    # fragment of the same message.
    return at > line.highest or (
        at == line.highest and unit.fragments > 1
        and (line.part_of != at or unit.fragment > line.part)
    )


cdef inline void line_reach(LineAccount* line, uint32_t fragment, int64_t at) noexcept nogil:
    # Where it is now, if that is further.
    if at > line.highest:
        line.highest = at
    elif at < line.highest or (line.part_of == at and fragment <= line.part):
        return
    line.part_of = at
    line.part = fragment


cdef inline void line_bring(LineAccount* line, const Unit* unit, int64_t at) noexcept nogil:
    # A unit that is accepted and ends with this seqno; one that is sent again tells nothing.
    if unit.flags & UNIT_RETRANSMISSION:
        return
    line_reach(line, unit.fragment, at)
    if unit.sent_ns > line.sent_ns:
        line.sent_ns = unit.sent_ns


cdef inline bint line_was_beyond(
    const LineAccount* line, int64_t at, const Unit* unit,
) noexcept nogil:
    # Whether the line brought what lies further on, and its sender's clock says that this one was
    # sent behind that: a line falls behind itself only where its numbers began anew.
    return line.highest > at and 0 < line.sent_ns < unit.sent_ns


cdef inline bint line_steps_back(
    const Window* w, const LineAccount* line, int64_t at,
) noexcept nogil:
    # Further than its datagrams overtake each other: it had come to beyond this one.
    return unlikely(at + RUN_BACK_MAX < line.highest) and (
        pace_apart(w, at, line.highest) > RUN_BACK_MAX)


cdef inline bint line_carries_on(
    const LineAccount* line, const Window* w, int64_t at,
) noexcept nogil:
    # Whether a line goes on to this seqno from where it was in the current numbering, as densely as
    # a run has to be. That shows a numbering to be alive, even where something was forged far ahead
    # of it and what it brings now is not the furthest.
    return line.highest >= w.numbering.base and (
        0 < at - line.highest <= run_span(&line.run, RUN_STEP_MAX))


cdef inline Run* line_claims(LineAccount* line, uint8_t claim) noexcept nogil:
    # The run that makes this claim, if any does.
    if claim == CLAIM_SESSION or claim == CLAIM_ENDED:
        return &line.foreign
    return &line.run


# --- how long holes wait --------------------------------------------------------------------------

cdef inline int64_t lag_behind(int64_t lag_ns, int64_t behind_ns) noexcept nogil:
    # A line's lag once a copy came so long behind the first one. What was longer is forgotten over
    # some thousands.
    if unlikely(behind_ns > lag_ns):
        return min(behind_ns, <int64_t>WAIT_MAX_NS)
    return lag_ns - ((lag_ns - behind_ns) >> 12)


cdef inline int64_t lag_wait_ns(int64_t lag_ns) noexcept nogil:
    return min(lag_ns + (lag_ns >> 2), <int64_t>WAIT_MAX_NS)


cdef inline void lines_wait_for(Window* w, const LineAccount* line) noexcept nogil:
    # It is further behind than holes wait: that is not left to the next choice.
    if w.waiting.wait_auto:
        w.waiting.wait_ns = max(w.waiting.wait_ns, lag_wait_ns(line.lag_ns))


cdef inline bint lines_went_on(const Pipeline* p) noexcept nogil:
    # Whether any stream did since waits were chosen: a pause of all lines changes none.
    cdef uint32_t i
    for i in range(p.windows):
        if p.window[i].forward_ns >= p.wait_due_ns - WAIT_CHOSEN_NS:
            return True
    return False


cdef inline void lines_choose_waits(Pipeline* p, int64_t now_ns) noexcept nogil:
    # With lost_packet_wait_us = "auto", holes wait as long as the slowest line that may bring them
    # is behind, and a quarter more. Each channel's counter has the longest.
    cdef int64_t longest[2]
    cdef Window* w
    cdef uint32_t i
    p.wait_due_ns = INT64_MAX
    if p.wait_auto[0] or p.wait_auto[1]:
        p.wait_due_ns = now_ns + WAIT_CHOSEN_NS
    longest[0] = p.wait_ns[0]
    longest[1] = p.wait_ns[1]
    for i in range(p.windows):
        w = &p.window[i]
        if w.waiting.wait_auto:
            w.waiting.wait_ns = max(p.wait_ns[w.channel], lines_wait_ns(w, now_ns))
            longest[w.channel] = max(longest[w.channel], w.waiting.wait_ns)
    for i in range(<uint32_t>CHANNEL_COUNT):
        if p.carrier[i].lines:
            counter_add(
                &p.carrier[i].counters[CHANNEL_WAIT_NS],
                longest[i] - p.carrier[i].counters[CHANNEL_WAIT_NS])


cdef inline int64_t lines_wait_ns(const Window* w, int64_t now_ns) noexcept nogil:
    cdef int64_t lag_ns = 0
    cdef uint32_t i
    for i in range(w.lines):
        if line_may_come(w, &w.line[i], now_ns):
            lag_ns = max(lag_ns, w.line[i].lag_ns)
    return lag_wait_ns(lag_ns)


# --- losses ---------------------------------------------------------------------------------------

cdef inline bint line_is_alive(
    const Window* w, const LineAccount* line, int64_t now_ns,
) noexcept nogil:
    return line.highest != INT64_MIN and line_silence_ns(w, line, now_ns) <= w.line_dead_ns


cdef inline bint line_may_come(
    const Window* w, const LineAccount* line, int64_t now_ns,
) noexcept nogil:
    # Whether it may be as far behind as it was, or was not heard since the numbering began a moment
    # ago.
    return line_silence_ns(w, line, now_ns) <= w.line_dead_ns + line.lag_ns


cdef inline uint32_t lines_awaited(const Window* w, int64_t now_ns) noexcept nogil:
    # From which lines what was delivered by `settle_ns`, and they have not come to yet, may still
    # come. In a pause of all lines nothing comes that is not due by then.
    cdef const LineAccount* line
    cdef int64_t since_ns
    cdef uint32_t awaited = 0
    cdef uint32_t i
    for i in range(w.lines):
        line = &w.line[i]
        since_ns = max(line_silent_since_ns(w, line), w.settle_ns)
        if line_may_come(w, line, now_ns) and now_ns - since_ns <= w.line_dead_ns + line.lag_ns:
            awaited |= <uint32_t>1 << i
    return awaited


cdef inline uint32_t lines_may_bring(
    const Window* w, uint32_t lines, int64_t at, int64_t* until,
) noexcept nogil:
    # Those of these lines that have not come as far as this seqno yet; it holds up to `until`.
    cdef uint32_t i = 0
    cdef uint32_t found = 0
    until[0] = INT64_MAX
    while lines >> i:
        if (lines >> i) & 1:
            if w.line[i].highest <= at:
                found |= <uint32_t>1 << i
            else:
                until[0] = min(until[0], w.line[i].highest)
        i += 1
    return found


cdef inline void lines_blame(Window* w, uint32_t lines) noexcept nogil:
    # These lines never brought a single datagram of a message that another one did.
    cdef uint32_t i = 0
    while lines:
        if lines & 1:
            counter_add(&w.line[i].counters[LINE_LOSSES], 1)
        lines >>= 1
        i += 1


cdef inline void lines_settle_until(
    Window* w, int64_t until, int64_t now_ns, bint last,
) noexcept nogil:
    # Count the losses of what lies before `until`: each message once, and none that may still come.
    # For that it waits, unless this is its `last` time: then nobody is blamed.
    cdef uint32_t missing
    cdef uint32_t awaited = lines_awaited(w, now_ns)
    cdef uint32_t coming = 0
    cdef uint32_t owing = 0
    cdef int64_t at = w.settled
    cdef int64_t turn = at               # `coming` is as of behind this seqno
    cdef Slot* slot
    while at < until:
        if unlikely(at >= turn):
            coming = lines_may_bring(w, awaited, at, &turn)
            owing = w.owing & ~coming if last else w.owing
        slot = window_slot(w, at)
        missing = owing & ~<uint32_t>slot.lines
        if unlikely(missing) and slot.key == at and slot.state == SLOT_DELIVERED:
            if missing & coming:
                break
            lines_blame(w, missing)
        at += 1
    w.settled = at


cdef inline void lines_settle_past(Window* w, int64_t at) noexcept nogil:
    # The slot of `at` is needed: what it remembers is settled, and, since a call costs more than
    # the few behind it, those too. They are older than any copy that would count.
    if w.several and unlikely(at - w.settled > w.mask):
        lines_settle_until(w, at - w.mask + (w.size >> 7), w.forward_ns, True)


cdef inline void lines_settle_due(Window* w, int64_t now_ns) noexcept nogil:
    # Once per turn: losses of what was delivered a wait ago, so that all lines had their time.
    cdef int64_t until = w.settle_until
    if not w.several or not w.started:
        return
    if w.settled < until:
        if now_ns - w.settle_ns >= w.waiting.wait_ns:
            if until - w.settled > WINDOW_JUDGE_MAX:
                until = w.settled + WINDOW_JUDGE_MAX
            lines_settle_until(w, until, now_ns, False)
    elif w.settle_until < w.next:
        w.settle_until = w.next
        w.settle_ns = now_ns


cdef inline void lines_note_lagging(
    Window* w, LineAccount* line, uint8_t index, int64_t before, int64_t first, int64_t last,
) noexcept nogil:
    # A line further behind than copies are told goes on with these seqnos. It brought them, as far
    # as slots are left to say so; of what was settled before, its own numbers tell what it lost.
    cdef int64_t settled = min(first, w.settled)
    cdef Slot* slot
    if w.several and w.numbering.base <= before < settled - 1:
        counter_add(&line.counters[LINE_LOSSES], settled - 1 - before)
    while first <= last:
        slot = window_slot(w, first)
        if slot.key == first:
            slot.lines |= <uint8_t>(1 << index)
        first += 1


cdef inline void lines_settle_end(Window* w) noexcept nogil:
    # The numbering ends: a line is blamed for what it has passed, not for what was still to come.
    cdef Slot* slot
    cdef uint32_t i
    if not w.several or not w.started:
        return
    while w.settled < w.next:
        slot = window_slot(w, w.settled)
        if slot.key == w.settled and slot.state == SLOT_DELIVERED:
            for i in range(w.lines):
                if not (slot.lines >> i) & 1 and w.line[i].highest > slot.key:
                    counter_add(&w.line[i].counters[LINE_LOSSES], 1)
        w.settled += 1


cdef inline int64_t lines_reached(const Window* w, int64_t now_ns) noexcept nogil:
    # How far all live lines have come.
    cdef int64_t reached = INT64_MAX
    cdef uint32_t i
    for i in range(w.lines):
        if line_is_alive(w, &w.line[i], now_ns) and w.line[i].highest < reached:
            reached = w.line[i].highest
    return reached if reached != INT64_MAX else w.next


# --- silence --------------------------------------------------------------------------------------

cdef inline void lines_hear(
    Pipeline* p, Window* w, LineAccount* line, int64_t now_ns,
) noexcept nogil:
    # A sign of life of this line, hence of its channel.
    if unlikely(not w.connected):
        lines_connect(p, w.channel, True)
        p.carrier[w.channel].silent = False
        counter_add(&w.counters[CHANNEL_READY], 1)
        lines_watch(p, now_ns)
        lines_say_connection(
            p, w.channel, CONNECTION_READY, CONNECTION_CHANNEL, 0,
            now_ns - lines_channel_heard_ns(p, w.channel))
    line.heard_ns = now_ns


cdef inline void lines_connect(Pipeline* p, uint32_t channel, bint connected) noexcept nogil:
    cdef uint32_t i
    p.carrier[channel].connected = connected
    for i in range(p.windows):
        if p.window[i].channel == channel:
            p.window[i].connected = connected


cdef inline void lines_watch(Pipeline* p, int64_t now_ns) noexcept nogil:
    if not p.watching:
        p.watching = True
        p.watch_ns = now_ns


cdef inline int64_t lines_spoke_ns(
    const Pipeline* p, uint32_t channel, uint32_t line,
) noexcept nogil:
    # When a line brought anything of the current numberings; INT64_MIN: never.
    cdef int64_t spoke_ns = INT64_MIN
    cdef int64_t one_ns
    cdef uint32_t i
    for i in range(p.windows):
        if p.window[i].channel == channel:
            one_ns = line_spoke_ns(&p.window[i].line[line])
            if one_ns > spoke_ns:
                spoke_ns = one_ns
    return spoke_ns


cdef inline int64_t lines_channel_heard_ns(
    const Pipeline* p, uint32_t channel,
) noexcept nogil:
    # When anything of this channel was heard last, or the watch began.
    cdef int64_t heard_ns = p.watch_ns
    cdef uint32_t i, n
    for n in range(p.windows):
        if p.window[n].channel == channel:
            for i in range(p.window[n].lines):
                if p.window[n].line[i].heard_ns > heard_ns:
                    heard_ns = p.window[n].line[i].heard_ns
    return heard_ns


cdef inline void lines_say_connection(
    Pipeline* p, uint32_t channel, uint32_t status, uint32_t scope, uint32_t line,
    int64_t silent_ns,
) noexcept nogil:
    cdef Control* control = control_push(&p.controls)
    if control == NULL:
        return
    control.kind = KIND_CONNECTION
    control.channel = <uint8_t>channel
    control.stream = <uint16_t>channel
    control.line = <uint8_t>line
    control.received_ns = p.received_ns
    control.session = p.session
    if p.roq:
        control.session_id = p.window[0].numbering.sessions.session_id
    control.size = sizeof(control.payload.connection)
    control.payload.connection.status = status
    control.payload.connection.scope = scope
    control.payload.connection.silent_ns = silent_ns


cdef inline void lines_note_silence(
    Pipeline* p, uint32_t channel, int64_t now_ns,
) noexcept nogil:
    # Says what changed, each line's part before the channel's (of one line that one says it all).
    # Who never spoke is silent too, once.
    # When a line is heard it says no more than that (it is the hot path): it is looked at here.
    cdef Carrier* carrier = &p.carrier[channel]
    cdef int64_t heard_ns, due_ns
    cdef uint32_t i
    for i in range(carrier.lines):
        if <int>i == carrier.served:
            continue             # it brings only what was asked for
        due_ns = lines_note_line(p, channel, i, now_ns)
        if due_ns < p.silence_due_ns:
            p.silence_due_ns = due_ns
    if carrier.silent or carrier.lines == <uint32_t>(carrier.served >= 0):
        return
    heard_ns = lines_channel_heard_ns(p, channel)
    if now_ns - heard_ns >= p.inactivity_ns:
        carrier.silent = True
        carrier.heard_ns = heard_ns
        lines_connect(p, channel, False)
        counter_add(&carrier.counters[CHANNEL_DISCONNECTED], 1)
        lines_say_connection(
            p, channel, CONNECTION_DISCONNECTED, CONNECTION_CHANNEL, 0, now_ns - heard_ns)
    elif heard_ns + p.inactivity_ns < p.silence_due_ns:
        p.silence_due_ns = heard_ns + p.inactivity_ns


cdef inline int64_t lines_note_line(
    Pipeline* p, uint32_t channel, uint32_t index, int64_t now_ns,
) noexcept nogil:
    # Returns when it may have something to say next.
    cdef int64_t* counters = p.counters.line[channel][index]
    cdef int64_t* silent_since_ns = &p.carrier[channel].silent_since_ns[index]
    cdef bint several = p.carrier[channel].lines > 1
    cdef int64_t spoke_ns = lines_spoke_ns(p, channel, index)
    if spoke_ns < p.watch_ns:
        spoke_ns = p.watch_ns
    if silent_since_ns[0] != INT64_MIN:
        if spoke_ns <= silent_since_ns[0]:
            return now_ns
        counter_add(&counters[LINE_READY], 1)
        if several:
            lines_say_connection(
                p, channel, CONNECTION_READY, CONNECTION_LINE, index,
                spoke_ns - silent_since_ns[0])
        silent_since_ns[0] = INT64_MIN
    if now_ns - spoke_ns >= p.inactivity_ns:
        silent_since_ns[0] = spoke_ns
        counter_add(&counters[LINE_DISCONNECTED], 1)
        if several:
            lines_say_connection(
                p, channel, CONNECTION_DISCONNECTED, CONNECTION_LINE, index, now_ns - spoke_ns)
        return now_ns
    return spoke_ns + p.inactivity_ns
