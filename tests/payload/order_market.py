"""Markets of a few stocks as venues of single orders tell them, from a seed, and their books after
each message.

The books are kept in the slowest way there is: nothing of it is shared with the product.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

STOCKS = {7: "AAPL", 9: "MSFT", 300: "ZVZZT", 301: "QUIET", 4000: "NEVER"}

#: Side -> [price, reference, shares], in the order of arrival.
Book = dict[str, list[tuple[int, int, int]]]


@dataclass
class OrderMarket:
    """So many messages: `messages[n - 1]` is number n, `books[n]` what is there after it."""

    seed: int
    count: int
    messages: list[bytes] = field(default_factory=list)
    books: list[dict[str, Book]] = field(default_factory=list)
    #: Message, stock, price and shares of each execution.
    trades: list[tuple[int, str, int, int]] = field(default_factory=list)

    framing = ""
    payload = ""
    exchange = ""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._live: dict[str, Book] = {stock: {"B": [], "S": []} for stock in STOCKS.values()}
        self._reference = 1000
        self.books.append(self._copy())
        for message in self.beginning():
            self._say(message)
        while len(self.messages) < self.count:
            self._step()

    def datagram(self, first: int, messages: list[bytes]) -> bytes:
        """Return messages from number `first` on as the venue sends them."""
        raise NotImplementedError

    def beginning(self) -> list[bytes]:
        """Return what comes before the first order."""
        return []

    def add(self, locate: int, reference: int, side: str, shares: int, price: int) -> bytes:
        """Return a new order."""
        raise NotImplementedError

    def delete(self, locate: int, reference: int) -> bytes:
        """Return the end of an order."""
        raise NotImplementedError

    def replace(self, locate: int, old: int, new: int, shares: int, price: int) -> bytes:
        """Return an order at the end of another queue."""
        raise NotImplementedError

    def reduce(
        self, locate: int, reference: int, less: int, left: int, price: int, executed: bool
    ) -> bytes:
        """Return an order that is less, and keeps its place."""
        raise NotImplementedError

    def new_reference(self, old: int) -> int:
        """Return the reference of an order that replaces one."""
        self._reference += 1
        return self._reference

    def _step(self) -> None:
        pick = self._random
        locate, stock = pick.choice([(7, "AAPL"), (9, "MSFT"), (300, "ZVZZT")])
        if pick.random() < 0.02:
            locate, stock = 301, "QUIET"
        side = pick.choice("BS")
        orders = self._live[stock][side]
        kind = pick.choice("AAADXEU") if orders else "A"
        if kind == "A":
            self._add(locate, stock, side)
            return
        place = pick.randrange(len(orders))
        price, reference, shares = orders[place]
        if kind == "D":
            del orders[place]
            self._say(self.delete(locate, reference))
        elif kind == "U":
            del orders[place]
            price += pick.choice((-100, 0, 100))
            new = self.new_reference(reference)
            orders.append((price, new, shares + 5))
            self._say(self.replace(locate, reference, new, shares + 5, price))
        else:
            less = pick.randint(1, shares)
            orders[place] = (price, reference, shares - less)
            if less == shares:
                del orders[place]
            if kind == "E":
                self.trades.append((len(self.messages) + 1, stock, price, less))
            self._say(self.reduce(locate, reference, less, shares - less, price, kind == "E"))

    def _add(self, locate: int, stock: str, side: str) -> None:
        self._reference += self._random.randint(1, 9)
        shares = self._random.randint(1, 20)
        price = 1_000_000 + self._random.randint(-5, 5) * 100 + (500 if side == "S" else -500)
        self._live[stock][side].append((price, self._reference, shares))
        self._say(self.add(locate, self._reference, side, shares, price))

    def _say(self, message: bytes) -> None:
        self.messages.append(message)
        self.books.append(self._copy())

    def _copy(self) -> dict[str, Book]:
        return {
            stock: {side: list(orders) for side, orders in book.items()}
            for stock, book in self._live.items()
        }


def cut(data: bytes, pick: random.Random) -> Iterator[bytes]:
    """Yield bytes in pieces, as a connection may bring them."""
    at = 0
    while at < len(data):
        size = pick.randint(1, 400)
        yield data[at : at + size]
        at += size


class PitchMarket(OrderMarket):
    """As Cboe's PITCH 2.x: one unit, whose numbers may begin anew."""

    framing, payload, exchange = "cboe_pitch", "pitch", "CBOE"
    UNIT = 3
    first = 1

    def published(self, number: int) -> int:
        """Return a message's number as the unit has it: 1 follows 4294967295."""
        return (self.first + number - 2) % (2**32 - 1) + 1

    def datagram(self, first: int, messages: list[bytes]) -> bytes:
        """Return messages in a unit header."""
        body = b"".join(messages)
        number = self.published(first)
        return struct.pack("<HBBI", 8 + len(body), len(messages), self.UNIT, number) + body

    def beginning(self) -> list[bytes]:
        """Return the clear that a day begins with."""
        return [_pitch(0x97, b"")]

    def add(self, locate: int, reference: int, side: str, shares: int, price: int) -> bytes:
        """Return a long, a short or an expanded add."""
        name = STOCKS[locate].encode()
        if locate == 7:
            body = struct.pack("<QcH6sHB", reference, side.encode(), shares, name.ljust(6),
                               price // 100, 1)  # fmt: skip
            return _pitch(0x22, body)
        if locate == 9:
            body = struct.pack(
                "<QcI6sQB", reference, side.encode(), shares, name.ljust(6), price, 1
            )
            return _pitch(0x21, body)
        body = struct.pack("<QcI8sQB4sc", reference, side.encode(), shares, name.ljust(8), price, 1,
                           b"", b" ")  # fmt: skip
        return _pitch(0x2F, body)

    def delete(self, locate: int, reference: int) -> bytes:
        """Return a delete."""
        return _pitch(0x29, struct.pack("<Q", reference))

    def new_reference(self, old: int) -> int:
        """Return the same: an order keeps its id."""
        return old

    def replace(self, locate: int, old: int, new: int, shares: int, price: int) -> bytes:
        """Return a modification that loses its place."""
        return _pitch(0x27, struct.pack("<QIQB", old, shares, price, 1))

    def reduce(
        self, locate: int, reference: int, less: int, left: int, price: int, executed: bool
    ) -> bytes:
        """Return an execution or a reduction."""
        if executed:
            return _pitch(0x23, struct.pack("<QIQ", reference, less, 1))
        return _pitch(0x25, struct.pack("<QI", reference, less))

    def greeting(self, number: int) -> bytes:
        """Return what a spin server sends to who logged in, having an image as of this message."""
        image = struct.pack("<I", self.published(number))
        return _spin(0x02, b"A") + _spin(0x80, image)

    def snapshot(self, number: int) -> bytes:
        """Return what a spin server answers of the books after this message."""
        rows = self._image(number)
        image = struct.pack("<I", self.published(number))
        said = _spin(0x82, image + struct.pack("<Ic", len(rows), b"A"))
        for at in range(0, len(rows), 5):
            body = b"".join(rows[at : at + 5])
            said += struct.pack("<HBBI", 8 + len(body), len(rows[at : at + 5]), 0, 0) + body
        return said + _spin(0x83, image)

    def _image(self, number: int) -> list[bytes]:
        # Adds, oldest first.
        rows = [
            (place, self.add(locate, reference, side, shares, price))
            for locate, stock in STOCKS.items()
            for side, orders in self.books[number][stock].items()
            for place, (price, reference, shares) in enumerate(orders)
        ]
        return [row for _, row in sorted(rows, key=lambda row: row[0])]


class DeepPlusMarket(OrderMarket):
    """As IEX DEEP+ on IEX-TP."""

    framing, payload, exchange = "iex_tp", "iex_deep_plus", "IEX"
    SESSION, CHANNEL, PROTOCOL = 77, 1, 0x8005

    def datagram(self, first: int, messages: list[bytes]) -> bytes:
        """Return messages in a segment."""
        body = b"".join(struct.pack("<H", len(one)) + one for one in messages)
        offset = sum(2 + len(one) for one in self.messages[: first - 1])
        return struct.pack(
            "<BBHIIHHqqq", 1, 0, self.PROTOCOL, self.CHANNEL, self.SESSION, len(body),
            len(messages), offset, first, 1,
        ) + body  # fmt: skip

    def add(self, locate: int, reference: int, side: str, shares: int, price: int) -> bytes:
        """Return an add."""
        return self._head(b"a", b"8" if side == "B" else b"5", locate) + struct.pack(
            "<QIq", reference, shares, price
        )

    def delete(self, locate: int, reference: int) -> bytes:
        """Return a delete."""
        return self._head(b"R", b"\0", locate) + struct.pack("<Q", reference)

    def new_reference(self, old: int) -> int:
        """Return the same: an order keeps its id."""
        return old

    def replace(self, locate: int, old: int, new: int, shares: int, price: int) -> bytes:
        """Return a modification that loses its place."""
        return self._head(b"M", b"\0", locate) + struct.pack("<QIq", old, shares, price)

    def reduce(
        self, locate: int, reference: int, less: int, left: int, price: int, executed: bool
    ) -> bytes:
        """Return an execution, a modification that keeps its place, or the end."""
        if executed:
            return self._head(b"L", b"\0", locate) + struct.pack("<QIqq", reference, less, price, 5)
        if not left:
            return self.delete(locate, reference)
        return self._head(b"M", b"\1", locate) + struct.pack("<QIq", reference, left, price)

    def snapshot(self, number: int) -> bytes:
        """Return what a SNAP server answers of the books after this message."""
        records = []
        for locate, stock in STOCKS.items():
            directory = self._head(b"D", b"\0", locate) + struct.pack("<IqB", 100, 0, 1)
            records.append(directory)
            for side, orders in self.books[number][stock].items():
                for price, reference, shares in orders:
                    records.append(self.add(locate, reference, side, shares, price))
        said = [_snap(b"d", self.datagram(1, [record])) for record in records]
        size = sum(map(len, said)) + 22
        return b"".join(
            [_snap(b"s", struct.pack("<Q", size)), *said, _snap(b"x", struct.pack("<Q", number))]
        )

    def _head(self, kind: bytes, flags: bytes, locate: int) -> bytes:
        return struct.pack("<ccq8s", kind, flags, 1, STOCKS[locate].encode().ljust(8))


def _pitch(kind: int, body: bytes) -> bytes:
    return struct.pack("<BBI", 6 + len(body), kind, 0) + body


def _spin(kind: int, body: bytes) -> bytes:
    return struct.pack("<HBBIBB", 10 + len(body), 1, 0, 0, 2 + len(body), kind) + body


def _snap(kind: bytes, body: bytes) -> bytes:
    return struct.pack("<Hc", 1 + len(body), kind) + body
