"""Families of metrics as Prometheus takes them, filled sample by sample.

Needs the extra `[monitor]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from udpfast.client.latency import Hop
from udpfast.shm.histogram import LatencyHistogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["BOUNDS_NS", "Families", "distinct_names"]

#: Upper ends of the buckets of latency: from a quarter of a microsecond to a second.
BOUNDS_NS = tuple(step * 10**power for power in range(1, 8) for step in (25, 50, 100))


class Families:
    """Families of metrics by name, each made when its first sample comes."""

    def __init__(self) -> None:
        self.made: dict[str, Metric] = {}

    def gauge(self, name: str, text: str, value: float, **labels: str) -> None:
        """Add a sample of what goes up and down."""
        self._add("gauge", name, text, "", float(value), labels)

    def counter(self, name: str, text: str, value: float, **labels: str) -> None:
        """Add a sample of what only grows; its name gets `_total`."""
        self._add("counter", name, text, "_total", float(value), labels)

    def histogram(self, name: str, text: str, measured: Hop, **labels: str) -> None:
        """Add the buckets of a hop, in seconds."""
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


def distinct_names(readers: Iterable[tuple[str, int]]) -> list[str]:
    """Return a label for each reader, of which `readers` has name and pid.

    Of two readers of one name in one process the second gets a plus: no series may come twice.
    """
    found: dict[tuple[str, int], None] = {}
    for name, pid in readers:
        label = name or "reader"
        while (label, pid) in found:
            label += "+"
        found[label, pid] = None
    return [label for label, _ in found]


def _cumulated(hop: Hop) -> tuple[list[int], float]:
    # By bound the values that do not exceed it, and the sum of all in seconds.
    lowest = LatencyHistogram.values()
    highest = np.append(lowest[1:] - 1, lowest[-1])
    sums = np.concatenate(([0], np.cumsum(hop.counts)))
    below = int(hop.opposite.sum())
    slots = np.searchsorted(highest, np.array(BOUNDS_NS), side="right")
    middle = (lowest + highest) / 2
    return (sums[slots] + below).tolist(), float((hop.counts * middle).sum() / 1e9)
