"""What changed at the feeds of a host between two looks: rates, shares, latency of that time."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from udpfast.client.latency import Hop, hops_since, merge_readers, read_hops
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.errors import UdpfastError
from udpfast.monitor.host import HostFacts
from udpfast.monitor.paced import Paced
from udpfast.monitor.status import (
    InstanceStatus,
    ReaderStatus,
    ReplayStatus,
    read_host,
    read_some,
)

__all__ = ["FeedChange", "HostLook", "LineChange", "ReaderChange", "changes", "look_at_host"]

#: The way to a reader; its second hop is the whole way within this host.
WHOLE_WAY = "kernel_to_strategy"


class HostLook(Struct, frozen=True):
    """All that is known of the feeds of a host at one moment.

    Attributes
    ----------
    at_ns : int
        Monotonic clock.
    unix_ns : int
    feeds : dict of InstanceStatus
        By name.
    hops : dict of dict of Hop
        By feed and hop, as `read_hops` returns them.
    unreadable : dict of str
        Why nothing is known of the others, by name.
    host : HostFacts
        What is known of the host beside its feeds.
    replays : dict of ReplayStatus
        Rings that replays of records write or wrote, by name.
    """

    at_ns: int
    unix_ns: int
    feeds: dict[str, InstanceStatus]
    hops: dict[str, dict[str, Hop]]
    unreadable: dict[str, str]
    host: HostFacts
    replays: dict[str, ReplayStatus] = {}


class LineChange(Struct, frozen=True):
    """One line: per second, of the time between two looks; `*_total` since the feed's start.

    Attributes
    ----------
    datagrams_per_s : float
    first : float or None
        Part of its channel's fragments that it brought first; None: nothing came.
    lead_ns : float or None
        Mean lead over the next line where it was first; None: it never was, or is alone.
    """

    name: str
    datagrams_per_s: float
    first: float | None
    lead_ns: float | None
    losses_total: int
    kernel_drops_total: int
    silent: bool


class ReaderChange(Struct, frozen=True):
    """One reader, its records per second, and the whole way to it in that time."""

    status: ReaderStatus
    records_per_s: float
    way: Hop | None


class FeedChange(Struct, frozen=True):
    """One feed: per second, and of the time between two looks.

    Attributes
    ----------
    status : InstanceStatus
        As of the second look.
    lost : int
        Messages that no line brought, between the looks.
    hops : dict of Hop
        What was recorded between the looks, by hop; readers together.
    """

    name: str
    status: InstanceStatus
    seconds: float
    datagrams_per_s: float
    records_per_s: float
    lost: int
    lines: tuple[LineChange, ...]
    readers: tuple[ReaderChange, ...]
    hops: dict[str, Hop]

    @property
    def lost_total(self) -> int:
        """Messages that no line brought, since the feed's start, by channel incremental."""
        return self.status.counters["incremental"]["lost"]

    @property
    def kernel_drops_total(self) -> int:
        """Datagrams that the kernel dropped, of all lines, since the feed's start."""
        return sum(line.kernel_drops_total for line in self.lines)

    @property
    def lapped_total(self) -> int:
        """Records that the readers which are there missed."""
        return sum(reader.status.lapped for reader in self.readers)


def look_at_host(names: Sequence[str] = (), paced: Paced | None = None) -> HostLook:
    """Look at instances by name, or at all of this user on this host, and at the host itself.

    Parameters
    ----------
    names : sequence of str
    paced : Paced, optional
        Remembers what takes long, for who looks again.
    """
    paced = Paced() if paced is None else paced
    if names:
        status = read_some({name: name for name in names}, with_latency=False, paced=paced)
    else:
        status = read_host(with_latency=False, paced=paced)
    hops = {}
    for name, each in status.instances.items():
        try:
            hops[name] = read_hops(each.path)
        except (OSError, UdpfastError):  # removed meanwhile
            hops[name] = {}
    return HostLook(
        monotonic_ns(), realtime_ns(), status.instances, hops, status.unreadable, status.host,
        status.replays,
    )  # fmt: skip


def changes(before: HostLook, now: HostLook) -> list[FeedChange]:
    """Return what changed between two looks, of each feed that is there now, by name."""
    seconds = max((now.at_ns - before.at_ns) / 1e9, 1e-9)
    return [
        _feed_change(name, before.feeds.get(name), status, seconds, _since(name, before, now))
        for name, status in sorted(now.feeds.items())
    ]


def _since(name: str, before: HostLook, now: HostLook) -> dict[str, Hop]:
    return hops_since(now.hops[name], before.hops.get(name, {}))


def _feed_change(
    name: str,
    before: InstanceStatus | None,
    status: InstanceStatus,
    seconds: float,
    hops: dict[str, Hop],
) -> FeedChange:
    # Counters of another start began at 0. A feed that is new to us has changed in nothing yet.
    if before is None:
        before = status
    restarted = before.started_ns != status.started_ns

    def gain(scope: str, counter: str) -> int:
        earlier = 0 if restarted else before.counters.get(scope, {}).get(counter, 0)
        return status.counters[scope][counter] - earlier

    def grown(scope: str, counter: str) -> int:
        return max(gain(scope, counter), 0)

    scopes = [scope for scope in status.counters if "." in scope]
    wins = {scope: grown(scope, "wins") for scope in scopes}
    leads = {scope: grown(scope, "leads") for scope in scopes}
    lines = []
    for scope in scopes:
        channel = scope.partition(".")[0]
        brought = sum(count for other, count in wins.items() if other.startswith(f"{channel}."))
        values = status.counters[scope]
        lines.append(
            LineChange(
                name=scope,
                datagrams_per_s=grown(scope, "datagrams") / seconds,
                first=wins[scope] / brought if brought else None,
                lead_ns=gain(scope, "lead_ns") / leads[scope] if leads[scope] else None,
                losses_total=values["losses"],
                kernel_drops_total=values["kernel_drops"],
                silent=scope in status.silent_lines,
            )
        )
    read = {(one.pid, one.began_index, one.name): one.read for one in before.readers}
    readers = []
    for reader in status.readers:
        earlier = read.get((reader.pid, reader.began_index, reader.name), reader.read)
        way = hops.get(f"{WHOLE_WAY}.{reader.name or 'reader'}-{reader.pid}")
        readers.append(ReaderChange(reader, max(reader.read - earlier, 0) / seconds, way))
    return FeedChange(
        name=name,
        status=status,
        seconds=seconds,
        datagrams_per_s=sum(line.datagrams_per_s for line in lines),
        records_per_s=grown("feed", "records") / seconds,
        lost=grown("incremental", "lost"),
        lines=tuple(lines),
        readers=tuple(readers),
        hops={key: hop for key, hop in merge_readers(hops).items() if "." not in key},
    )
