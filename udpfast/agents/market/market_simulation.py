"""A small market of our own, from a seed: what to publish where no recording is at hand.

Mid prices walk at random, levels are added, changed and removed around them, trades take from the
best level, quotes tell it. The book is never crossed. Same seed, same events.
"""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from udpfast.agents.market.market_event import BookChange, Instrument, MarketEvent, Quote, Trade

__all__ = ["SimulatedMarket"]

_SYMBOLS = ("AMBER", "BASIL", "CEDAR", "DELTA", "EMBER", "FJORD", "GROVE", "HAZEL")

#: Levels are placed at most this many ticks from the mid price; further ones stay as they are.
_REACH_TICKS = 60

Levels = dict[int, float]


class SimulatedMarket:
    """Events of a seeded market.

    Parameters
    ----------
    seed : int
    instruments : int
        1..8.
    events : int or None
        How many, the snapshots at the beginning included. None: without end.
    levels : int
        Of each side of the book at the beginning.
    rate_per_s : float
        Mean number of events per second of `recv_ns`.
    start_ns : int
        UNIX ns of the first event.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        instruments: int = 4,
        events: int | None = 100_000,
        levels: int = 100,
        rate_per_s: float = 10_000.0,
        start_ns: int = 1_700_000_000_000_000_000,
    ) -> None:
        if not 1 <= instruments <= len(_SYMBOLS):
            raise ValueError(f"instruments must be 1..{len(_SYMBOLS)}, was {instruments}")
        if events is not None and events < instruments:
            raise ValueError(
                f"events must be at least {instruments}, a snapshot for each instrument, was "
                f"{events}"
            )
        self.seed = seed
        self.instruments = [
            Instrument("simulated", symbol, price_digits=2, quantity_digits=1)
            for symbol in _SYMBOLS[:instruments]
        ]
        self._events = events
        self._levels = levels
        self._mean_gap_ns = 1e9 / rate_per_s
        self._start_ns = start_ns

    def __len__(self) -> int:
        """Return the number of events."""
        if self._events is None:
            raise TypeError("an endless market has no length")
        return self._events

    def __iter__(self) -> Iterator[MarketEvent]:
        """Begin again at the first event; each pass yields the same."""
        chance = random.Random(self.seed)
        now_ns = self._start_ns
        books = [
            _Book(chance, self._levels, max(10_000, 2 * self._levels) * (index + 1))
            for index in range(len(self.instruments))
        ]
        for sequence in itertools.count() if self._events is None else range(self._events):
            if sequence < len(books):
                yield books[sequence].snapshot(now_ns, sequence, sequence)
                continue
            now_ns += 1 + int(chance.expovariate(1.0) * self._mean_gap_ns)
            index = chance.randrange(len(books))
            kind = chance.random()
            if kind < 0.6:
                yield books[index].change(now_ns, index, sequence)
            elif kind < 0.85:
                yield books[index].quote(now_ns, index, sequence)
            else:
                yield books[index].trade(now_ns, index, sequence)


class _Book:
    # Prices are whole ticks of 0.01; bids lie below the mid tick, asks above it, the best of each
    # right beside it.

    def __init__(self, chance: random.Random, levels: int, mid: int) -> None:
        self.chance = chance
        self.mid = mid
        self.bids: Levels = {mid - 1 - i: self._quantity() for i in range(levels)}
        self.asks: Levels = {mid + 1 + i: self._quantity() for i in range(levels)}

    def snapshot(self, now_ns: int, index: int, sequence: int) -> BookChange:
        return _book_change(now_ns, index, True, self.bids, self.asks, sequence)

    def change(self, now_ns: int, index: int, sequence: int) -> BookChange:
        bids: Levels = {}
        asks: Levels = {}
        if self.chance.random() < 0.2:
            before = self.mid
            self.mid += self.chance.choice((-2, -1, 1, 2))
            # What the walk has run over is taken away; one level of each side stays.
            bids.update((tick, 0.0) for tick in range(self.mid, before) if tick in self.bids)
            asks.update((tick, 0.0) for tick in range(before, self.mid + 1) if tick in self.asks)
            bids.setdefault(self.mid - 1, self._quantity())
            asks.setdefault(self.mid + 1, self._quantity())
        for _ in range(self.chance.randint(1, 6)):
            distance = self.chance.randint(2, _REACH_TICKS)
            gone = self.chance.random() < 0.4
            side, tick = (
                (bids, self.mid - distance)
                if self.chance.random() < 0.5
                else (asks, self.mid + distance)
            )
            side[tick] = 0.0 if gone else self._quantity()
        _apply(self.bids, bids)
        _apply(self.asks, asks)
        return _book_change(now_ns, index, False, bids, asks, sequence)

    def quote(self, now_ns: int, index: int, sequence: int) -> Quote:
        bid, ask = self.mid - 1, self.mid + 1
        return Quote(
            now_ns,
            index,
            _price(bid),
            self.bids[bid],
            _price(ask),
            self.asks[ask],
            now_ns,
            sequence,
        )

    def trade(self, now_ns: int, index: int, sequence: int) -> Trade:
        side = self.chance.choice((1, 2))
        tick = self.mid + 1 if side == 1 else self.mid - 1
        return Trade(now_ns, index, side, _price(tick), self._quantity(), f"T{sequence}", now_ns)

    def _quantity(self) -> float:
        return self.chance.randint(1, 500) / 10


def _apply(side: Levels, changes: Levels) -> None:
    for tick, quantity in changes.items():
        if quantity == 0.0:
            side.pop(tick, None)
        else:
            side[tick] = quantity


def _price(tick: int) -> float:
    return tick / 100


def _book_change(
    now_ns: int, index: int, snapshot: bool, bids: Levels, asks: Levels, sequence: int
) -> BookChange:
    return BookChange(now_ns, index, snapshot, _array(bids), _array(asks), now_ns, sequence)


def _array(side: Levels) -> npt.NDArray[np.float64]:
    rows = [(_price(tick), quantity) for tick, quantity in side.items()]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)
