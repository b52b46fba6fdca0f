# Histogram: latencies from 1 ns to one hour with three significant digits, in shared memory.
#
# The buckets are those of HdrHistogram (1, 3_600_000_000_000, 3): values below 2048 have a slot
# each; every further power of two has 1024 slots. Recording takes one count-leading-zeros, one
# shift and one plain store; readers compute count, minimum and maximum from the slots. There is one
# writer, and tools read while it writes.

from libc.stdint cimport int64_t, uint64_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.shm.region cimport Region

cdef extern from *:
    int count_leading_zeros "__builtin_clzll" (unsigned long long value) noexcept nogil

cdef enum:
    HISTOGRAM_SECONDS_MAX = 3600  # the largest value: one hour, in ns
    HISTOGRAM_HALF_BITS = 10     # 2^10 slots per power of two: 3 significant digits
    HISTOGRAM_HALF = 1024
    HISTOGRAM_BUCKETS = 32  # number of powers of two with slots of their own: 2048 * 2^31 > 3.6e12
    HISTOGRAM_COUNTS = 33792     # (HISTOGRAM_BUCKETS + 1) * HISTOGRAM_HALF

cdef struct Histogram:
    int64_t below            # values < 0: recorded as 0 (clocks that disagree)
    int64_t above            # values > histogram_value_max(): recorded as that
    int64_t reserved[14]     # counts begin at 128
    int64_t counts[33792]

cdef inline int64_t histogram_value_max() noexcept nogil:
    return <int64_t>HISTOGRAM_SECONDS_MAX * 1_000_000_000

cdef inline int64_t histogram_index(int64_t value) noexcept nogil:
    cdef int bucket = 64 - (HISTOGRAM_HALF_BITS + 1) - count_leading_zeros(
        <uint64_t>value | (2 * HISTOGRAM_HALF - 1))
    return ((<int64_t>bucket) << HISTOGRAM_HALF_BITS) + (value >> bucket)

cdef inline int64_t histogram_clamp(Histogram* h, int64_t value, int64_t count) noexcept nogil:
    if value < 0:
        counter_add(&h.below, count)
        return 0
    counter_add(&h.above, count)
    return histogram_value_max()

cdef inline void histogram_add(Histogram* h, int64_t value, int64_t count) noexcept nogil:
    # Record a value `count` times. One unsigned comparison detects both values that are too large
    # and negative ones.
    if unlikely(<uint64_t>value > <uint64_t>histogram_value_max()):
        value = histogram_clamp(h, value, count)
    counter_add(&h.counts[histogram_index(value)], count)

cdef inline void histogram_record(Histogram* h, int64_t value) noexcept nogil:
    histogram_add(h, value, 1)

cdef inline void histogram_record_signed(
        Histogram* forward, Histogram* backward, int64_t value) noexcept nogil:
    # Record a difference between two hosts' clocks: negative ones go into a histogram of their own,
    # because they tell how far the clocks are apart.
    if value < 0:
        # Unsigned, because the smallest integer has no opposite; it is clamped.
        histogram_add(backward, <int64_t>(0 - <uint64_t>value), 1)
    else:
        histogram_add(forward, value, 1)

cdef class LatencyHistogram:
    cdef Histogram* histogram
    cdef object _memory      # keeps the pointer valid: an array, or a view of a region

# The histogram at an offset of a region. It keeps the mapping alive.
cdef LatencyHistogram histogram_of(Region region, Py_ssize_t offset)

# A copy of the histogram at an offset of untrusted bytes; empty if they cannot be counts.
cdef LatencyHistogram histogram_copied(bytes text, Py_ssize_t offset)

cdef class LatencyBlock:
    cdef readonly Region region
    cdef readonly tuple names
    # NULL if there is no histogram of this name. Valid while the block is open.
    cdef Histogram* pointer(self, str name) noexcept
