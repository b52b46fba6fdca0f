"""Facts as terminal tables: latency per hop, the ledger, losses by stage."""

from __future__ import annotations

from collections.abc import Mapping

import click
from msgspec.structs import asdict

from udpfast.cli.top_host import host_lines
from udpfast.cli.top_words import plain
from udpfast.monitor.ledger import Ledger, LedgerSum
from udpfast.monitor.losses import Losses
from udpfast.monitor.status import HostStatus
from udpfast.page.words import literal
from udpfast.shm.histogram import VALUE_MAX
from udpfast.shm.instance import hint_of_other_users

__all__ = ["latency_word", "print_host", "print_latency", "print_ledger", "print_losses", "say"]

_COLUMNS = {"p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "max"}


def say(text: str = "") -> None:
    """Print a line that changes nothing around it, whatever names are in it (`literal`)."""
    click.echo(literal(text))


def print_host(host: HostStatus) -> None:
    """Print a line for each instance of a host, then what is known of the host beside them."""
    others = ""
    if host.instances or host.unreadable or host.replays:
        _print_instances(host)
    else:
        say("no instance of this user on this host: udpfast run FEED.TOML starts one.")
        others = hint_of_other_users().strip()
    if others:
        say(others)
    click.echo(plain(host_lines(host.host, host.instances, host.unreadable, others=bool(others))))


def _print_instances(host: HostStatus) -> None:
    names = (*host.instances, *host.unreadable, *host.replays, "instance")
    width = max(map(len, names))
    say(
        f"{'instance':<{width}}  {'state':<8}{'pid':>9}{'records':>16}{'lost':>10}"
        f"{'readers':>9}  silent lines"
    )
    for name, status in host.instances.items():
        # What recovery lacks, it sends again. Nobody counts what came while no process ran.
        lost = f"{status.counters['incremental']['lost']:,}"
        lost += " + ?" if status.counters["feed"]["took_over"] else ""
        # What a stopped feed does not hear says nothing of its lines.
        hears = status.life not in ("stopped", "paused")
        silent = (", ".join(status.silent_lines) or "none") if hears else "-"
        if status.replay is not None:
            silent = f"replay of {status.replay.source}, {status.replay.text}"
        readers = sum(reader.alive for reader in status.readers)
        say(
            f"{name:<{width}}  {status.life_shown:<8}{status.writer_pid:>9}{status.records:>16,}"
            f"{lost:>10}{readers:>9}  {silent}"
        )
    for name, replay in host.replays.items():
        readers = sum(reader.alive for reader in replay.readers)
        say(
            f"{name:<{width}}  {replay.life:<8}{replay.writer_pid:>9}{replay.records:>16,}"
            f"{'-':>10}{readers:>9}  {replay.text}"
        )
    for name, reason in host.unreadable.items():
        say(f"{name:<{width}}  {reason}")


def print_latency(hops: Mapping[str, Mapping[str, int]]) -> None:
    """Print a table: a row per hop, percentiles in microseconds; of readers those that time."""
    hops = {name: values for name, values in hops.items() if "." not in name or values["count"]}
    width = max([28, *(len(name) + 2 for name in hops)])
    say(
        f"{'latency, us':<{width}}{'count':>12}"
        + "".join(f"{title:>12}" for title in _COLUMNS.values())
        + f"{'below 0':>10}"
    )
    for name, values in hops.items():
        say(
            f"{name:<{width}} {values['count']:>11,}"
            + "".join(f" {latency_word(values[key], values['above']):>11}" for key in _COLUMNS)
            + f"{values['below']:>10,}"
        )


def latency_word(value_ns: int, above: int) -> str:
    """Return a percentile in microseconds; `above` an hour nobody knows how much it was."""
    return "> 1 h" if above and value_ns >= VALUE_MAX else f"{value_ns / 1e3:,.2f}"


def _sums(equal: bool, live: bool) -> str:
    if equal:
        return "the sums are equal"
    return "the feed counted while it was read: look again" if live else "THE SUMS DIFFER"


def _sum(one: LedgerSum) -> str:
    return f"{one.what}: {one.left:,} {'=' if one.equal else 'IS NOT'} {one.right:,}"


def print_ledger(
    counters: Mapping[str, Mapping[str, int]], ledger: Ledger, live: bool = False
) -> None:
    """Print a table: a row per verdict, a column per line, and the sums; `live`: it counts on."""
    scopes = list(ledger.lines)
    width = max([16, *(len(scope) + 2 for scope in scopes)])
    say(f"{'verdict':<22}" + "".join(f"{scope:>{width}}" for scope in scopes) + f"{'all':>12}")
    rows = [
        (name, [counters[scope][name] for scope in scopes], total)
        for name, total in ledger.by_verdict.items()
        if total
    ]
    lines = ledger.lines.values()
    rows.append(("sum of verdicts", [line.verdicts for line in lines], ledger.verdicts))
    rows.append(("datagrams", [line.datagrams for line in lines], ledger.datagrams))
    if ledger.units_more:
        rows.append(("units beyond one", [line.units_more for line in lines], ledger.units_more))
    for name, counts, total in rows:
        say(f"{name:<22}" + "".join(f"{count:>{width},}" for count in counts) + f"{total:>12,}")
    for each in ledger.sums:
        if not each.equal:
            say(_sum(each))
    say(_sums(ledger.adds_up, live))


def print_losses(losses: Losses, with_zeros: bool) -> None:
    """Print what was lost, stage by stage, then the sums; zeros only if asked for."""
    width = max([24, *(len(one.where) + 2 for one in losses.stages)])
    say(f"{'stage':<10}{'where':<{width}}{'did not go on':<22}{'count':>14}")
    for one in losses.stages:
        if one.count or with_zeros:
            say(f"{one.stage:<10}{one.where:<{width}}{one.what:<22}{one.count:>14,}")
    say("")
    for each in losses.ledger.sums:
        say(_sum(each))
    say(_sums(losses.ledger.adds_up, losses.live))
    for sentence in losses.silent:
        say(sentence)
    host = {name: count for name, count in asdict(losses.host).items() if name != "sockets"}
    say()
    say(
        "whole host, since it began: "
        + ", ".join(f"{name} {count:,}" for name, count in host.items())
    )
    for socket in losses.host.sockets or ():
        say(f"socket {socket.address}: {socket.drops:,} drops by the kernel's own count")
