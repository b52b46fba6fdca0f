"""`udpfast stat`: what an instance knows about itself, running or dead."""

from __future__ import annotations

import errno
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import to_builtins

from udpfast.cli.draw import print_host, print_latency, print_ledger, print_losses, say
from udpfast.cli.metrics import need_monitor
from udpfast.cli.options import FiniteRange, InstanceName
from udpfast.cli.top_host import journal_lines
from udpfast.cli.top_text import RELAY_WAITS, object_lines
from udpfast.cli.top_words import plain
from udpfast.client.latency import Hop, hops_since, merge_readers, read_hops
from udpfast.log.readers import READERS_MAX
from udpfast.monitor.losses import read_losses
from udpfast.monitor.status import (
    AgentStatus,
    InstanceStatus,
    ReaderStatus,
    ReplayStatus,
    read_host,
    read_replay_status,
    read_status,
)
from udpfast.monitor.troubles import (
    Trouble,
    find_feed_troubles,
    find_troubles,
    list_troubles,
    run_trouble,
)
from udpfast.page.words import moment
from udpfast.shm.instance import instance_directory

__all__ = ["stat"]


@click.command(epilog="Example: udpfast stat tutorial --watch 1")
@click.argument("name", required=False, type=InstanceName())
@click.option(
    "--watch",
    "interval_s",
    type=FiniteRange(min=0.1),
    metavar="SECONDS",
    help="Print again and again, until SIGINT.",
)
@click.option("--latency", "only_latency", is_flag=True, help="Latency per hop only.")
@click.option("--losses", "only_losses", is_flag=True, help="Losses by stage only.")
@click.option("--metrics", "as_metrics", is_flag=True, help="Prometheus's text format.")
@click.option("--openmetrics", "as_openmetrics", is_flag=True, help="OpenMetrics text.")
@click.option("--all", "with_zeros", is_flag=True, help="Counters that are 0 too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per look.")
def stat(
    name: str | None,
    interval_s: float | None,
    only_latency: bool,
    only_losses: bool,
    as_metrics: bool,
    as_openmetrics: bool,
    with_zeros: bool,
    as_json: bool,
) -> None:
    """Print counters, readers and latency of instance NAME (a name, or a path with a slash).

    Without NAME: a line for each instance of this user on this host, live or dead, then stores of a
    bus, journals and disks, and faults of the host. There `lost` has the messages of the
    incremental channel that no line brought in time, since the feed's start: what the kernel
    dropped is among them, what readers or the recorder missed is not. `+ ?`: the process before it
    was killed or failed, and nobody knows how much came between the two. Works on a dead instance
    too. Exit code 1 if something needs attention, or the ledger does not add up. With --latency and
    --watch each table shows what came since the one before it.
    """
    if as_metrics or as_openmetrics:
        need_monitor("prometheus_client")
        from udpfast.monitor.metrics import metrics_text

        if name is not None and read_replay_status(name) is None:
            read_status(name)  # refused here, not left out
        names = () if name is None else (name,)
        click.echo(metrics_text(names, openmetrics=as_openmetrics), nl=False)
        return
    if name is None:
        if only_latency or only_losses or interval_s is not None:
            raise click.UsageError("--watch, --latency and --losses want the NAME of an instance")
        sys.exit(not _show_host(as_json))
    try:
        directory = instance_directory(name)
    except FileNotFoundError:
        trouble = None if "/" in name else run_trouble(name)
        if trouble is None:
            raise
        say(f"ATTENTION: {trouble}")
        sys.exit(1)
    if (replay := read_replay_status(name)) is not None:
        _watch_replay(name, replay, interval_s, as_json)
        return
    if not (directory / "counters").exists():
        raise FileNotFoundError(
            errno.ENOENT, "no counters: no feed writes this ring", str(directory)
        )
    hops: dict[str, Hop] = {}
    fine = True
    while True:
        if only_latency:
            hops = _show_latency(directory, hops, as_json)
        elif only_losses:
            fine = _show_losses(directory, with_zeros, as_json)
        else:
            fine = _show_status(name, with_zeros, as_json)
        if interval_s is None:
            sys.exit(not fine)
        try:
            time.sleep(interval_s)
        except KeyboardInterrupt:  # the ordinary end
            return


def _watch_replay(
    name: str, status: ReplayStatus | None, interval_s: float | None, as_json: bool
) -> None:
    # Nothing is counted of a replay of records: how far it is, and its readers, is all.
    while status is not None:
        if as_json:
            click.echo(json.dumps(to_builtins(status)))
        else:
            say(
                f"{status.directory}: {status.life}, writer {status.writer_pid}, {status.text}; "
                f"{status.records:,} records"
            )
            for reader in status.readers:
                _print_reader(reader)
        if interval_s is None:
            sys.exit(status.life in ("dead", "failed"))
        try:
            time.sleep(interval_s)
        except KeyboardInterrupt:  # the ordinary end
            return
        status = read_replay_status(name)


def _show_host(as_json: bool) -> bool:
    # Whether nothing needs attention.
    host = read_host()
    found = find_troubles(host.host, host.instances, host.unreadable)
    if as_json:
        click.echo(json.dumps(to_builtins(host) | {"attention": list_troubles(found)}))
    else:
        print_host(host)
    return not found


def _show_latency(directory: Path, earlier: dict[str, Hop], as_json: bool) -> dict[str, Hop]:
    hops = read_hops(directory)
    shown = {key: hop.summary() for key, hop in merge_readers(hops_since(hops, earlier)).items()}
    if as_json:
        click.echo(json.dumps({"latency_ns": shown}))
    else:
        print_latency(shown)
    return hops


def _show_losses(directory: Path, with_zeros: bool, as_json: bool) -> bool:
    losses = read_losses(directory)
    if as_json:
        click.echo(json.dumps(to_builtins(losses)))
    else:
        print_losses(losses, with_zeros)
    # A live loop counts a datagram before its verdict: only a quiet instance must add up.
    return losses.ledger.adds_up or losses.live


def _show_status(name: str, with_zeros: bool, as_json: bool) -> bool:
    # Whether nothing needs attention, and all is accounted for.
    status = read_status(name)
    found = find_feed_troubles(status.path.name, status)
    if as_json:
        click.echo(json.dumps(to_builtins(status) | {"attention": list_troubles(found)}))
    else:
        _print_status(status, found, with_zeros)
    return (status.ledger.adds_up or status.alive) and not found


def _print_status(status: InstanceStatus, found: Sequence[Trouble], with_zeros: bool) -> None:
    say(
        f"{status.directory}: {status.life_told}, writer {status.writer_pid}, "
        f"{status.output} {status.state}, epoch {status.epoch}, {status.records:,} records"
    )
    if status.replay is not None:
        say(f"replay of {status.replay.source}, {status.replay.text}")
    say(f"bypass {status.bypass.text}")
    for name, value in status.bypass.environment.items():
        say(f"  {name}={value}")
    for trouble in found:
        say(f"ATTENTION: {trouble.text}")
    for agent in status.agents:
        _print_agent(agent, status.alive)
    if status.image is not None:
        say(f"image: {status.image['objects']:,} entries")
    if status.relay_waits:
        say(RELAY_WAITS)
    for scope, values in (status.relay or {}).items():
        text = ", ".join(f"{key} {value:,}" for key, value in values.items() if value)
        say(f"{'' if scope == 'relay' else 'relay '}{scope}: {text or 'nothing yet'}")
    for line in object_lines(status):
        say(line)
    print_ledger(status.counters, status.ledger, status.alive)
    for sentence in (*status.silent, *status.silent_addresses):
        say(sentence)
    _print_counters(status, with_zeros)
    say()
    print_latency(status.latency_ns)
    for reader in status.readers:
        _print_reader(reader)
    if status.journals.found or status.journals.unreadable:
        click.echo(plain(journal_lines(status.journals)))
    if len(status.readers) == READERS_MAX:
        say(f"more than {READERS_MAX - 1:,} readers: the first are shown")


def _print_counters(status: InstanceStatus, with_zeros: bool) -> None:
    for scope, values in status.counters.items():
        shown = {key: value for key, value in values.items() if value or with_zeros}
        say()
        say(scope)
        for key, count in shown.items():
            say(f"  {key:<24}{_shown(key, count):>16}")
        for address, each in status.addresses.get(scope, {}).items():
            silent = ", SILENT" if each["silent"] else ""
            say(f"  {address:<24}{each['datagrams']:>16,} datagrams{silent}")
    for name, tallies in status.servers.items():
        say()
        say(name)
        for key, count in tallies.items():
            if count or with_zeros:
                say(f"  {key:<24}{count:>16,}")


def _print_reader(reader: ReaderStatus) -> None:
    say(
        f"reader {reader.name or reader.pid} (pid {reader.pid}"
        f"{'' if reader.alive else ', DEAD'}): "
        f"lag {reader.lag:,} records, {reader.lag_bytes:,} bytes; "
        f"read {reader.read:,}, missed {reader.lapped:,}"
    )


def _shown(key: str, count: int) -> str:
    # A time is shown as one.
    if key != "heard_ns" or not count:
        return f"{count:,}"
    return moment(count)


def _print_agent(agent: AgentStatus, alive: bool) -> None:
    # What a dead writer left says how it was then.
    was = "" if alive or agent.state in ("ended", "failed") else "was "
    failure = f"; last failure: {agent.failure}" if agent.failure else ""
    place = f", pid {agent.pid}" if agent.pid else ""
    say(
        f"agent {agent.name}: {was}{agent.state}{place}, {agent.restarts_text}, "
        f"{agent.cycles:,} turns{failure}"
    )
