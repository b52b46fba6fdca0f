"""What does the ring alone carry, and how long is a record under way, beside the plainest C ring?

    core A: writer --> ring in shared memory --> core B: Cython cursor | Python poll | iteration
    core A: C      --> fixed slots, a sequence word each --> core B: C

At full speed both writers wait for a reader that is far behind, so that nothing is lost and
nothing is skipped; our ring itself never waits. Sizes are of the message: our records have a
header of 64 bytes before it, a slot of the C ring has 8 bytes in it. Latency is open loop, from
the time at which a record was due.

Usage: udpfast bench run ring [--quick]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from .floor_trial import floor_ring_latency, floor_ring_throughput
from .partner import Partner
from .result import Row
from .ring_trial import READERS, ring_latency, ring_throughput
from .trials import Benchmark, Outcome, Settings, interleave

__all__ = ["BENCHMARK"]

NAME = "ring"
FLOOR = "C slots"
LESS = "fixed slots, one reader, no header, no restart, no lap count"
SIZES = (64, 256)
LATENCY_RATE = 100_000
RECORDS = {"Cython cursor": 1_000_000, "Python poll": 1_000_000, "Python iterate": 100_000}


def run(settings: Settings) -> Iterator[Row]:
    """Measure throughput, then latency, for each size."""
    part = 10 if settings.quick else 1
    with Partner(settings.cores[0]) as partner:
        for size in SIZES:
            yield from throughput(size, part, partner, settings)
            yield from latency(size, part, partner, settings)


def throughput(size: int, part: int, partner: Partner, settings: Settings) -> Iterator[Row]:
    """Measure records per second at full speed."""
    variants: dict[str, Callable[[], float | Outcome]] = {
        FLOOR: partial(floor_ring_throughput, settings.cores, 1_000_000 // part, size)
    }
    for way in READERS:
        variants[way] = partial(
            ring_throughput, partner, settings.cores[1], way, RECORDS[way] // part, size
        )
    trials = interleave(variants, settings, label=f"throughput, {size} B")
    yield from trials.rows(
        NAME,
        "messages/s",
        {"size": size},
        base=FLOOR,
        goals={"Cython cursor": "P12: >= 0.6"},
        less={FLOOR: LESS},
        lower_is_better=False,
    )


def latency(size: int, part: int, partner: Partner, settings: Settings) -> Iterator[Row]:
    """Measure the way of a record at a fixed rate."""
    records = 20_000 // part
    variants: dict[str, Callable[[], float | Outcome]] = {
        FLOOR: partial(floor_ring_latency, settings.cores, LATENCY_RATE, records, size)
    }
    for way in READERS:
        variants[way] = partial(
            ring_latency, partner, settings.cores[1], way, LATENCY_RATE, records, size
        )
    trials = interleave(variants, settings, label=f"latency, {size} B")
    yield from trials.rows(
        NAME,
        "ns",
        {"size": size, "rate": LATENCY_RATE},
        base=FLOOR,
        goals={
            "Cython cursor": "P10: <= 1.3",
            "Python poll": {"NEAR": "P10: <= 800 ns", "": "P10: <= 800 ns"},
        },
        less={FLOOR: LESS},
    )


BENCHMARK = Benchmark(
    name=NAME,
    question="What does the ring alone carry, and how long is a record under way?",
    topology="""
core A: writer --> ring in shared memory --> core B: Cython cursor | Python poll | iteration
core A: C      --> fixed slots, a sequence word each --> core B: C
""",
    run=run,
    seconds=23.0,
)
