"""What a feed lost of late, and where its lines disagreed: for tools that look once.

A count since the start does not tell last night from now, and Prometheus, which remembers, is not
on every host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

__all__ = ["RECENT_NS", "RecentLosses"]

#: As long as increase(...[15m]) of the alerts' rules.
RECENT_NS = 900_000_000_000
_STEP_NS = 10_000_000_000


class RecentLosses:
    """Remembers a feed's counts of the last 15 minutes, every ten seconds."""

    def __init__(self) -> None:
        self._then: deque[tuple[int, int, int]] = deque()

    def look(self, values: Mapping[str, Mapping[str, int]], now_ns: int) -> tuple[int, int]:
        """Return how many messages were lost, and how many fragments disagreed, of late.

        Parameters
        ----------
        values : mapping
            The counters of the instance.
        now_ns : int
            Monotonic clock.
        """
        lost = values["incremental"]["lost"]
        disagreements = sum(values[each]["disagreements"] for each in ("incremental", "snapshot"))
        then = self._then
        if not then:
            then.append((now_ns, 0, 0))
        elif now_ns - then[-1][0] >= _STEP_NS:
            then.append((now_ns, lost, disagreements))
        while len(then) > 1 and now_ns - then[1][0] >= RECENT_NS:
            then.popleft()
        return lost - then[0][1], disagreements - then[0][2]
