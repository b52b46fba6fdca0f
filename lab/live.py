"""Captures of venues sent over loopback multicast and received live: the same comes out.

    udpfast lab live ../shared/data/pcap
    udpfast lab live ../shared/data/pcap --speed 20 --only cme_mdp3

What a feed publishes is compared with what the same datagrams make without a network: the
sessions and numbers of each stream, and what is missing. Two lines are sent as two where the
capture has them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from udpfast.agents.feed.subscriber import Subscriber
from udpfast.cli.options import FiniteRange
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.errors import RingClosedError
from udpfast.net.pcap import CapturedDatagram, CaptureReader
from udpfast.net.ports import free_ports
from udpfast.net.sender import DatagramSender
from udpfast.wire.framing import Framing

from .conformance.engine import (
    WINDOW_MAX,
    WINDOW_OF_STREAM,
    Collector,
    Numbering,
    numbers_of,
    power_of_two,
    replay_lines,
)
from .program import program

__all__ = ["Case", "Said", "cases_of", "main", "run_live"]

#: Holes wait as long as the window allows, since a receiver beside a sender may be held up.
WAIT_US = 60_000_000
CHUNK = 32
IN_FLIGHT_MAX = 4096
QUIET_S = 30.0


class Said(NamedTuple):
    """A record, as far as it matters here."""

    kind: Kind
    stream: int
    number: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Case:
    """The datagrams of the lines of one feed, in the order of the capture.

    Attributes
    ----------
    name : str
        The capture, and where its lines went to.
    framing : str
        Its name.
    datagrams : list of tuple
        The line's number, and the datagram.
    lines : int
        How many there are.
    """

    name: str
    framing: str
    datagrams: list[tuple[int, CapturedDatagram]]
    lines: int


def cases_of(folder: Path, only: str = "") -> Iterator[Case]:
    """Yield the feeds of each capture that a folder's expectations name: pairs of lines, or one."""
    for name in ("expected.json", "expected_singles.json"):
        for file in json.loads((folder / name).read_text())["files"]:
            if only in file["file"]:
                yield from _cases(folder / file["file"], file)


def _cases(path: Path, file: dict[str, Any]) -> Iterator[Case]:
    groups = [[pair["a"], pair["b"]] for pair in file.get("a_b", ())]
    paired = {name for group in groups for name in group}
    flows = [f"{flow['dst']}:{flow['dport']}" for flow in file["flows"]]
    groups += [[flow] for flow in dict.fromkeys(flows) if flow not in paired]
    with CaptureReader(path) as reader:
        datagrams = list(reader)
    for group in groups:
        lines = {address: line for line, address in enumerate(group)}
        sent = [
            (lines[f"{one.destination[0]}:{one.destination[1]}"], one)
            for one in datagrams
            if f"{one.destination[0]}:{one.destination[1]}" in lines
        ]
        yield Case(f"{path.name} {' '.join(group)}", file["framing"], sent, len(group))


def run_live(case: Case, speed: float) -> str | None:
    """Send one feed's datagrams and receive them.

    Parameters
    ----------
    case : Case
    speed : float
        Times the capture's pace; 0: as fast as they are taken.

    Returns
    -------
    str or None
        What differs from what the same datagrams make without a network.
    """
    framing = Framing(case.framing)
    numbers = 1 + numbers_of(framing, (datagram for _, datagram in case.datagrams))
    size = 128 * numbers + sum(len(datagram.payload) for _, datagram in case.datagrams)
    window = power_of_two(numbers, 1024, WINDOW_MAX)
    if framing.facts.stream:
        window = WINDOW_OF_STREAM
    expected = replay_lines(framing, case.datagrams, case.lines, window=window)
    name = f"lab-live-{os.getpid()}"
    addresses = [
        f"239.255.77.{line + 1}:{port}" for line, port in enumerate(free_ports(case.lines))
    ]
    config = {
        "name": name,
        "wire": {"framing": case.framing, "streams_max": 40 if framing.facts.stream else 2},
        "streams": {
            "lines": [
                {"name": chr(65 + line), "address": address, "interface": "lo"}
                for line, address in enumerate(addresses)
            ]
        },
        "window": {
            "size": window,
            "lost_packet_wait_us": WAIT_US,
            "line_dead_ms": 60_000,
            "slab_cells": power_of_two(numbers, 256, 1 << 17),
        },
        "ring": {"capacity_bytes": power_of_two(4 * size, 1 << 22, 1 << 30)},
        "session": {"inactivity_timeout_ms": 86_400_000},
    }
    collector = Collector(framing)
    with Subscriber(config) as subscriber, Reader(f"ring:{name}", start="begin") as reader:
        _send(case, addresses, speed, subscriber)
        subscriber.stop()
        _read(reader, collector)
        counters = subscriber.counters()
    received = [counters[f"incremental.{chr(65 + line)}"] for line in range(case.lines)]
    sent = [sum(line == one for line, _ in case.datagrams) for one in range(case.lines)]
    if [line["datagrams"] for line in received] != sent:
        return f"sent {sent}, received {[line['datagrams'] for line in received]}"
    return _difference(expected.numberings, collector.numberings)


def _send(case: Case, addresses: list[str], speed: float, subscriber: Subscriber) -> None:
    # Never more under way than a socket's queue holds: what is tried is the feed, not the kernel.
    senders = [DatagramSender(address, interface="lo") for address in addresses]
    began, first_ns = time.monotonic(), case.datagrams[0][1].timestamp_ns if case.datagrams else 0
    sent = 0
    try:
        for at in range(0, len(case.datagrams), CHUNK):
            for line, datagram in case.datagrams[at : at + CHUNK]:
                if speed:
                    due = began + (datagram.timestamp_ns - first_ns) / 1e9 / speed
                    time.sleep(max(0.0, due - time.monotonic()))
                size = np.array([len(datagram.payload)], np.int64)
                senders[line].send((datagram.payload, np.zeros(1, np.int64), size))
                sent += 1
            if sent - _taken(subscriber, case.lines) > IN_FLIGHT_MAX:
                _wait(subscriber, case.lines, sent - IN_FLIGHT_MAX // 2)
        _wait(subscriber, case.lines, sent)
    finally:
        for sender in senders:
            sender.close()


def _taken(subscriber: Subscriber, lines: int) -> int:
    counters = subscriber.counters()
    return sum(int(counters[f"incremental.{chr(65 + line)}"]["datagrams"]) for line in range(lines))


def _wait(subscriber: Subscriber, lines: int, count: int) -> None:
    # Until so many have come, or nothing comes any more.
    taken, until = -1, time.monotonic() + QUIET_S
    while time.monotonic() < until:
        now = _taken(subscriber, lines)
        if now >= count:
            return
        if now != taken:
            taken, until = now, time.monotonic() + QUIET_S
        time.sleep(0.001)


def _read(reader: Reader, collector: Collector) -> None:
    while True:
        try:
            batch = reader.poll(timeout=0)
        except RingClosedError:
            return
        headers = batch.headers
        collector.take(
            Said(
                Kind(headers["kind"][i]),
                int(headers["stream"][i]),
                int(headers["number"][i]),
                bytes(batch.payload(i)) if headers["kind"][i] in (Kind.GAP, Kind.SESSION) else b"",
            )
            for i in range(len(batch))
        )


def _difference(expected: list[Numbering], found: list[Numbering]) -> str | None:
    broken = next((one.broken for one in found if one.broken), None)
    if broken is not None:
        return broken
    told = [
        sorted((one.label, one.first, one.next, one.numbers, one.gaps.spans) for one in numberings)
        for numberings in (expected, found)
    ]
    if told[0] != told[1]:
        pairs = zip(*told, strict=False)
        first = next(((one, other) for one, other in pairs if one != other), None)
        return f"expected {len(told[0])} numberings, found {len(told[1])}; first other: {first}"
    return None


@program
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--speed", type=FiniteRange(0), default=0.0, help="Times the pace of the captures; 0: at once."
)
@click.option("--only", default="", help="Captures whose name has this in it.")
def main(folder: Path, speed: float, only: str) -> bool:
    """Run what a folder's expectations name."""
    failed = passed = 0
    for case in cases_of(folder, only):
        problem = run_live(case, speed)
        if problem is None:
            passed += 1
        else:
            failed += 1
            click.echo(f"FAILED {case.name}: {problem}")
    click.echo(f"{passed} passed, {failed} failed")
    return failed > 0
