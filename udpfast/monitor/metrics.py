"""The facts of instances as Prometheus takes them: names, units, help; for a scrape or as text.

Conventions: https://prometheus.io/docs/practices/naming/. Base units only (seconds, bytes); what
only grows ends in `_total`; the feed's name is the label `feed`, since `instance` is the address
that was scraped. Needs the extra `[monitor]`. A scrape reads shared memory, as `udpfast stat` does:
the feed's process takes no part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from udpfast.client.latency import Hop, read_hops
from udpfast.core.counter import (
    ADDRESS_COUNTERS,
    CHANNEL_COUNTERS,
    FEED_COUNTERS,
    LINE_COUNTERS,
    VERDICTS,
    CounterInfo,
)
from udpfast.errors import UdpfastError
from udpfast.monitor.families import Families, distinct_names
from udpfast.monitor.host_metrics import add_host
from udpfast.monitor.losses import HostLosses, read_losses
from udpfast.monitor.objects import REASONS
from udpfast.monitor.paced import Paced
from udpfast.monitor.status import HostStatus, InstanceStatus, ReplayStatus, read_host, read_some
from udpfast.monitor.troubles import TroubleKind, find_troubles
from udpfast.shm.answers import TALLIES
from udpfast.shm.relay_counts import RELAY_COUNTS, RELAY_GAUGES, RELAY_LINE_COUNTS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["FeedCollector", "feed_registry", "metrics_text"]

# What goes up and down, or is a code: gauges. (The leads of a line may sum up to less.)
_GAUGES = {
    "bypass_stack": "bypass_stack",
    "bypass_state": "bypass_state",
    "cycle_longest_ns": "cycle_longest_seconds",
    "decoder": "decoder",
    "addresses_silent": "addresses_silent",
    "heard_ns": "heard_timestamp_seconds",
    "lead_ns": "lead_seconds",
    "objects": "objects",
    "objects_stranded": "objects_stranded",
    "objects_waiting": "objects_waiting",
    "silent": "silent",
    "took_over": "took_over",
    "wait_ns": "hole_wait_seconds",
}
_UP = "whether the feed's process lives, and can be found"
_ENDED = (
    "whether the feed ended in good order: it was stopped, and is not to be missed, or is about to "
    "be started again"
)
# Two kinds of servers have them, with one meaning here.
_SERVER_MEANINGS = {
    "requests": "requests sent, or snapshots asked for",
    "messages": "messages that the server sent",
    "failures": "requests that could not be sent, connections that could not be made, or broke",
    "full": "datagrams that had to wait for room before the feed's loop",
}
# What promtool would take for a unit, and units as it wants them.
_RENAMED = {"unused_bits": "unused_control", "stalled_ns": "stalled_seconds"}
_VERDICTS = {info.name for info in VERDICTS}
_HOST = {
    "rcvbuf_errors": "datagrams that found a socket's receive buffer full, of all sockets",
    "checksum_errors": "datagrams with a wrong checksum",
    "memory_errors": "datagrams for which the kernel had no memory",
    "no_ports": "datagrams to a port without a socket",
    "softnet_dropped": "frames that found a processor's backlog full",
    "softnet_squeezed": "times that a processor stopped receiving with work left: no loss yet",
}


class FeedCollector:
    """Collects the metrics of instances whenever a registry asks for them.

    Parameters
    ----------
    names : sequence of str
        Of the instances, or their directories; empty: all of this user on this host, and what is
        known of the host beside them.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = tuple(names)
        self._paced = Paced()

    def collect(self) -> Iterator[Metric]:
        """Yield each family of metrics, with the samples of every instance."""
        families = Families()
        readable = "whether the instance can be read: 0, it is no feed's, or of another version"
        host = self._look()
        for name in host.unreadable:
            families.gauge("feed_readable", readable, False, feed=name)
        for name, status in host.instances.items():
            facts = _hops_and_host(status)
            families.gauge("feed_readable", readable, facts is not None, feed=name)
            if facts is None:
                continue
            hops, losses = facts
            _add_feed(families, name, status)
            _add_counters(families, name, status)
            _add_addresses(families, name, status)
            _add_readers(families, name, status)
            _add_agents(families, name, status)
            _add_servers(families, name, status)
            _add_relay(families, name, status)
            _add_latency(families, name, hops)
            _add_host_losses(families, name, losses)
        for name, replay in host.replays.items():
            _add_replay(families, name, replay)
        for name in host.host.runs:
            if name not in host.instances and (not self._names or name in self._names):
                families.gauge("feed_up", _UP, False, feed=name)
                families.gauge("feed_ended", _ENDED, False, feed=name)
        if not self._names:
            add_host(families, host.host)
            _add_troubles(families, host)
        yield from families.made.values()

    def _look(self) -> HostStatus:
        if self._names:
            named = {name.rstrip("/").rpartition("/")[2]: name for name in self._names}
            return read_some(named, with_latency=False, paced=self._paced)
        return read_host(with_latency=False, paced=self._paced)


def _hops_and_host(status: InstanceStatus) -> tuple[dict[str, Hop], HostLosses] | None:
    try:
        return read_hops(status.path), read_losses(status.path).host
    except (OSError, UdpfastError):  # it was removed just now
        return None


def feed_registry(names: Sequence[str] = ()) -> CollectorRegistry:
    """Return a registry of prometheus_client with the metrics of instances, and nothing else."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(FeedCollector(names))
    return registry


def metrics_text(names: Sequence[str] = (), *, openmetrics: bool = False) -> str:
    """Return the metrics of instances in Prometheus's text format, or as OpenMetrics text."""
    from prometheus_client import generate_latest
    from prometheus_client.openmetrics import exposition

    if not openmetrics:
        return generate_latest(feed_registry(names)).decode()
    text: bytes = exposition.generate_latest(feed_registry(names))  # type: ignore[no-untyped-call]
    return text.decode()


def _add_troubles(families: Families, host: HostStatus) -> None:
    found = find_troubles(host.host, host.instances, host.unreadable)
    counts = Counter(each.kind for each in found)
    text = "what needs attention, as udpfast stat and top list it, by kind"
    for kind in TroubleKind:
        families.gauge("troubles", text, counts[kind], kind=kind.name.lower())


def _add_feed(families: Families, feed: str, status: InstanceStatus) -> None:
    removed = status.note is not None and status.note.what == "removed"
    families.gauge("feed_up", _UP, status.alive and not removed, feed=feed)
    stuck = "how long the loop of a feed whose process lives has stood still; 0: it does not"
    stuck_ns = status.stuck_ns if status.life == "stuck" else 0
    families.gauge("feed_stuck_seconds", stuck, stuck_ns / 1e9, feed=feed)
    fine = status.life in ("stopped", "paused") and not status.paused_long
    ended = fine and status.note is None
    families.gauge("feed_ended", _ENDED, ended, feed=feed)
    start = "when the feed was started, UNIX time"
    families.gauge("feed_start_time_seconds", start, status.started_ns / 1e9, feed=feed)
    sums = "by how much the feed's sums differ, together; of a feed at rest it must be 0"
    families.gauge("feed_ledger_difference", sums, status.ledger.difference, feed=feed)
    records = "records that the ring carried, its earlier writers' included"
    families.counter("ring_records", records, status.records, feed=feed)
    carried = "bytes that the ring carried, its earlier writers' included"
    families.counter("ring_bytes", carried, status.position, feed=feed)
    epoch = "which writer of the ring this is: it grows with each start"
    families.gauge("ring_epoch", epoch, status.epoch, feed=feed)
    if status.image is not None:
        objects = "objects that the image holds for readers that come late"
        families.gauge("image_objects", objects, status.image["objects"], feed=feed)
    if status.objects is not None:
        sound = "objects of which what the image has may be believed"
        families.gauge("objects_sound", sound, status.objects.sound, feed=feed)
        doubted = f"objects in doubt now, by reason: {'; '.join(_reasons())}"
        for reason, count in status.objects.in_doubt.items():
            families.gauge("objects_in_doubt", doubted, count, feed=feed, reason=reason)


def _add_replay(families: Families, feed: str, status: ReplayStatus) -> None:
    up = "whether a replay of records into the ring goes on"
    families.gauge("replay_up", up, status.life == "running", feed=feed)
    done = "which part of the recorded time a replay of records has replayed, 0 to 1"
    families.gauge("replay_done_ratio", done, status.replay.done or 0.0, feed=feed)


def _reasons() -> Iterator[str]:
    return (f"{reason}, {text}" for reason, text in REASONS.items())


def _add_counters(families: Families, feed: str, status: InstanceStatus) -> None:
    for scope, values in status.counters.items():
        channel, _, line = scope.partition(".")
        if line:
            labels = {"feed": feed, "channel": channel, "line": line}
            for info in VERDICTS:
                families.counter(
                    "line_verdicts",
                    "datagrams by what became of them: each has one verdict",
                    values[info.name],
                    **labels,
                    verdict=info.name,
                )
            silent = "whether the line brings nothing, by session.inactivity_timeout_ms"
            families.gauge("line_silent", silent, scope in status.silent_lines, **labels)
            own = [info for info in LINE_COUNTERS if info.name not in _VERDICTS]
            _add_scope(families, "line", own, values, labels)
        elif scope == "feed":
            _add_scope(families, "feed", FEED_COUNTERS, values, {"feed": feed})
        else:
            labels = {"feed": feed, "channel": channel}
            _add_scope(families, "channel", CHANNEL_COUNTERS, values, labels)


def _add_addresses(families: Families, feed: str, status: InstanceStatus) -> None:
    # Lines with one address say it by their own counters.
    for scope, addresses in status.addresses.items():
        channel, _, line = scope.partition(".")
        for address, values in addresses.items():
            labels = {"feed": feed, "channel": channel, "line": line, "address": address}
            _add_scope(families, "address", ADDRESS_COUNTERS, values, labels)


def _add_scope(
    families: Families,
    scope: str,
    infos: Iterable[CounterInfo],
    values: dict[str, int],
    labels: dict[str, str],
) -> None:
    for info in infos:
        value = values[info.name] / 1e9 if info.unit == "ns" else values[info.name]
        if info.name in _GAUGES:
            families.gauge(f"{scope}_{_GAUGES[info.name]}", info.meaning, value, **labels)
        else:
            families.counter(
                f"{scope}_{_RENAMED.get(info.name, info.name)}", info.meaning, value, **labels
            )


def _add_readers(families: Families, feed: str, status: InstanceStatus) -> None:
    names = distinct_names((reader.name, reader.pid) for reader in status.readers)
    for reader, name in zip(status.readers, names, strict=True):
        labels = {"feed": feed, "reader": name, "pid": str(reader.pid)}
        families.gauge("reader_up", "whether the reader's process lives", reader.alive, **labels)
        lag = "records between the writer's last flush and the reader, as of its last poll"
        families.gauge("reader_lag_records", lag, reader.lag, **labels)
        behind = "bytes between the writer's last flush and the reader, as of its last poll"
        families.gauge("reader_lag_bytes", behind, reader.lag_bytes, **labels)
        read = "records that the reader took"
        families.counter("reader_read_records", read, reader.read, **labels)
        lapped = "records that the reader missed, because it was behind by more than the ring"
        families.counter("reader_lapped_records", lapped, reader.lapped, **labels)


def _add_agents(families: Families, feed: str, status: InstanceStatus) -> None:
    for agent in status.agents:
        labels = {"feed": feed, "agent": agent.name}
        up = "whether the agent works: it runs, and has not failed for run.restart_steady_ms"
        working = status.alive and agent.state == "running" and agent.works
        families.gauge("agent_up", up, working, **labels)
        down = "when the agent failed first, UNIX time; 0: it works"
        families.gauge("agent_down_timestamp_seconds", down, agent.down_ns / 1e9, **labels)
        families.counter(
            "agent_restarts", "times that the agent was started again", agent.restarts, **labels
        )
        families.counter("agent_cycles", "turns of the agent", agent.cycles, **labels)


def _add_servers(families: Families, feed: str, status: InstanceStatus) -> None:
    for server, tallies in status.servers.items():
        labels = {"feed": feed, "server": server}
        silent = "whether the server does not answer: its last requests, or the last snapshot"
        families.gauge("server_silent", silent, tallies["silent"], **labels)
        for info in TALLIES[server]:
            if info.name != "silent":
                meaning = _SERVER_MEANINGS.get(info.name, info.meaning)
                families.counter(f"server_{info.name}", meaning, tallies[info.name], **labels)


def _add_relay(families: Families, feed: str, status: InstanceStatus) -> None:
    for scope, values in (status.relay or {}).items():
        line = scope.removeprefix("line ")
        labels = {"feed": feed} | ({"line": line} if line != scope else {})
        meanings = RELAY_COUNTS if line == scope else RELAY_LINE_COUNTS
        for key, value in values.items():
            name = key if line == scope else f"line_{key}"
            add = (
                families.gauge
                if meanings is RELAY_COUNTS and key in RELAY_GAUGES
                else (families.counter)
            )
            add(f"relay_{name}", meanings[key], value, **labels)


def _add_latency(families: Families, feed: str, hops: dict[str, Hop]) -> None:
    text = (
        "time of a hop on the way from the publisher to the ring, to the resolution of the feed's "
        "own histograms; values below 0 (clocks of two hosts) count as 0"
    )
    of_reader = "time of a hop up to one reader, to the resolution of its own histograms"
    for key, hop in hops.items():
        name, _, reader = key.partition(".")
        if reader:
            families.histogram(
                "reader_latency_seconds", of_reader, hop, feed=feed, hop=name, reader=reader
            )
        else:
            families.histogram("hop_latency_seconds", text, hop, feed=feed, hop=name)


def _add_host_losses(families: Families, feed: str, host: HostLosses) -> None:
    # In the feed's network namespace: all datagrams, no matter which process they were for.
    for name, text in _HOST.items():
        families.counter(f"host_{name}", f"{text}; whole host", getattr(host, name), feed=feed)
