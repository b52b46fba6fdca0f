# Agents: everything that owns a thread is one. They all run in the same loop:
#
#    while not stopped:
#        work_count = agent.do_work(now_ns)      # bounded work, never blocks
#        idle_step(&idle, work_count)            # spin, yield or sleep when there was none
#        now_ns = clock_monotonic_ns()           # the only clock read of the turn

from libc.stdint cimport int64_t, uint64_t
from udpfast.core.idle cimport Idle

cdef enum:
    AGENTS_MAX = 8                # agents on one thread: each one waits for the turns of the others
    CYCLE_SLOW_NS = 1_000_000     # a longer turn counts as slow: a feed's buffers feel it
    # do_work returns it when there will never be any work again: the runner then ends without an
    # error. It is far from every -errno (the kernel's largest is 4095).
    AGENT_DONE = -1_000_000

cdef class Agent:
    cdef readonly str role
    cdef object failure           # what ended do_work, for join() to raise again
    cdef int do_work(self, int64_t now_ns) noexcept nogil

cdef class AgentRunner:
    cdef readonly tuple agents
    cdef readonly tuple grants
    cdef object _settings
    cdef object _worker
    cdef object _settled  # a lock that the thread releases once it has begun, or has failed to
    cdef object _failure
    cdef bint _used               # `start` or `run` was called
    cdef bint _began              # every on_start returned
    cdef void* _borrowed[AGENTS_MAX]    # of `agents`, so that the loop counts no references
    cdef int _count
    cdef int _failed                    # index of the agent that ended the loop
    cdef Idle _idle
    cdef uint64_t _stopped              # written by any thread, read by the loop once per turn
    cdef int64_t _own[3]                # the statistics, unless count_into gave other slots
    cdef int64_t* _cycles
    cdef int64_t* _longest_ns
    cdef int64_t* _slow
    cdef void count_into(self, int64_t* cycles, int64_t* longest_ns, int64_t* slow) noexcept
    cdef int _loop(self) noexcept nogil
