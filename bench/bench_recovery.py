"""What does a loop of snapshots at full speed cost the changes that come beside it?

    core A: changes at a steady rate -- 127.0.0.1 --> core B: one loop over both sockets --> ring
            snapshots, round and round, at full speed -->

A simulated CME: its changes are one line, its loop of snapshots, by level and by order, another
one of the same feed, whose books are on. Everything is sent from one core, snapshots whenever no
change is due. Timed is each change: from the kernel's stamp to the clock that the loop reads when
it has it, so that neither the sender's delays nor what is in the same turn behind it are counted.
Left out is what came while the loop's core did something else; each row says how many those were.
The snapshots are older than the books, as most of a loop are: they are read, decoded and left.

Usage: udpfast bench run recovery [--quick]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.agents.market.cme_market import CmeMarket
from udpfast.config import FeedConfig, parse_feed
from udpfast.core.agent import AgentRunner
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.net.ports import free_ports
from udpfast.net.sender import DatagramSender

from .loops.beside import BesideResult, send_beside
from .loops.publish_watch import StampWatch
from .partner import Partner
from .result import Row
from .trials import Benchmark, Outcome, Settings, Trials, interleave
from .wire_trial import memory_directory, settle

__all__ = ["BENCHMARK"]

NAME = "recovery"
ALONE, BESIDE = "changes alone", "beside snapshots"
RATE = 20_000
#: Datagrams that fill the books, before the first one that is timed.
OPENING = 2_000
#: And those of a trial, of a quick run and of a whole one.
CHANGES = (2_000, 10_000)
#: How many snapshots come round and round.
SNAPSHOTS = 64
#: The market's number of the loop of definitions; those of snapshots follow.
DEFINITIONS = 1
#: In the order of their sockets.
ROLES = ("streams", "recovery", "definitions")
LINE = "A"

Rows = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


@dataclasses.dataclass(frozen=True, slots=True)
class Day:
    """What is sent.

    Attributes
    ----------
    definitions, opening : rows
        First, so that there are books; not timed.
    changes : rows
        At the rate.
    snapshots : rows
        As of the end of the opening.
    """

    definitions: Rows
    opening: Rows
    changes: Rows
    snapshots: Rows


def run(settings: Settings) -> Iterator[Row]:
    """Measure changes alone and beside snapshots, in turns."""
    day = play(CHANGES[0 if settings.quick else 1])
    with Partner(settings.cores[0]) as partner:
        variants: dict[str, Callable[[], float | Outcome]] = {
            name: partial(trial, partner, settings.cores[1], day, name == BESIDE)
            for name in (ALONE, BESIDE)
        }
        trials = interleave(variants, settings)
    parameters = {"rate": RATE, "size": int(day.snapshots[1].mean())}
    for percentile, goal in ((50.0, ""), (99.0, "P36: <= 1.1")):
        yield from at(trials, percentile).rows(
            NAME,
            "ns",
            {**parameters, "percentile": f"p{percentile:.0f}"},
            base=ALONE,
            goals={BESIDE: goal},
        )


def at(trials: Trials, percentile: float) -> Trials:
    """Return the same trials with another percentile as their figure."""
    kept = [
        dataclasses.replace(
            each,
            outcome=dataclasses.replace(
                each.outcome, value=float(each.outcome.histogram.percentile(percentile))
            ),
        )
        for each in trials.kept
        if each.outcome.histogram is not None
    ]
    return Trials(trials.variants, kept, trials.dropped)


def play(changes: int) -> Day:
    """Let a market open, and go on for so many datagrams of changes."""
    lines: dict[int, list[bytes]] = {line: [] for line in range(1 + len(CmeMarket.loops))}
    snapshots: list[bytes] = []
    for _, line, data in CmeMarket(7):
        lines[line].append(data)
        if line > DEFINITIONS and len(lines[0]) < OPENING:
            snapshots.append(data)
        if len(lines[0]) == OPENING + changes:
            break
    return Day(
        packed(lines[DEFINITIONS][:SNAPSHOTS]),
        packed(lines[0][:OPENING]),
        packed(lines[0][OPENING:]),
        packed(snapshots[-SNAPSHOTS:]),
    )


def packed(datagrams: list[bytes]) -> Rows:
    """Return datagrams as rows of one length, and the bytes of each."""
    sizes = np.array([len(each) for each in datagrams], np.int64)
    rows = np.zeros((len(datagrams), int(sizes.max(initial=1))), np.uint8)
    for row, each in zip(rows, datagrams, strict=True):
        row[: len(each)] = np.frombuffer(each, np.uint8)
    return rows, sizes


def feed_of(ports: list[int]) -> FeedConfig:
    """Return the feed: a line each of changes, snapshots and definitions, at these ports."""
    return parse_feed(
        {
            "name": NAME,
            "wire": {"framing": CmeMarket.framing, "payload": CmeMarket.payload},
            "window": {"lost_packet_wait_us": 500_000},
            "books": {"orders": True, "orders_max": 4_000},
            **{
                role: {"lines": [{"name": LINE, "address": f"127.0.0.1:{port}"}]}
                for role, port in zip(ROLES, ports, strict=True)
            },
        }
    )


def trial(partner: Partner, core: int, day: Day, beside: bool) -> Outcome:
    """Let the partner send the day to a feed on `core`."""
    ports = free_ports(len(ROLES))
    feed = feed_of(ports)
    count = len(day.changes[0])
    with memory_directory() as directory:
        engine = Engine(feed, directory)
        with RingCursor.attach(directory, "begin", payload_hash=PAYLOAD_HASH) as cursor:
            watch = StampWatch(FeedLoop(engine, feed), cursor, after=len(day.opening[0]))
            try:
                with AgentRunner(watch, core=core, idle="spin"):
                    partner.start(send, ports, day, beside)
                    sent: BesideResult = partner.result()
                    settle(lambda: watch.datagrams, count)
                counters = engine.read_counters()
            finally:
                engine.close()
    return Outcome(
        float(watch.to_loop.percentile(99.0)),
        watch.to_loop,
        verify(counters, watch, count, sent),
        {"to the loop": watch.to_loop, "to the ring": watch.to_ring},
    )


def verify(
    counters: dict[str, dict[str, int]], watch: StampWatch, count: int, sent: BesideResult
) -> str:
    """Return what was checked.

    Raises
    ------
    ValueError
        It is not so.
    """
    channel = counters["incremental"]
    dropped = counters[f"incremental.{LINE}"]["kernel_drops"]
    found = (watch.datagrams, channel["gaps"], channel["lost"], dropped, watch.unstamped)
    if found != (count, 0, 0, 0, 0) or sent.unsent:
        raise ValueError(
            f"expected {count:,} datagrams of changes with records, found {watch.datagrams:,}, "
            f"{channel['gaps']} gaps, {channel['lost']} lost, {dropped} dropped, "
            f"{watch.unstamped} without a stamp, {sent.unsent} unsent"
        )
    rate = sent.others / (sent.elapsed_ns / 1e9)
    return (
        f"{count:,} sent = {count:,} with records, none lost; {rate:,.0f} snapshots/s beside them"
    )


def send(state: dict[str, Any], ports: list[int], day: Day, beside: bool) -> BesideResult:
    """Send a day; for a partner."""
    nothing = packed([])
    interval_ns = int(1e9 / RATE)
    streams, recovery, definitions = (DatagramSender(f"127.0.0.1:{port}") for port in ports)
    with streams, recovery, definitions:
        for sender, rows in ((definitions, day.definitions), (streams, day.opening)):
            send_beside(sender, *rows, interval_ns, recovery, *nothing)
        others = day.snapshots if beside else nothing
        return send_beside(streams, *day.changes, interval_ns, recovery, *others)


BENCHMARK = Benchmark(
    name=NAME,
    question="What does a loop of snapshots at full speed cost the changes that come beside it?",
    topology="""
core A: changes at a steady rate  -- 127.0.0.1 --> core B: one loop over both sockets --> ring
core A: snapshots, at full speed  -- 127.0.0.1 -->
""",
    run=run,
    seconds=20.0,
)
