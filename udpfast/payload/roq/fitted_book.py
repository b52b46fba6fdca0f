"""The part of a market's book that fits a message: the levels nearest the touch.

A message has 131,072 bytes, which is room for some 4,670 levels; a market's book may have more.
What is published is at all times a book of its own, the best levels of each side, and each change
of the market becomes a change of that book: if a level leaves, the next one beyond takes its place.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udpfast.payload.roq.encode import SourceInfo, encode_book

__all__ = ["BookMessage", "FittedBook", "LeftOut", "levels_that_fit"]

#: Book levels of one side: shape (n, 2), price and quantity.
Levels = npt.NDArray[np.float64]

#: 256 fragments of 512 bytes.
MESSAGE_SIZE_MAX = 131_072

#: Bytes of a message that a level of price and quantity takes: 24, and a reference to it.
LEVEL_SIZE = 28


class BookMessage(NamedTuple):
    """What to publish: changes to the published book or, with `snapshot`, all of it."""

    snapshot: bool
    bids: Levels
    asks: Levels


class LeftOut(NamedTuple):
    """What of a book the messages could not carry.

    Attributes
    ----------
    levels : int
        Levels left out of the book as it is now.
    levels_most : int
        The most that were left out at any time.
    changes : int
        How many changes of such levels were not published.
    """

    levels: int
    levels_most: int
    changes: int


def levels_that_fit(exchange: str | bytes, symbol: str | bytes) -> int:
    """Return how many levels of this instrument, of both sides together, fit into a message."""
    rows = [(1.0, 1.0), (2.0, 0.0)]  # a level and a removal, whose tables differ
    everything = dict.fromkeys(
        (
            *("stream_id", "exchange_time_utc", "exchange_sequence", "sending_time_utc"),
            *("price_precision", "quantity_precision", "max_depth", "update_type"),
        ),
        1,
    )
    small = encode_book(
        exchange, symbol, bids=rows, asks=rows, source=SourceInfo(1, 1, 1, 1, 1), **everything
    )
    alignment = 8
    return 2 * len(rows) + (MESSAGE_SIZE_MAX - alignment - len(small)) // LEVEL_SIZE


class FittedBook:
    """A market's book, and the part of it that is published.

    Parameters
    ----------
    levels_max : int
        Most levels to publish, of both sides together. Each side has half of them, and what the
        other side does not need.
    """

    def __init__(self, levels_max: int) -> None:
        if levels_max < 1:
            raise ValueError(f"levels_max must be at least 1, was {levels_max}")
        self._levels_max = levels_max
        self._bids = _Side(1.0)
        self._asks = _Side(-1.0)
        self._levels_most = 0

    def apply(
        self, bids: npt.ArrayLike, asks: npt.ArrayLike, *, snapshot: bool
    ) -> BookMessage | None:
        """Apply a message of the market. Return what to publish, or None if that is nothing.

        Parameters
        ----------
        bids, asks : array-like
            Shape (n, 2): price and quantity; quantity 0 removes the level.
        snapshot : bool
            They are the whole book, not changes to it.

        Raises
        ------
        ValueError
            A price or quantity is not finite; the book is unchanged then.
        """
        rows = [np.asarray(side, np.float64).reshape(-1, 2) for side in (bids, asks)]
        if not all(np.isfinite(side).all() for side in rows):
            raise ValueError("prices and quantities must be finite numbers, found one that is not")
        sides = (self._bids, self._asks)
        fitted = self.beyond == 0
        for side, levels in zip(sides, rows, strict=True):
            if snapshot:
                side.clear()
            side.apply(levels.tolist())
        changes = [side.cut(room) for side, room in zip(sides, self._rooms(), strict=True)]
        beyond = self.beyond
        self._levels_most = max(self._levels_most, beyond)
        if fitted and not beyond and sum(map(len, rows)) <= self._levels_max:
            return BookMessage(snapshot, *rows)
        if snapshot or sum(map(len, changes)) > self._levels_max:
            return self.whole()
        if not any(changes):
            return None
        return BookMessage(False, *(_rows(side.items()) for side in changes))

    def whole(self) -> BookMessage:
        """Return all that is published, the best levels first."""
        return BookMessage(True, self._bids.shown_levels(), self._asks.shown_levels())

    def describe(self) -> str:
        """Return a part of a sentence that says what is left out of the book."""
        return (
            f"its book has {self.shown + self.beyond:,} levels, but a message can carry only "
            f"{self.shown:,}: the levels furthest from the best prices were left out"
        )

    @property
    def shown(self) -> int:
        """How many levels are published."""
        return self._bids.shown + self._asks.shown

    @property
    def beyond(self) -> int:
        """How many levels are left out."""
        return len(self._bids.keys) + len(self._asks.keys) - self.shown

    @property
    def left_out(self) -> LeftOut:
        """What is and was left out."""
        changes = self._bids.changes_beyond + self._asks.changes_beyond
        return LeftOut(self.beyond, self._levels_most, changes)

    def _rooms(self) -> tuple[int, int]:
        bids, asks, both = len(self._bids.keys), len(self._asks.keys), self._levels_max
        of_bids = min(bids, max(both - asks, both // 2))
        return of_bids, min(asks, both - of_bids)


class _Side:
    # Keys ascend towards the best level, as in `market.book`: a price, or an ask's price negated.

    def __init__(self, sign: float) -> None:
        self.keys: list[float] = []
        self.shown = 0  # the last ones, as many as are published
        self.changes_beyond = 0
        self._sign = sign
        self._quantities: dict[float, float] = {}  # by key
        self._edge = inf  # the worst key that is published
        # Changed since the cut: whether it was published; None: new.
        self._touched: dict[float, bool | None] = {}

    def clear(self) -> None:
        self.keys, self._quantities = [], {}
        self.shown, self._edge = 0, inf

    def apply(self, rows: Sequence[Sequence[float]]) -> None:
        quantities, keys, sign, edge = self._quantities, self.keys, self._sign, self._edge
        in_bulk = len(rows) > 64 + len(keys) // 16  # sorting once costs less than many insertions
        for price, quantity in rows:
            key = price * sign
            there = key in quantities
            if key not in self._touched:
                self._touched[key] = key >= edge if there else None
            if quantity:
                if not there and not in_bulk:
                    insort(keys, key)
                quantities[key] = quantity
            elif there:
                del quantities[key]
                if not in_bulk:
                    del keys[bisect_left(keys, key)]
        if in_bulk:
            self.keys = sorted(quantities)

    def cut(self, room: int) -> dict[float, float]:
        """Publish the best `room` levels from now on. Return what that changes, by price."""
        keys, quantities, touched, before = self.keys, self._quantities, self._touched, self._edge
        first = len(keys) - room
        edge = keys[first] if room else inf
        changes = {}
        for key, was_shown in touched.items():
            if key >= edge and key in quantities:
                changes[key] = quantities[key]
            elif was_shown:
                changes[key] = 0.0
            elif was_shown is not None or key in quantities:
                self.changes_beyond += 1
        # The published levels are a run at the end, so that only their border can move.
        at = first
        while at < len(keys) and keys[at] < before:
            changes[keys[at]] = quantities[keys[at]]
            at += 1
        at = first - 1
        while at >= 0 and keys[at] >= before:
            if keys[at] not in touched:
                changes[keys[at]] = 0.0
            at -= 1
        self.shown, self._edge, self._touched = room, edge, {}
        return {key * self._sign: quantity for key, quantity in changes.items()}

    def shown_levels(self) -> Levels:
        best_first = reversed(self.keys[len(self.keys) - self.shown :])
        return _rows((key * self._sign, self._quantities[key]) for key in best_first)


def _rows(pairs: Iterable[tuple[float, float]]) -> Levels:
    return np.array([*pairs], np.float64).reshape(-1, 2)
