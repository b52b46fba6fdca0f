"""A market of a few stocks as ITCH tells it, from a seed, and its books after each message."""

import random
import struct

from tests.payload.order_market import STOCKS, OrderMarket, cut

__all__ = ["SESSION", "STOCKS", "ItchMarket", "cut", "datagram"]

SESSION = b"0000000042"


class ItchMarket(OrderMarket):
    """As Nasdaq ITCH 5.0 on MoldUDP64."""

    framing, payload, exchange = "moldudp64", "itch", "NASDAQ"

    def datagram(self, first: int, messages: list[bytes]) -> bytes:
        """Return messages in MoldUDP64."""
        return datagram(first, messages)

    def beginning(self) -> list[bytes]:
        """Return the stock directory."""
        return [
            _head("R", locate) + stock.ljust(8).encode() + bytes(20)
            for locate, stock in STOCKS.items()
        ]

    def add(self, locate: int, reference: int, side: str, shares: int, price: int) -> bytes:
        """Return an add."""
        named = STOCKS[locate].ljust(8).encode()
        return _head("A", locate) + struct.pack(
            ">QcI8sI", reference, side.encode(), shares, named, price
        )

    def delete(self, locate: int, reference: int) -> bytes:
        """Return a delete."""
        return _head("D", locate) + struct.pack(">Q", reference)

    def replace(self, locate: int, old: int, new: int, shares: int, price: int) -> bytes:
        """Return a replacement, of another reference."""
        return _head("U", locate) + struct.pack(">QQII", old, new, shares, price)

    def reduce(
        self, locate: int, reference: int, less: int, left: int, price: int, executed: bool
    ) -> bytes:
        """Return an execution or a cancellation."""
        match = bytes(8) if executed else b""
        kind = "E" if executed else "X"
        return _head(kind, locate) + struct.pack(">QI", reference, less) + match

    def snapshot(self, number: int) -> bytes:
        """Return what a GLIMPSE server sends of the books after this message."""
        soup = [_packet(b"A", b"GLIMPSE".rjust(10) + b"1".rjust(20)), _packet(b"H", b"")]
        rows = []
        for locate, stock in STOCKS.items():
            named = stock.ljust(8).encode()
            soup.append(_packet(b"S", _head("R", locate) + named + bytes(20)))
            for side, orders in self.books[number][stock].items():
                for price, reference, shares in orders:
                    rows.append(_packet(b"S", self.add(locate, reference, side, shares, price)))
        random.Random(number).shuffle(rows)  # their order means nothing
        end = _packet(b"S", b"G" + str(number + 1).encode().rjust(20))
        return b"".join((*soup, *rows, end))


def datagram(first: int, messages: list[bytes], session: bytes = SESSION) -> bytes:
    """Return messages from number `first` on as MoldUDP64 sends them."""
    blocks = b"".join(struct.pack(">H", len(one)) + one for one in messages)
    return session + struct.pack(">QH", first, len(messages)) + blocks


def _head(kind: str, locate: int) -> bytes:
    return struct.pack(">cHH6s", kind.encode(), locate, 0, bytes(6))


def _packet(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">Hc", 1 + len(body), kind) + body
