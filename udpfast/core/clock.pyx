"""The clocks: monotonic for timers, realtime for records, processor ticks for short differences."""

__all__ = ["monotonic_ns", "realtime_ns", "ticks", "ticks_per_second"]


def monotonic_ns() -> int:
    """Return the monotonic clock in nanoseconds. It never steps; its zero is arbitrary."""
    return clock_monotonic_ns()


def realtime_ns() -> int:
    """Return UNIX time in nanoseconds. It may step when the host's clock is set."""
    return clock_realtime_ns()


def ticks() -> int:
    """Return the processor's constant-rate counter (`rdtsc`, `cntvct_el0`)."""
    return clock_ticks()


def ticks_per_second(int64_t interval_ns=10_000_000) -> float:
    """Measure the rate of `ticks` against the monotonic clock.

    Parameters
    ----------
    interval_ns : int
        How long to measure. The call spins for that time; the error is about 100 ns divided by it.
    """
    if interval_ns <= 0:
        raise ValueError(f"interval_ns must be positive, was {interval_ns}")
    cdef int64_t began_ns, now_ns
    cdef uint64_t began_ticks, ended_ticks
    with nogil:
        began_ns = clock_monotonic_ns()
        began_ticks = clock_ticks()
        now_ns = began_ns
        while now_ns - began_ns < interval_ns:
            now_ns = clock_monotonic_ns()
        ended_ticks = clock_ticks()
    return (ended_ticks - began_ticks) * 1e9 / (now_ns - began_ns)
