# What a loop does after a turn without work. One struct per loop, one step per turn:
#
#    idle_reset(&idle, IDLE_BACKOFF, IDLE_SLEEP_MAX_NS)
#    while ...:
#        idle_step(&idle, work())

from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport nanosleep, timespec
from udpfast.core.atomics cimport cpu_relax

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:  # IdleStrategy
    IDLE_SPIN = 0      # never gives the core away: for a dedicated core
    IDLE_YIELD = 1     # sched_yield after each empty turn: for shared cores
    IDLE_BACKOFF = 2   # spin, then yield, then sleep for longer and longer
    IDLE_SLEEP = 3     # sleep after each empty turn: for background work

cdef enum:
    # An empty turn with one empty recv takes about 0.3 us. So 1,000 spins last 0.3 ms, longer than
    # the time between two datagrams of an active feed.
    IDLE_SPINS = 1_000
    IDLE_YIELDS = 100
    IDLE_SLEEP_MIN_NS = 1_000
    # The longest sleep delays the wake-up after silence and the report of a gap by time
    # (lost_packet_wait is 5 ms): 1 ms is small against both.
    IDLE_SLEEP_MAX_NS = 1_000_000

cdef struct Idle:
    uint32_t mode            # IdleStrategy
    uint32_t parked          # 1: the last step gave the core away (yield or sleep)
    uint64_t empty_turns     # since the last turn with work
    int64_t sleep_ns         # duration of a backoff's next sleep
    int64_t sleep_max_ns


cdef inline void idle_reset(Idle* idle, uint32_t mode, int64_t sleep_max_ns) noexcept nogil:
    idle.mode = mode
    idle.parked = 0
    idle.empty_turns = 0
    idle.sleep_ns = IDLE_SLEEP_MIN_NS
    idle.sleep_max_ns = sleep_max_ns


cdef inline void idle_step(Idle* idle, int work_count) noexcept nogil:
    # Call once per turn, with what the turn did (> 0: something). Inline as far as the spin: an
    # empty turn of a spinning loop costs one pause instruction and no call.
    idle.parked = 0
    if work_count > 0:
        idle.empty_turns = 0
        idle.sleep_ns = IDLE_SLEEP_MIN_NS
        return
    idle.empty_turns += 1
    if idle.mode == IDLE_SPIN or (idle.mode == IDLE_BACKOFF and idle.empty_turns <= IDLE_SPINS):
        cpu_relax()
    else:
        idle.parked = 1
        idle_park(idle)


cdef inline void idle_park(Idle* idle) noexcept nogil:
    if idle.mode == IDLE_SLEEP:
        idle_sleep(idle.sleep_max_ns)
    elif idle.mode == IDLE_YIELD or idle.empty_turns <= IDLE_SPINS + IDLE_YIELDS:
        sched_yield()
    else:
        idle_sleep(idle.sleep_ns)
        idle.sleep_ns = min(2 * idle.sleep_ns, idle.sleep_max_ns)


cdef inline void idle_sleep(int64_t sleep_ns) noexcept nogil:
    # A signal may end the sleep early (EINTR), which is fine: the loop then turns at once.
    cdef timespec duration
    duration.tv_sec = sleep_ns // 1_000_000_000
    duration.tv_nsec = sleep_ns % 1_000_000_000
    nanosleep(&duration, NULL)
