"""A market of a few stocks as ITCH tells it, from a seed, and its books after each message.

The books are kept in the slowest way there is: nothing of it is shared with the product.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

SESSION = b"0000000042"
STOCKS = {7: "AAPL", 9: "MSFT", 300: "ZVZZT", 301: "QUIET", 4000: "NEVER"}

#: Side -> [price, reference, shares], in the order of arrival.
Book = dict[str, list[tuple[int, int, int]]]


@dataclass
class ItchMarket:
    """So many messages: `messages[n - 1]` is number n, `books[n]` what is there after it."""

    seed: int
    count: int
    messages: list[bytes] = field(default_factory=list)
    books: list[dict[str, Book]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._live: dict[str, Book] = {stock: {"B": [], "S": []} for stock in STOCKS.values()}
        self._reference = 1000
        self.books.append(self._copy())
        for locate, stock in STOCKS.items():
            self._say("R", locate, stock.ljust(8).encode() + bytes(20))
        while len(self.messages) < self.count:
            self._step()

    def snapshot(self, number: int) -> bytes:
        """Return what a GLIMPSE server sends of the books after this message."""
        soup = [_packet(b"A", b"GLIMPSE".rjust(10) + b"1".rjust(20)), _packet(b"H", b"")]
        rows = []
        for locate, stock in STOCKS.items():
            named = stock.ljust(8).encode()
            soup.append(_packet(b"S", _head("R", locate) + named + bytes(20)))
            for side, orders in self.books[number][stock].items():
                for price, reference, shares in orders:
                    body = struct.pack(">QcI8sI", reference, side.encode(), shares, named, price)
                    rows.append(_packet(b"S", _head("A", locate) + body))
        random.Random(number).shuffle(rows)  # their order means nothing
        end = _packet(b"S", b"G" + str(number + 1).encode().rjust(20))
        return b"".join((*soup, *rows, end))

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
            self._say("D", locate, struct.pack(">Q", reference))
        elif kind == "U":
            del orders[place]
            self._reference += 1
            price += pick.choice((-100, 0, 100))
            orders.append((price, self._reference, shares + 5))
            body = struct.pack(">QQII", reference, self._reference, shares + 5, price)
            self._say("U", locate, body)
        else:
            less = pick.randint(1, shares)
            orders[place] = (price, reference, shares - less)
            if less == shares:
                del orders[place]
            match = bytes(8) if kind == "E" else b""
            self._say(kind, locate, struct.pack(">QI", reference, less) + match)

    def _add(self, locate: int, stock: str, side: str) -> None:
        self._reference += self._random.randint(1, 9)
        shares = self._random.randint(1, 20)
        price = 1_000_000 + self._random.randint(-5, 5) * 100 + (500 if side == "S" else -500)
        self._live[stock][side].append((price, self._reference, shares))
        named = stock.ljust(8).encode()
        self._say(
            "A",
            locate,
            struct.pack(">QcI8sI", self._reference, side.encode(), shares, named, price),
        )

    def _say(self, kind: str, locate: int, body: bytes) -> None:
        self.messages.append(_head(kind, locate) + body)
        self.books.append(self._copy())

    def _copy(self) -> dict[str, Book]:
        return {
            stock: {side: list(orders) for side, orders in book.items()}
            for stock, book in self._live.items()
        }


def datagram(first: int, messages: list[bytes], session: bytes = SESSION) -> bytes:
    """Return messages from number `first` on as MoldUDP64 sends them."""
    blocks = b"".join(struct.pack(">H", len(one)) + one for one in messages)
    return session + struct.pack(">QH", first, len(messages)) + blocks


def cut(data: bytes, pick: random.Random) -> Iterator[bytes]:
    """Yield bytes in pieces, as a connection may bring them."""
    at = 0
    while at < len(data):
        size = pick.randint(1, 400)
        yield data[at : at + size]
        at += size


def _head(kind: str, locate: int) -> bytes:
    return struct.pack(">cHH6s", kind.encode(), locate, 0, bytes(6))


def _packet(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">Hc", 1 + len(body), kind) + body
