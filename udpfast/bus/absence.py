"""Decide when a host has been silent long enough to report it as gone, and when it is back."""

from __future__ import annotations

import enum

__all__ = ["GONE_NS", "Absence", "News"]

#: As a rule, a daemon that is restarted is back within this time.
GONE_NS = 2_000_000_000


class News(enum.Enum):
    """What to report about the host."""

    NONE = "none"
    GONE = "gone"
    BACK = "back"


class Absence:
    """Watch over one host.

    Parameters
    ----------
    now_ns, unix_ns : int
        Monotonic and UNIX time at which the watch begins; the host counts as heard then.

    Attributes
    ----------
    since_ns : int or None
        When the host was last heard, UNIX ns, while it is reported as gone; None: it is there.
    away_ns : int
        How long the host had not been heard when it last was, ns.
    """

    def __init__(self, now_ns: int, unix_ns: int) -> None:
        self.since_ns: int | None = None
        self.away_ns = 0
        self._heard_ns, self._heard_unix_ns = now_ns, unix_ns

    def look(self, there: bool, now_ns: int, unix_ns: int) -> News:
        """Note whether the host is heard now; return what to report.

        Parameters
        ----------
        there : bool
            The host is heard.
        now_ns, unix_ns : int
            Monotonic and UNIX time.
        """
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
