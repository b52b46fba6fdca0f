"""Which messages outboxes may let go although a standby lacks them.

A writer does not wait for a standby that is away. A standby is away if, by its acknowledgements, it
has lacked some record for `away_ns` and has not caught up since. The standby may really have more
than it has acknowledged, because acknowledgements take time to arrive. The judgement is made at the
moment when the writer lets a message go.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from .bus_oracle import Oracle

__all__ = ["Excused"]

_NOTHING = 0, 0


@dataclass
class _Writer:
    """A host that writes, in one of its epochs."""

    epoch: int
    began_ns: int
    away: set[str] = field(default_factory=set)  # standbys that are rightly taken for away
    let_go: int = 0


class Excused:
    """Records that a writer was right to let go although a standby lacked them.

    Parameters
    ----------
    oracle : Oracle
    hosts : collection of str
    sources : dict
        Host -> host that it copies from, whoever the writer is.
    away_ns : int
        0: no standby is ever away.

    Attributes
    ----------
    places : set of (int, int)
        Epoch and position of each such record.
    """

    def __init__(
        self, oracle: Oracle, hosts: Collection[str], sources: Mapping[str, str], away_ns: int
    ) -> None:
        self.places: set[tuple[int, int]] = set()
        self._oracle = oracle
        self._hosts = set(hosts)
        self._sources = sources
        self._away_ns = away_ns
        self._writers: dict[str, _Writer] = {}

    def look(self, host: str, store: Any, now_ns: int) -> None:
        """Judge what a writer lets go; call this after each of its steps."""
        if not self._away_ns:
            return
        writer = self._writers.get(host)
        if writer is None or writer.epoch != store.epoch:
            writer = self._writers[host] = _Writer(store.epoch, now_ns)
        writer.away = {
            name for name, heard in self._said_away(store).items()
            if name in writer.away
            or now_ns - max(writer.began_ns, self._since_ns(host, heard)) >= self._away_ns
        }  # fmt: skip
        before, writer.let_go = writer.let_go, store.let_go
        places = self._oracle.views[host].places
        for position, epoch in places[bisect.bisect_left(places, (before, 0)) :]:
            if position >= min(writer.let_go, store.log.synced()):
                break
            if self._hosts - self._oracle.holders[epoch, position] <= writer.away:
                self.places.add((epoch, position))

    def _said_away(self, store: Any) -> dict[str, int]:
        # Standby that the writer takes for away -> position up to which it acknowledged all.
        release, said = store.release, {}
        for standby in release.away:
            said[standby] = store.acks.get(standby, _NOTHING)[0]
        for standby in (*release.away, *release.above):
            for name, source in self._sources.items():
                if source == standby:
                    said[name] = store.acks.get(standby, _NOTHING)[1]
        return said

    def _since_ns(self, writer: str, heard: int) -> float:
        # Time of the oldest record that a standby has not acknowledged.
        places = self._oracle.views[writer].places
        at = bisect.bisect_left(places, (heard, 0))
        if at == len(places):
            return math.inf
        position, epoch = places[at]
        return self._oracle.written_ns[epoch, position]
