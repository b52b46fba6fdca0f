"""Many feeds of one host as one group, of the options tape's shape: every block once, in order.

    udpfast lab group
    udpfast lab group --feeds 6 --seconds 2 --rate 2000 --kills 2

    this process: a sender    --> lines A and B of N feeds (processes) --> N rings --> this process:
    1 block in 25 lost, a line                                                  Reader("group:...")

OPRA has 48 (and more) channels, each on two lines; a datagram is a block of 1 to 30 small messages
that its header counts. What both lines lost must be a gap of its feed; everything else must come
once, in the order of its feed, with the bytes that were sent. With --kills feeds are killed
meanwhile: the supervisor starts them again, and the other feeds must not lose a block by it. Says
what each process took of the processors.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np

from udpfast.archive.groups import read_group
from udpfast.cli.child import child_command
from udpfast.cli.options import FiniteRange
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.net.ports import free_ports
from udpfast.net.sender import DatagramSender

from .program import program

__all__ = ["Outcome", "main", "run"]

PATIENCE_S = 600.0
LINES = ("A", "B")
LOSS = 0.04
#: Bytes of a message, about those of a short quote, and how many a block has at most.
MESSAGE_BYTES, MESSAGES_MAX = 17, 30
#: Blocks that are sent before the reader has its turn.
TURN = 64
_BEGIN = struct.Struct(">II")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Outcome:
    """What was sent and what was read.

    Attributes
    ----------
    blocks, lost, read : int
        Sent; of these lost on both lines; that came out.
    lapped, restarts : int
    wrong : list of str
        What must not be.
    cores : dict of str to float
        What of a core the feeds together, the supervisor and this process (sender and reader)
        took; empty where feeds were killed.
    """

    blocks: int = 0
    lost: int = 0
    read: int = 0
    lapped: int = 0
    restarts: int = 0
    wrong: list[str] = field(default_factory=list)
    cores: dict[str, float] = field(default_factory=dict)


class _Feed:
    """What was sent to a feed, and what came out of it."""

    def __init__(self, name: str, ports: list[int]) -> None:
        self.name = name
        self.number = 1
        self.blocks = 0
        self.lost: set[int] = set()
        self.read: list[int] = []
        self.killed = False
        self.senders = [DatagramSender(f"127.0.0.1:{port}") for port in ports]

    def close(self) -> None:
        for sender in self.senders:
            sender.close()

    def settings(self, ports: list[int]) -> str:
        lines = "".join(
            f'[[streams.lines]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
            for name, port in zip(LINES, ports, strict=True)
        )
        return (
            f'name = "{self.name}"\nring.capacity_bytes = {1 << 22}\n'
            f"objects.collect_bytes = {1 << 20}\nring.names = 16\n"
            "window.size = 1024\nwindow.slab_cells = 256\nwindow.lost_packet_wait_us = 10000\n"
            f'wire.framing = "siac_opra"\nagent.idle = "sleep"\n{lines}'
        )

    def block(self, draw: random.Random, *, last: bool) -> list[bytes | None]:
        """Return the next block for each line; None: lost there."""
        count = draw.randint(1, MESSAGES_MAX)
        payload = _BEGIN.pack(self.blocks, self.number).ljust(count * MESSAGE_BYTES, b"Q")
        size = 21 + len(payload)
        header = struct.pack(">BHccBIBIIH", 6, size, b"O", b" ", 1, self.number, count, 1, 0, 0)
        sent: list[bytes | None] = [
            None if draw.random() < LOSS and not last else header + payload for _ in LINES
        ]
        if sent == [None] * len(LINES):
            self.lost.add(self.blocks)
        self.blocks += 1
        self.number += count
        return sent

    def send(self, draw: random.Random, *, last: bool = False) -> None:
        for sender, datagram in zip(self.senders, self.block(draw, last=last), strict=True):
            if datagram is not None:
                sender.send([datagram])

    def faults(self) -> Iterator[str]:
        if any(a >= b for a, b in zip(self.read, self.read[1:], strict=False)):
            yield f"{self.name}: blocks twice or out of order"
        if not self.killed and (missing := {*range(self.blocks)} - {*self.read}) != self.lost:
            yield (
                f"{self.name}: expected to miss {len(self.lost)} blocks, missed {len(missing)}: "
                f"{sorted(missing ^ self.lost)[:5]}"
            )


def run(feeds: int, seconds: float, rate: int, kills: int, seed: int) -> Outcome:
    """Run a group of feeds, and return what was found."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        root = Path(folder)
        (root / "opra").mkdir()
        made = []
        for index in range(feeds):
            ports = free_ports(len(LINES))
            feed = _Feed(f"opra{index + 1:02}", ports)
            (root / "opra" / f"{feed.name}.toml").write_text(feed.settings(ports))
            made.append(feed)
        (root / "opra" / "host.toml").write_text("restart_first_ms = 1\n")
        os.environ["UDPFAST_SHM"] = str(root / "shm")
        with (root / "log").open("w+") as log:
            supervisor = subprocess.Popen(
                child_command("run", "--quiet", str(root / "opra")), stderr=log
            )
            try:
                _until(_all_run, "the feeds")
                outcome = _drive(made, seconds, rate, kills, draw, supervisor.pid)
                outcome.restarts = sum(feed.restarts for feed in read_group("opra").feeds)
                supervisor.send_signal(signal.SIGTERM)
                if code := supervisor.wait(PATIENCE_S):
                    log.seek(0)
                    outcome.wrong.append(f"exit code {code}: {log.read()[-500:]}")
            finally:
                supervisor.kill()
                supervisor.wait()
                for feed in made:
                    feed.close()
    return outcome


def _drive(
    feeds: list[_Feed], seconds: float, rate: int, kills: int, draw: random.Random, pid: int
) -> Outcome:
    outcome = Outcome()
    by_origin = {f"ring:{feed.name}": feed for feed in feeds}
    with Reader("group:opra", kinds=["message"]) as reader:
        before, began = _ticks(pid), time.monotonic()
        blocks = int(seconds * rate)
        killed_at = {blocks * (i + 1) // (kills + 2) for i in range(kills)}
        for block in range(blocks):
            draw.choice(feeds).send(draw)
            if block in killed_at:
                _kill(draw.choice(feeds))
            if block % TURN == 0:
                _read(reader, by_origin, outcome)
                time.sleep(max(0.0, began + block / rate - time.monotonic()))
        took = time.monotonic() - began
        after = _ticks(pid)
        _until(_all_run, "the feeds")
        for feed in feeds:
            feed.send(draw, last=True)

        def at_the_end() -> bool:
            _read(reader, by_origin, outcome)
            for feed in feeds:
                if feed.killed and feed.read[-1:] != [feed.blocks - 1]:
                    feed.send(draw, last=True)  # a new process believes nothing at once
            return all(feed.read[-1:] == [feed.blocks - 1] for feed in feeds)

        with contextlib.suppress(TimeoutError):
            _until(at_the_end, "the last blocks")
    for feed in feeds:
        outcome.blocks += feed.blocks
        outcome.lost += len(feed.lost)
        outcome.read += len(feed.read)
        outcome.wrong += feed.faults()
    if not kills:  # a process that was killed took its count with it
        outcome.cores = {who: round((after[who] - before[who]) / _TICKS / took, 3) for who in after}
    return outcome


def _read(reader: Reader, by_origin: dict[str, _Feed], outcome: Outcome) -> None:
    while len(batch := reader.poll(timeout=0)) or batch.lapped:
        outcome.lapped += batch.lapped
        feed = by_origin[reader.origin]
        for index in np.flatnonzero(batch.headers["kind"] == Kind.MESSAGE):
            number = int(batch.headers["number"][index])
            block, first = _BEGIN.unpack_from(batch.payload(int(index)))
            if number != first:
                outcome.wrong.append(f"{feed.name}: number {number} with the bytes of {first}")
            feed.read.append(block)


def _kill(feed: _Feed) -> None:
    feed.killed = True
    (entry,) = (each for each in read_group("opra").feeds if each.name == feed.name)
    if entry.pid:
        os.kill(entry.pid, signal.SIGKILL)


def _all_run() -> bool:
    try:
        return all(feed.state == "running" for feed in read_group("opra").feeds)
    except FileNotFoundError:
        return False


def _until(holds: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.005)


def _ticks(supervisor: int) -> dict[str, int]:
    pids = [feed.pid for feed in read_group("opra").feeds]
    return {
        "feeds": sum(map(_ticks_of, pids)),
        "supervisor": _ticks_of(supervisor),
        "sender and reader": _ticks_of(os.getpid()),
    }


def _ticks_of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[11]) + int(fields[12])


@program
@click.option("--feeds", type=click.IntRange(1, 200), default=48, show_default=True)
@click.option("--seconds", type=FiniteRange(min=0.1), default=20.0, show_default=True)
@click.option(
    "--rate", type=click.IntRange(1), default=5_000, show_default=True, help="Blocks a second."
)
@click.option("--kills", type=click.IntRange(0), default=0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(feeds: int, seconds: float, rate: int, kills: int, seed: int) -> int:
    """Say what was found as one line of JSON; exit with 1 if something is wrong."""
    outcome = run(feeds, seconds, rate, kills, seed)
    click.echo(json.dumps(outcome.__dict__))
    return bool(outcome.wrong) or outcome.lapped > 0
