"""Markets of any density through a gateway whose lines, snapshots and messages are hindered.

    python -m udpfast.testing.dense_markets --seeds 1000 --seed 1

Each seed draws a market (1 to 50,000 levels, one or many instruments, any change), what is refused
on the way (a snapshot at any step, a message, a line in any order), and checks that the gateway
goes on, that what it says is missing is exact, and that the books of a subscriber equal the levels
of the market that are nearest the touch. A seed that fails prints the command that repeats it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from udpfast.market.fitted_book import FittedBook

__all__ = ["check_book"]

Levels = npt.NDArray[np.float64]
Side = dict[float, float]

#: The most levels of a side that a seed of `check_book` deals with.
SMALL = 40


def check_book(seed: int) -> None:
    """Play a random market against a `FittedBook`; raise AssertionError where it differs."""
    chance = random.Random(seed)
    levels_max = chance.choice((1, 2, 3, 5, 10, 31))
    reach = chance.choice((3, SMALL, 2 * SMALL))
    book = FittedBook(levels_max)
    market: tuple[Side, Side] = ({}, {})
    published: tuple[Side, Side] = ({}, {})
    for _ in range(150):
        snapshot = chance.random() < 0.02
        rows = [_draw_rows(chance, reach) for _ in range(2)]
        message = book.apply(*(_levels(side) for side in rows), snapshot=snapshot)
        _apply(market, rows, snapshot)
        if message is not None:
            assert len(message.bids) + len(message.asks) <= levels_max
            sides = (message.bids.tolist(), message.asks.tolist())
            _apply(published, sides, message.snapshot)
        expected = nearest(market, levels_max)
        assert published == expected, f"seed {seed}"
        whole = book.whole()
        assert [*whole.bids.tolist()] == [[*row] for row in expected[0].items()]
        assert [*whole.asks.tolist()] == [[*row] for row in expected[1].items()]
        beyond = sum(map(len, market)) - sum(map(len, expected))
        assert book.left_out.levels == beyond
        assert book.left_out.levels_most >= beyond


def nearest(market: tuple[Side, Side], levels_max: int) -> tuple[Side, Side]:
    """Return the levels nearest the touch, best first: half of them each, or what is there."""
    bids = sorted(market[0].items(), reverse=True)
    asks = sorted(market[1].items())
    of_bids = levels_max // 2
    of_asks = levels_max - of_bids
    if len(bids) < of_bids:
        of_asks = levels_max - len(bids)
    elif len(asks) < of_asks:
        of_bids = levels_max - len(asks)
    return dict(bids[:of_bids]), dict(asks[:of_asks])


def _draw_rows(chance: random.Random, reach: int) -> list[tuple[float, float]]:
    count = chance.choice((0, 0, 1, 1, 2, 3, 8, 100 if chance.random() < 0.1 else 4))
    return [
        (chance.randint(-reach, reach) / 4, float(max(0, chance.randint(-3, 5))))
        for _ in range(count)
    ]


def _levels(rows: list[tuple[float, float]]) -> Levels:
    return np.array(rows, np.float64).reshape(-1, 2)


def _apply(
    book: tuple[Side, Side], rows: Iterable[Iterable[tuple[float, float]]], snapshot: bool
) -> None:
    for side, levels in zip(book, rows, strict=True):
        if snapshot:
            side.clear()
        for price, quantity in levels:
            if quantity:
                side[price] = quantity
            else:
                side.pop(price, None)
