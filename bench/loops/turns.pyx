"""Drive an agent by hand: one turn at a time, at times that a test chooses."""

cimport cython
from libc.stdint cimport int64_t

from udpfast.core.agent cimport Agent

__all__ = ["Turns"]


@cython.final
cdef class Turns:
    """An agent without its runner, in the calling thread.

    Parameters
    ----------
    agent : Agent
        Started when the context is entered, stopped when it is left.
    """

    cdef Agent _agent

    def __init__(self, Agent agent not None):
        self._agent = agent

    def turn(self, now_ns: int) -> int:
        """Do one turn of work at this monotonic time; return the work count, or -errno."""
        cdef int64_t now = now_ns
        cdef int count
        with nogil:
            count = self._agent.do_work(now)
        return count

    def __enter__(self):
        self._agent.on_start()
        return self

    def __exit__(self, *exception):
        self._agent.on_stop()
