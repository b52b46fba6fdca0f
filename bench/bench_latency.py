"""How long does a message take from the socket to the ring, and from the ring to a strategy?

    hop 1   core A: paced sender -- 127.0.0.1, 1 or 2 lines --> core B: feed --> ring
    hop 2   core A: writer --> ring --> core B: strategy (numpy batches, objects, Cython)

    floor   core A: the same sender, the same schedule --> core B: recv in C, spinning

A sender, a feed and a strategy that all spin do not fit on two cores, so the way is measured in
two hops, in the same rounds; "socket to strategy" is the sum of their medians, round by round. The
schedule is open loop: every message carries the time at which it was due, and all latencies count
from there. Receive stamps of the kernel are on by default and cost; both are shown.

Usage: udpfast bench run latency [--quick]
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from udpfast.shm.histogram import LatencyHistogram

from .floor_trial import FLOOR_LESS, floor_wire
from .partner import Partner
from .result import Row, percentiles
from .ring_trial import READERS, ring_latency
from .schedule import even_schedule
from .trials import Benchmark, Outcome, Settings, Trial, Trials, interleave
from .wire_trial import wire_trial

__all__ = ["BENCHMARK"]

NAME = "latency"
FLOOR = "C recv"
STAMPED = "socket to ring"
BARE = "socket to ring, no stamps"
STRATEGY = "socket to strategy"
#: A trial is this long, but has so many messages at least, and at most.
SECONDS = 0.15
MESSAGES_MIN, MESSAGES_MAX = 200, 30_000
#: What stands where a load has no goal.
ROUNDS = 5
FRAME_BYTES = 16
NO_STAMPS = {"receive": {"timestamps": "none"}}


class Case(NamedTuple):
    """One load."""

    rate: int
    message_bytes: int = 64
    lines: int = 1
    whole_way: bool = False

    @property
    def messages(self) -> int:
        """In one trial."""
        return min(max(int(self.rate * SECONDS), MESSAGES_MIN), MESSAGES_MAX)

    @property
    def fragments(self) -> int:
        """Datagrams of a message."""
        return -(-self.message_bytes // 512)

    @property
    def parameters(self) -> dict[str, int | float | str]:
        """As the row states them; `size` is that of the largest datagram."""
        return {
            "size": min(self.message_bytes, 512) + FRAME_BYTES,
            "fragments": self.fragments,
            "lines": self.lines,
            "rate": self.rate,
        }


CASES = (
    Case(1_000),
    Case(10_000, whole_way=True),
    Case(100_000, whole_way=True),
    Case(300_000),
    Case(10_000, 512),
    Case(100_000, 512),
    Case(10_000, lines=2),
    Case(100_000, lines=2),
    Case(1_000, 2048),
    Case(10_000, 2048),
    Case(10_000, 2048, lines=2),
)
QUICK = (Case(10_000, whole_way=True), Case(100_000, lines=2), Case(10_000, 2048))


def run(settings: Settings) -> Iterator[Row]:
    """Measure every load; yield a row for each variant."""
    with Partner(settings.cores[0]) as partner:
        for case in QUICK if settings.quick else CASES:
            yield from measure(case, partner, settings)


def measure(case: Case, partner: Partner, settings: Settings) -> Iterator[Row]:
    """Measure one load."""
    core = settings.cores[1]
    schedule = even_schedule(case.rate, case.messages, case.lines)
    floor = case.fragments == case.lines == 1
    variants: dict[str, Callable[[], float | Outcome]] = {}
    if floor:
        variants[FLOOR] = partial(floor_wire, partner, core, schedule, case.message_bytes)
    for name, tables in ((STAMPED, {}), (BARE, NO_STAMPS)):
        variants[name] = partial(wire, partner, core, schedule, case.message_bytes, tables)
    if case.whole_way:
        for way in READERS:
            variants[to_strategy(way)] = partial(
                ring_latency,
                partner,
                core,
                way,
                case.rate,
                case.messages,
                case.message_bytes,
            )
    label = ", ".join(f"{name} {value:,}" for name, value in case.parameters.items())
    goal = "P9 p50: <= 1.12" if floor and case.rate in (10_000, 100_000) else ""
    rounds = settings.rounds if goal else min(settings.rounds, ROUNDS)
    trials = interleave(variants, settings, label=label, rounds=rounds)
    yield from trials.rows(
        NAME,
        "ns",
        case.parameters,
        base=FLOOR if floor else STAMPED,
        goals={BARE: goal, STAMPED: goal},
        less={FLOOR: FLOOR_LESS},
    )
    if goal:
        yield from ninetieth(case, trials)
    if case.whole_way:
        yield from whole_way(case, trials)


def ninetieth(case: Case, trials: Trials) -> Iterator[Row]:
    """Compare the 90th percentiles of the first hop, which have a goal of their own."""
    wanted = (FLOOR, STAMPED, BARE)
    kept = [
        dataclasses.replace(
            trial,
            outcome=Outcome(
                float(trial.outcome.histogram.percentile(90.0)), verified=trial.outcome.verified
            ),
        )
        for trial in trials.kept
        if trial.variant in wanted and trial.outcome.histogram is not None
    ]
    yield from Trials(wanted, kept, trials.dropped).rows(
        NAME,
        "ns",
        {**case.parameters, "percentile": "p90"},
        base=FLOOR,
        goals={BARE: "P9 p90: <= 1.2", STAMPED: "P9 p90: <= 1.2"},
        less={FLOOR: FLOOR_LESS},
    )


def wire(
    partner: Partner, core: int, schedule: Any, message_bytes: int, tables: dict[str, Any]
) -> Outcome:
    """Take one turn of the first hop."""
    found = wire_trial(partner, core, schedule, message_bytes, **tables)
    verified = found.verify()
    return Outcome(float(found.histogram.percentile(50.0)), found.histogram, verified)


def to_strategy(way: str) -> str:
    """Return the name of the second hop."""
    return f"ring to strategy, {way}"


def whole_way(case: Case, trials: Trials) -> Iterator[Row]:
    """Add the two hops of each round, and set the sum beside the floor of that round.

    The way with Python's poll has a goal: so much beyond the floor, and no more.
    """
    for way in READERS:
        for where in ("NEAR", "FAR", ""):
            first, second, floor = (
                {t.round: t for t in trials.kept if (t.variant, t.placement) == (name, where)}
                for name in (STAMPED, to_strategy(way), FLOOR)
            )
            rounds = sorted(first.keys() & second.keys())
            if not rounds:
                continue
            sums = {n: first[n].outcome.value + second[n].outcome.value for n in rounds}
            ratios = [sums[n] / floor[n].outcome.value for n in rounds if n in floor]
            beyond = [sums[n] - floor[n].outcome.value for n in rounds if n in floor]
            hops = {"socket to ring": first, "ring to strategy": second}
            common: dict[str, Any] = {
                "benchmark": NAME,
                "parameters": case.parameters,
                "unit": "ns",
                "placement": where,
                "verified": "both hops of the same round: " + first[rounds[0]].outcome.verified,
                "base": FLOOR,
                "hops": {name: spread(turns) for name, turns in hops.items()},
            }
            yield Row(
                variant=f"{STRATEGY}, {way}",
                values=list(sums.values()),
                ratio=statistics.median(ratios) if ratios else None,
                ratios=ratios,
                **common,
            )
            if way == "Python poll" and beyond:
                yield Row(
                    variant=f"{STRATEGY}, {way}, beyond {FLOOR}",
                    values=beyond,
                    goal="P11: <= 700 ns" if where != "FAR" else "",
                    **common,
                )


def spread(turns: dict[int, Trial]) -> dict[str, float]:
    """Return the percentiles of all trials of one hop together."""
    whole = LatencyHistogram()
    for turn in turns.values():
        if turn.outcome.histogram is not None:
            whole.merge(turn.outcome.histogram)
    return percentiles(whole)


BENCHMARK = Benchmark(
    name=NAME,
    question="How long does a message take from the socket to the ring, and to a strategy?",
    topology="""
hop 1   core A: paced sender -- 127.0.0.1, 1 or 2 lines --> core B: feed --> ring
hop 2   core A: writer --> ring --> core B: strategy (numpy batches, objects, Cython)
floor   core A: the same sender, the same schedule --> core B: recv in C, spinning
""",
    run=run,
    seconds=66.0,
)
