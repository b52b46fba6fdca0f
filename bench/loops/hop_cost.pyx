"""What measuring latency costs: nogil loops over what the feed's loop and a reader do for it.

    python -c "from bench.loops.hop_cost import main; main()"

Question: how many ns does one message pay for its histograms? Values are spread as latencies are
(a few microseconds, now and then a hundred), so that slots come from cache as they do live. The
loop alone (`floor`) is measured beside it and not taken off.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport KIND_MESSAGE, Record
from udpfast.log.readers cimport ReaderEntry, reader_time, reader_time_all
from udpfast.shm.histogram cimport (
    HISTOGRAM_COUNTS, Histogram, histogram_record, histogram_record_signed,
)

import statistics

__all__ = ["hop_cost_ns", "main"]

cdef enum:
    MODE_FLOOR = 0
    MODE_RECORD = 1              # one histogram
    MODE_LOOP = 2                # what the loop does: two, and a third for every 16th batch
    MODE_BATCH = 3               # what Reader.poll does for a batch, its clock read included
    MODE_ITERATE = 4             # what an iteration does: each record, with a clock read
    VALUES = 4096
    SAMPLE = 16

_MODES = {"floor": MODE_FLOOR, "record": MODE_RECORD, "loop": MODE_LOOP, "batch": MODE_BATCH,
          "iterate": MODE_ITERATE}


cdef void _fill(int64_t* values, Record* records, int batch) noexcept nogil:
    # xorshift: the same values in every run.
    cdef uint64_t state = 88172645463325252
    cdef int64_t now_ns = clock_realtime_ns()
    cdef int i
    for i in range(VALUES):
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
        values[i] = 3_000 + <int64_t>(state % 4_000)
        if state >> 58 == 0:
            values[i] += <int64_t>(state % 100_000)
        records[i].kind = KIND_MESSAGE
        records[i].received_ns = now_ns - values[i]
        records[i].published_ns = now_ns - values[i - i % batch] // 2


cdef int64_t _run(
        int mode, int64_t messages, int batch, const int64_t* values, const Record* records,
        ReaderEntry* entry, Histogram* histograms) noexcept nogil:
    cdef int64_t i, value, unix_ns = 0, sum = 0
    for i in range(messages):
        value = values[i & (VALUES - 1)]
        if mode == MODE_FLOOR:
            sum += value
        elif mode == MODE_RECORD:
            histogram_record(histograms, value)
        elif mode == MODE_LOOP:
            if i & (batch - 1) == 0:  # a division would cost more than what is measured
                unix_ns = value
            histogram_record(histograms, value)
            histogram_record_signed(histograms + 1, histograms + 2, value + 100_000)
            if i & (SAMPLE * batch - 1) == 0:
                histogram_record(histograms + 3, clock_realtime_ns() & 4095)
        elif mode == MODE_BATCH:
            if i & (batch - 1) == 0:
                reader_time_all(entry, records + (i & (VALUES - 1)), batch, clock_realtime_ns())
        else:
            reader_time(entry, records + (i & (VALUES - 1)), clock_realtime_ns())
    return sum + unix_ns


def hop_cost_ns(str mode, int batch=64, *, int messages=1_024_000) -> float:
    """Return the ns that one message costs.

    Parameters
    ----------
    mode
        `floor` (the loop alone), `record` (one histogram), `loop` (all that the feed's loop
        records), `batch` (all that `Reader.poll` records) or `iterate` (that an iteration does).
    batch
        Messages that come together; a divisor of 4,096.
    messages
        How many to measure over, a multiple of 4,096.

    Raises
    ------
    ValueError
        If the mode is unknown, or the histograms do not hold what was recorded.
    """
    cdef int64_t* values = <int64_t*>calloc(VALUES, sizeof(int64_t))
    cdef Record* records = <Record*>calloc(VALUES, sizeof(Record))
    cdef Histogram* histograms = <Histogram*>calloc(4, sizeof(Histogram))
    cdef ReaderEntry* entry = <ReaderEntry*>calloc(1, sizeof(ReaderEntry))
    cdef int64_t start, elapsed, sum, counted = 0, i
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, was {mode!r}")
    if batch < 1 or VALUES % batch or messages % VALUES:
        raise ValueError(f"expected a batch that divides {VALUES} and a multiple of it, "
                         f"found {batch} and {messages}")
    cdef int mode_ = _MODES[mode]
    try:
        if values == NULL or records == NULL or histograms == NULL or entry == NULL:
            raise MemoryError
        with nogil:
            _fill(values, records, batch)
            start = clock_monotonic_ns()
            sum = _run(mode_, messages, batch, values, records, entry, histograms)
            elapsed = clock_monotonic_ns() - start
        for i in range(HISTOGRAM_COUNTS):
            counted += histograms[0].counts[i] + entry.kernel_to_strategy.counts[i]
        if (counted if mode_ else messages * (sum > 0)) != messages:
            raise ValueError(f"{mode}: expected {messages} values, {counted} were counted")
        return float(elapsed) / float(messages)
    finally:
        free(values)
        free(records)
        free(histograms)
        free(entry)


def main() -> None:
    """Print the best and the median of nine runs of each mode."""
    cases = [("floor", 64), ("record", 64), ("loop", 1), ("loop", 64), ("batch", 1), ("batch", 16),
             ("batch", 64), ("batch", 4096), ("iterate", 64)]
    print("mode      batch  ns per message: best  median")
    for mode, batch in cases:
        costs = [hop_cost_ns(mode, batch) for _ in range(9)]
        print(f"{mode:9} {batch:5} {min(costs):21.2f} {statistics.median(costs):7.2f}")
