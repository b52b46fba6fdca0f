"""Damaged datagrams of every framing through the feed: whatever comes, the ledger adds up.

Every unit, and every datagram without one, has exactly one verdict; of each session of each
stream, messages and gaps follow each other without a hole and without a step back.
"""

import random
from collections.abc import Iterator

from udpfast.core.counter import VERDICTS
from udpfast.feed.pipeline import FeedPipeline
from udpfast.wire.framing import FRAMINGS, Framing, MalformedError

from .conformance.engine import Collector
from .framings import Sent, build, draw
from .fuzz_wire import field_changed, real_datagrams
from .mutate import mutated

__all__ = ["fuzz_feed"]

NAMES = tuple(name for name in FRAMINGS if not name.startswith("roq"))
#: Mostly the next one; now and then a copy, a loss, a step back, a jump.
_STEPS = (1,) * 24 + (0, 2, 5, -3, 300)
#: Now and then longer than a hole may wait.
_PAUSES_NS = (1_000,) * 24 + (0, 50_000, 7_000_000)


def fuzz_feed(seed: int, count: int, name: str = "") -> dict[str, int]:
    """Send `count` datagrams of a framing, some or many of them damaged, through a feed.

    Parameters
    ----------
    seed, count : int
    name : str
        The framing; without one the seed chooses.

    Returns
    -------
    dict
        How many units got each verdict.

    Raises
    ------
    ValueError
        The ledger does not add up, or something came out of order.
    """
    rng = random.Random(seed)
    name = name or NAMES[seed % len(NAMES)]
    framing = Framing(name)
    lines = rng.randint(1, 3)
    pipeline = FeedPipeline(
        framing=name,
        lines_incremental=lines,
        lines_snapshot=0,
        window=rng.choice((16, 64, 256)),
        slab_cells=rng.choice((64, 256)),
        streams=rng.choice((1, 3, 8)),
        on_gap=rng.choice(("keep_all", "keep_all", "latest_run")),
        restart_datagrams=rng.choice((0, 8, 32)),
        session_adopt_datagrams=rng.choice((1, 2, 3)),
    )
    collector = Collector(framing)
    source = _datagrams(name, rng)
    others = list(real_datagrams(name)) or [next(source)]
    damage = rng.choice((0.02, 0.2, 0.6))
    now_ns = 1
    units = 0
    for sent in range(count):
        data = rng.choice(others) if rng.random() < 0.01 else next(source)
        if rng.random() < damage:
            data = mutated(data, others, rng) if rng.random() < 0.5 else field_changed(data, rng)
        try:
            units += len(framing.units(data)) if len(data) <= 4160 else 1
        except MalformedError:
            units += 1
        now_ns += rng.choice(_PAUSES_NS)
        pipeline.accept(0, rng.randrange(lines), data, 10**18 + now_ns, now_ns)
        collector.take(pipeline.take())
        if rng.random() < 0.05:
            pipeline.expire(now_ns)
            collector.take(pipeline.take())
        if sent % 64 == 63:
            _check(name, pipeline, collector, units)
    pipeline.finish(now_ns + 10**9)
    collector.take(pipeline.take())
    return _check(name, pipeline, collector, units)


def _datagrams(name: str, rng: random.Random) -> Iterator[bytes]:
    # One sender has several streams, now and then another session, or numbers that begin anew.
    kept = draw(name, rng)
    streams = [draw(name, rng).stream for _ in range(rng.randint(1, 4))]
    numbers = dict.fromkeys(streams, 1)
    sent_ns = 10**18
    before: list[bytes] = []
    while True:
        stream = rng.choice(streams)
        drawn = draw(name, rng)
        if rng.random() < 0.002:
            kept = drawn
            numbers = dict.fromkeys(streams, 1)
        elif rng.random() < 0.002:
            numbers[stream] = rng.choice((1, 1 << 31, (1 << 32) - 10))
        sent_ns += rng.randint(0, 1000)
        step = rng.choice(_STEPS)
        number = max(1, numbers[stream] + step - 1)
        number = number & 0xFFFFFFFF or 1
        data = build(name, Sent(number, drawn.messages, stream, kept.session, sent_ns))
        if step > 0:
            taken = len(drawn.messages)
            numbers[stream] = number + (taken if Framing(name).units(data)[0].count > 1 else 1)
        before = [*before[-20:], data]
        yield rng.choice(before) if rng.random() < 0.05 else data


def _check(name: str, pipeline: FeedPipeline, collector: Collector, units: int) -> dict[str, int]:
    lines = [one for scope, one in pipeline.counters().items() if scope.startswith("incremental.")]
    found = {info.name: sum(one[info.name] for one in lines) for info in VERDICTS}
    if sum(found.values()) != units:
        raise ValueError(f"{name}: {units} units, verdicts {found}")
    for numbering in collector.numberings:
        if numbering.broken:
            raise ValueError(f"{name} {numbering.label}: {numbering.broken}")
    return found
