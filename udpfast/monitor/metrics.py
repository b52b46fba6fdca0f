"""The facts of instances as Prometheus takes them: names, units, help; for a scrape or as text.

Conventions: https://prometheus.io/docs/practices/naming/. Base units only (seconds, bytes); what
only grows ends in `_total`; the feed's name is the label `feed`, since `instance` is the address
that was scraped. Needs the extra `[monitor]`. A scrape reads shared memory, as `udpfast stat` does:
the feed's process takes no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from udpfast.client.latency import Hop, read_hops
from udpfast.core.counter import (
    CHANNEL_COUNTERS,
    FEED_COUNTERS,
    LINE_COUNTERS,
    VERDICTS,
    CounterInfo,
)
from udpfast.errors import UdpfastError
from udpfast.monitor.losses import HostLosses, read_losses
from udpfast.monitor.status import InstanceStatus, read_host, read_status
from udpfast.shm.histogram import LatencyHistogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["BOUNDS_NS", "FeedCollector", "feed_registry", "metrics_text"]

#: Upper ends of the buckets of latency: from a quarter of a microsecond to a second.
BOUNDS_NS = tuple(step * 10**power for power in range(1, 8) for step in (25, 50, 100))

# What goes up and down, or is a code: gauges. (The leads of a line may sum up to less.)
_GAUGES = {
    "bypass_stack": "bypass_stack",
    "bypass_state": "bypass_state",
    "cycle_longest_ns": "cycle_longest_seconds",
    "heard_ns": "heard_timestamp_seconds",
    "lead_ns": "lead_seconds",
    "objects": "objects",
}
# What promtool would take for a unit.
_RENAMED = {"unused_bits": "unused_control"}
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
        Of the instances, or their directories; empty: all of this user on this host.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = tuple(names)

    def collect(self) -> Iterator[Metric]:
        """Yield each family of metrics, with the samples of every instance."""
        families = _Families()
        readable = "whether the instance can be read: 0, it is no feed's, or of another version"
        for name, status in self._statuses().items():
            facts = None if status is None else _hops_and_host(status)
            families.gauge("feed_readable", readable, facts is not None, feed=name)
            if status is None or facts is None:
                continue
            hops, host = facts
            _add_feed(families, name, status)
            _add_counters(families, name, status)
            _add_readers(families, name, status)
            _add_agents(families, name, status)
            _add_latency(families, name, hops)
            _add_host(families, name, host)
        yield from families.made.values()

    def _statuses(self) -> dict[str, InstanceStatus | None]:
        # By name; None: it cannot be read.
        if not self._names:
            host = read_host(with_latency=False)
            return {**host.instances, **dict.fromkeys(host.unreadable)}
        found: dict[str, InstanceStatus | None] = {}
        for name in self._names:
            label = name.rstrip("/").rpartition("/")[2]
            try:
                found[label] = read_status(name, with_latency=False)
            except (OSError, UdpfastError):
                found[label] = None
        return found


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


def metrics_text(names: Sequence[str] = ()) -> str:
    """Return the metrics of instances as OpenMetrics text."""
    from prometheus_client.openmetrics.exposition import generate_latest

    text: bytes = generate_latest(feed_registry(names))  # type: ignore[no-untyped-call]
    return text.decode()


class _Families:
    """Families by name, each made when its first sample comes."""

    def __init__(self) -> None:
        self.made: dict[str, Metric] = {}

    def gauge(self, name: str, text: str, value: float, **labels: str) -> None:
        self._add("gauge", name, text, "", float(value), labels)

    def counter(self, name: str, text: str, value: float, **labels: str) -> None:
        self._add("counter", name, text, "_total", float(value), labels)

    def histogram(self, name: str, text: str, measured: Hop, **labels: str) -> None:
        counts, total = _cumulated(measured)
        for bound_ns, count in zip(BOUNDS_NS, counts, strict=True):
            le = {"le": repr(bound_ns / 1e9)}
            self._add("histogram", name, text, "_bucket", count, labels | le)
        self._add("histogram", name, text, "_bucket", measured.count, labels | {"le": "+Inf"})
        self._add("histogram", name, text, "_count", measured.count, labels)
        self._add("histogram", name, text, "_sum", total, labels)

    def _add(
        self, kind: str, name: str, text: str, suffix: str, value: float, labels: dict[str, str]
    ) -> None:
        from prometheus_client.metrics_core import Metric

        full = f"udpfast_{name}"
        if full not in self.made:
            self.made[full] = Metric(full, f"{text[0].upper()}{text[1:]}.", kind)
        self.made[full].add_sample(full + suffix, labels, value)


def _add_feed(families: _Families, feed: str, status: InstanceStatus) -> None:
    up = "whether the feed's process lives"
    families.gauge("feed_up", up, status.alive, feed=feed)
    start = "when the feed was started, UNIX time"
    families.gauge("feed_start_time_seconds", start, status.started_ns / 1e9, feed=feed)
    sums = "datagrams of all lines without their verdicts; of a feed at rest it must be 0"
    difference = status.ledger.datagrams - status.ledger.verdicts
    families.gauge("feed_ledger_difference", sums, difference, feed=feed)
    records = "records that the ring carried, its earlier writers' included"
    families.counter("ring_records", records, status.records, feed=feed)
    carried = "bytes that the ring carried, its earlier writers' included"
    families.counter("ring_bytes", carried, status.position, feed=feed)
    epoch = "which writer of the ring this is: it grows with each start"
    families.gauge("ring_epoch", epoch, status.epoch, feed=feed)
    if status.image is not None:
        objects = "objects that the image holds for readers that come late"
        families.gauge("image_objects", objects, status.image["objects"], feed=feed)


def _add_counters(families: _Families, feed: str, status: InstanceStatus) -> None:
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


def _add_scope(
    families: _Families,
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


def _add_readers(families: _Families, feed: str, status: InstanceStatus) -> None:
    shown = set()
    for reader in status.readers:
        name = reader.name or "reader"
        while (name, reader.pid) in shown:  # one process, two readers of one name
            name += "+"
        shown.add((name, reader.pid))
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


def _add_agents(families: _Families, feed: str, status: InstanceStatus) -> None:
    for agent in status.agents:
        labels = {"feed": feed, "agent": agent.name}
        running = status.alive and agent.state == "running"
        families.gauge("agent_up", "whether the agent runs", running, **labels)
        families.counter(
            "agent_restarts", "times that the agent was started again", agent.restarts, **labels
        )
        families.counter("agent_cycles", "turns of the agent", agent.cycles, **labels)


def _add_latency(families: _Families, feed: str, hops: dict[str, Hop]) -> None:
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


def _add_host(families: _Families, feed: str, host: HostLosses) -> None:
    # Of the feed's network namespace: all datagrams, no matter which process they were for.
    for name, text in _HOST.items():
        families.counter(f"host_{name}", f"{text}; whole host", getattr(host, name), feed=feed)


def _cumulated(hop: Hop) -> tuple[list[int], float]:
    # By bound the values that do not exceed it, and the sum of all in seconds.
    lowest = LatencyHistogram.values()
    highest = np.append(lowest[1:] - 1, lowest[-1])
    sums = np.concatenate(([0], np.cumsum(hop.counts)))
    below = int(hop.opposite.sum())
    slots = np.searchsorted(highest, np.array(BOUNDS_NS), side="right")
    middle = (lowest + highest) / 2
    return (sums[slots] + below).tolist(), float((hop.counts * middle).sum() / 1e9)
