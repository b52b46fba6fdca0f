"""What does a message of single orders cost, from its bytes to the updates of its book?

    memory: ITCH messages of so many stocks --> core B: decoder -> market -> updates, to memory

No window, no ring, no reader. Adds, deletes, executions, cancellations and replacements of orders
of which about so many are alive; half of the messages are adds, most of few stocks, and most near
the best price. "books" keeps all of it and tells nobody; "levels" tells levels and best prices,
"orders" also each order with its place in the queue. The floor keeps quantities by price in plain
tables of C: no queue, no sorted side, no best price, no doubt, and it tells nobody. "decode" is
what the decoder alone takes of it. Messages come as in a datagram of many: what comes next is
known. itch-book, a C++ library, keeps the same books with their queues, and tells nobody either.
Then all of one book at once: a snapshot of 10,000 orders, and a clear of them, with all
updates. Every run compares what rests in the end with what the flow says; a figure is that of the
median thousand messages.

Usage: udpfast bench run books [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from .loops.book_cost import OrderFlow
from .loops.hostprobe import pinned
from .loops.whole_book import whole_book
from .peers import itch_book as peer
from .result import Row
from .trials import Benchmark, Outcome, Settings, Trials, Unavailable, interleave

__all__ = ["BENCHMARK"]

NAME = "books"
FLOOR = "C tables"
BOOKS = "books"
PEER = peer.PACKAGE
LESS = "quantities by price: no queue, no best price, no doubt, no updates"
GOALS = {100_000: "P33: <= 70 ns", 1_000_000: "P33: <= 100 ns"}
#: Stocks, and orders alive.
SHAPES = ((1, 1_000), (100, 10_000), (8_000, 100_000), (8_000, 1_000_000))
MESSAGES = 1_000_000
#: What is timed together.
PIECE = 1_000
#: Orders of a book that is taken, or emptied, at once.
WHOLE = 10_000
ROUNDS = 5


def run(settings: Settings) -> Iterator[Row]:
    """Measure each shape."""
    for stocks, live in SHAPES[:3] if settings.quick else SHAPES:
        flow = OrderFlow(stocks, live, MESSAGES // (10 if settings.quick else 1))
        ways: dict[str, Callable[[], float]] = {
            FLOOR: flow.floor,
            "decode": flow.decode,
            BOOKS: partial(flow.market, False, False),
            "levels": partial(flow.market, True, False),
            "orders": partial(flow.market),
            PEER: partial(by_peer, flow),
        }
        variants: dict[str, Callable[[], float | Outcome]] = {
            name: partial(measure, settings.cores[1], way, flow.resting)
            for name, way in ways.items()
        }
        trials = interleave(
            variants,
            settings,
            label=f"{stocks:,} stocks, {live:,} orders",
            rounds=min(settings.rounds, ROUNDS),
            two_cores=False,
        )
        shape = {"stocks": stocks, "orders": live}
        goals = {BOOKS: GOALS[live]} if live in GOALS else {}
        rows = partial(trials.rows, NAME, "ns/message", shape)
        yield from rows(
            base=FLOOR,
            goals=goals,
            versions=versions(trials),
            less={
                FLOOR: LESS,
                "decode": "keeps nothing",
                BOOKS: "no updates",
                PEER: peer.LESS,
            },
        )
        for row in rows(
            base=BOOKS,
            goals={"orders": "P33: <= 1.5"},
            versions=versions(trials),
            less={PEER: peer.LESS},
        ):
            if row.variant in ("orders", PEER):
                yield row

    yield from run_whole(settings)


def by_peer(flow: OrderFlow) -> float:
    """Let the peer take the flow; return ns a message of the median thousand."""
    try:
        books = peer.Books()
    except ImportError:
        raise Unavailable(f"not installed (pip install {PEER})") from None
    for piece in flow.pieces(opening=True):
        books.feed(piece)
    costs = []
    for piece in flow.pieces():
        began = time.perf_counter_ns()
        books.feed(piece)
        costs.append(time.perf_counter_ns() - began)
    counted = books.counted()
    found = [counted[name] for name in ("live_orders", "missing_ref", "dup_ref", "rejected")]
    if found != [flow.resting, 0, 0, 0]:
        raise ValueError(f"expected {flow.resting:,} orders to rest, none unknown, found {counted}")
    return median(costs) / PIECE


def versions(trials: Trials) -> dict[str, str]:
    """Return the peer's version, if it took part."""
    return {PEER: peer.version()} if PEER in {trial.variant for trial in trials.kept} else {}


def run_whole(settings: Settings) -> Iterator[Row]:
    """Measure a snapshot and a clear of one book."""
    variants: dict[str, Callable[[], float | Outcome]] = {
        name: partial(measure_whole, settings.cores[1], at)
        for at, name in enumerate(("snapshot", "clear"))
    }
    trials = interleave(
        variants,
        settings,
        label=f"{WHOLE:,} orders at once",
        rounds=min(settings.rounds, ROUNDS),
        two_cores=False,
    )
    yield from trials.rows(
        NAME, "us", {"orders": WHOLE}, goals=dict.fromkeys(variants, "P33: <= 1000 us")
    )


def measure_whole(core: int, at: int) -> Outcome:
    """Take and clear a book some times; return the median of one of both."""
    with pinned(core):
        costs = [whole_book(WHOLE)[at] for _ in range(5)]
    return Outcome(median(costs), verified=f"{WHOLE:,} orders rest, then none")


def measure(core: int, way: Callable[[], float], resting: int) -> Outcome:
    """Run one way once, on a core of its own."""
    with pinned(core):
        return Outcome(way(), verified=f"{resting:,} orders rest in the end, as they should")


BENCHMARK = Benchmark(
    name=NAME,
    question="What does a message of single orders cost, from its bytes to its book's updates?",
    topology="memory: ITCH messages --> core B: decoder -> market -> updates, to memory",
    run=run,
    seconds=60.0,
)
