"""What accept + take cost: a nogil loop over datagrams in memory, without sockets and ring.

    python -c "from bench.loops.feed_cost import main; main()"

Question: how many ns does the feed spend on one datagram? The datagrams lie in 64 slots, as a
receiving batch does; their headers are written anew batch by batch (which is measured alone, as
`floor`, and not taken off).
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from bench.loops.lone_pipeline cimport LonePipeline, lone_close, lone_open
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, Datagram, Frame, Message
from udpfast.feed.pipeline cimport pipeline_accept, pipeline_take
from udpfast.feed.pipeline_state cimport (
    Pipeline, PipelineSettings, pipeline_settings_default)

import statistics

__all__ = ["feed_cost_ns", "main"]

cdef enum:
    SLOTS = 64
    SLOT_SIZE = 576              # a datagram of 528 bytes on cache lines of its own
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
    d.line = 0
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


def feed_cost_ns(str mode, int size, *, int lines=1, int count=1_280_000):
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


def main():
    """Print the best and the median of nine runs of each mode."""
    cases = [("floor", 80, 1), ("in_order", 80, 1), ("in_order", 528, 1), ("in_order", 80, 2),
             ("in_order", 528, 2), ("swapped", 80, 1), ("swapped", 528, 1), ("twice", 80, 2),
             ("twice", 528, 2), ("fragments", 528, 1), ("fragments", 528, 2)]
    print("mode         bytes  lines  ns per datagram: best  median")
    for mode, size, lines in cases:
        costs = [feed_cost_ns(mode, size, lines=lines) for _ in range(9)]
        print(f"{mode:12} {size:5} {lines:6} {min(costs):21.1f} {statistics.median(costs):7.1f}")
