# Silence: whether a fan-out is still there, from when its messages came. A fan-out says something
# at least every `heartbeat`; who hears nothing for several of them is cut off from it, or it is
# gone.

from libc.stdint cimport int64_t

cdef class Silence:
    cdef int64_t _limit_ns       # as its reader asked for; LIMIT_AUTO: HEARTBEATS_MISSED of them
    cdef int64_t _heartbeat_ns   # as the fan-out says; 0: not known
    cdef int64_t _heard_ns       # 0: nothing yet
    cdef int64_t _doubted_ns     # when it was looked in vain, for too long, first; 0: not yet
    cdef readonly bint silent

    cdef void begin(self) noexcept
    cdef bint hear(self, int64_t now_ns, int64_t heartbeat_ns) noexcept
    cdef bint judge(self, int64_t now_ns) noexcept
    cdef int64_t since(self, int64_t now_ns) noexcept
