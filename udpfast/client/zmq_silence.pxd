# Silence: decides from the arrival of its messages whether a fan-out is still there. A fan-out
# sends a message at least every `heartbeat`. If none arrives for several heartbeats, the fan-out
# has died, or the reader is cut off from it.

from libc.stdint cimport int64_t

cdef class Silence:
    cdef int64_t _limit_ns       # set by the user; LIMIT_AUTO: HEARTBEATS_MISSED heartbeats
    cdef int64_t _heartbeat_ns   # as the fan-out states it; 0: not known
    cdef int64_t _heard_ns       # when the last message came; 0: none yet
    cdef int64_t _doubted_ns     # when a check first found the limit exceeded; 0: not exceeded
    cdef readonly bint silent

    cdef void begin(self) noexcept
    cdef bint hear(self, int64_t now_ns, int64_t heartbeat_ns) noexcept
    cdef bint judge(self, int64_t now_ns) noexcept
    cdef int64_t since(self, int64_t now_ns) noexcept
