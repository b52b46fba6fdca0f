"""GLIMPSE over SoupBinTCP: the books of all stocks as of one number, from bytes to datagrams.

It reads no socket and asks no clock. What it hands on is described in `payload/itch/glimpse.pxd`.

Sources: Nasdaq, GLIMPSE 5.0 and SoupBinTCP 4.00.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from udpfast.config import Login
from udpfast.errors import UdpfastError

__all__ = ["HEARTBEAT", "LOGOUT", "GlimpseSnapshot", "SnapshotError", "login_request"]

HEARTBEAT = struct.pack(">Hc", 1, b"R")
LOGOUT = struct.pack(">Hc", 1, b"O")

#: Bytes of a datagram that a feed's windows take, and of MoldUDP64's header and one length.
_DATAGRAM_MAX, _MOLD_HEADER = 4160, struct.Struct(">10sQHH")
_PART = struct.Struct(">BHQHH8s")
_END = struct.Struct(">BQ")
_ORDER = np.dtype([("reference", ">u8"), ("side", "u1"), ("shares", ">u4"), ("price", ">u4")])
_ORDERS_PER_PART = (_DATAGRAM_MAX - _MOLD_HEADER.size - _PART.size) // _ORDER.itemsize
#: So many parts of one stock a book takes.
_PARTS_MAX = 4096
#: Bytes of the messages that matter.
_SIZES = {b"R": 39, b"A": 36, b"F": 40, b"G": 21}
_REJECTED = {b"A": "the login is not authorised", b"S": "the session is not available"}


class SnapshotError(UdpfastError):
    """No snapshot came: a sentence says why.

    Attributes
    ----------
    tally : str
        What counts it: "refusals", "failures" (of a connection) or "broken" (by what it says).
    """

    def __init__(self, text: str, tally: str = "broken") -> None:
        super().__init__(text)
        self.tally = tally


def login_request(login: Login) -> bytes:
    """Return the frame that asks for the snapshot of the current session."""
    body = (
        login.user.encode().ljust(6)
        + login.password.encode().ljust(10)
        + b" " * 10
        + b"1".rjust(20)
    )
    return struct.pack(">Hc", 1 + len(body), b"L") + body


class GlimpseSnapshot:
    """One snapshot, from the frames of one connection.

    Parameters
    ----------
    orders_max : int
        A snapshot of more orders is given up.

    Attributes
    ----------
    number : int
        The last number that the books contain; -1: the snapshot is not complete.
    messages, orders : int
        That came so far.
    """

    def __init__(self, orders_max: int) -> None:
        self.number = -1
        self.messages = self.orders = 0
        self._orders_max = orders_max
        self._rest = b""
        self._accepted = False
        self._stocks: dict[int, bytes] = {}
        self._rows: dict[int, bytearray] = {}

    @property
    def complete(self) -> bool:
        """Whether all of it came."""
        return self.number >= 0

    def take(self, data: bytes) -> None:
        """Take bytes of the connection, however they were cut.

        Raises
        ------
        SnapshotError
            They are not what a GLIMPSE server sends, or the login was refused.
        """
        data = self._rest + data
        at = 0
        while at + 2 <= len(data) and not self.complete:
            size = int.from_bytes(data[at : at + 2])
            if size == 0:
                raise SnapshotError("expected frames of SoupBinTCP, found one without a type")
            if at + 2 + size > len(data):
                break
            self._frame(data[at + 2 : at + 3], data[at + 3 : at + 2 + size])
            at += 2 + size
        self._rest = data[at:]

    def _frame(self, kind: bytes, body: bytes) -> None:
        if kind == b"S" and self._accepted:
            self._message(body)
        elif kind == b"A" and len(body) == 30:
            self._accepted = True
        elif kind == b"J":
            why = _REJECTED.get(body[:1], f"reason {body[:1]!r}")
            raise SnapshotError(f"login refused: {why}", "refusals")
        elif kind == b"Z":
            raise SnapshotError(
                "the server ended the session before the snapshot was complete", "failures"
            )
        elif kind not in b"H+":
            raise SnapshotError(f"expected frames of a GLIMPSE server, found type {kind!r}")

    def _message(self, body: bytes) -> None:
        self.messages += 1
        kind = body[:1]
        if kind not in _SIZES:
            return  # trading states and the like: books need none of them
        if len(body) < _SIZES[kind]:
            raise SnapshotError(
                f"expected {_SIZES[kind]} bytes of a message {kind.decode()}, found {len(body)}"
            )
        if kind == b"G":
            self._end(body[1:21])
            return
        locate = int.from_bytes(body[1:3])
        stock = body[11:19] if kind == b"R" else body[24:32]
        known = self._stocks.setdefault(locate, stock)
        if known != stock:
            raise SnapshotError(
                f"expected one stock for locate code {locate}, found {known.decode('latin-1')!r} "
                f"and {stock.decode('latin-1')!r}"
            )
        if kind != b"R":
            self._order(locate, body)

    def _order(self, locate: int, body: bytes) -> None:
        self.orders += 1
        if self.orders > self._orders_max:
            raise SnapshotError(
                f"expected at most {self._orders_max} orders (snapshot_server.orders_max), found "
                "more"
            )
        rows = self._rows.get(locate)
        if rows is None:
            rows = self._rows[locate] = bytearray()
        rows += body[11:24]
        rows += body[32:36]
        if len(rows) > _PARTS_MAX * _ORDERS_PER_PART * _ORDER.itemsize:
            raise SnapshotError(
                f"expected at most {_PARTS_MAX * _ORDERS_PER_PART} orders of one stock, found more"
            )

    def _end(self, digits: bytes) -> None:
        text = digits.strip()
        if not text.isdigit() or int(text) < 1:
            raise SnapshotError(
                f"expected the number of the next message at the end, found {digits!r}"
            )
        # The server names the first message to apply: the books contain the one before it.
        self.number = int(text) - 1

    def datagrams(self) -> Iterator[bytes]:
        """Yield it as datagrams of the feed: each stock's orders, oldest first, then the end."""
        for locate, stock in self._stocks.items():
            rows = np.frombuffer(self._rows.get(locate, b""), _ORDER)
            # References grow: their order is that of the queues.
            rows = rows[np.argsort(rows["reference"], kind="stable")]
            parts = max(1, -(-len(rows) // _ORDERS_PER_PART))
            for part in range(parts):
                some = rows[part * _ORDERS_PER_PART : (part + 1) * _ORDERS_PER_PART]
                head = _PART.pack(1, locate, self.number, part + 1, parts, stock)
                yield _datagram(head + some.tobytes())
        yield _datagram(_END.pack(2, self.number))


def _datagram(message: bytes) -> bytes:
    return _MOLD_HEADER.pack(b" " * 10, 1, 1, len(message)) + message
