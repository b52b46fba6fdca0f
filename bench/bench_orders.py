"""What does a message of single orders cost from the socket to the ring, with books on?

    core A                      core B (this process's main thread, pinned)
    burst sender --127.0.0.1--> socket queue --> C recvmmsg | udpfast: receive .. books .. ring

ITCH in MoldUDP64, in datagrams of 1 to 30 messages, 8,000 stocks, about 90,000 orders alive. As
`drain` does it: a burst is queued, then taken out by the production loop. "levels" tells levels and
best prices, "orders" also each order with its place in the queue, "no books" each message as it
came. Then one datagram alone: the turn that takes it, and the one that finds nothing.

Run it with `udpfast bench run orders`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from .bench_drain import BASE, Make, measure, rounds
from .drain_ways import BurstWay, FeedWay, FloorWay, expect
from .loops.drainload import BurstSender
from .loops.hostprobe import pinned
from .order_trains import OrderTrain
from .peers.floor import FloorError, load_floor
from .result import Row
from .trials import Benchmark, Settings, Unavailable

__all__ = ["BENCHMARK"]

NAME = "orders"
STOCKS, LIVE = 8_000, 90_000
COPIED = "C recvmmsg 64, records"
LEVELS, ORDERS, NO_BOOKS = "levels", "orders", "no books"
#: Messages of a datagram, and datagrams that are queued together.
SHAPES = ((1, 512), (10, 512), (30, 512), (1, 1), (30, 1))
LESS = {
    BASE: "no checks, no order, no gaps, no books, no ring",
    COPIED: "no checks, no order, no gaps, no books, one reader",
    NO_BOOKS: "no books",
}
BOOKS: dict[str, dict[str, Any]] = {
    LEVELS: {"levels": True, "top": True, "orders": False, "orders_max": 2 * LIVE},
    ORDERS: {"levels": True, "top": True, "orders": True, "orders_max": 2 * LIVE},
}


class OrderFloorWay(FloorWay):
    """The bare kernel, from C; ns a message."""

    each = 1

    def trial(self) -> float:
        """Fill and drain."""
        return super().trial() / self.each


class OrderFeedWay(FeedWay):
    """All of the product's loop; ns a message."""

    each = 1
    verified = (
        "every burst: datagrams as sent; every trial: one verdict per datagram, every message "
        "delivered in order, no gap, no kernel drop, no order that is not there"
    )

    def trial(self) -> float:
        """Fill and drain."""
        return super().trial() / self.each

    def check_records(self, moved: Mapping[str, Any], messages: int) -> None:
        """Check that no message was at odds with the books."""
        expect("orders that are not there", 0, moved["feed"]["orders_unknown"])
        expect("changes without room", 0, moved["feed"]["books_full"])


def run(settings: Settings) -> Iterator[Row]:
    """Measure each shape."""
    bursts = BurstSender(settings.cores[0])
    try:
        with pinned(settings.cores[1]):
            for messages, queued in SHAPES:
                yield from compare(settings, bursts, messages, queued)
    finally:
        bursts.close()


def compare(settings: Settings, bursts: BurstSender, messages: int, queued: int) -> Iterator[Row]:
    """Compare the loop with the bare kernel, for the same messages."""
    count = (3 if settings.quick else 9) * (1 if queued > 1 else 64)
    train = partial(OrderTrain, STOCKS, LIVE, messages, queued)
    makes: dict[str, Make] = {
        BASE: partial(floor_way, "recvmmsg", bursts, train, count),
        COPIED: partial(floor_way, "records", bursts, train, count),
        NO_BOOKS: partial(feed_way, bursts, train, count, "none", None),
        **{
            name: partial(feed_way, bursts, train, count, "itch", books)
            for name, books in BOOKS.items()
        },
    }
    trials = measure(makes, settings, f"{messages} a datagram, {queued} queued", rounds(settings))
    goals = {ORDERS: "P34: <= 150 ns" if queued > 1 else "P34: <= 1.3"}
    yield from trials.rows(
        NAME,
        "ns/message",
        {"messages": messages, "queued": queued},
        base=BASE,
        goals=goals if queued > 1 or messages == 1 else {},
        less=LESS,
    )


def floor_way(mode: str, bursts: BurstSender, train: Any, count: int) -> BurstWay:
    """Return the C floor, if there is a compiler."""
    try:
        way = OrderFloorWay(load_floor(), mode, bursts, train(), count)
    except FloorError as reason:
        raise Unavailable(str(reason)) from None
    way.each = way.train.messages // len(way.train)
    return way


def feed_way(
    bursts: BurstSender, train: Any, count: int, payload: str, books: dict[str, Any] | None
) -> BurstWay:
    """Return the product's loop, with books or without."""
    way = OrderFeedWay(bursts, train(), count, framing="moldudp64", payload=payload, books=books)
    way.each = way.train.messages // len(way.train)
    return way


BENCHMARK = Benchmark(
    name=NAME,
    question="What does a message of single orders cost from the socket to the ring, with books?",
    topology="""
core A                      core B
burst sender --127.0.0.1--> socket queue --> C recvmmsg | udpfast: receive .. books .. ring
first: fill the queue       then, timed: take everything out of it
""",
    run=run,
    seconds=60.0,
)
