"""When a host that should be heard has gone for so long that it is said, and when it is back."""

from __future__ import annotations

import enum

__all__ = ["GONE_NS", "Absence", "News"]

#: A daemon that is started again is back within this, as a rule.
GONE_NS = 2_000_000_000


class News(enum.Enum):
    """What is to be said."""

    NONE = "none"
    GONE = "gone"
    BACK = "back"


class Absence:
    """Watches one host.

    Parameters
    ----------
    now_ns, unix_ns : int
        Monotonic, and UNIX: it counts as heard then.

    Attributes
    ----------
    since_ns : int or None
        When it was heard last, UNIX, if it is gone; None: it is there.
    away_ns : int
        For how long it was not heard, as of the last look before it came back.
    """

    def __init__(self, now_ns: int, unix_ns: int) -> None:
        self.since_ns: int | None = None
        self.away_ns = 0
        self._heard_ns, self._heard_unix_ns = now_ns, unix_ns

    def look(self, there: bool, now_ns: int, unix_ns: int) -> News:
        """Take whether it is heard now."""
        if there:
            back = self.since_ns is not None
            self.since_ns = None
            self.away_ns = now_ns - self._heard_ns
            self._heard_ns, self._heard_unix_ns = now_ns, unix_ns
            return News.BACK if back else News.NONE
        if self.since_ns is None and now_ns - self._heard_ns >= GONE_NS:
            self.since_ns = self._heard_unix_ns
            return News.GONE
        return News.NONE
