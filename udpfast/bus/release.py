"""Which copies a writer waits for before outboxes let a message go.

Nobody who copies can stop who sends: a standby that has lacked records for too long is away. It
holds no outbox until it has caught up, and what it lacks is unprotected meanwhile. The same holds
for hosts that copy from a standby: if they are away, what the standby itself has is waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

__all__ = ["Acks", "Release"]

#: Standby -> position before which it has everything, and before which those have it, too, that
#: copy from it.
Acks = Mapping[str, tuple[int, int]]
_NONE = (0, 0)

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
    above : tuple of str
        Standbys of which a host that copies from them is away, and not they themselves.
    """

    def __init__(
        self, *, copies: int = 0, away_ns: int = 0, counted: Collection[str] | None = None
    ) -> None:
        self.copies = copies
        self.away_ns = away_ns
        self.away: tuple[str, ...] = ()
        self.above: tuple[str, ...] = ()
        self._counted = counted
        self._ends: deque[tuple[int, int]] = deque()  # when, by its clock, and where it ended
        self._clock_ns = self._now_ns = 0

    def counted(self, standbys: Sequence[str]) -> list[str]:
        """Return the standbys that are waited for."""
        return [host for host in standbys if self._counted is None or host in self._counted]

    def begin(self) -> None:
        """Give all standbys their time: this host begins to write."""
        self.away = self.above = ()
        self._ends.clear()

    def look(self, now_ns: int, end: int, acks: Acks, standbys: Sequence[str]) -> list[str]:
        """Let time pass; return what is to be said of standbys.

        Parameters
        ----------
        now_ns : int
            Monotonic.
        end : int
            Where the writer's records end.
        acks : dict
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
        # Those whose position of `acks` is too old; who was among them must catch up first.
        before = self.away if which == 0 else (*self.away, *self.above)
        latest = self._ends[-1][1]
        return tuple(
            host for host in self.counted(standbys)
            if acks.get(host, _NONE)[which] < (latest if host in before else due)
        )  # fmt: skip

    def position(self, acks: Acks, standbys: Sequence[str], synced: int) -> int:
        """Return the position before which outboxes may let everything go."""
        if self.copies:
            kept = sorted((acks.get(host, _NONE)[1] for host in standbys), reverse=True)
            return kept[self.copies - 1]
        waited = [self._waited(host, acks)
                  for host in self.counted(standbys) if host not in self.away]  # fmt: skip
        # Without `away_ns`, copies in the memory of all standbys suffice.
        if self.away_ns or not waited:
            waited.append(synced)
        return min(waited)

    def _waited(self, host: str, acks: Acks) -> int:
        # Before which position a standby has what it is waited for to have.
        return acks.get(host, _NONE)[0 if host in self.above else 1]

    def holding(self, acks: Acks, standbys: Sequence[str], end: int) -> list[str]:
        """Return the standbys that outboxes wait for."""
        if self.copies and self.position(acks, standbys, 0) >= end:
            return []
        among = standbys if self.copies else self.counted(standbys)
        return [host for host in among
                if host not in self.away and self._waited(host, acks) < end]  # fmt: skip
