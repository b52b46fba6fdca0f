"""What does a line of many groups cost: all of them busy, and all quiet but one?

    core A                       core B (this process's main thread, pinned)
    burst sender --127.0.0.1--> 64 socket queues --> udpfast: which have something, receive .. ring

The same datagrams of 64 streams are queued in one socket, or spread over 64, and taken out by the
production loop. Then each socket in its turn gets a single datagram while all others are quiet:
timed are the turn that takes it and the one that finds nothing.

Run it with `udpfast bench run groups`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from .bench_drain import BURST, Make, measure, rounds
from .drain_trains import Train
from .drain_ways import BurstWay, FeedWay, expect
from .framing_trains import UnitTrain
from .loops.drainload import BurstSender, drain_agent
from .loops.hostprobe import pinned
from .result import Row
from .trials import Benchmark, Settings

__all__ = ["BENCHMARK"]

GROUPS = 64
ONE, MANY = "one socket", f"{GROUPS} sockets"
ASKED = f"{GROUPS} sockets, each asked"
GOALS_BUSY = {MANY: "P37: <= 1.15"}
#: Socket options with which the loop asks every socket itself: a busy poll of no length.
EACH_ASKED = {"busy_poll_us": 1}


class GroupsWay(FeedWay):
    """The product's loop over many sockets; a stream comes in each."""

    def __init__(
        self, bursts: BurstSender, train: Train, count: int, groups: int, receive: Any = None
    ) -> None:
        """Open the sockets."""
        super().__init__(
            bursts,
            train,
            count,
            framing="cboe_pitch",
            streams=GROUPS,
            addresses=groups,
            receive=receive,
        )

    def fill(self, rows: Any = None) -> int:
        """Queue a burst, a part of it in each socket; return how many datagrams wait."""
        rows = self.train.rows if rows is None else rows
        for place, sender in enumerate(self.senders):
            self.bursts.send(sender, rows[place :: len(self.senders)].copy(), 64)
        return len(rows)


class LoneWay(GroupsWay):
    """A single datagram at a time, in one socket after the other."""

    def trial(self) -> float:
        """Return the median of what one costs."""
        self.bursts.awake()
        costs = []
        try:
            for _ in range(self.count):
                for place, row in enumerate(self.train.rows):
                    self.bursts.send(
                        self.senders[place % len(self.senders)], row.reshape(1, -1).copy(), 1
                    )
                    elapsed_ns, found = drain_agent(self.loop)
                    expect("datagrams", 1, found)
                    costs.append(elapsed_ns)
                self.train.advance()
        finally:
            self.bursts.rest()
        self.check()
        return statistics.median(costs)


def run(settings: Settings) -> Iterator[Row]:
    """Measure all groups busy, then one at a time."""
    bursts = BurstSender(settings.cores[0])
    count = 3 if settings.quick else 9
    try:
        with pinned(settings.cores[1]):
            yield from compare(settings, bursts, GroupsWay, count, BURST, GOALS_BUSY, "all busy")
            yield from compare(settings, bursts, LoneWay, count, GROUPS, {}, "one at a time")
    finally:
        bursts.close()


def compare(
    settings: Settings,
    bursts: BurstSender,
    way: Callable[..., BurstWay],
    count: int,
    burst: int,
    goals: dict[str, str],
    label: str,
) -> Iterator[Row]:
    """Compare many sockets with one, for the same datagrams."""
    train = partial(UnitTrain, "cboe_pitch", 1, 40, GROUPS, burst)
    makes: dict[str, Make] = {
        ONE: lambda: way(bursts, train(), count, 1),
        MANY: lambda: way(bursts, train(), count, GROUPS),
        ASKED: lambda: way(bursts, train(), count, GROUPS, EACH_ASKED),
    }
    trials = measure(makes, settings, label, rounds(settings))
    yield from trials.rows(
        "groups",
        "ns/datagram",
        {"queued": burst if way is GroupsWay else 1},
        base=ONE,
        goals=goals,
        less={},
    )


BENCHMARK = Benchmark(
    name="groups",
    question="What does a line of many groups cost: all of them busy, and all quiet but one?",
    topology="""
core A                      core B
burst sender --127.0.0.1--> 1 or 64 socket queues --> udpfast: receive .. ring
first: fill the queues      then, timed: take everything out of them
""",
    run=run,
    seconds=60,
)
