"""What accept + take cost: a nogil loop over datagrams in memory, without sockets and ring.

    python -c "from udpfast.testing.feed_cost import main; main()"

Question: how many ns does the feed spend on one datagram? The datagrams lie in 64 slots, as a
receiving batch does, and each slot's header is written anew for every datagram (that store and the
loop itself are measured alone, as `floor`, and not taken off).
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.stdlib cimport posix_memalign

from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.counter cimport Counters
from udpfast.core.layout cimport (
    KIND_MESSAGE, LINES_MAX, Datagram, Frame, Message,
)
from udpfast.feed.pipeline cimport (
    Pipeline, PipelineSettings, pipeline_accept, pipeline_init, pipeline_memory_size,
    pipeline_settings_default, pipeline_take,
)

import statistics

__all__ = ["feed_cost_ns", "main"]

cdef enum:
    SLOTS = 64

_MODES = {"floor": 0, "in_order": 1, "swapped": 2, "twice": 3, "fragments": 4}


cdef inline uint32_t _take_all(Pipeline* p) noexcept nogil:
    cdef Message m
    cdef uint32_t messages = 0
    while pipeline_take(p, &m):
        messages += m.kind == KIND_MESSAGE
    return messages


cdef int64_t _run(
    Pipeline* p, uint8_t* slots, int64_t count, uint32_t size, int mode,
) noexcept nogil:
    # Returns messages delivered; with mode 0, something that depends on every header.
    cdef Datagram d
    cdef Frame* frame
    cdef int64_t i
    cdef int64_t delivered = 0
    memset(&d, 0, sizeof(d))
    for i in range(count):
        d.data = slots + (i % SLOTS) * 576
        d.size = size
        d.received_ns = i
        d.line = 0
        frame = <Frame*>d.data
        frame.seqno = <uint32_t>i
        frame.last_seqno = <uint32_t>i - 1
        if mode == 0:
            delivered += frame.seqno & 1
            continue
        if mode == 2 and i % 100 >= 98:          # two neighbours in a hundred are exchanged
            frame.seqno = <uint32_t>(i ^ 1)
        elif mode == 3:
            frame.seqno = <uint32_t>(i >> 1)
            d.line = <uint8_t>(i & 1)
        elif mode == 4:
            frame.seqno = <uint32_t>(i >> 8)
            frame.fragment = <uint8_t>(i & 255)
            frame.fragment_max = 255
        pipeline_accept(p, &d, i)
        delivered += _take_all(p)
    return delivered


def feed_cost_ns(str mode, int size, *, int lines=1, int count=2_000_000):
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
        Datagrams.

    Raises
    ------
    ValueError
        If the mode is unknown, or the messages that came out are not those that went in.
    """
    cdef PipelineSettings s
    cdef Counters counters
    cdef Pipeline* p = <Pipeline*>calloc(1, sizeof(Pipeline))
    cdef int64_t* block = <int64_t*>calloc(64 * 64, sizeof(int64_t))
    cdef uint8_t* slots = <uint8_t*>calloc(SLOTS, 576)
    cdef void* memory = NULL
    cdef int64_t start, elapsed, delivered
    cdef int channel, line, i
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, was {mode!r}")
    cdef int mode_ = _MODES[mode]
    pipeline_settings_default(&s)
    s.lines_incremental = lines
    counters.feed = block
    for channel in range(2):
        counters.channel[channel] = block + channel * 64
        for line in range(LINES_MAX):
            counters.line[channel][line] = block + (2 + channel * LINES_MAX + line) * 64
    for i in range(SLOTS):
        slots[i * 576] = 2
        slots[i * 576 + 3] = 1
    try:
        if posix_memalign(&memory, 64, pipeline_memory_size(&s)) or p == NULL or block == NULL:
            raise MemoryError
        pipeline_init(p, &s, memory, pipeline_memory_size(&s), &counters)
        with nogil:
            start = clock_monotonic_ns()
            delivered = _run(p, slots, count, size, mode_)
            elapsed = clock_monotonic_ns() - start
        expected = {"twice": count // 2, "fragments": count // 256}.get(mode, count)
        if mode_ and delivered != expected:
            raise ValueError(f"{mode}: expected {expected} messages, {delivered} came")
        return float(elapsed) / float(count)
    finally:
        free(memory)
        free(slots)
        free(block)
        free(p)


def main():
    """Print the median of five runs of each mode."""
    cases = [("floor", 80, 1), ("in_order", 80, 1), ("in_order", 528, 1), ("in_order", 80, 2),
             ("in_order", 528, 2), ("swapped", 80, 1), ("swapped", 528, 1), ("twice", 80, 2),
             ("twice", 528, 2), ("fragments", 528, 1), ("fragments", 528, 2)]
    print("mode         bytes  lines  ns per datagram")
    for mode, size, lines in cases:
        cost = statistics.median(
            feed_cost_ns(mode, size, lines=lines, count=1_024_000) for _ in range(5))
        print(f"{mode:12} {size:5} {lines:6} {cost:10.1f}")
