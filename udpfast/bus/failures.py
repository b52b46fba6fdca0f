"""Links of a copy that end again and again for one reason: that is said, and they become seldom."""

from __future__ import annotations

__all__ = ["Failures"]

#: Links that end for one reason, one behind the other, without a record: no accident any more.
FAILURES_SAID = 5
#: A link that lives so long is sound, even if there was no record to copy.
SOUND_NS = 2_000_000_000


class Failures:
    """Counts the links that ended because of what came over them.

    Attributes
    ----------
    reason : str
        Why they end; empty: they do not, or not often enough to say so.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._last = ("", -1)  # why the last one ended, and where the copy did
        self._count = 0
        self._since_ns: int | None = None  # the link that lives now follows

    def ended(self, why: str, source: str, end: int) -> bool:
        """Take why a link ended; return whether the reason is to be said now.

        Parameters
        ----------
        why : str
        source : str
            The host at the other end.
        end : int
            Where the copy ends.
        """
        self._since_ns = None
        if (why, end) != self._last:
            self._last, self._count = (why, end), 0
        self._count += 1
        if self._count != FAILURES_SAID:
            return False
        self.reason = f"copies nothing from {source} since position {end}: {why}; tries on"
        return True

    def follows(self, end: int, now_ns: int) -> bool:
        """Take that a link follows; return whether links need not be seldom."""
        if self._since_ns is None:
            self._since_ns = now_ns
        if self._count and (end != self._last[1] or now_ns - self._since_ns >= SOUND_NS):
            self._last, self._count = ("", -1), 0
            self.reason = ""
        return not self._count

    def broke(self) -> None:
        """Take that a link ended for another reason: the network, or either host."""
        self._since_ns = None
