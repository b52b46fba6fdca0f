"""Where an instance lost what it lost: one counter per stage, and sums that are equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from udpfast.cli.silence import describe_silence
from udpfast.core.clock import realtime_ns
from udpfast.core.counter import VERDICTS
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.net.drops import host_drops, socket_drops
from udpfast.shm.counters import CounterBlock
from udpfast.shm.cursor import RingCursor
from udpfast.shm.readers import list_readers

__all__ = ["losses_add_up", "print_losses", "read_counters", "read_losses"]

Counters = dict[str, dict[str, int]]

_FRAMES = ("frames_fragment", "frames_checksum", "frames_malformed", "frames_foreign")
_USED = ("delivered", "held", "session_pending")
_CHANNEL = ("lost", "incomplete", "disregarded", "session_discarded")
_OBJECTS = (
    "objects_full",
    "collect_full",
    "collect_dropped",
    "updates_contained",
    "snapshots_skipped",
    "snapshots_too_old",
    "snapshots_broken",
)
_PUBLISH = ("decode_refused", "types_none", "stream_status", "records_too_large")


def read_losses(directory: Path) -> dict[str, Any]:
    """Return every loss of an instance by stage, and the sums that tie the stages together.

    Returns
    -------
    dict
        `live`: whether its writer goes on; `silent`: a sentence per line that brings nothing;
        `stages`: what did not go on, as {stage, where, what,
        count}, from the kernel to the readers; `sums`: {what, left, right, equal}; `host`: the
        whole host's losses, and the drops of the writer's sockets as the kernel counts them
        (`sockets`: None if the writer is gone, or another user's).
    """
    values, started_ns = read_counters(directory)
    with RingCursor.attach(directory, limit=1, payload_hash=PAYLOAD_HASH) as cursor:
        records, pid = cursor.tail_index, cursor.region.writer_pid
        live = cursor.region.writer_alive() and not cursor.closed_by_writer
    readers = [asdict(reader) for reader in list_readers(directory)]
    sums = [*_line_sums(values), *_feed_sums(values), *_reader_sums(readers, records)]
    return {
        "live": live,
        "silent": [*describe_silence(values, started_ns, realtime_ns()).values()],
        "stages": [*_stages(values, readers)],
        "sums": [{**one, "equal": one["left"] == one["right"]} for one in sums],
        "host": _host(pid if live else None),
    }


def read_counters(directory: Path) -> tuple[Counters, int]:
    """Return the counters of an instance, and when its feed was started, UNIX ns."""
    with CounterBlock.attach(directory) as block:
        return block.read(), block.region.created_ns


def losses_add_up(losses: dict[str, Any]) -> bool:
    """Whether every sum is equal."""
    return all(one["equal"] for one in losses["sums"])


def print_losses(losses: dict[str, Any], with_zeros: bool) -> None:
    """Print what was lost, stage by stage, then the sums; zeros only if asked for."""
    width = max([24, *(len(one["where"]) + 2 for one in losses["stages"])])
    click.echo(f"{'stage':<10}{'where':<{width}}{'did not go on':<22}{'count':>14}")
    for one in losses["stages"]:
        if one["count"] or with_zeros:
            click.echo(
                f"{one['stage']:<10}{one['where']:<{width}}{one['what']:<22}{one['count']:>14,}"
            )
    click.echo("")
    for one in losses["sums"]:
        sign = "=" if one["equal"] else "IS NOT"
        click.echo(f"{one['what']}: {one['left']:,} {sign} {one['right']:,}")
    click.echo("the sums are equal" if losses_add_up(losses) else "THE SUMS DIFFER")
    for sentence in losses["silent"]:
        click.echo(sentence)
    host = {name: count for name, count in losses["host"].items() if name != "sockets"}
    click.echo(
        "\nwhole host, since it began: "
        + ", ".join(f"{name} {count:,}" for name, count in host.items())
    )
    for one in losses["host"]["sockets"] or []:
        click.echo(f"socket {one['address']}: {one['drops']:,} drops by the kernel's own count")


def _stages(values: Counters, readers: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    lines = [scope for scope in values if "." in scope]
    feed = values["feed"]
    unused = [info.name for info in VERDICTS if info.name not in _USED]
    for scope in lines:
        yield _row("kernel", scope, "kernel_drops", values[scope]["kernel_drops"])
    for scope in lines:
        for name in _FRAMES:
            yield _row("frame", scope, name, values[scope][name])
    for scope in lines:
        for name in unused:
            yield _row("verdict", scope, name, values[scope][name])
    for scope in ("incremental", "snapshot"):
        for name in _CHANNEL:
            yield _row("window", scope, name, values[scope][name])
    for name in _OBJECTS:
        yield _row("objects", "feed", name, feed[name])
    for name in _PUBLISH:
        yield _row("publish", "feed", name, feed[name])
    for reader in readers:
        yield _row("ring", f"{reader['name']}-{reader['pid']}", "lapped", reader["lapped"])


def _line_sums(values: Counters) -> Iterator[dict[str, Any]]:
    for scope, line in values.items():
        if "." in scope:
            if line["frames"]:  # AF_XDP
                refused = sum(line[name] for name in _FRAMES)
                yield _sum(
                    f"{scope}: frames, datagrams + refused",
                    line["frames"],
                    line["datagrams"] + refused,
                )
            verdicts = sum(line[info.name] for info in VERDICTS)
            yield _sum(f"{scope}: datagrams, verdicts", line["datagrams"], verdicts)


def _feed_sums(values: Counters) -> Iterator[dict[str, Any]]:
    feed = values["feed"]
    messages = sum(
        values[scope]["messages"] - values[scope]["heartbeats"]
        for scope in ("incremental", "snapshot")
    )
    kept_back = sum(feed[name] for name in _OBJECTS if not name.startswith("collect_"))
    yield _sum(
        "messages, passed on + collected + kept back by objects",
        messages,
        feed["applied"] + feed["ungated"] + feed["collected"] + kept_back,
    )
    # With `ring.carry = "both"` a decoded payload is two records, but one message.
    passed_on = feed["applied"] + feed["ungated"] + feed["released"]
    once = feed["records_raw"] + feed["updates"] + sum(feed[name] for name in _PUBLISH)
    if feed["updates"] and feed["records_raw"] + feed["records_too_large"] >= passed_on:
        once = feed["records_raw"] + feed["records_too_large"]
    yield _sum("messages passed on, published + refused", passed_on, once)
    yield _sum(
        "records, updates + raw + control",
        feed["records"],
        feed["updates"] + feed["records_raw"] + feed["records_control"],
    )


def _reader_sums(readers: list[dict[str, Any]], records: int) -> Iterator[dict[str, Any]]:
    for reader in readers:
        known = reader["began_index"] + reader["read"] + reader["lapped"]
        yield _sum(
            f"{reader['name']}-{reader['pid']}: records, before it + read + lapped + lag",
            records,
            known + records - reader["index"],
        )


def _host(pid: int | None) -> dict[str, Any]:
    try:
        sockets = None if pid is None else [asdict(one) for one in socket_drops(pid)]
        return {**asdict(host_drops(pid)), "sockets": sockets}
    except (FileNotFoundError, PermissionError):  # gone meanwhile, or another user's
        return {**asdict(host_drops()), "sockets": None}


def _row(stage: str, where: str, what: str, count: int) -> dict[str, Any]:
    return {"stage": stage, "where": where, "what": what, "count": count}


def _sum(what: str, left: int, right: int) -> dict[str, Any]:
    return {"what": what, "left": left, "right": right}
