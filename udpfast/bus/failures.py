"""Recognise links of a copy that keep ending for one reason: report that, and reconnect rarely."""

from __future__ import annotations

__all__ = ["Failures"]

#: This many links in a row that end for one reason and without a record are no accident.
FAILURES_SAID = 5
#: A link that follows for this long is sound, even if there was no record to copy.
SOUND_NS = 2_000_000_000


class Failures:
    """Count the links that ended because of what arrived on them.

    Attributes
    ----------
    reason : str
        Why they end; empty: they do not, or not often enough to report.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._last = ("", -1)  # why the last link ended, and the end of the copy then
        self._count = 0
        self._since_ns: int | None = None  # when the current link began to follow

    def ended(self, why: str, source: str, end: int) -> bool:
        """Note why a link ended; return whether to report the reason now.

        Parameters
        ----------
        why : str
        Why the link ended.
            The host at the other end.
            The host at the other end.
        end : int
            Position of the end of the copy.
        """
        self._since_ns = None
        if (why, end) != self._last:
            self._last, self._count = (why, end), 0
        self._count += 1
        if self._count != FAILURES_SAID:
            return False
        self.reason = f"copies nothing from {source} since position {end}: {why}; keeps trying"
        return True

    def follows(self, end: int, now_ns: int) -> bool:
        """Note that a link follows; return whether links need not be rare."""
        if self._since_ns is None:
            self._since_ns = now_ns
        if self._count and (end != self._last[1] or now_ns - self._since_ns >= SOUND_NS):
            self._last, self._count = ("", -1), 0
            self.reason = ""
        return not self._count

    def broke(self) -> None:
        """Note that a link ended for another reason: the network or one of the hosts."""
        self._since_ns = None
