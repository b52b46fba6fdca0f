"""`udpfast stat`: what an instance knows about itself, running or dead."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from udpfast.cli.bypass import describe_counters, environment_of
from udpfast.cli.latency import print_latency
from udpfast.cli.ledger import ledger_sums, print_ledger
from udpfast.cli.options import FiniteRange
from udpfast.client.counters import counters
from udpfast.client.latency import Hop, hops_since, latency, merge_readers, read_hops
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.cursor import RingCursor
from udpfast.shm.instance import instance_directory
from udpfast.shm.readers import list_readers

__all__ = ["stat"]


@click.command(epilog="Example: udpfast stat deribit --watch 1")
@click.argument("name")
@click.option(
    "--watch",
    "interval_s",
    type=FiniteRange(min=0.1),
    metavar="SECONDS",
    help="Print again and again, until SIGINT.",
)
@click.option("--latency", "only_latency", is_flag=True, help="Latency per hop, and no more.")
@click.option("--all", "with_zeros", is_flag=True, help="Counters that are 0 too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per look.")
def stat(
    name: str, interval_s: float | None, only_latency: bool, with_zeros: bool, as_json: bool
) -> None:
    """Print counters, readers and latency of instance NAME (a name, or a path with a slash).

    The instance may be dead: its memory still tells. Exit code 1 if the ledger does not add up.
    With --latency and --watch each table shows what came since the one before it.
    """
    hops: dict[str, Hop] = {}
    while True:
        if only_latency:
            hops = _show_latency(instance_directory(name), hops, as_json)
            if interval_s is None:
                return
        else:
            status = read_status(name)
            if as_json:
                click.echo(json.dumps(status))
            else:
                _print_status(status, with_zeros)
        if interval_s is None:
            # A live loop counts a datagram before its verdict: only a quiet instance must add up.
            sys.exit(not status["ledger"]["adds_up"] and not status["alive"])
        try:
            time.sleep(interval_s)
        except KeyboardInterrupt:  # the ordinary end
            return


def _show_latency(directory: Path, earlier: dict[str, Hop], as_json: bool) -> dict[str, Hop]:
    hops = read_hops(directory)
    shown = {key: hop.summary() for key, hop in merge_readers(hops_since(hops, earlier)).items()}
    if as_json:
        click.echo(json.dumps({"latency_ns": shown}))
    else:
        print_latency(shown)
    return hops


def read_status(name: str) -> dict[str, Any]:
    """Return everything about an instance as plain values."""
    directory = instance_directory(name)
    values = counters(str(directory))
    ring = _ring(directory)
    environment = environment_of(ring["writer_pid"]) if ring["alive"] else {}
    return {
        "directory": str(directory),
        **ring,
        "bypass": {"is": describe_counters(values["feed"]), "environment": environment},
        "ledger": ledger_sums(values),
        "counters": values,
        "readers": [
            {**asdict(reader), "lag": ring["records"] - reader.index}
            for reader in list_readers(directory)
        ],
        "latency_ns": latency(directory),
    }


def _ring(directory: Path) -> dict[str, Any]:
    with RingCursor.attach(directory, limit=1, payload_hash=PAYLOAD_HASH) as cursor:
        return {
            "writer_pid": cursor.region.writer_pid,
            "alive": cursor.region.writer_alive(),
            "state": "closed" if cursor.closed_by_writer else "open",
            "epoch": cursor.epoch,
            "records": cursor.tail_index,
        }


def _print_status(status: dict[str, Any], with_zeros: bool) -> None:
    click.echo(
        f"{status['directory']}: writer {status['writer_pid']} "
        f"{'alive' if status['alive'] else 'DEAD'}, ring {status['state']}, "
        f"epoch {status['epoch']}, {status['records']:,} records"
    )
    click.echo(f"bypass {status['bypass']['is']}")
    for name, value in status["bypass"]["environment"].items():
        click.echo(f"  {name}={value}")
    print_ledger(status["counters"], status["ledger"])
    for scope, values in status["counters"].items():
        shown = {key: value for key, value in values.items() if value or with_zeros}
        click.echo(f"\n{scope}")
        for key, value in shown.items():
            click.echo(f"  {key:<24}{value:>16,}")
    click.echo("")
    print_latency(status["latency_ns"])
    for reader in status["readers"]:
        click.echo(
            f"reader {reader['name'] or reader['pid']} (pid {reader['pid']}): "
            f"lag {reader['lag']:,} records, missed {reader['lapped']:,}"
        )
