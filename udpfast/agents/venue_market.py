"""A small exchange that publishes single orders as Nasdaq ITCH 5.0 over MoldUDP64, from a seed.

Orders are added around prices that walk at random, executed from the front of their queue,
cancelled in part, replaced and deleted. What rests in the end is known (`books`), so that whoever
receives the feed can compare. It serves demonstrations and tests; no venue's own data is in it.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["ItchMarket", "RestingOrder"]

_SYMBOLS = ("AMBER", "BASIL", "CEDAR", "DELTA")
_SESSION = b"SIMULATED1"
_TICK = 100  # of prices with four decimals
_ORDERS_MIN, _ORDERS_MAX = 20, 200  # of a symbol
_HEARTBEAT_NS = 1_000_000_000
_MESSAGES_MAX = 5  # of a datagram
_DAY_NS = 34_200_000_000_000  # since midnight, of the first message


@dataclass(slots=True)
class RestingOrder:
    """An order in its queue.

    Attributes
    ----------
    number : int
        Its reference.
    bid : bool
        Its side.
    price : int
        With four decimals.
    shares : int
        What is left of it.
    """

    number: int
    bid: bool
    price: int
    shares: int


class ItchMarket:
    """Datagrams of a seeded market.

    Parameters
    ----------
    seed : int
        The same seed gives the same datagrams.
    rate_per_s : float
        Datagrams per second, on average.
    seconds : float or None
        How long it lasts; it ends with the end of its session. None: without end.

    Attributes
    ----------
    framing : str
    lines : int
        How many it tells apart: every line is sent the same.
    """

    framing = "moldudp64"
    lines = 1

    def __init__(
        self, seed: int = 1, *, rate_per_s: float = 1_000.0, seconds: float | None = None
    ) -> None:
        self.seed = seed
        self._mean_gap_ns = 1e9 / rate_per_s
        self._end_ns = None if seconds is None else int(seconds * 1e9)
        self._begin()

    def _begin(self) -> None:
        self._chance = random.Random(self.seed)
        self._orders: dict[str, list[RestingOrder]] = {symbol: [] for symbol in _SYMBOLS}
        self._mids = {symbol: 100_000 * (place + 1) for place, symbol in enumerate(_SYMBOLS)}
        self._number = self._match = 0
        self._next = 1

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield time in ns, line and bytes of each datagram, from the first on."""
        self._begin()
        now_ns = 0
        yield now_ns, 0, self._datagram([self._name(symbol) for symbol in _SYMBOLS])
        while self._end_ns is None or now_ns < self._end_ns:
            now_ns += 1 + int(self._chance.expovariate(1.0) * self._mean_gap_ns)
            count = self._chance.randint(1, _MESSAGES_MAX)
            yield now_ns, 0, self._datagram([self._step(now_ns) for _ in range(count)])
        for _ in range(3):  # a receiver that lost the last datagram learns that it did
            now_ns += _HEARTBEAT_NS // 10
            yield now_ns, 0, struct.pack(">10sQH", _SESSION, self._next, 0xFFFF)

    def books(self) -> dict[str, tuple[list[RestingOrder], list[RestingOrder]]]:
        """Return the resting bids and asks of each symbol: best price first, then the queue."""
        return {
            symbol: (
                sorted((one for one in orders if one.bid), key=lambda one: -one.price),
                sorted((one for one in orders if not one.bid), key=lambda one: one.price),
            )
            for symbol, orders in self._orders.items()
        }

    def _datagram(self, messages: list[bytes]) -> bytes:
        head = struct.pack(">10sQH", _SESSION, self._next, len(messages))
        self._next += len(messages)
        return head + b"".join(struct.pack(">H", len(one)) + one for one in messages)

    def _head(self, kind: bytes, symbol: str, now_ns: int = 0) -> bytes:
        day_ns = (_DAY_NS + now_ns).to_bytes(6, "big")
        return struct.pack(">cHH6s", kind, _SYMBOLS.index(symbol) + 1, 0, day_ns)

    def _name(self, symbol: str) -> bytes:
        return self._head(b"R", symbol) + symbol.ljust(8).encode() + bytes(20)

    def _step(self, now_ns: int) -> bytes:
        # One message, and what it does to the orders.
        chance = self._chance
        symbol = chance.choice(_SYMBOLS)
        orders = self._orders[symbol]
        if chance.random() < 0.05:
            self._mids[symbol] = max(
                50 * _TICK, self._mids[symbol] + chance.choice((-1, 1)) * _TICK
            )
        kind = chance.random()
        if len(orders) < _ORDERS_MIN or (kind < 0.45 and len(orders) < _ORDERS_MAX):
            return self._add(symbol, now_ns)
        if kind < 0.6:
            return self._execute(symbol, now_ns)
        order = chance.choice(orders)
        if kind < 0.7 and order.shares > 1:
            less = chance.randint(1, order.shares - 1)
            order.shares -= less
            return self._head(b"X", symbol, now_ns) + struct.pack(">QI", order.number, less)
        orders.remove(order)
        if kind < 0.8:
            return self._replace(symbol, order, now_ns)
        return self._head(b"D", symbol, now_ns) + struct.pack(">Q", order.number)

    def _draw(self, symbol: str, bid: bool) -> RestingOrder:
        # Never crossed: what rests on the other side is behind the middle.
        away = _TICK * (1 + int(self._chance.expovariate(0.3)))
        orders = self._orders[symbol]
        others = [one.price for one in orders if one.bid != bid]
        price = self._mids[symbol] + (-away if bid else away)
        if others:
            best = min(others) - _TICK if bid else max(others) + _TICK
            price = min(price, best) if bid else max(price, best)
        self._number += 1
        shares = 100 * self._chance.randint(1, 10)
        order = RestingOrder(self._number, bid, max(price, _TICK), shares)
        orders.append(order)
        return order

    def _add(self, symbol: str, now_ns: int) -> bytes:
        order = self._draw(symbol, self._chance.random() < 0.5)
        side = b"B" if order.bid else b"S"
        return self._head(b"A", symbol, now_ns) + struct.pack(
            ">QcI8sI", order.number, side, order.shares, symbol.ljust(8).encode(), order.price
        )

    def _execute(self, symbol: str, now_ns: int) -> bytes:
        # The first of the best price.
        bids, asks = self.books()[symbol]
        order = (bids or asks)[0] if self._chance.random() < 0.5 else (asks or bids)[0]
        shares = min(order.shares, 100 * self._chance.randint(1, 5))
        order.shares -= shares
        if not order.shares:
            self._orders[symbol].remove(order)
        self._match += 1
        return self._head(b"E", symbol, now_ns) + struct.pack(
            ">QIQ", order.number, shares, self._match
        )

    def _replace(self, symbol: str, order: RestingOrder, now_ns: int) -> bytes:
        new = self._draw(symbol, order.bid)
        return self._head(b"U", symbol, now_ns) + struct.pack(
            ">QQII", order.number, new.number, new.shares, new.price
        )
