"""What do other framings cost: one message in a datagram, thirty, and streams that take turns?

    core A                      core B (this process's main thread, pinned)
    burst sender --127.0.0.1--> socket queue --> C recvmmsg | udpfast: receive .. ring

As `drain` does it: a burst is queued, then taken out by the production loop. Roq takes its turn
beside the others, and the bare kernel with datagrams of the same size. The last part times the feed
alone (units, order, take), without sockets and ring.

Run it with `udpfast bench run framings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from .bench_drain import BASE, BURST, LESS, Make, floor_way, measure, rounds
from .drain_trains import Train, in_order
from .drain_ways import BurstWay, FeedWay
from .framing_trains import UnitTrain
from .loops.drainload import BurstSender
from .loops.feed_cost import unit_cost_ns
from .loops.hostprobe import pinned
from .result import Row
from .trials import Benchmark, Settings, Trials, interleave

__all__ = ["BENCHMARK"]

ROQ = "roq"
CME = "cme_mdp3"
MOLD = "moldudp64, 30 messages"
ONE_STREAM = "cboe_pitch, 1 stream"
STREAMS = (1, 29, 256)
MESSAGES = 30

GOALS = {MOLD: "V1: <= 1.6"}
COPIED = "C recvmmsg 64, 30 records"
PROMISED = "C recvmmsg 64, 30 checked records in order"
WITHOUT = LESS | {
    COPIED: "no checks, no order, no gaps, no copies recognised, one reader",
    PROMISED: "no gaps, nothing early, no copies recognised, one stream, one reader",
}
GOALS_CME = {CME: "V3: <= 1.05"}
GOALS_STREAMS = {
    "cboe_pitch, 29 streams": "V4: <= 1.15",
    "cboe_pitch, 256 streams": "V4: <= 1.15",
}
GOALS_FEED = {
    MOLD: "V2: <= 20 ns",
    **{f"{name}, feed alone": goal for name, goal in GOALS_STREAMS.items()},
}


def run(settings: Settings) -> Iterator[Row]:
    """Measure one message, thirty messages, many streams, and then the feed alone."""
    bursts = BurstSender(settings.cores[0])
    count = 3 if settings.quick else 5
    try:
        with pinned(settings.cores[1]):
            yield from drain_single(settings, bursts, count)
            yield from drain_many(settings, bursts, count)
            yield from drain_streams(settings, bursts, count)
    finally:
        bursts.close()
    with pinned(settings.cores[1]):
        yield from feed_alone(settings)


def feed_way(
    bursts: BurstSender, count: int, framing: str, train: Callable[[], Train], streams: int = 2
) -> BurstWay:
    """Return the product's loop, for a framing."""
    return FeedWay(bursts, train(), count, framing=framing, streams=streams)


def drain_single(
    settings: Settings, bursts: BurstSender, count: int, burst: int = BURST
) -> Iterator[Row]:
    """Compare a framing with one message per datagram with Roq, both of 80 bytes."""
    plain = partial(in_order, 80, burst)
    makes: dict[str, Make] = {
        BASE: partial(floor_way, "recvmmsg", bursts, plain, count),
        ROQ: partial(feed_way, bursts, count, "roq", plain),
        CME: partial(feed_way, bursts, count, CME, partial(UnitTrain, CME, 1, 58, 1, burst)),
    }
    trials = measure(makes, settings, "one message of 80 B", rounds(settings))
    parameters: dict[str, int | float | str] = {"size": 80, "queued": burst}
    yield from rows(trials, (BASE, ROQ), parameters, BASE, {})
    yield from rows(trials, (ROQ, CME), parameters, ROQ, GOALS_CME)


def drain_many(
    settings: Settings, bursts: BurstSender, count: int, burst: int = BURST
) -> Iterator[Row]:
    """Compare thirty messages in a datagram with the bare kernel, and with what C makes of each."""
    train = partial(UnitTrain, "moldudp64", MESSAGES, 40, 1, burst)
    makes: dict[str, Make] = {
        BASE: partial(floor_way, "recvmmsg", bursts, train, count),
        COPIED: partial(floor_way, "records", bursts, train, count),
        PROMISED: partial(floor_way, "promised", bursts, train, count),
        MOLD: partial(feed_way, bursts, count, "moldudp64", train),
    }
    trials = measure(makes, settings, "30 messages of 40 B", rounds(settings))
    parameters: dict[str, int | float | str] = {"size": train().size, "queued": burst}
    yield from rows(trials, (BASE, COPIED, PROMISED, MOLD), parameters, BASE, GOALS)
    yield from rows(trials, (PROMISED, MOLD), parameters | {"base": PROMISED}, PROMISED, {})


def drain_streams(
    settings: Settings, bursts: BurstSender, count: int, burst: int = BURST
) -> Iterator[Row]:
    """Compare streams that take turns with a single one."""
    makes: dict[str, Make] = {}
    for streams in STREAMS:
        train = partial(UnitTrain, "cboe_pitch", 1, 40, streams, burst // streams * streams)
        makes[name_of(streams)] = partial(feed_way, bursts, count, "cboe_pitch", train, streams)
    trials = measure(makes, settings, "streams in turn", rounds(settings))
    parameters: dict[str, int | float | str] = {"size": 49, "queued": burst}
    yield from rows(trials, tuple(makes), parameters, ONE_STREAM, GOALS_STREAMS)


def name_of(streams: int) -> str:
    """Return what a variant with so many streams is called."""
    return f"cboe_pitch, {streams} stream{'s' * (streams > 1)}"


def feed_alone(settings: Settings) -> Iterator[Row]:
    """Time units, order and take of datagrams in memory."""
    count = 64_000 if settings.quick else 640_000
    variants: dict[str, Callable[[], float]] = {
        f"{name_of(streams)}, feed alone": partial(
            unit_cost_ns, "cboe_pitch", 1, 40, streams=streams, count=count
        )
        for streams in STREAMS
    }
    variants[MOLD] = partial(per_message, count // 8)
    trials = interleave(variants, settings, label="feed alone", two_cores=False)
    base = f"{ONE_STREAM}, feed alone"
    for name in variants:
        unit = "ns/message" if name == MOLD else "ns/datagram"
        chosen = Trials((name,) if name in (MOLD, base) else (base, name))
        chosen.kept, chosen.dropped = trials.kept, trials.dropped
        found = chosen.rows(
            "framings",
            unit,
            {"queued": 0},
            base=chosen.variants[0],
            goals=GOALS_FEED,
            verified="every message came out, once",
        )
        yield from (row for row in found if row.variant == name)


def per_message(count: int) -> float:
    """Return what a message of thirty in a datagram costs the feed."""
    return unit_cost_ns("moldudp64", MESSAGES, 40, count=count) / MESSAGES


def rows(
    trials: Trials,
    names: tuple[str, ...],
    parameters: dict[str, int | float | str],
    base: str,
    goals: dict[str, str],
) -> Iterator[Row]:
    """Yield the rows of some of the variants."""
    chosen = Trials(tuple(name for name in trials.variants if name in names))
    chosen.kept, chosen.dropped = trials.kept, trials.dropped
    found = chosen.rows("framings", "ns/datagram", parameters, base=base, goals=goals, less=WITHOUT)
    yield from (row for row in found if base == BASE or row.variant != ROQ)


BENCHMARK = Benchmark(
    name="framings",
    question="What do other framings cost: one message in a datagram, thirty, many streams?",
    topology="""
core A                      core B
burst sender --127.0.0.1--> socket queue --> C recvmmsg | udpfast: receive .. ring
first: fill the queue       then, timed: take everything out of it
""",
    run=run,
    seconds=25.0,
)
