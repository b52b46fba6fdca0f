"""Ways to get a burst out of a socket's queue: the floor, parts of the product, all of it.

Each way owns its sockets, fills them through the burst sender, drains them and checks what came;
`trial` returns nanoseconds per datagram.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.config import parse_feed
from udpfast.monitor.ledger import ledger_of
from udpfast.net.datagram import DatagramReceiver
from udpfast.net.line import LineAddress, ReceiveOptions, open_receiver
from udpfast.net.sender import DatagramSender

from .drain_trains import Train
from .loops.drainload import BurstSender, drain_agent, drain_receiver
from .peers.floor import Floor

__all__ = ["FeedWay", "FloorWay", "ReceiverWay", "Way", "WrongCountError"]

ADDRESS = "127.0.0.1:0"
#: Holds the longest queue: a small datagram takes 1,280 bytes of it.
QUEUE_BYTES = 1 << 26
#: Datagrams per train of a segmenting sender.
TRAIN = 16
_SO_TIMESTAMPNS = 35
_UDP_GRO = 104


class WrongCountError(RuntimeError):
    """What came out of a queue is not what went in."""


def expect(what: str, expected: object, found: object) -> None:
    """Raise if two numbers that must be equal are not."""
    if expected != found:
        raise WrongCountError(f"{what}: expected {expected}, found {found}")


class Way(Protocol):
    """One variant of the benchmark."""

    verified: str

    def trial(self) -> float:
        """Return nanoseconds per datagram: the median of some bursts."""

    def close(self) -> None:
        """Give sockets and memory back."""


class BurstWay:
    """What all ways share: a train, a sender connected to each of the way's sockets, bursts."""

    verified = ""

    def __init__(self, bursts: BurstSender, train: Train, count: int, segment: bool) -> None:
        """Remember what to send, and how often in a trial."""
        self.bursts = bursts
        self.train = train
        self.count = count
        self.segment = segment
        self.senders: list[DatagramSender] = []

    def connect(self, address: tuple[str, int]) -> None:
        """Send every burst to this socket too."""
        self.senders.append(DatagramSender(f"{address[0]}:{address[1]}", segment=self.segment))

    def fill(self, rows: Any = None) -> int:
        """Queue a burst in every socket; return how many datagrams wait in all."""
        rows = self.train.rows if rows is None else rows
        for sender in self.senders:
            self.bursts.send(sender, rows, TRAIN if self.segment else 64)
        return len(rows) * len(self.senders)

    def trial(self) -> float:
        """Fill and drain; the bursts that the machine interrupts are not the median."""
        self.bursts.awake()
        try:
            costs = []
            for _ in range(self.count):
                datagrams = self.fill()
                costs.append(self.drain(datagrams) / datagrams)
                self.train.advance()
        finally:
            self.bursts.rest()
        self.check()
        return statistics.median(costs)

    def drain(self, datagrams: int) -> int:
        """Take a burst out, check it, and return the nanoseconds."""
        raise NotImplementedError

    def check(self) -> None:
        """Check the counts of a whole trial."""

    def close(self) -> None:
        """Give sockets and memory back."""
        for sender in self.senders:
            sender.close()


class FloorWay(BurstWay):
    """The bare kernel, from C."""

    verified = "every burst: count and sum of seqnos equal to what was sent"

    def __init__(
        self, floor: Floor, mode: str, bursts: BurstSender, train: Train, count: int
    ) -> None:
        """Open a socket that has what the mode needs."""
        super().__init__(bursts, train, count, mode == "gro")
        self.floor = floor
        self.mode = mode
        options = ReceiveOptions(rcvbuf_bytes=QUEUE_BYTES, timestamps="none")
        self.socket, _ = open_receiver(LineAddress(ADDRESS), options)
        if mode == "stamps":
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        if mode == "gro":
            self.socket.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        self.connect(self.socket.getsockname())

    def drain(self, datagrams: int) -> int:
        """Drain in C."""
        found = self.floor.drain(self.socket, self.mode)
        expect("datagrams", datagrams, found.datagrams)
        expect("sum of seqnos", self.train.checksum, found.checksum)
        messages = self.train.messages
        wanted = {"stamps": datagrams, "records": messages, "promised": messages}
        expect("stamped datagrams, or messages", wanted.get(self.mode, 0), found.found)
        return found.elapsed_ns

    def close(self) -> None:
        """Close the socket too."""
        super().close()
        self.socket.close()


class ReceiverWay(BurstWay):
    """The product's receive call alone: batches of `Datagram`, nothing done with them."""

    verified = FloorWay.verified

    def __init__(self, bursts: BurstSender, train: Train, count: int) -> None:
        """Open a receiver."""
        super().__init__(bursts, train, count, False)
        options = ReceiveOptions(rcvbuf_bytes=QUEUE_BYTES, timestamps="none")
        self.receiver = DatagramReceiver(LineAddress(ADDRESS), options)
        self.connect(self.receiver.address)

    def drain(self, datagrams: int) -> int:
        """Drain in Cython."""
        elapsed_ns, found, checksum = drain_receiver(self.receiver)
        expect("datagrams", datagrams, found)
        expect("sum of seqnos", self.train.checksum, checksum)
        return elapsed_ns

    def close(self) -> None:
        """Close the receiver too."""
        super().close()
        self.receiver.close()


class FeedWay(BurstWay):
    """All of the product's loop, from the receive call to the records in the ring."""

    verified = (
        "every burst: datagrams as sent; every trial: one verdict per datagram, "
        "every message delivered in order and in the ring, no gap, no kernel drop"
    )

    def __init__(
        self,
        bursts: BurstSender,
        train: Train,
        count: int,
        *,
        lines: int = 1,
        receive: Mapping[str, Any] | None = None,
        framing: str = "roq",
        streams: int = 2,
        addresses: int = 1,
        payload: str = "none",
        books: Mapping[str, Any] | None = None,
    ) -> None:
        """Make an instance in a directory of its own, and open its sockets."""
        settings = {"timestamps": "none", "rcvbuf_bytes": QUEUE_BYTES} | dict(receive or {})
        super().__init__(bursts, train, count, bool(settings.get("gro")))
        wire: dict[str, str | int] = {"framing": framing}
        role = "incremental"
        # What the host lets wait is late, neither lost nor silent.
        window: dict[str, int] = {"lost_packet_wait_us": 60_000_000}
        if framing != "roq":
            wire |= {"payload": payload, "streams_max": streams}
            role = "streams"
            window |= {"size": 1024, "out_of_order_max_interval": 1024}
        where: dict[str, Any] = {"address": ADDRESS}
        if addresses > 1:
            where = {"addresses": [ADDRESS] * addresses}
        config = parse_feed(
            {
                "name": "drain",
                "wire": wire,
                role: {"lines": [{"name": "AB"[i]} | where for i in range(lines)]},
                "window": window,
                "session": {"inactivity_timeout_ms": 86_400_000},
                "receive": settings,
            }
            | ({"books": dict(books)} if books else {})
        )
        shm = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.engine = Engine(config, self.directory)
        self.loop = FeedLoop(self.engine, config)
        self.loop.on_start()
        for receiver in self.loop.receivers:
            self.connect(receiver.address)
        self.lines = lines
        self._open()
        self.before = self.engine.read_counters()

    def _open(self) -> None:
        # The session begins with the first datagrams, before anything is counted.
        if self.train.opening is None:
            return
        self.bursts.awake()
        try:
            self.fill(self.train.opening)
        finally:
            self.bursts.rest()
        drain_agent(self.loop)

    def drain(self, datagrams: int) -> int:
        """Let the loop turn until nothing waits."""
        elapsed_ns, found = drain_agent(self.loop)
        if not self.segment:  # a train counts as one
            expect("datagrams", datagrams, found)
        return elapsed_ns

    def check(self) -> None:
        """Compare counters with what this trial sent."""
        now, before = self.engine.read_counters(), self.before
        self.before = now
        messages = self.count * self.train.messages
        moved = {
            scope: {name: value - before[scope][name] for name, value in values.items()}
            for scope, values in now.items()
        }
        ledger = ledger_of(moved)
        expect("verdicts", ledger.datagrams, ledger.verdicts)
        expect("datagrams", self.count * len(self.train) * self.lines, ledger.datagrams)
        channel = moved["incremental"]
        expect("messages", messages, channel["messages"])
        expect("gaps", 0, channel["gaps"])
        self.check_records(moved, messages)
        expect("kernel drops", 0, sum(moved[name]["kernel_drops"] for name in ledger.lines))

    def check_records(self, moved: Mapping[str, Any], messages: int) -> None:
        """Compare the records of a trial with its messages: each has its own."""
        channel = moved["incremental"]
        # A session's beginning, and a channel that speaks or falls silent, are records too.
        announced = sum(channel[name] for name in ("sessions", "ready", "disconnected"))
        expect("records", messages + announced, moved["feed"]["records"])

    def close(self) -> None:
        """Remove the instance too."""
        super().close()
        self.loop.on_stop()
        self.engine.close()
        shutil.rmtree(self.directory)
