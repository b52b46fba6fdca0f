"""What `udpfast wire` serves to Prometheus while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click
import numpy as np

from udpfast.cli.metrics import need_monitor
from udpfast.client.latency import Hop
from udpfast.core.endpoint import endpoint_text, parse_endpoint
from udpfast.errors import ConfigError
from udpfast.monitor.families import Families
from udpfast.probe import Receiver, Sender
from udpfast.shm.histogram import LatencyHistogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["receiver_families", "sender_families", "serve_metrics"]

#: By counter of a sender's loop: the metric, and its help.
_SENT = {
    "due": ("wire_probes", "probes whose planned time has come"),
    "unsent": ("wire_probes_unsent", "probes that the sender's kernel did not take"),
    "echoes": ("wire_echoes", "probes that came back"),
    "repeated": ("wire_echoes_repeated", "echoes of probes that had come back already"),
    "back_duplicates": ("wire_back_duplicates", "copies of echoes beyond the first"),
    "strangers": ("wire_strangers", "datagrams of others"),
    "malformed": ("wire_malformed", "datagrams that the other end never sends"),
    "kernel_drops": ("wire_kernel_drops", "datagrams that the full receive queue lost"),
}
_HEARD = {
    "distinct": ("wire_arrived", "probes that arrived"),
    "duplicates": ("wire_out_duplicates", "copies of probes beyond the first"),
    "reordered": ("wire_out_reordered", "probes that arrived after a later one"),
    "unsent": ("wire_echoes_unsent", "echoes that the listener's kernel did not take"),
    "strangers": ("wire_strangers", "datagrams of others"),
    "malformed": ("wire_malformed", "datagrams that the other end never sends"),
    "kernel_drops": ("wire_kernel_drops", "datagrams that the full receive queue lost"),
}


def sender_families(sender: Sender) -> Families:
    """Return the samples of a sender, by line."""
    families = Families()
    for name, counts in sender.live().items():
        for counter, (metric, text) in _SENT.items():
            families.counter(metric, text, counts[counter], line=name)
        refused = "probes that the sender's kernel did not take, by its reason"
        for reason, count in counts["refusals"].items():
            families.counter("wire_probes_refused", refused, count, line=name, reason=reason)
        trip = "from a probe's planned time until its echo was there"
        hop = _hop(counts["round_trip"], LatencyHistogram())
        families.histogram("wire_round_trip_seconds", trip, hop, line=name)
    return families


def receiver_families(receiver: Receiver) -> Families:
    """Return the samples of a listener: those of `Receiver.live` by sender, and its own."""
    families = Families()
    for counts in receiver.live():
        labels = {"line": counts["line"], "peer": counts["peer"]}
        for counter, (metric, text) in _HEARD.items():
            families.counter(metric, text, counts[counter], **labels)
        out = "from the probe's stamp until it arrived, by the clocks of both hosts"
        hop = _hop(counts["out"], counts["out_negative"])
        families.histogram("wire_out_seconds", out, hop, **labels)
    families.counter("wire_sessions", "sessions so far", receiver.sessions)
    refused = "greetings that were refused"
    families.counter("wire_refused", refused, receiver.refused)
    strange = "datagrams to the listener's port that are no greetings"
    families.counter("wire_greetings_strange", strange, receiver.strangers)
    return families


@contextlib.contextmanager
def serve_metrics(listen: str | None, read: Callable[[], Families]) -> Iterator[None]:
    """Serve what `read` returns at an address while the block runs; None: serve nothing."""
    if listen is None:
        yield
        return
    need_monitor("prometheus_client")
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.registry import Collector

    class Live(Collector):
        """What is read at each scrape."""

        def collect(self) -> Iterator[Metric]:
            """Yield all families."""
            yield from read().made.values()

    host, port = parse_endpoint(listen)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Live())
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigError(
            f"--metrics: expected a free port of this host, found {listen}: {error.strerror}"
        ) from None
    where = endpoint_text(host, server.server_port)
    click.echo(f"udpfast: http://{where}/metrics", err=True)
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _hop(values: LatencyHistogram, negative: LatencyHistogram) -> Hop:
    counts = negative.counts()
    opposite = counts if counts.any() else np.zeros_like(counts)
    return Hop(values.counts(), opposite, values.below, values.above)
