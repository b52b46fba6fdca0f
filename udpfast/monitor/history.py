"""What the feeds of a host did in the last minutes: a point per look, for charts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from udpfast.client.latency import Hop
from udpfast.monitor.change import FeedChange, HostLook, changes, look_at_host
from udpfast.monitor.paced import Paced

__all__ = ["History", "Point"]

_PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}


class Point(Struct, frozen=True):
    """One feed between two looks; rates per second, latency in ns.

    Attributes
    ----------
    unix_ns : int
        Of the second look.
    lost, kernel_drops, lapped : int
        Messages that no line brought, datagrams that the kernel dropped, and records that readers
        missed, between the looks.
    latency_ns : dict of dict of int
        By hop and percentile; without hops in which nothing was recorded.
    first : dict of float
        By line, the part of its channel's fragments that it brought first.
    lead_ns : dict of float
        By line, its mean lead over the next one, of the fragments that it brought first.
    in_doubt : dict of int
        Objects in doubt, by reason; empty without an image.
    lag : dict of int
        By reader, `NAME PID`: records between it and the ring's end.
    """

    unix_ns: int
    datagrams_per_s: float
    records_per_s: float
    lost: int
    kernel_drops: int
    lapped: int
    latency_ns: dict[str, dict[str, int]]
    first: dict[str, float]
    lead_ns: dict[str, float]
    in_doubt: dict[str, int]
    lag: dict[str, int]


class History:
    """The last looks at the feeds of a host.

    Parameters
    ----------
    names : sequence of str, optional
        Of the instances; by default all of this user.
    length : int, optional
        Points that are kept of each feed.

    Attributes
    ----------
    length : int
    look : HostLook
        The newest.
    feeds : dict of FeedChange
        By name, between the last two looks.
    points : dict of deque of Point
        By name, the oldest first; also of feeds that were removed, until the oldest point goes.
    """

    def __init__(self, names: Sequence[str] = (), length: int = 300) -> None:
        self._names = tuple(names)
        self._paced = Paced()
        self.length = length
        self.look: HostLook = look_at_host(self._names, self._paced)
        self.feeds = {feed.name: feed for feed in changes(self.look, self.look)}
        self.points: dict[str, deque[Point]] = {}

    def first(self) -> str:
        """Return which feed to show until one is chosen: one that runs, if any does; or ""."""
        lives = ("running", "stuck", "paused", "failed", "dead", "stopped")
        return min(self.feeds, key=lambda name: lives.index(self.feeds[name].status.life),
                   default="")  # fmt: skip

    def advance(self) -> None:
        """Look again. Reads shared memory and files: no feed takes part."""
        now = look_at_host(self._names, self._paced)
        before = self.feeds
        self.feeds = {feed.name: feed for feed in changes(self.look, now)}
        self.look = now
        for name, feed in self.feeds.items():
            points = self.points.setdefault(name, deque(maxlen=self.length))
            points.append(_point(feed, before.get(name, feed), now.unix_ns))
        for name in [*self.points.keys() - self.feeds.keys()]:
            self.points[name].popleft()
            if not self.points[name]:
                del self.points[name]


def _point(feed: FeedChange, before: FeedChange, unix_ns: int) -> Point:
    return Point(
        unix_ns=unix_ns,
        datagrams_per_s=feed.datagrams_per_s,
        records_per_s=feed.records_per_s,
        lost=feed.lost,
        # A feed that was started anew counts from 0, and a reader that left takes its count along.
        kernel_drops=max(feed.kernel_drops_total - before.kernel_drops_total, 0),
        lapped=max(feed.lapped_total - before.lapped_total, 0),
        latency_ns={name: _percentiles(hop) for name, hop in feed.hops.items() if hop.count},
        first={line.name: line.first for line in feed.lines if line.first is not None},
        lead_ns={line.name: line.lead_ns for line in feed.lines if line.lead_ns is not None},
        in_doubt={} if feed.status.objects is None else feed.status.objects.in_doubt,
        lag={
            f"{one.status.name or 'reader'} {one.status.pid}": one.status.lag
            for one in feed.readers
            if one.status.alive
        },
    )


def _percentiles(hop: Hop) -> dict[str, int]:
    return hop.percentiles(_PERCENTS)
