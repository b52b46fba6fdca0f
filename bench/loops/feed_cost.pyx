"""What the feed costs for a datagram: nogil loops over datagrams in memory, no sockets, no ring.

    python -c "from bench.loops.feed_cost import main; main()"
    python -c "from bench.loops.feed_cost import main_units; main_units()"

Questions: how many ns does the feed spend on one datagram of Roq? On one of any framing, and does
the number of streams matter? Datagrams lie in 64 slots, as a receiving batch does; their headers
are written anew batch by batch (which is measured alone, as `floor`, and not taken off).

All loops over the pipeline are in this one module, because each module that reads
`feed/pipeline.pxd` is compiled again whenever a line of the feed changes.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from bench.loops.lone_pipeline cimport LonePipeline, lone_close, lone_open
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, Datagram, Frame, Message
from udpfast.feed.pipeline cimport pipeline_accept, pipeline_order
from udpfast.feed.pipeline_state cimport (
    Pipeline, PipelineSettings, pipeline_settings_default)
from udpfast.feed.taking cimport pipeline_take
from udpfast.feed.units cimport pipeline_units

import statistics

from ..framing_trains import PLACES
from ..lab_parts import Sent, build
from udpfast.wire.facts import Numbers
from udpfast.wire.framing import Framing

__all__ = ["WindowLoop", "feed_cost_ns", "main", "main_units", "unit_cost_ns"]

cdef enum:
    SLOTS = 64
    SLOT_SIZE = 576              # a datagram of 528 bytes on cache lines of its own
    UNIT_SLOT_SIZE = 1536        # of any framing
    MODE_FLOOR = 0
    MODE_IN_ORDER = 1
    MODE_SWAPPED = 2
    MODE_TWICE = 3
    MODE_FRAGMENTS = 4

_MODES = {
    "floor": MODE_FLOOR, "in_order": MODE_IN_ORDER, "swapped": MODE_SWAPPED, "twice": MODE_TWICE,
    "fragments": MODE_FRAGMENTS,
}


cdef inline uint32_t _take_all(Pipeline* p) noexcept nogil:
    cdef Message m
    cdef uint32_t messages = 0
    while pipeline_take(p, &m):
        messages += m.kind == KIND_MESSAGE
    return messages


cdef inline void _write(uint8_t* slot, int64_t i, int mode, Datagram* d) noexcept nogil:
    cdef Frame* frame = <Frame*>slot
    d.line = d.address = 0
    frame.seqno = <uint32_t>i
    if mode == MODE_SWAPPED and i % 100 >= 98:   # two neighbours in a hundred are exchanged
        frame.seqno = <uint32_t>(i ^ 1)
    elif mode == MODE_TWICE:
        frame.seqno = <uint32_t>(i >> 1)
        d.line = <uint8_t>(i & 1)
    elif mode == MODE_FRAGMENTS:
        frame.seqno = <uint32_t>(i >> 8)
        frame.fragment = <uint8_t>(i & 255)
        frame.fragment_max = 255


cdef int64_t _run(
    Pipeline* p, uint8_t* slots, int64_t count, uint32_t size, int mode,
) noexcept nogil:
    # Returns messages delivered. Headers are written a batch ahead, so that no load has to wait
    # for a store that is still on its way.
    cdef Datagram batch[64]      # SLOTS
    cdef int64_t i, k
    cdef int64_t delivered = 0
    memset(batch, 0, sizeof(batch))
    for i in range(count // SLOTS):
        for k in range(SLOTS):
            batch[k].data = slots + k * SLOT_SIZE
            batch[k].size = size
            batch[k].received_ns = i * SLOTS + k
            _write(slots + k * SLOT_SIZE, i * SLOTS + k, mode, &batch[k])
        if mode == MODE_FLOOR:
            continue
        for k in range(SLOTS):
            pipeline_accept(p, &batch[k], i * SLOTS + k)
            delivered += _take_all(p)
    return delivered


def feed_cost_ns(str mode, int size, *, int lines=1, int count=1_280_000) -> float:
    """Return the ns that one datagram costs.

    Parameters
    ----------
    mode
        `floor` (the loop alone), `in_order`, `swapped` (2 % of neighbours exchanged), `twice`
        (every datagram from two lines) or `fragments` (256 to a message; size must be 528).
    size
        Bytes of a datagram, header included.
    lines
        Lines that are configured; more than one compares and remembers all bytes.
    count
        Datagrams, a multiple of 6,400.

    Raises
    ------
    ValueError
        If the mode is unknown, or the messages that came out are not those that went in.
    """
    cdef PipelineSettings s
    cdef LonePipeline lone
    cdef uint8_t* slots = <uint8_t*>calloc(SLOTS, SLOT_SIZE)
    cdef int64_t start, elapsed, delivered
    cdef int i
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, was {mode!r}")
    cdef int mode_ = _MODES[mode]
    pipeline_settings_default(&s)
    s.lines[0] = lines
    try:
        if not lone_open(&lone, &s) or slots == NULL:
            raise MemoryError
        for i in range(SLOTS):
            slots[i * SLOT_SIZE] = 2
            slots[i * SLOT_SIZE + 3] = 1
        with nogil:
            start = clock_monotonic_ns()
            delivered = _run(lone.pipeline, slots, count, size, mode_)
            elapsed = clock_monotonic_ns() - start
        expected = {"twice": count // 2, "fragments": count // 256}.get(mode, count)
        if mode_ and delivered != expected:
            raise ValueError(f"{mode}: expected {expected} messages, {delivered} came")
        return float(elapsed) / float(count)
    finally:
        free(slots)
        lone_close(&lone)


def main() -> None:
    """Print the best and the median of nine runs of each mode."""
    cases = [("floor", 80, 1), ("in_order", 80, 1), ("in_order", 528, 1), ("in_order", 80, 2),
             ("in_order", 528, 2), ("swapped", 80, 1), ("swapped", 528, 1), ("twice", 80, 2),
             ("twice", 528, 2), ("fragments", 528, 1), ("fragments", 528, 2)]
    print("mode         bytes  lines  ns per datagram: best  median")
    for mode, size, lines in cases:
        costs = [feed_cost_ns(mode, size, lines=lines) for _ in range(9)]
        print(f"{mode:12} {size:5} {lines:6} {min(costs):21.1f} {statistics.median(costs):7.1f}")


cdef struct Place:
    int offset
    int width
    bint big_endian
    int stream


cdef inline void _write_unit(
    uint8_t* slot, const Place* place, uint64_t number, int stream,
) noexcept nogil:
    cdef int i
    for i in range(place.width):
        slot[place.offset + (place.width - 1 - i if place.big_endian else i)] = (
            <uint8_t>(number >> (8 * i)))
    if place.stream >= 0:
        slot[place.stream] = <uint8_t>stream


cdef int64_t _run_units(
    Pipeline* p, uint8_t* slots, const Place* place, int64_t count, uint32_t size, int messages,
    int streams, int copies, bint floor,
) noexcept nogil:
    # Returns messages delivered.
    cdef Datagram batch[64]      # SLOTS
    cdef int64_t i, k, n
    cdef int64_t delivered = 0
    cdef int unit
    memset(batch, 0, sizeof(batch))
    for i in range(count // SLOTS):
        for k in range(SLOTS):
            n = i * SLOTS + k
            batch[k].data = slots + k * UNIT_SLOT_SIZE
            batch[k].size = size
            batch[k].received_ns = n
            batch[k].line = <uint8_t>(n % copies)
            _write_unit(
                slots + k * UNIT_SLOT_SIZE, place,
                <uint64_t>(1 + (n // (streams * copies)) * messages), <int>(n // copies % streams))
        if floor:
            continue
        for k in range(SLOTS):
            n = i * SLOTS + k
            if p.roq:
                pipeline_accept(p, &batch[k], n)
                delivered += _take_all(p)
                continue
            for unit in range(pipeline_units(p, &batch[k])):
                pipeline_order(p, &batch[k], &p.units[unit], n)
                delivered += _take_all(p)
    return delivered


def unit_cost_ns(
        str framing, int messages, int size, *, int streams=1, int lines=1, int copies=1,
        bint floor=False, int count=640_000) -> float:
    """Return the ns that one datagram costs.

    Parameters
    ----------
    framing
        One of roq, cme_mdp3, moldudp64, cboe_pitch.
    messages
        Of a datagram.
    size
        Bytes of a message's content.
    streams
        That take turns, of cboe_pitch.
    lines
        That are configured; more than one compares and remembers all bytes.
    copies
        Of each datagram, one behind the other, on so many lines.
    floor
        The loop alone.
    count
        Datagrams.

    Raises
    ------
    ValueError
        The messages that came out are not those that went in.
    """
    cdef PipelineSettings s
    cdef LonePipeline lone
    cdef Place place
    cdef uint8_t* slots = <uint8_t*>calloc(SLOTS, UNIT_SLOT_SIZE)
    cdef int64_t start, elapsed, delivered
    cdef int i
    wire = Framing(framing)
    place.offset, place.width, place.big_endian, place.stream = PLACES[framing]
    contents = tuple(bytes([i]) * size for i in range(messages))
    session = b"0000000001" if framing == "moldudp64" else 1
    cdef bytes data = build(framing, Sent(1, contents, (1,), session, 10**18))
    each = wire.facts.numbers is Numbers.MESSAGES
    pipeline_settings_default(&s)
    s.framing = wire.index
    s.number_bits = wire.facts.number_bits
    s.skips_zero = wire.facts.skips_zero
    s.undelimited = wire.facts.undelimited
    s.announces_start = wire.facts.announces_start
    s.each_message = each
    s.streams = streams
    s.lines[0] = lines
    s.window = 1024
    s.out_of_order_max_interval[0] = s.out_of_order_max_interval[1] = 1024
    s.slab_cells = 1024
    try:
        if not lone_open(&lone, &s) or slots == NULL:
            raise MemoryError
        for i in range(SLOTS):
            memcpy(slots + i * UNIT_SLOT_SIZE, <const uint8_t*>data, <size_t>len(data))
        messages_each = messages if each else 1
        count = count // (SLOTS * streams * copies) * SLOTS * streams * copies
        numbers = <int>messages_each
        bytes_all = <uint32_t>len(data)
        delivered = _timed_units(
            lone.pipeline, slots, &place, count, bytes_all, numbers, streams, copies, floor,
            &start, &elapsed)
        expected = count // copies * messages_each
        if not floor and delivered != expected:
            raise ValueError(f"{framing}: expected {expected}, {delivered} came")
        return float(elapsed) / float(count)
    finally:
        free(slots)
        lone_close(&lone)


cdef int64_t _timed_units(
    Pipeline* p, uint8_t* slots, const Place* place, int64_t count, uint32_t size, int messages,
    int streams, int copies, bint floor, int64_t* start, int64_t* elapsed,
) noexcept nogil:
    cdef int64_t delivered
    start[0] = clock_monotonic_ns()
    delivered = _run_units(p, slots, place, count, size, messages, streams, copies, floor)
    elapsed[0] = clock_monotonic_ns() - start[0]
    return delivered


def main_units() -> None:
    """Print the best and the median of nine runs of each case, and ns per message."""
    cases = [("roq", 1, 64, 1, 1, 1), ("roq", 1, 64, 1, 2, 1), ("cme_mdp3", 1, 54, 1, 1, 1),
             ("cme_mdp3", 1, 54, 1, 2, 1), ("moldudp64", 1, 40, 1, 1, 1),
             ("moldudp64", 30, 40, 1, 1, 1), ("moldudp64", 30, 40, 1, 2, 1),
             ("moldudp64", 30, 40, 1, 2, 2), ("cboe_pitch", 1, 40, 1, 1, 1),
             ("cboe_pitch", 1, 40, 29, 1, 1), ("cboe_pitch", 1, 40, 256, 1, 1)]
    print("framing     messages  streams  lines  copies  floor  ns per datagram: best  median  "
          "per message")
    for framing, messages, size, streams, lines, copies in cases:
        floor = min(unit_cost_ns(framing, messages, size, streams=streams, floor=True)
                    for _ in range(3))
        costs = [unit_cost_ns(framing, messages, size, streams=streams, lines=lines, copies=copies)
                 for _ in range(9)]
        print(f"{framing:12} {messages:7} {streams:8} {lines:6} {copies:7} {floor:6.1f} "
              f"{min(costs):22.1f} {statistics.median(costs):7.1f} "
              f"{(min(costs) - floor) / messages:12.1f}")


cdef class WindowLoop:           # not final: callgrind would not find an inlined `loop`
    """Take one datagram after another, in order, through the pipeline: verdict, window, message.

    Like a `Loop` of `micro`, over copies of one datagram of Roq, of 576 bytes at most.
    """

    cdef LonePipeline lone
    cdef uint8_t* slots
    cdef uint32_t size
    cdef uint32_t seqno

    def __cinit__(self, bytes datagram not None):
        cdef PipelineSettings settings
        cdef int i
        if len(datagram) > SLOT_SIZE:
            raise ValueError(f"datagram must have at most {SLOT_SIZE} bytes, had {len(datagram)}")
        pipeline_settings_default(&settings)
        self.slots = <uint8_t*>calloc(SLOTS, SLOT_SIZE)
        if self.slots == NULL or not lone_open(&self.lone, &settings):
            raise MemoryError
        self.size = <uint32_t>len(datagram)
        for i in range(SLOTS):
            memcpy(self.slots + i * SLOT_SIZE, <const uint8_t*>datagram, self.size)

    def __dealloc__(self):
        lone_close(&self.lone)
        free(self.slots)

    cdef int64_t loop(self, int64_t count) noexcept nogil:
        cdef Datagram datagram
        cdef int64_t i, done = 0
        memset(&datagram, 0, sizeof(datagram))
        datagram.size = self.size
        for i in range(count):
            datagram.data = self.slots + (i & (SLOTS - 1)) * SLOT_SIZE
            datagram.received_ns = self.seqno
            (<Frame*>datagram.data).seqno = self.seqno
            pipeline_accept(self.lone.pipeline, &datagram, self.seqno)
            done += _take_all(self.lone.pipeline)
            self.seqno += 1
        return done

    def run(self, int64_t count) -> int:
        """Return the ns that `count` operations took.

        Raises
        ------
        ValueError
            A datagram was not delivered.
        """
        cdef int64_t started, elapsed, done
        with nogil:
            started = clock_monotonic_ns()
            done = self.loop(count)
            elapsed = clock_monotonic_ns() - started
        if done != count:
            raise ValueError(f"expected {count} operations, {done} were done")
        return elapsed
