"""One trial of the way from the wire into the ring: a paced sender, and a feed that is watched."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.config import FeedConfig, parse_feed
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.net.ports import free_ports
from udpfast.net.sender import DatagramSender
from udpfast.shm.histogram import LatencyHistogram

from .loops.pace import PacedSender, PaceResult
from .loops.publish_watch import PublishWatch
from .partner import Partner
from .schedule import Schedule

__all__ = [
    "WireOutcome",
    "feed_tables",
    "memory_directory",
    "own_instances",
    "send_schedule",
    "settle",
    "wire_trial",
]

#: From the order to send until the first message is due: both ends are in their loops by then.
LEAD_NS = 5_000_000
#: A core that did nothing for so long was doing something else.
AWAY_NS = 20_000
#: Longer than a hole is waited for: nothing is under way any more.
SETTLE_S = 0.6
#: Share of a trial's messages that warm caches and branch predictors, and are not timed: the
#: histogram of receive stamps alone has a line of its own for every few ns, each cold once.
WARM_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class WireOutcome:
    """What came of a schedule.

    Attributes
    ----------
    histogram : LatencyHistogram
        From the time at which a message was due to its publication, in ns.
    sent, published, wrong, lost, kernel_drops : int
        Messages, but for `kernel_drops`: datagrams.
    late_ns_max : int
        The furthest that the sender was behind the schedule.
    """

    histogram: LatencyHistogram
    sent: int
    published: int
    wrong: int
    lost: int
    kernel_drops: int
    unsent: int
    late_ns_max: int

    @property
    def clean(self) -> bool:
        """Whether every message was published, once, whole and in order."""
        return self.sent == self.published and not (self.wrong or self.lost or self.unsent)

    def verify(self) -> str:
        """Return what was checked; raise ValueError if it is not so."""
        if not self.clean:
            raise ValueError(
                f"expected {self.sent:,} messages in the ring, in order; found {self.published:,}, "
                f"{self.wrong} wrong, {self.lost} lost, {self.kernel_drops} dropped by the kernel, "
                f"{self.unsent} unsent"
            )
        return f"{self.sent:,} sent = {self.published:,} in the ring, whole and in order"


def feed_tables(lines: int, **tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a feed on loopback: defaults, but for what is given.

    And but for the patience with holes: a virtual machine stops a sender for 10 ms between two
    fragments, and what is late because of that alone shall be timed, not given up after 5 ms.
    """
    return {
        "name": "bench",
        "incremental": {
            "lines": [
                {"name": chr(65 + line), "address": f"127.0.0.1:{port}"}
                for line, port in enumerate(free_ports(lines))
            ]
        },
        "window": {"lost_packet_wait_us": 500_000},
        **tables,
    }


@contextlib.contextmanager
def memory_directory() -> Iterator[Path]:
    """Make a directory for regions, in memory where the host has such a place."""
    root = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="udpfast-bench-", dir=root) as name:
        yield Path(name)


@contextlib.contextmanager
def own_instances() -> Iterator[Path]:
    """Let this process and those that it starts keep their instances in a directory of its own."""
    before = os.environ.get("UDPFAST_SHM")
    with memory_directory() as directory:
        os.environ["UDPFAST_SHM"] = str(directory)
        try:
            yield directory
        finally:
            if before is None:
                del os.environ["UDPFAST_SHM"]
            else:
                os.environ["UDPFAST_SHM"] = before


def send_schedule(
    state: dict[str, Any],
    addresses: list[str],
    message_bytes: int,
    schedule: Schedule,
    segment: bool = False,
) -> PaceResult:
    """Send a schedule that begins now; for a partner."""
    with contextlib.ExitStack() as stack:
        senders = [
            stack.enter_context(DatagramSender(address, segment=segment)) for address in addresses
        ]
        pace = PacedSender(senders, message_bytes=message_bytes)
        start_ns = monotonic_ns() + LEAD_NS
        return pace.send(
            start_ns + schedule.due_ns,
            start_ns + schedule.stamps_ns,
            schedule.seqnos,
            schedule.lines,
        )


def wire_trial(
    partner: Partner,
    core: int | None,
    schedule: Schedule,
    message_bytes: int,
    **tables: Mapping[str, Any],
) -> WireOutcome:
    """Let the partner send a schedule to a feed on `core`; time each message into the ring.

    The feed is the production one: its loop under its runner, spinning, on a core of its own.
    """
    config = parse_feed(feed_tables(schedule.lines_total, **tables))
    messages = schedule.messages
    with memory_directory() as directory:
        engine = Engine(config, directory)
        with RingCursor.attach(directory, "begin", payload_hash=PAYLOAD_HASH) as cursor:
            watch = PublishWatch(FeedLoop(engine, config), cursor, skip=int(messages * WARM_SHARE))
            try:
                with AgentRunner(watch, core=core, idle="spin"):
                    partner.start(
                        send_schedule,
                        [line.address for line in config.incremental.lines],
                        message_bytes,
                        schedule,
                    )
                    sent: PaceResult = partner.result()
                    settle(lambda: watch.messages, messages)
                counters = engine.read_counters()
            finally:
                engine.close()
    return WireOutcome(
        histogram=watch.histogram,
        sent=messages,
        published=watch.messages,
        wrong=watch.wrong,
        lost=counters["incremental"]["lost"],
        kernel_drops=_sum(counters, config, "kernel_drops"),
        unsent=sent.unsent,
        late_ns_max=sent.late_ns_max,
    )


def settle(seen: Callable[[], int], expected: int) -> None:
    """Wait until all is there, or nothing comes any more: a busy host takes its time."""
    before, deadline = -1, 0.0
    while (now := seen()) < expected:
        if now != before:
            before, deadline = now, time.monotonic() + SETTLE_S
        if time.monotonic() > deadline:
            return
        time.sleep(0.001)


def _sum(counters: dict[str, dict[str, int]], config: FeedConfig, name: str) -> int:
    return sum(counters[f"incremental.{line.name}"][name] for line in config.incremental.lines)
