"""The rules by which a ZeroMQ reader decides that its fan-out is silent; time is an argument."""

cimport cython
from libc.stdint cimport int64_t

__all__ = ["Silence"]

cdef enum:
    LIMIT_AUTO = -1
    HEARTBEATS_MISSED = 4
    # A reader that was stopped or busy may find its queue empty at first, because libzmq's thread
    # needs a moment to fill it. So a second check, this much later, must confirm the silence.
    GRACE_NS = 100_000_000


@cython.final
cdef class Silence:
    """Detects that no message has come for too long.

    Parameters
    ----------
    limit_ns : int, optional
        Silence after which the fan-out counts as silent; 0: never; None: four of its heartbeats.

    Attributes
    ----------
    silent : bool
        Whether the fan-out counts as silent.
    """

    def __init__(self, limit_ns: int | None = None):
        self._limit_ns = LIMIT_AUTO if limit_ns is None else limit_ns

    def heard(self, now_ns: int, heartbeat_ns: int) -> bool:
        """Note a message of the fan-out, and the heartbeat interval that it states.

        Returns
        -------
        bool
            Whether the fan-out had been silent.
        """
        return self.hear(now_ns, heartbeat_ns)

    def look(self, now_ns: int) -> bool:
        """Note that there is no message.

        Returns
        -------
        bool
            Whether the fan-out has just become silent.
        """
        return self.judge(now_ns)

    cdef void begin(self) noexcept:
        # Count the fan-out as silent from now on: it stated that its feed failed.
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
        # Time since the last message; 0 before the first one.
        return now_ns - self._heard_ns if self._heard_ns else 0
