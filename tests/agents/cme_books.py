"""What CME's simulated market has in its books, and whether a reader has the same."""

from lab.conformance.books import Followed, venue_config
from udpfast.agents.market.cme_market import CmeMarket
from udpfast.agents.market.venue_market import SYMBOLS, RestingOrder
from udpfast.config import FeedConfig

#: Side -> [(price with four decimals, quantity)] of levels; [(price, id, quantity)] of orders.
Levels = tuple[dict[int, int], dict[int, int]]
Orders = tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]
Truth = dict[str, tuple[Levels, Orders]]

ALL = {(what, symbol) for what in ("levels", "orders") for symbol in SYMBOLS}


def config_of(lines: int) -> FeedConfig:
    """Return the settings of a feed of this market: so many lines, and its three loops."""
    return venue_config(
        "cme_mdp3",
        "cme",
        lines,
        3,
        ring_bytes=1 << 26,
        names=256,
        window=256,
        orders_max=4_000,
        streams=8,
    )


def truth_of(market: CmeMarket) -> Truth:
    return {
        symbol: (
            (levels_of(bids, market.depth), levels_of(asks, market.depth)),
            (orders_of(bids), orders_of(asks)),
        )
        for symbol, (bids, asks) in market.books().items()
    }


def levels_of(side: list[RestingOrder], depth: int) -> dict[int, int]:
    sums: dict[int, int] = {}
    for one in side:
        sums[one.price] = sums.get(one.price, 0) + one.shares
    return dict(list(sums.items())[:depth])


def orders_of(side: list[RestingOrder]) -> list[tuple[int, int, int]]:
    return [(one.price, one.number, one.shares) for one in side]


def check(known: Followed, truth: Truth) -> set[tuple[str, str]]:
    """Compare every book that says that it is sound; return which do."""
    sound = set()
    for symbol in SYMBOLS:
        name = ("CME", symbol)
        levels, orders = truth[symbol]
        if name in known.levels and not known.books[name].stale:
            sound.add(("levels", symbol))
            found = tuple(
                {round(price * 10_000): int(row[0]) for price, row in side.items()}
                for side in known.levels[name]
            )
            assert found == levels, symbol
        if name in known.orders and name not in known.doubted:
            sound.add(("orders", symbol))
            queues = known.books.orders(*name)
            assert tuple(
                [
                    (round(row["price"] * 10_000), int(row["order_id"]), int(row["quantity"]))
                    for row in rows
                ]
                for rows in (queues.bids(), queues.asks())
            ) == tuple(orders)
    return sound
