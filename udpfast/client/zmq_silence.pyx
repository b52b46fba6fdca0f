"""When a reader of ZeroMQ says that it hears nothing of its fan-out; the rules, without a clock."""

cimport cython
from libc.stdint cimport int64_t

__all__ = ["Silence"]

cdef enum:
    LIMIT_AUTO = -1
    HEARTBEATS_MISSED = 4
    # A reader that was stopped, or busy, finds its queue empty at first: the library's own thread
    # needs a moment to fill it. So nothing is said before a second look, this much later.
    GRACE_NS = 100_000_000


@cython.final
cdef class Silence:
    """How long nothing came, and whether that is too long.

    Parameters
    ----------
    limit_ns : int, optional
        So long; 0: never. None: four of the fan-out's heartbeats.

    Attributes
    ----------
    silent : bool
    """

    def __init__(self, limit_ns: int | None = None):
        self._limit_ns = LIMIT_AUTO if limit_ns is None else limit_ns

    def heard(self, now_ns: int, heartbeat_ns: int) -> bool:
        """Take note of a message of the fan-out, and of its heartbeat.

        Returns
        -------
        bool
            Whether it had been silent.
        """
        return self.hear(now_ns, heartbeat_ns)

    def look(self, now_ns: int) -> bool:
        """Take note that nothing is there.

        Returns
        -------
        bool
            Whether it is silent from now on.
        """
        return self.judge(now_ns)

    cdef void begin(self) noexcept:
        # It is silent from now on, as the fan-out said itself.
        self.silent = True

    cdef bint hear(self, int64_t now_ns, int64_t heartbeat_ns) noexcept:
        cdef bint was_silent = self.silent
        self._heard_ns = now_ns
        self._heartbeat_ns = heartbeat_ns
        self._doubted_ns = 0
        self.silent = False
        return was_silent

    cdef bint judge(self, int64_t now_ns) noexcept:
        cdef int64_t limit_ns = self._limit_ns
        if limit_ns == LIMIT_AUTO:
            limit_ns = HEARTBEATS_MISSED * self._heartbeat_ns
        if limit_ns == 0 or self.silent or self.since(now_ns) < limit_ns:
            return False
        if self._doubted_ns == 0:
            self._doubted_ns = now_ns
        self.silent = now_ns - self._doubted_ns >= GRACE_NS
        return self.silent

    cdef int64_t since(self, int64_t now_ns) noexcept:
        # How long nothing came.
        return now_ns - self._heard_ns if self._heard_ns else 0
