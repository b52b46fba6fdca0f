"""Latency per hop: a table in microseconds, and rows for the benchmarks' report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from udpfast.client.latency import PERCENTS, merge_readers, read_hops

__all__ = ["hop_rows", "print_latency"]

_COLUMNS = {"p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "max"}


def hop_rows(
    directory: Path, parameters: Mapping[str, int | float | str] | None = None
) -> list[dict[str, Any]]:
    """Return the hops of an instance as rows of a benchmark's result, one per hop.

    Each has `variant` (the hop), `parameters`, `unit`, `values` (its median), `latency`
    (percentiles and count) and `counts`: [slot, count] of the histogram's slots that are not empty,
    values below 0 left out. All readers together are one hop.
    """
    rows = []
    for name, hop in merge_readers(read_hops(directory)).items():
        found = {_COLUMNS[key]: float(ns) for key, ns in hop.percentiles(PERCENTS).items()}
        if "." not in name and hop.count:
            slots = np.flatnonzero(hop.counts)
            rows.append(
                {
                    "variant": name,
                    "parameters": dict(parameters or {}),
                    "unit": "ns",
                    "values": [found["p50"]],
                    "latency": {**found, "count": float(hop.count)},
                    "counts": np.stack((slots, hop.counts[slots]), axis=1).tolist(),
                }
            )
    return rows


def print_latency(hops: Mapping[str, Mapping[str, int]]) -> None:
    """Print a table: a row per hop, percentiles in microseconds; of readers those that time."""
    hops = {name: values for name, values in hops.items() if "." not in name or values["count"]}
    width = max([28, *(len(name) + 2 for name in hops)])
    click.echo(
        f"{'latency, us':<{width}}{'count':>12}"
        + "".join(f"{title:>12}" for title in _COLUMNS.values())
        + f"{'below 0':>10}"
    )
    for name, values in hops.items():
        click.echo(
            f"{name:<{width}} {values['count']:>11,}"
            + "".join(f" {values[key] / 1e3:>11,.2f}" for key in _COLUMNS)
            + f"{values['below']:>10,}"
        )
