"""Where an instance lost what it lost: one counter per stage, and sums that are equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from msgspec import Struct

from udpfast.core.clock import realtime_ns
from udpfast.core.counter import VERDICTS
from udpfast.log.readers import ReaderInfo, list_readers
from udpfast.monitor.output import read_output
from udpfast.monitor.silence import describe_addresses, describe_silence
from udpfast.net.drops import SocketDrops, host_drops, socket_drops
from udpfast.shm.counters import CounterBlock

__all__ = [
    "VERDICTS_USED",
    "HostLosses",
    "Loss",
    "LossSum",
    "Losses",
    "read_counters",
    "read_host_losses",
    "read_losses",
]

Counters = dict[str, dict[str, int]]

_FRAMES = ("frames_fragment", "frames_checksum", "frames_malformed", "frames_foreign")
#: Verdicts of what is used: all others are losses, copies or refusals.
VERDICTS_USED = ("delivered", "held", "session_pending", "heartbeat", "unsequenced", "parity")
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


class Loss(Struct, frozen=True):
    """How many did not go on at one stage: of a line, a channel, the feed, or a reader."""

    stage: str
    where: str
    what: str
    count: int


class LossSum(Struct, frozen=True):
    """Two counts that tie two stages together, and should be equal."""

    what: str
    left: int
    right: int
    equal: bool


class HostLosses(Struct, frozen=True):
    """The losses of the writer's network namespace (`HostDrops`), and of its sockets.

    `sockets` is what the kernel counts of each; None: the writer is gone, or another user's.
    """

    rcvbuf_errors: int
    checksum_errors: int
    memory_errors: int
    no_ports: int
    softnet_dropped: int
    softnet_squeezed: int
    sockets: tuple[SocketDrops, ...] | None


class Losses(Struct, frozen=True):
    """Every loss of an instance by stage, and the sums that tie the stages together.

    Attributes
    ----------
    live : bool
        Its writer goes on.
    silent : tuple of str
        A sentence per line that brings nothing.
    stages : tuple of Loss
        What did not go on, from the kernel to the readers.
    sums : tuple of LossSum
    host : HostLosses
    """

    live: bool
    silent: tuple[str, ...]
    stages: tuple[Loss, ...]
    sums: tuple[LossSum, ...]
    host: HostLosses

    @property
    def adds_up(self) -> bool:
        """Whether every sum is equal."""
        return all(one.equal for one in self.sums)


def read_losses(directory: Path) -> Losses:
    """Return every loss of an instance, live or dead."""
    values, addresses, started_ns = read_counters(directory)
    unix_ns = realtime_ns()
    output = read_output(directory)
    live = output.alive and output.state == "open"
    readers = list_readers(output.readers)
    return Losses(
        live=live,
        silent=(
            *describe_silence(values, started_ns, unix_ns).values(),
            *describe_addresses(addresses, started_ns, unix_ns).values(),
        ),
        stages=tuple(_stages(values, readers)),
        sums=(*_line_sums(values), *_feed_sums(values), *_reader_sums(readers, output.records)),
        host=read_host_losses(output.writer_pid if live else None),
    )


def read_counters(directory: Path) -> tuple[Counters, dict[str, Counters], int]:
    """Return an instance's counters, those of addresses, and when its feed was started, UNIX ns."""
    with CounterBlock.attach(directory) as block:
        return block.read(), block.read_addresses(), block.region.created_ns


def _stages(values: Counters, readers: Sequence[ReaderInfo]) -> Iterator[Loss]:
    lines = [scope for scope in values if "." in scope]
    feed = values["feed"]
    unused = [info.name for info in VERDICTS if info.name not in VERDICTS_USED]
    for scope in lines:
        yield Loss("kernel", scope, "kernel_drops", values[scope]["kernel_drops"])
    for scope in lines:
        for name in _FRAMES:
            yield Loss("frame", scope, name, values[scope][name])
    for scope in lines:
        for name in unused:
            yield Loss("verdict", scope, name, values[scope][name])
    for scope in ("incremental", "snapshot"):
        for name in _CHANNEL:
            yield Loss("window", scope, name, values[scope][name])
    for name in _OBJECTS:
        yield Loss("objects", "feed", name, feed[name])
    for name in _PUBLISH:
        yield Loss("publish", "feed", name, feed[name])
    for reader in readers:
        yield Loss("ring", f"{reader.name}-{reader.pid}", "lapped", reader.lapped)


def _line_sums(values: Counters) -> Iterator[LossSum]:
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
            units = line["datagrams"] + line["units_more"]
            yield _sum(f"{scope}: units, verdicts", units, verdicts)


def _feed_sums(values: Counters) -> Iterator[LossSum]:
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


def _reader_sums(readers: Sequence[ReaderInfo], records: int) -> Iterator[LossSum]:
    for reader in readers:
        known = reader.began_index + reader.read + reader.lapped
        yield _sum(
            f"{reader.name}-{reader.pid}: records, before it + read + lapped + lag",
            records,
            known + records - reader.index,
        )


def read_host_losses(pid: int | None = None) -> HostLosses:
    """Return the losses of a process's network namespace; by default of this one's.

    Of a process that is gone, or another user's, too: then of this one's, and of no socket.
    """
    try:
        sockets = None if pid is None else tuple(socket_drops(pid))
        return HostLosses(**asdict(host_drops(pid)), sockets=sockets)
    except (FileNotFoundError, PermissionError):  # gone meanwhile, or another user's
        return HostLosses(**asdict(host_drops()), sockets=None)


def _sum(what: str, left: int, right: int) -> LossSum:
    return LossSum(what, left, right, left == right)
