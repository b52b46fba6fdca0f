"""What this machine does to a measurement: how often it stops a thread, how far its cores are.

A pinned thread that spins sees every stop as a gap between two readings of the clock. Two pinned
threads that hand a cache line to and fro see how far apart their cores are at the moment: a host
that moves virtual cores between core complexes changes that by the second, and with it the cost
of everything that two processes share.
"""

import os
import threading
from dataclasses import dataclass

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.stdlib cimport posix_memalign

from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.clock cimport clock_monotonic_ns

__all__ = ["COMPILER", "FLAGS", "Gaps", "core_to_core_ns", "pinned", "spin"]

cdef extern from *:
    """
    #ifndef UDPFAST_BUILD_FLAGS
    #define UDPFAST_BUILD_FLAGS "unknown"
    #endif
    #if defined(__clang__)
    #define UDPFAST_COMPILER "clang " __clang_version__
    #else
    #define UDPFAST_COMPILER "gcc " __VERSION__
    #endif
    """
    const char* UDPFAST_BUILD_FLAGS
    const char* UDPFAST_COMPILER

#: What compiled these modules, and with which flags beyond Python's own.
COMPILER: str = UDPFAST_COMPILER.decode()
FLAGS: str = UDPFAST_BUILD_FLAGS.decode()

cdef enum:
    GAP_NS = 2_000           # two clock readings are 24 ns apart; a short interrupt takes 1-2 us
    CHUNKS = 9               # averages, of which the median counts: a stop spoils only one
    SPINS_PER_CLOCK = 4096   # how rarely a waiting thread looks at its deadline
    LINE = 128               # prefetchers fetch cache lines in pairs

cdef struct Table:
    uint64_t ping
    uint64_t padding[15]
    uint64_t pong
    uint64_t rest[15]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Stops of a pinned spinning thread.

    Attributes
    ----------
    core : int
    elapsed_ns : int
    over_10us, over_1ms : int
        Stops longer than that.
    longest_ns : int
    lost_ns : int
        Sum of all stops over 2 us.
    """

    core: int
    elapsed_ns: int
    over_10us: int
    over_1ms: int
    longest_ns: int
    lost_ns: int


class pinned:  # noqa: N801  (a verb, as in `with pinned(1):`)
    """Keep the calling thread on one core while the block lasts.

    Attributes
    ----------
    core : int
    before : set[int]
    """

    def __init__(self, core: int):
        self.core = core

    def __enter__(self):
        self.before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.core})
        return self

    def __exit__(self, kind, value, trace):
        os.sched_setaffinity(0, self.before)


def spin(int core, int64_t duration_ns) -> Gaps:
    """Spin on one core, without the GIL, and count the stops.

    Raises
    ------
    OSError
        There is no such core, or it is not allowed.
    """
    cdef int64_t began, end, before, now, gap
    cdef int64_t over_10us = 0, over_1ms = 0, longest = 0, lost = 0
    if duration_ns <= 0:
        raise ValueError(f"duration_ns must be positive, was {duration_ns}")
    with pinned(core), nogil:
        began = clock_monotonic_ns()
        end = began + duration_ns
        before = began
        while before < end:
            now = clock_monotonic_ns()
            gap = now - before
            if gap > GAP_NS:
                lost += gap
                longest = max(longest, gap)
                over_10us += gap > 10_000
                over_1ms += gap > 1_000_000
            before = now
    return Gaps(core, before - began, over_10us, over_1ms, longest, lost)


def core_to_core_ns(
        int first, int second, int64_t round_trips=1_000, int64_t timeout_ns=500_000_000) -> float:
    """Return the one-way time of a cache line between two cores; 2 to 6 ms long.

    Parameters
    ----------
    first, second : int
        Cores; the calling thread goes to `first` for that time.
    round_trips : int
        In each of nine chunks, of which the median counts.
    timeout_ns : int
        How long a machine that does not let both run may hold this up.

    Returns
    -------
    float
        Nanoseconds, or nan if the time was over first.

    Raises
    ------
    ValueError
        It is one core twice.
    OSError
        There is no such core, or it is not allowed.
    """
    if first == second:
        raise ValueError(f"expected two cores, found {first} twice")
    cdef Table* table = NULL
    if posix_memalign(<void**>&table, LINE, sizeof(Table)) != 0:
        raise MemoryError("no memory for two cache lines")
    memset(table, 0, sizeof(Table))
    cdef int64_t deadline = clock_monotonic_ns() + timeout_ns
    problems = []
    count = (CHUNKS + 1) * round_trips
    answer = threading.Thread(
        target=_answer, args=(<size_t>table, second, count, deadline, problems)
    )
    cdef int64_t times[CHUNKS]
    cdef int chunks = 0
    cdef int chunk
    cdef int64_t began = 0
    try:
        with pinned(first):
            answer.start()
            with nogil:
                for chunk in range(-1, CHUNKS):      # the first one warms up
                    began = clock_monotonic_ns()
                    if not _serve(table, (chunk + 1) * round_trips, round_trips, deadline):
                        break
                    if chunk >= 0:
                        times[chunk] = clock_monotonic_ns() - began
                        chunks += 1
            answer.join()
    finally:
        free(table)
    if problems:
        raise problems[0]
    if chunks < CHUNKS:
        return float("nan")
    return sorted(times[chunk] for chunk in range(CHUNKS))[CHUNKS // 2] / (2.0 * round_trips)


cdef bint _serve(Table* table, int64_t base, int64_t count, int64_t deadline) noexcept nogil:
    cdef int64_t i
    for i in range(base + 1, base + count + 1):
        store_release(&table.ping, <uint64_t>i)   # _answer waits for it
        if not _await(&table.pong, <uint64_t>i, deadline):
            return False
    return True


def _answer(size_t address, int core, int64_t count, int64_t deadline, problems):
    cdef Table* table = <Table*>address
    cdef int64_t i
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:
        problems.append(error)     # for the caller, who runs into its deadline
        return
    with nogil:
        for i in range(1, count + 1):
            if not _await(&table.ping, <uint64_t>i, deadline):
                break
            store_release(&table.pong, <uint64_t>i)   # _serve waits for it


cdef inline bint _await(uint64_t* word, uint64_t value, int64_t deadline) noexcept nogil:
    cdef int64_t spins = 0
    while load_acquire(word) != value:
        spins += 1
        if spins % SPINS_PER_CLOCK == 0 and clock_monotonic_ns() > deadline:
            return False
    return True
