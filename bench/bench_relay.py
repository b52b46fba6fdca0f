"""What does a relay cost for each update, how many can it pass on, and how late are they for it?

    ring --> udpfast relay, on this core --> 127.0.0.1 --> a socket that is emptied between batches

A feed's ring gets books of two levels and tops of 64 objects, batch by batch; only the turns of the
relay are timed: reading, its own state of every object, encoding, frames, sending by each line. The
floor sends as many datagrams of the same size, which lie ready. "alone" is one update at a time,
from the moment at which it lies in the ring until it can be received at the other end.

Usage: udpfast bench run relay [--quick]
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.agents.feed.replayer import Replayer
from udpfast.agents.relay.relay import Relay
from udpfast.cli.scratch import scratch_directory
from udpfast.config import parse_feed, parse_relay
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.feed.publication import Publication
from udpfast.net.pcap import CAPTURED, CaptureBatch
from udpfast.net.sender import DatagramSender
from udpfast.payload.roq.event import encode_event
from udpfast.shm.histogram import LatencyHistogram
from udpfast.shm.relay_counts import RELAY_VERDICTS

from .result import Row
from .trials import Benchmark, Outcome, Settings, interleave

__all__ = ["BENCHMARK"]

NAME = "relay"
FLOOR = "send alone"
LESS = "datagrams that lie ready: no ring, no state, no encoding"
OBJECTS = 64
#: What the relay knows before it is measured: a book and a top of each.
KNOWN = 2 * OBJECTS
BATCH = 64
UPDATES = 12_800
ALONE = 2_000
#: More than the benchmark ever needs: what a budget costs that is never short.
WIDE = 100_000_000_000
#: Rounds of what is known at first take less: their pace is 20,000 datagrams per second.
SETTLE_NS = 100_000_000

#: By variant: how many lines, and what each has besides its addresses.
VARIANTS: dict[str, tuple[int, dict[str, int]]] = {
    "one line": (1, {}),
    "two lines": (2, {}),
    "two lines, budget": (2, {"bits_per_s": WIDE, "burst_bytes": 1 << 24}),
    "two lines, parity 8": (2, {"parity": 8}),
}


def run(settings: Settings) -> Iterator[Row]:
    """Measure every variant in batches, and one update at a time."""
    part = 10 if settings.quick else 1
    for size, count in ((BATCH, UPDATES // part), (1, ALONE // part)):
        variants: dict[str, Callable[[], Outcome]] = {
            FLOOR: partial(send_alone, size, count),
            **{
                name: partial(relay, lines, more, size, count)
                for name, (lines, more) in VARIANTS.items()
            },
        }
        label = "batches" if size > 1 else "alone"
        trials = interleave(variants, settings, label=label, two_cores=False)
        yield from trials.rows(NAME, "ns/update", {"batch": size}, base=FLOOR, less={FLOOR: LESS})


def published(count: int) -> list[bytes]:
    """Return datagrams of a publisher: each object's book and top, then so many updates."""
    publication = Publication(1, heartbeat_interval_ns=0)
    found = []
    for number in range(KNOWN + count):
        name = number % OBJECTS
        whole = number < OBJECTS
        top = number % 4 == 0 if number >= KNOWN else not whole
        price = 100.0 + number % 7
        value: dict[str, Any] = {"exchange": "X", "symbol": f"S{name}"}
        if not top:
            kind = "MarketByPriceUpdate"
            value["bids"] = [{"price": price, "quantity": 1.0 + number % 5}]
            value["asks"] = [{"price": 200.0 - price / 50, "quantity": 2.0 + number % 3}]
            value["update_type"] = 1 if whole else 2  # snapshot, incremental
        else:
            kind = "TopOfBook"
            value["layer"] = {"bid_price": price, "bid_quantity": 1.0, "ask_price": 200.0,
                              "ask_quantity": 2.0}  # fmt: skip
        payload = encode_event({"value_name": kind, "value": value})
        type_ = 1 if kind == "MarketByPriceUpdate" else 2
        publication.publish(payload, type_, name, snapshot=whole, now_ns=0)
        found += publication.take(0)
    return found


class Ends:
    """Sockets at which the lines end."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        self.sockets = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(2 * count)
        ]
        for each in self.sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            each.bind(("127.0.0.1", 0))
            each.setblocking(False)
        self.received = 0

    def table(self, more: dict[str, int]) -> dict[str, Any]:
        """Return the settings of a relay whose lines lead here."""
        ports = [f"127.0.0.1:{each.getsockname()[1]}" for each in self.sockets]
        return {
            "lines": [
                {"name": f"L{at}", "incremental": ports[at], "snapshot": ports[at + 1], **more}
                for at in range(0, len(ports), 2)
            ],
            "heartbeat_ms": 60_000,
            "snapshot_interval_ms": 3_600_000,
        }

    def time(self, size: int, send: Callable[[], object]) -> int:
        """Return how long sending takes, ns; of one datagram alone until it is received."""
        began_ns = monotonic_ns()
        send()
        if size == 1:
            self.sockets[0].recv(2048)
            self.received += 1
        took_ns = monotonic_ns() - began_ns
        self.empty()
        return took_ns

    def empty(self) -> None:
        """Take all that has come, and count what came by the first line's increments."""
        for at, each in enumerate(self.sockets):
            while True:
                try:
                    datagram = each.recv(2048)
                except BlockingIOError:
                    break
                self.received += at == 0 and datagram[0] != 15 and len(datagram) > 16


def relay(lines: int, more: dict[str, int], size: int, count: int) -> Outcome:
    """Let a relay pass on so many updates, `size` at once."""
    datagrams = published(count)
    latencies = LatencyHistogram()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(scratch_directory("udpfast-bench-relay-")))
        line = {"name": "A", "address": "127.0.0.1:9"}
        near = Replayer(
            parse_feed({"name": "near", "incremental": {"lines": [line]},
                        "ring": {"capacity_bytes": 1 << 24}}),
            folder,
        )  # fmt: skip
        stack.callback(near.close)
        ends = Ends(stack, lines)
        agent = Relay(parse_relay(ends.table(more)), folder)
        agent.on_start()
        stack.callback(agent.on_stop)
        feed(near, datagrams[:KNOWN])
        settled_ns = monotonic_ns() + SETTLE_NS
        while monotonic_ns() < settled_ns:  # rounds of snapshots are over
            turns(agent)
        ends.empty()
        ends.received = 0
        before = agent.read_counts()["relay"]["updates"]
        spent_ns = 0
        for first in range(KNOWN, KNOWN + count, size):
            feed(near, datagrams[first : first + size])
            took_ns = ends.time(size, partial(turns, agent))
            spent_ns += took_ns
            latencies.record(took_ns)
        counts = agent.read_counts()["relay"]
    told = counts["updates"] - before
    if not told == ends.received == count or counts["short"]:
        raise ValueError(f"expected {count:,} updates, found {told:,}, {ends.received:,} received")
    if sum(counts[name] for name in RELAY_VERDICTS) != counts["records"]:
        raise ValueError(f"expected a verdict for each record, found {counts}")
    return Outcome(
        spent_ns / count,
        histogram=latencies if size == 1 else None,
        verified=f"{count:,} updates passed on = {ends.received:,} received by the first line",
    )


def send_alone(size: int, count: int) -> Outcome:
    """Send as many datagrams as one line does."""
    datagrams = published(count)[KNOWN:]
    latencies = LatencyHistogram()
    spent_ns = 0
    with ExitStack() as stack:
        ends = Ends(stack, 1)
        sender = DatagramSender("127.0.0.1:%d" % ends.sockets[0].getsockname()[1])  # noqa: UP031
        stack.callback(sender.close)
        for first in range(0, count, size):
            batch = datagrams[first : first + size]
            took_ns = ends.time(size, partial(sender.send, batch))
            spent_ns += took_ns
            latencies.record(took_ns)
    if ends.received != count:
        raise ValueError(f"expected {count:,} datagrams, found {ends.received:,}")
    return Outcome(
        spent_ns / count,
        histogram=latencies if size == 1 else None,
        verified=f"{count:,} sent = {ends.received:,} received",
    )


def feed(near: Replayer, datagrams: list[bytes]) -> None:
    """Put the updates of datagrams into the ring."""
    headers = np.zeros(len(datagrams), CAPTURED)
    headers["size"] = [len(each) for each in datagrams]
    headers["offset"] = np.cumsum([0, *headers["size"][:-1]])
    headers["timestamp_ns"] = realtime_ns()
    zeros = np.zeros(len(datagrams), np.uint8)
    near.replay(CaptureBatch(headers, b"".join(datagrams)), zeros, zeros, 0, len(datagrams))


def turns(agent: Relay) -> None:
    """Let the relay do all that there is to do."""
    while agent.work(monotonic_ns()) > 0:
        pass


BENCHMARK = Benchmark(
    name=NAME,
    question="What does a relay cost for each update, and how late is one for it?",
    topology="""
ring --> relay, one core --> 127.0.0.1 --> a socket that is emptied between batches
floor    DatagramSender  --> 127.0.0.1 --> the same, datagrams that lie ready
""",
    run=run,
    seconds=20.0,
)
