"""Ways to receive from a veth pair: the C floor, the product over a socket and over AF_XDP.

Each way has a pair of network namespaces of its own: an interface has one XDP program, and one
that is attached changes what the others on it cost.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.config import parse_feed
from udpfast.net.line import LineAddress, ReceiveOptions, open_receiver
from udpfast.net.sender import DatagramSender
from udpfast.net.xdp import XdpReceiver
from udpfast.net.xdp_host import XdpLine, XdpOptions

from .drain_trains import Train
from .drain_ways import QUEUE_BYTES, BurstWay, FeedWay, FloorWay
from .loops.drainload import BurstSender
from .namespaces import Wire, WireUnavailableError, wire
from .partner import Partner
from .peers.floor import FloorError, load_floor
from .schedule import Schedule
from .trials import Outcome, Unavailable
from .wire_trial import wire_trial

__all__ = ["VethFeedWay", "VethFloorWay", "probe", "veth_latency"]

ADDRESS = "10.99.0.2:9001"
#: The sending side's kernel hands frames over in its own time; afterwards all of them are there.
SETTLE_S = 0.002


def probe() -> None:
    """Raise Unavailable where there is no veth, or no AF_XDP."""
    try:
        with wire() as link, link.inside(link.b):
            XdpReceiver([XdpLine(LineAddress(ADDRESS), 0, 0)], XdpOptions(frames=64)).close()
    except (WireUnavailableError, OSError) as reason:
        raise Unavailable(str(reason)) from None


def lines() -> dict[str, Any]:
    """Return the table of the channel's one line."""
    return {"lines": [{"name": "A", "address": ADDRESS, "interface": "vb"}]}


def xdp_tables(mode: str) -> dict[str, Any]:
    """Return the tables that make a feed receive through AF_XDP, or (mode "") through a socket."""
    if not mode:
        return {"receive": {"timestamps": "none", "rcvbuf_bytes": QUEUE_BYTES}}
    return {"receive": {"path": "xdp"}, "xdp": {"mode": mode, "zero_copy": "off"}}


class VethWay(BurstWay):
    """What the ways on a veth pair share: its namespaces, and the wait for the last frame."""

    stack: contextlib.ExitStack

    def open_wire(self) -> Wire:
        """Make the namespaces, and a sender in the first."""
        self.stack = contextlib.ExitStack()
        link = self.stack.enter_context(wire())
        with link.inside(link.a):
            self.senders.append(DatagramSender(ADDRESS))
        return link

    def fill(self, rows: Any = None) -> int:
        """Queue a burst, and wait until all of it is there."""
        queued = super().fill(rows)
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            pass
        return queued


class VethFloorWay(VethWay, FloorWay):
    """The bare kernel, from C, at the end of a veth pair."""

    def __init__(self, bursts: BurstSender, train: Train, count: int) -> None:
        """Open a socket."""
        BurstWay.__init__(self, bursts, train, count, False)
        try:
            self.floor = load_floor()
        except FloorError as reason:
            raise Unavailable(str(reason)) from None
        self.mode = "recvmmsg"
        link = self.open_wire()
        options = ReceiveOptions(rcvbuf_bytes=QUEUE_BYTES, timestamps="none")
        with link.inside(link.b):
            self.socket, _ = open_receiver(LineAddress(ADDRESS), options)

    def close(self) -> None:
        """Take the namespaces away too."""
        super().close()
        self.stack.close()


class VethFeedWay(VethWay, FeedWay):
    """All of the product's loop at the end of a veth pair, over AF_XDP or a socket."""

    def __init__(self, bursts: BurstSender, train: Train, count: int, mode: str) -> None:
        """Make an instance in a directory of its own."""
        BurstWay.__init__(self, bursts, train, count, False)
        link = self.open_wire()
        config = parse_feed({"name": "drain", "incremental": lines(), **xdp_tables(mode)})
        shm = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.engine = Engine(config, self.directory)
        self.loop = FeedLoop(self.engine, config)
        with link.inside(link.b):
            self.loop.on_start()
        self.lines = 1
        self._open()
        self.before = self.engine.read_counters()

    def close(self) -> None:
        """Take the namespaces away too."""
        super().close()
        self.stack.close()


def veth_latency(
    link: Wire, partner: Partner, core: int, schedule: Schedule, message_bytes: int, mode: str
) -> Outcome:
    """Time a schedule from when each message is due to its record; the partner is at the a side."""
    tables: dict[str, Mapping[str, Any]] = {"incremental": lines(), **xdp_tables(mode)}
    with link.inside(link.b):  # the loop's thread begins in this one's namespace
        outcome = wire_trial(partner, core, schedule, message_bytes, **tables)
    verified = outcome.verify()
    return Outcome(float(outcome.histogram.percentile(50.0)), outcome.histogram, verified)
