"""Where an instance lost what it lost: one counter per stage, and sums that are equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from udpfast.core.clock import realtime_ns
from udpfast.core.counter import VERDICTS
from udpfast.log.readers import ReaderInfo, list_readers
from udpfast.monitor.ledger import FRAMES, OBJECTS, PUBLISH, Ledger, ledger_of
from udpfast.monitor.output import read_output
from udpfast.monitor.silence import describe_addresses, describe_silence
from udpfast.net.drops import SocketDrops, host_drops, socket_drops
from udpfast.shm.counters import CounterBlock

__all__ = [
    "VERDICTS_USED",
    "HostLosses",
    "Loss",
    "Losses",
    "read_counters",
    "read_host_losses",
    "read_losses",
]

Counters = dict[str, dict[str, int]]

#: Verdicts of what is used: all others are losses, copies or refusals.
VERDICTS_USED = ("delivered", "held", "session_pending", "heartbeat", "unsequenced", "parity")
_CHANNEL = ("lost", "incomplete", "disregarded", "session_discarded")
_OBJECTS = ("collect_full", "collect_dropped", "withheld", *OBJECTS)


class Loss(Struct, frozen=True):
    """How many did not go on at one stage: of a line, a channel, the feed, or a reader."""

    stage: str
    where: str
    what: str
    count: int


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
    ledger : Ledger
        The sums that tie the stages together.
    host : HostLosses
    """

    live: bool
    silent: tuple[str, ...]
    stages: tuple[Loss, ...]
    ledger: Ledger
    host: HostLosses


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
        ledger=ledger_of(values, readers, output.records),
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
        for name in FRAMES:
            yield Loss("frame", scope, name, values[scope][name])
    for scope in lines:
        for name in unused:
            yield Loss("verdict", scope, name, values[scope][name])
    for scope in ("incremental", "snapshot"):
        for name in _CHANNEL:
            yield Loss("window", scope, name, values[scope][name])
    for name in _OBJECTS:
        yield Loss("objects", "feed", name, feed[name])
    for name in PUBLISH:
        yield Loss("publish", "feed", name, feed[name])
    for reader in readers:
        yield Loss("ring", f"{reader.name}-{reader.pid}", "lapped", reader.lapped)


def read_host_losses(pid: int | None = None) -> HostLosses:
    """Return the losses of a process's network namespace; by default of this one's.

    Of a process that is gone, or another user's, too: then of this one's, and of no socket.
    """
    try:
        sockets = None if pid is None else tuple(socket_drops(pid))
        return HostLosses(**asdict(host_drops(pid)), sockets=sockets)
    except (FileNotFoundError, PermissionError):  # gone meanwhile, or another user's
        return HostLosses(**asdict(host_drops()), sockets=None)
