"""Latency of an instance's loop: read from its histograms, shown in microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from udpfast.shm.histogram import LatencyBlock

__all__ = ["print_latency", "read_latency"]

PERCENTS = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}


def read_latency(directory: Path) -> dict[str, dict[str, int]]:
    """Return `count` and percentiles in ns of every hop that the loop measures."""
    with LatencyBlock.attach(directory / "latency") as block:
        return {
            name: {
                "count": block[name].total,
                **dict(
                    zip(PERCENTS, block[name].percentiles(list(PERCENTS.values())), strict=True)
                ),
            }
            for name in block.names
        }


def print_latency(hops: Mapping[str, Mapping[str, int]]) -> None:
    """Print a table: a row per hop, percentiles in microseconds."""
    click.echo(f"{'latency, us':<28}{'count':>12}{'p50':>10}{'p99':>12}{'p99.9':>12}{'max':>12}")
    for name, values in hops.items():
        click.echo(
            f"{name:<28}{values['count']:>12,}{values['p50'] / 1e3:>10.1f}"
            + "".join(f"{values[key] / 1e3:>12.1f}" for key in ("p99", "p99_9", "max"))
        )
