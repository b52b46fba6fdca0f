"""Which copies must have a message before the writer lets outboxes let it go.

A host that copies must not be able to stop those that send: a standby that has lacked records for
too long is away. Outboxes do not wait for it until it has caught up, and what it lacks is
unprotected meanwhile. The same holds for hosts that copy from a standby: while they are away,
only the standby's own copy counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

__all__ = ["Acks", "Release"]

#: For each standby: the positions up to which it has everything, and up to which the hosts that
#: copy from it have everything too.
Acks = Mapping[str, tuple[int, int]]
_NONE = (0, 0)

#: Samples of the store's end within `away_ns`.
_LOOKS = 8


class Release:
    """Decide how far the outboxes of a writer may let messages go.

    Parameters
    ----------
    copies : int
        Number of standbys, whichever they are, that must have a message; 0: all of `counted`.
    away_ns : int
        A standby that has lacked a record for this long is away; the other standbys and the
        writer's disk then suffice. 0: no standby is ever away.
    counted : collection of str or None
        Standbys that outboxes wait for; None: all.

    Attributes
    ----------
    away : tuple of str
    above : tuple of str
        Standbys that are not away themselves, but a host that copies from them is.
    """

    def __init__(
        self, *, copies: int = 0, away_ns: int = 0, counted: Collection[str] | None = None
    ) -> None:
        self.copies = copies
        self.away_ns = away_ns
        self.away: tuple[str, ...] = ()
        self.above: tuple[str, ...] = ()
        self._counted = counted
        self._ends: deque[tuple[int, int]] = deque()  # (when, by _clock_ns; end of the store)
        self._clock_ns = self._now_ns = 0

    def counted(self, standbys: Sequence[str]) -> list[str]:
        """Return the standbys that outboxes wait for."""
        return [host for host in standbys if self._counted is None or host in self._counted]

    def begin(self) -> None:
        """Start anew, because this host begins to write: no standby is away yet."""
        self.away = self.above = ()
        self._ends.clear()

    def look(self, now_ns: int, end: int, acks: Acks, standbys: Sequence[str]) -> list[str]:
        """Let time pass; return messages about standbys that are away or back.

        Parameters
        ----------
        now_ns : int
            Monotonic time.
        end : int
            End of the writer's records.
        acks : dict
            As `Acks`.
        """
        if not self.away_ns:
            return []
        # The clock stands still while this is not called: a stopped process hears of no standby.
        self._clock_ns += min(now_ns - self._now_ns, self.away_ns // _LOOKS) if self._ends else 0
        self._now_ns = now_ns
        if not self._ends or self._clock_ns - self._ends[-1][0] >= self.away_ns // _LOOKS:
            self._ends.append((self._clock_ns, end))
        while len(self._ends) > 1 and self._clock_ns - self._ends[1][0] >= self.away_ns:
            self._ends.popleft()
        then_ns, due = self._ends[0]
        if self._clock_ns - then_ns < self.away_ns:
            due = 0
        own, whole = self._lacking(0, due, acks, standbys), self._lacking(1, due, acks, standbys)
        above = tuple(host for host in whole if host not in own)
        said = [
            f"{host} has lacked records for {self.away_ns / 1e9:g} s: outboxes do not wait for it "
            "until it has caught up" for host in own if host not in self.away
        ]  # fmt: skip
        said += [
            f"a host that copies from {host} has lacked records for {self.away_ns / 1e9:g} s: "
            "outboxes do not wait for it until it has caught up"
            for host in above if host not in self.above and host not in self.away
        ]  # fmt: skip
        said += [f"{host} has caught up: outboxes wait for it again"
                 for host in (*self.away, *self.above) if host not in whole]  # fmt: skip
        self.away, self.above = own, above
        return said

    def _lacking(
        self, which: int, due: int, acks: Acks, standbys: Sequence[str]
    ) -> tuple[str, ...]:
        # Return the standbys whose position is too old. One that was away must catch up completely.
        before = self.away if which == 0 else (*self.away, *self.above)
        latest = self._ends[-1][1]
        return tuple(
            host for host in self.counted(standbys)
            if acks.get(host, _NONE)[which] < (latest if host in before else due)
        )  # fmt: skip

    def position(self, acks: Acks, standbys: Sequence[str], synced: int) -> int:
        """Return the position up to which outboxes may let messages go."""
        if self.copies:
            kept = sorted((acks.get(host, _NONE)[1] for host in standbys), reverse=True)
            return kept[self.copies - 1]
        waited = [self._waited(host, acks)
                  for host in self.counted(standbys) if host not in self.away]  # fmt: skip
        # Without `away_ns`, copies in the memory of all standbys are enough.
        if self.away_ns or not waited:
            waited.append(synced)
        return min(waited)

    def _waited(self, host: str, acks: Acks) -> int:
        # Return the position up to which a standby has what outboxes wait for.
        return acks.get(host, _NONE)[0 if host in self.above else 1]

    def holding(self, acks: Acks, standbys: Sequence[str], end: int) -> list[str]:
        """Return the standbys that outboxes are waiting for."""
        if self.copies and self.position(acks, standbys, 0) >= end:
            return []
        among = standbys if self.copies else self.counted(standbys)
        return [host for host in among
                if host not in self.away and self._waited(host, acks) < end]  # fmt: skip
