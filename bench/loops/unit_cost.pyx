"""What the feed costs for a datagram of any framing: units, order, take; no sockets and no ring.

    python -c "from bench.loops.unit_cost import main; main()"

Question: how many ns for one message in order, and does the number of streams matter? Datagrams lie
in 64 slots, as a receiving batch does; their numbers are written anew batch by batch (which is
measured alone, as `floor`, and not taken off).
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from bench.loops.lone_pipeline cimport LonePipeline, lone_close, lone_open
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, Datagram, Message
from udpfast.feed.pipeline cimport pipeline_accept, pipeline_order, pipeline_take, pipeline_units
from udpfast.feed.pipeline_state cimport (
    Pipeline, PipelineSettings, pipeline_settings_default)

import statistics

from ..framing_trains import PLACES
from udpfast.lab.framings import Sent, build
from udpfast.wire.facts import Numbers
from udpfast.wire.framing import Framing

__all__ = ["main", "unit_cost_ns"]

cdef enum:
    SLOTS = 64
    SLOT_SIZE = 1536

cdef struct Place:
    int offset
    int width
    bint big_endian
    int stream


cdef inline void _write(
    uint8_t* slot, const Place* place, uint64_t number, int stream,
) noexcept nogil:
    cdef int i
    for i in range(place.width):
        slot[place.offset + (place.width - 1 - i if place.big_endian else i)] = (
            <uint8_t>(number >> (8 * i)))
    if place.stream >= 0:
        slot[place.stream] = <uint8_t>stream


cdef inline int64_t _take_all(Pipeline* p) noexcept nogil:
    cdef Message m
    cdef int64_t messages = 0
    while pipeline_take(p, &m):
        messages += m.kind == KIND_MESSAGE
    return messages


cdef int64_t _run(
    Pipeline* p, uint8_t* slots, const Place* place, int64_t count, uint32_t size, int messages,
    int streams, bint floor,
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
            batch[k].data = slots + k * SLOT_SIZE
            batch[k].size = size
            batch[k].received_ns = n
            _write(slots + k * SLOT_SIZE, place, <uint64_t>(1 + (n // streams) * messages),
                   <int>(n % streams))
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
    str framing, int messages, int size, *, int streams=1, int lines=1, bint floor=False,
    int count=640_000,
):
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
    cdef uint8_t* slots = <uint8_t*>calloc(SLOTS, SLOT_SIZE)
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
            memcpy(slots + i * SLOT_SIZE, <const uint8_t*>data, <size_t>len(data))
        messages_each = messages if each else 1
        count = count // (SLOTS * streams) * SLOTS * streams
        numbers = <int>messages_each
        bytes_all = <uint32_t>len(data)
        delivered = _timed(
            lone.pipeline, slots, &place, count, bytes_all, numbers, streams, floor, &start,
            &elapsed)
        if not floor and delivered != count * messages_each:
            raise ValueError(f"{framing}: expected {count * messages_each}, {delivered} came")
        return float(elapsed) / float(count)
    finally:
        free(slots)
        lone_close(&lone)


cdef int64_t _timed(
    Pipeline* p, uint8_t* slots, const Place* place, int64_t count, uint32_t size, int messages,
    int streams, bint floor, int64_t* start, int64_t* elapsed,
) noexcept nogil:
    cdef int64_t delivered
    start[0] = clock_monotonic_ns()
    delivered = _run(p, slots, place, count, size, messages, streams, floor)
    elapsed[0] = clock_monotonic_ns() - start[0]
    return delivered


def main():
    """Print the best and the median of nine runs of each case, and ns per message."""
    cases = [("roq", 1, 64, 1, 1), ("roq", 1, 64, 1, 2), ("cme_mdp3", 1, 54, 1, 1),
             ("cme_mdp3", 1, 54, 1, 2), ("moldudp64", 1, 40, 1, 1), ("moldudp64", 30, 40, 1, 1),
             ("moldudp64", 30, 40, 1, 2), ("cboe_pitch", 1, 40, 1, 1),
             ("cboe_pitch", 1, 40, 29, 1), ("cboe_pitch", 1, 40, 256, 1)]
    print("framing     messages  streams  lines  floor  ns per datagram: best  median  per message")
    for framing, messages, size, streams, lines in cases:
        floor = min(unit_cost_ns(framing, messages, size, streams=streams, floor=True)
                    for _ in range(3))
        costs = [unit_cost_ns(framing, messages, size, streams=streams, lines=lines)
                 for _ in range(9)]
        print(f"{framing:12} {messages:7} {streams:8} {lines:6} {floor:6.1f} {min(costs):22.1f} "
              f"{statistics.median(costs):7.1f} {(min(costs) - floor) / messages:12.1f}")
