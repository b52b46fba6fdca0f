# The only file that names clock_gettime. Below an agent, time is an argument: the agent's loop
# reads the clock once per turn and passes now_ns down.

from libc.stdint cimport int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    /* The processor's constant-rate counter: not serialising, for differences only. */
    static inline uint64_t udpfast_ticks(void) {
    #if defined(__x86_64__)
        return __builtin_ia32_rdtsc();
    #elif defined(__aarch64__)
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    #else
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    #endif
    }
    """
    uint64_t udpfast_ticks() noexcept nogil


cdef inline int64_t clock_monotonic_ns() noexcept nogil:
    # For timers and differences; it never steps. 24 ns (vDSO).
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef inline int64_t clock_realtime_ns() noexcept nogil:
    # UNIX ns, to be written into records. It may step, so no timer uses it.
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef inline uint64_t clock_ticks() noexcept nogil:
    # In units of the processor's counter (see clock.ticks_per_second). 10 ns on x86-64.
    return udpfast_ticks()
