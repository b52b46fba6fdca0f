"""A small exchange that publishes single orders as a venue does, from a seed.

Orders are added around prices that walk at random, executed from the front of their queue,
cancelled in part, replaced and deleted. What rests in the end is known (`books`), so that whoever
receives the feed can compare. It serves demonstrations and tests; no venue's own data is in it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

__all__ = ["SYMBOLS", "ItchMarket", "PitchMarket", "RestingOrder", "VenueMarket"]

SYMBOLS = ("AMBER", "BASIL", "CEDAR", "DELTA")
_TICK = 100  # of prices with four decimals
_ORDERS_MIN, _ORDERS_MAX = 20, 200  # of a symbol
_HEARTBEAT_NS = 1_000_000_000
_MESSAGES_MAX = 5  # of a datagram
_DAY_NS = 34_200_000_000_000  # since midnight, of the first message


class RestingOrder(Struct):
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


class VenueMarket:
    """Datagrams of a seeded market, as one venue has them.

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
    framing, payload, exchange : str
        As a feed's file and its records name them.
    lines : int
        How many it tells apart: every line is sent the same.
    loops : tuple of str
        What it repeats for ever on lines of its own, 1 and up: the roles of these lines in a feed's
        file.
    depth : int
        Levels of a side that it tells of; 0: all.
    end_ns : int or None
        Its last event is the first at this time or later. None: it has no end.
    ended : bool
        All that comes is its `ending`: no event any more.
    """

    framing = payload = exchange = ""
    lines = 1
    loops: tuple[str, ...] = ()
    depth = 0

    def __init__(
        self, seed: int = 1, *, rate_per_s: float = 1_000.0, seconds: float | None = None
    ) -> None:
        self.seed = seed
        self._mean_gap_ns = 1e9 / rate_per_s
        self.end_ns = None if seconds is None else int(seconds * 1e9)
        self._begin()

    def _begin(self) -> None:
        self._chance = random.Random(self.seed)
        self._orders: dict[str, list[RestingOrder]] = {symbol: [] for symbol in SYMBOLS}
        self._mids = {symbol: 100_000 * (place + 1) for place, symbol in enumerate(SYMBOLS)}
        self._number = self._match = 0
        self.ended = False
        self._now_ns = 0

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield time in ns, line and bytes of each datagram, from the first on; 0: all lines."""
        self._begin()
        for unit in self.units():
            yield self._now_ns, 0, self.datagram(unit, self.opening(unit))
        while self.end_ns is None or self._now_ns < self.end_ns:
            self._now_ns += 1 + int(self._chance.expovariate(1.0) * self._mean_gap_ns)
            unit = self._chance.choice(self.units())
            count = self._chance.randint(1, _MESSAGES_MAX)
            yield self._now_ns, 0, self.datagram(unit, [self._step(unit) for _ in range(count)])
            yield from self.looped()
        for unit in self.units():
            last = self.closing(unit)
            if last:
                yield self._now_ns, 0, self.datagram(unit, last)
        self.ended = True
        yield from self.ending()

    def end(self) -> None:
        """Make no further event: what comes now is the end of the session."""
        self.end_ns = self._now_ns

    def ending(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield what comes behind the last message: who lost that learns that it did."""
        for _ in range(3):
            self._now_ns += _HEARTBEAT_NS // 10
            for unit in self.units():
                yield self._now_ns, 0, self.heartbeat(unit)

    def looped(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield what the loops send behind a datagram of changes; line 1 is the first loop."""
        yield from ()

    def books(self) -> dict[str, tuple[list[RestingOrder], list[RestingOrder]]]:
        """Return the resting bids and asks of each symbol: best price first, then the queue."""
        return {symbol: (self.side(symbol, True), self.side(symbol, False)) for symbol in SYMBOLS}

    def side(self, symbol: str, bid: bool) -> list[RestingOrder]:
        """Return the resting orders of a side: best price first, then the queue."""
        orders = [one for one in self._orders[symbol] if one.bid == bid]
        return sorted(orders, key=lambda one: -one.price if bid else one.price)

    def units(self) -> tuple[int, ...]:
        """Return the streams that are numbered apart."""
        return (0,)

    def symbols(self, unit: int) -> tuple[str, ...]:
        """Return the symbols of a unit."""
        return SYMBOLS

    def datagram(self, unit: int, messages: list[bytes]) -> bytes:
        """Return messages with the numbers that follow."""
        raise NotImplementedError

    def heartbeat(self, unit: int) -> bytes:
        """Return a datagram that says how far a unit has come."""
        raise NotImplementedError

    def opening(self, unit: int) -> list[bytes]:
        """Return what comes before the first order."""
        raise NotImplementedError

    def closing(self, unit: int) -> list[bytes]:
        """Return what comes behind the last one; a session may end without a message."""
        return []

    def add(self, symbol: str, order: RestingOrder) -> bytes:
        """Return a new order."""
        raise NotImplementedError

    def execute(self, symbol: str, order: RestingOrder, shares: int) -> bytes:
        """Return an execution of an order that has been made less by it."""
        raise NotImplementedError

    def reduce(self, symbol: str, order: RestingOrder, shares: int) -> bytes:
        """Return a cancellation of a part."""
        raise NotImplementedError

    def delete(self, symbol: str, order: RestingOrder) -> bytes:
        """Return the end of an order."""
        raise NotImplementedError

    def replace(self, symbol: str, order: RestingOrder, new: RestingOrder) -> bytes:
        """Return an order at the end of another queue, of the same number or a new one."""
        raise NotImplementedError

    def _step(self, unit: int) -> bytes:
        # One message, and what it does to the orders.
        chance = self._chance
        symbol = chance.choice(self.symbols(unit))
        orders = self._orders[symbol]
        if chance.random() < 0.05:
            self._mids[symbol] = max(
                50 * _TICK, self._mids[symbol] + chance.choice((-1, 1)) * _TICK
            )
        kind = chance.random()
        if len(orders) < _ORDERS_MIN or (kind < 0.45 and len(orders) < _ORDERS_MAX):
            return self.add(symbol, self._draw(symbol, chance.random() < 0.5))
        if kind < 0.6:
            return self._execute(symbol)
        order = chance.choice(orders)
        if kind < 0.7 and order.shares > 1:
            less = chance.randint(1, order.shares - 1)
            order.shares -= less
            return self.reduce(symbol, order, less)
        orders.remove(order)
        if kind < 0.8:
            return self.replace(symbol, order, self._draw(symbol, order.bid))
        return self.delete(symbol, order)

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

    def _execute(self, symbol: str) -> bytes:
        # The first of the best price.
        bids, asks = self.side(symbol, True), self.side(symbol, False)
        order = (bids or asks)[0] if self._chance.random() < 0.5 else (asks or bids)[0]
        shares = min(order.shares, 100 * self._chance.randint(1, 5))
        order.shares -= shares
        if not order.shares:
            self._orders[symbol].remove(order)
        self._match += 1
        return self.execute(symbol, order, shares)


class ItchMarket(VenueMarket):
    """As Nasdaq ITCH 5.0 on MoldUDP64."""

    framing, payload, exchange = "moldudp64", "itch", "NASDAQ"
    _SESSION = b"SIMULATED1"

    def _begin(self) -> None:
        super()._begin()
        self._next = 1

    def datagram(self, unit: int, messages: list[bytes]) -> bytes:
        """Return messages with the numbers that follow."""
        head = struct.pack(">10sQH", self._SESSION, self._next, len(messages))
        self._next += len(messages)
        return head + b"".join(struct.pack(">H", len(one)) + one for one in messages)

    def heartbeat(self, unit: int) -> bytes:
        """Return the end of the session."""
        return struct.pack(">10sQH", self._SESSION, self._next, 0xFFFF)

    def opening(self, unit: int) -> list[bytes]:
        """Return the directory."""
        return [
            self._head(b"R", symbol) + symbol.ljust(8).encode() + bytes(20) for symbol in SYMBOLS
        ]

    def add(self, symbol: str, order: RestingOrder) -> bytes:
        """Return an add."""
        side = b"B" if order.bid else b"S"
        return self._head(b"A", symbol) + struct.pack(
            ">QcI8sI", order.number, side, order.shares, symbol.ljust(8).encode(), order.price
        )

    def execute(self, symbol: str, order: RestingOrder, shares: int) -> bytes:
        """Return an execution."""
        return self._head(b"E", symbol) + struct.pack(">QIQ", order.number, shares, self._match)

    def reduce(self, symbol: str, order: RestingOrder, shares: int) -> bytes:
        """Return a cancellation of a part."""
        return self._head(b"X", symbol) + struct.pack(">QI", order.number, shares)

    def delete(self, symbol: str, order: RestingOrder) -> bytes:
        """Return a delete."""
        return self._head(b"D", symbol) + struct.pack(">Q", order.number)

    def replace(self, symbol: str, order: RestingOrder, new: RestingOrder) -> bytes:
        """Return a replacement."""
        return self._head(b"U", symbol) + struct.pack(
            ">QQII", order.number, new.number, new.shares, new.price
        )

    def _head(self, kind: bytes, symbol: str) -> bytes:
        day_ns = (_DAY_NS + self._now_ns).to_bytes(6, "big")
        return struct.pack(">cHH6s", kind, SYMBOLS.index(symbol) + 1, 0, day_ns)


class PitchMarket(VenueMarket):
    """As Cboe's PITCH 2.x: two units, numbered apart."""

    framing, payload, exchange = "cboe_pitch", "pitch", "CBOE"
    _SYMBOLS_OF: ClassVar[dict[int, tuple[str, ...]]] = {1: SYMBOLS[:2], 2: SYMBOLS[2:]}

    def _begin(self) -> None:
        super()._begin()
        self._next = dict.fromkeys(self._SYMBOLS_OF, 1)

    def units(self) -> tuple[int, ...]:
        """Return the two units."""
        return tuple(self._SYMBOLS_OF)

    def symbols(self, unit: int) -> tuple[str, ...]:
        """Return the symbols of a unit."""
        return self._SYMBOLS_OF[unit]

    def datagram(self, unit: int, messages: list[bytes]) -> bytes:
        """Return messages with the numbers that follow in their unit."""
        body = b"".join(messages)
        head = struct.pack("<HBBI", 8 + len(body), len(messages), unit, self._next[unit])
        self._next[unit] += len(messages)
        return head + body

    def heartbeat(self, unit: int) -> bytes:
        """Return a unit header that names the next number."""
        return struct.pack("<HBBI", 8, 0, unit, self._next[unit])

    def opening(self, unit: int) -> list[bytes]:
        """Return the clear that a day begins with, and which symbols trade."""
        trading = [
            self._message(0x31, symbol.ljust(8).encode() + b"T0  ") for symbol in self.symbols(unit)
        ]
        return [self._message(0x97, b""), *trading]

    def closing(self, unit: int) -> list[bytes]:
        """Return the end of the session."""
        return [self._message(0x2D, b"")]

    def add(self, symbol: str, order: RestingOrder) -> bytes:
        """Return a long add."""
        side = b"B" if order.bid else b"S"
        name = symbol.ljust(6).encode()
        return self._message(
            0x21, struct.pack("<QcI6sQB", order.number, side, order.shares, name, order.price, 1)
        )

    def execute(self, symbol: str, order: RestingOrder, shares: int) -> bytes:
        """Return an execution."""
        return self._message(0x23, struct.pack("<QIQ", order.number, shares, self._match))

    def reduce(self, symbol: str, order: RestingOrder, shares: int) -> bytes:
        """Return a reduction."""
        return self._message(0x25, struct.pack("<QI", order.number, shares))

    def delete(self, symbol: str, order: RestingOrder) -> bytes:
        """Return a delete."""
        return self._message(0x29, struct.pack("<Q", order.number))

    def replace(self, symbol: str, order: RestingOrder, new: RestingOrder) -> bytes:
        """Return a modification that loses its place: the order keeps its number."""
        new.number = order.number
        return self._message(0x27, struct.pack("<QIQB", order.number, new.shares, new.price, 1))

    def _message(self, kind: int, body: bytes) -> bytes:
        return struct.pack("<BBI", 6 + len(body), kind, self._now_ns % 1_000_000_000) + body
