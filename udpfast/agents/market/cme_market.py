"""A simulated exchange as CME's MDP 3.0 has it: levels by place, orders beside them, and the loops.

Beside the changes it plays three loops for ever, each numbered anew with every round: what the
instruments are, their levels, and their orders in parts. So who comes late, or lost something,
finds all of it there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import groupby

from udpfast.agents.market.venue_market import SYMBOLS, RestingOrder, VenueMarket

__all__ = ["CmeMarket"]

_UNIT = 100_000  # of prices with nine decimals, beside those with four
_T0_NS = 1_790_035_200_000_000_000
_NULL_32, _NULL_64 = 2**31 - 1, 2**63 - 1
_STATUS_OPEN = 17
_EVENT_ENDS = 0x80
_NEW, _CHANGE, _DELETE = range(3)
_SIDES = (b"0", b"1")
_ID = 1_000  # of the first instrument
_CHUNK = 24  # orders of a part
_EVERY = 4  # datagrams of changes to one of each loop
_QUIET_NS, _QUIET_ROUNDS = 100_000_000, 15  # behind the last change: what was lost comes again
_LOOP_NS = 500_000  # between two datagrams of a loop then

#: A level as readers are told of it: price, quantity, number of orders.
Level = tuple[int, int, int]


class CmeMarket(VenueMarket):
    """One channel: every order is told with its level, or alone where its level is too deep."""

    framing, payload, exchange = "cme_mdp3", "cme", "CME"
    loops = ("definitions", "recovery", "recovery")
    depth = 5

    def _begin(self) -> None:
        super()._begin()
        self._next = 1
        self._arrivals = 0
        self._priorities: dict[int, int] = {}
        self._chains = dict.fromkeys(SYMBOLS, 0)
        self._shown: dict[str, tuple[list[Level], list[Level]]] = {
            symbol: ([], []) for symbol in SYMBOLS
        }
        self._datagrams = 0
        self._loops = [self._definitions(), self._levels_loop(), self._orders_loop()]

    def datagram(self, unit: int, messages: list[bytes]) -> bytes:
        """Return messages with the next number."""
        self._next += 1
        return _numbered(self._next - 1, self._time(), messages)

    def heartbeat(self, unit: int) -> bytes:
        """Return a datagram that says that there is nothing; it has a number, too."""
        return self.datagram(unit, [_message(12, b"", b"")])

    def opening(self, unit: int) -> list[bytes]:
        """Return that everything trades."""
        return [
            _message(
                30,
                struct.pack(
                    "<Q12xiHBBBB",
                    self._time(),
                    _id(symbol),
                    *(20_720, _EVENT_ENDS, _STATUS_OPEN, 0, 0),
                ),
                b"",
            )
            for symbol in SYMBOLS
        ]

    def ending(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield heartbeats, and between them rounds of all loops: nothing stays lost."""
        for _ in range(_QUIET_ROUNDS):
            until_ns = self._now_ns + _QUIET_NS
            yield self._now_ns, 0, self.heartbeat(0)
            while self._now_ns < until_ns:
                self._now_ns += _LOOP_NS
                yield from self._turn()

    def looped(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield what the loops send behind a datagram of changes."""
        self._datagrams += 1
        if self._datagrams % _EVERY == 0:
            yield from self._turn()

    def add(self, symbol: str, order: RestingOrder) -> bytes:
        """Return a new order."""
        self._queue(order)
        return self._event(symbol, order, _NEW)

    def execute(self, symbol: str, order: RestingOrder, shares: int) -> bytes:
        """Return the trade, and what is left of the order."""
        trade = struct.pack(
            "<qiiIiBBIxx",
            *(order.price * _UNIT, shares, _id(symbol), self._link(symbol)),
            *(1, 2 if order.bid else 1, _NEW, self._match),
        )
        traded = _message(48, self._root(0), _group(32, [trade]) + _wide_group(16, []))
        return traded + self._event(symbol, order, _CHANGE if order.shares else _DELETE)

    def reduce(self, symbol: str, order: RestingOrder, shares: int) -> bytes:
        """Return an order that is less, and keeps its place."""
        return self._event(symbol, order, _CHANGE)

    def delete(self, symbol: str, order: RestingOrder) -> bytes:
        """Return the end of an order."""
        return self._event(symbol, order, _DELETE)

    def replace(self, symbol: str, order: RestingOrder, new: RestingOrder) -> bytes:
        """Return an order of the same number at another price: a change that loses its place."""
        new.number = order.number
        self._queue(new)
        return self._event(symbol, new, _CHANGE)

    def _time(self) -> int:
        return _T0_NS + self._now_ns

    def _root(self, indicator: int) -> bytes:
        return struct.pack("<QBxx", self._time(), indicator)

    def _link(self, symbol: str) -> int:
        self._chains[symbol] += 1
        return self._chains[symbol]

    def _queue(self, order: RestingOrder) -> None:
        self._arrivals += 1
        self._priorities[order.number] = self._arrivals

    def _event(self, symbol: str, order: RestingOrder, action: int) -> bytes:
        # The places that changed, and the order: with its level, or alone.
        places: dict[tuple[bool, int], int] = {}
        entries = []
        for bid in (True, False):
            for place, level, does in self._changes(symbol, bid):
                entries.append(
                    struct.pack(
                        "<qiiIiBBc5x",
                        *(level[0] * _UNIT, level[1], _id(symbol), self._link(symbol)),
                        *(level[2], place, does, _SIDES[not bid]),
                    )
                )
                places.setdefault((bid, level[0]), len(entries))
        entry = places.get((order.bid, order.price), 0)
        what = struct.pack("<QQ", order.number, self._priorities[order.number])
        linked = [what + struct.pack("<iBB2x", order.shares, entry, action)] if entry else []
        body = _group(32, entries) + _wide_group(24, linked)
        told = _message(46, self._root(_EVENT_ENDS if entry else 0), body) if entries else b""
        if entry:
            return told
        side = _SIDES[not order.bid]
        price = struct.pack("<qii", order.price * _UNIT, order.shares, _id(symbol))
        alone = what + price + struct.pack("<Bc6x", action, side)
        return told + _message(47, self._root(_EVENT_ENDS), _group(40, [alone]))

    def _changes(self, symbol: str, bid: bool) -> Iterator[tuple[int, Level, int]]:
        # What became of the places of a side: those that went from the last one on, then what came.
        shown = self._shown[symbol][not bid]
        levels = self._levels(symbol, bid)
        alive = {level[0] for level in levels}
        for at in reversed(range(len(shown))):
            if shown[at][0] not in alive:
                yield at + 1, shown.pop(at), _DELETE
        for at, level in enumerate(levels[: self.depth]):
            if level[0] not in (one[0] for one in shown):
                shown.insert(at, level)
                del shown[self.depth :]
                yield at + 1, level, _NEW
            elif shown[at] != level:
                shown[at] = level
                yield at + 1, level, _CHANGE

    def _levels(self, symbol: str, bid: bool) -> list[Level]:
        prices = groupby(self.side(symbol, bid), key=lambda one: one.price)
        grouped = (list(orders) for _, orders in prices)
        return [(one[0].price, sum(each.shares for each in one), len(one)) for one in grouped]

    def _turn(self) -> Iterator[tuple[int, int, bytes]]:
        for line, loop in enumerate(self._loops, 1):
            data = next(loop)
            if data:
                yield self._now_ns, line, data

    def _active(self) -> list[str]:
        return [symbol for symbol in SYMBOLS if self._chains[symbol]]

    def _definitions(self) -> Iterator[bytes]:
        while True:
            for number, symbol in enumerate(SYMBOLS, 1):
                root = bytearray(216)
                struct.pack_into("<BIcQBh", root, 0, 128, len(SYMBOLS), b"A", self._time(), 17, 310)
                struct.pack_into("<20si", root, 35, symbol.encode(), _id(symbol))
                feeds = _group(4, [struct.pack("<3sb", b"GBX", self.depth)])
                body = _group(9, []) + feeds + _group(4, []) + _group(5, [])
                yield _numbered(number, self._time(), [_message(54, bytes(root), body)])

    def _levels_loop(self) -> Iterator[bytes]:
        while True:
            active = self._active()
            for number, symbol in enumerate(active, 1):
                rows = [
                    struct.pack(
                        "<qiibHBBc",
                        *(level[0] * _UNIT, level[1], level[2], place, 0xFFFF, 255, 0, side),
                    )
                    for side, levels in zip(_SIDES, self._shown[symbol], strict=True)
                    for place, level in enumerate(levels, 1)
                ]
                root = struct.pack(
                    "<IIiIQQHBqqq",
                    *(self._next - 1, len(active), _id(symbol), self._chains[symbol]),
                    *(self._time(), self._time(), 20_720, _STATUS_OPEN),
                    *(_NULL_64, _NULL_64, _NULL_64),
                )
                yield _numbered(number, self._time(), [_message(52, root, _group(22, rows))])
            if not active:
                yield b""

    def _orders_loop(self) -> Iterator[bytes]:
        while True:
            active = self._active()
            number = 0
            for symbol in active:
                for part in self._parts(symbol, len(active)):
                    number += 1
                    yield _numbered(number, self._time(), [part])
            if not active:
                yield b""

    def _parts(self, symbol: str, reports: int) -> list[bytes]:
        # All orders of an instrument, as they are now.
        rows = [
            struct.pack(
                "<QQqic",
                *(one.number, self._priorities[one.number], one.price * _UNIT, one.shares),
                _SIDES[not one.bid],
            )
            for bid in (True, False)
            for one in self.side(symbol, bid)
        ]
        parts = [rows[at : at + _CHUNK] for at in range(0, len(rows), _CHUNK)] or [[]]
        head = (self._next - 1, reports, _id(symbol), len(parts))
        return [
            _message(53, struct.pack("<IIiIIQ", *head, part, self._time()), _group(29, chunk))
            for part, chunk in enumerate(parts, 1)
        ]


def _id(symbol: str) -> int:
    return _ID + SYMBOLS.index(symbol)


def _numbered(number: int, time_ns: int, messages: list[bytes]) -> bytes:
    return struct.pack("<IQ", number, time_ns) + b"".join(messages)


def _message(template: int, root: bytes, body: bytes) -> bytes:
    # As version 9 of the schema has it.
    head = struct.pack("<HHHHH", 10 + len(root) + len(body), len(root), template, 1, 9)
    return head + root + body


def _group(size: int, entries: list[bytes]) -> bytes:
    return struct.pack("<HB", size, len(entries)) + b"".join(entries)


def _wide_group(size: int, entries: list[bytes]) -> bytes:
    return struct.pack("<H5xB", size, len(entries)) + b"".join(entries)
