"""Which copies a writer waits for before outboxes let a message go.

Nobody who copies can stop who sends: a standby that has lacked records for too long is away. It
holds no outbox until it has caught up, and what it lacks is unprotected meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

__all__ = ["Release"]

#: Looks at where the store ended, within the time after which a standby is away.
_LOOKS = 8


class Release:
    """Decides how far a writer's outboxes may let go.

    Parameters
    ----------
    copies : int
        So many standbys must have a message, whichever they are; 0: all of `counted`.
    away_ns : int
        A standby that has lacked a record for so long is away, and the others and the writer's
        disk suffice; 0: every standby is waited for.
    counted : collection of str or None
        Standbys that are waited for; None: all.

    Attributes
    ----------
    away : tuple of str
    """

    def __init__(
        self, *, copies: int = 0, away_ns: int = 0, counted: Collection[str] | None = None
    ) -> None:
        self.copies = copies
        self.away_ns = away_ns
        self.away: tuple[str, ...] = ()
        self._counted = counted
        self._ends: deque[tuple[int, int]] = deque()  # when, by its clock, and where it ended
        self._clock_ns = self._now_ns = 0

    def counted(self, standbys: Sequence[str]) -> list[str]:
        """Return the standbys that are waited for."""
        return [host for host in standbys if self._counted is None or host in self._counted]

    def begin(self) -> None:
        """Give all standbys their time: this host begins to write."""
        self.away = ()
        self._ends.clear()

    def look(
        self, now_ns: int, end: int, kept: Mapping[str, int], standbys: Sequence[str]
    ) -> list[str]:
        """Let time pass; return what is to be said of standbys.

        Parameters
        ----------
        now_ns : int
            Monotonic.
        end : int
            Where the writer's records end.
        kept : dict
            Standby -> position before which it has everything.
        standbys : sequence of str
        """
        if not self.away_ns:
            return []
        # It stands still while nobody looks: a process that was stopped heard of no standby.
        self._clock_ns += min(now_ns - self._now_ns, self.away_ns // _LOOKS) if self._ends else 0
        self._now_ns = now_ns
        if not self._ends or self._clock_ns - self._ends[-1][0] >= self.away_ns // _LOOKS:
            self._ends.append((self._clock_ns, end))
        while len(self._ends) > 1 and self._clock_ns - self._ends[1][0] >= self.away_ns:
            self._ends.popleft()
        then_ns, due = self._ends[0]
        if self._clock_ns - then_ns < self.away_ns:
            due = 0
        away = tuple(
            host for host in self.counted(standbys)
            if kept.get(host, 0) < (self._ends[-1][1] if host in self.away else due)
        )  # fmt: skip
        said = [
            f"{host} has lacked records for {self.away_ns / 1e9:g} s: outboxes do not wait for it "
            "until it has caught up" for host in away if host not in self.away
        ]  # fmt: skip
        said += [f"{host} has caught up: outboxes wait for it again"
                 for host in self.away if host not in away]  # fmt: skip
        self.away = away
        return said

    def position(self, kept: Mapping[str, int], standbys: Sequence[str], synced: int) -> int:
        """Return the position before which outboxes may let everything go."""
        if self.copies:
            return sorted((kept.get(host, 0) for host in standbys), reverse=True)[self.copies - 1]
        waited = [kept.get(host, 0)
                  for host in self.counted(standbys) if host not in self.away]  # fmt: skip
        # Without `away_ns`, copies in the memory of all standbys suffice.
        if self.away_ns or not waited:
            waited.append(synced)
        return min(waited)

    def holding(self, kept: Mapping[str, int], standbys: Sequence[str], end: int) -> list[str]:
        """Return the standbys that outboxes wait for."""
        if self.copies and self.position(kept, standbys, 0) >= end:
            return []
        among = standbys if self.copies else self.counted(standbys)
        return [host for host in among if host not in self.away and kept.get(host, 0) < end]
