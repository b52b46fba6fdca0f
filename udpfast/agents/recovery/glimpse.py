"""GLIMPSE over SoupBinTCP: the books of all stocks as of one number.

Sources: Nasdaq, GLIMPSE 5.0 and SoupBinTCP 4.00.
"""

from __future__ import annotations

import struct

from udpfast.agents.recovery.served import Frames, ServedBooks, SnapshotError
from udpfast.config import Login

__all__ = ["GlimpseDialogue"]

#: Bytes of the messages that matter.
_SIZES = {b"R": 39, b"A": 36, b"F": 40, b"G": 21}
_REJECTED = {b"A": "the login is not authorised", b"S": "the session is not available"}


class GlimpseDialogue:
    """One snapshot, from the frames of one connection; see `served.Dialogue`."""

    heartbeat = struct.pack(">Hc", 1, b"R")
    goodbye = struct.pack(">Hc", 1, b"O")

    def __init__(self, login: Login, books: ServedBooks) -> None:
        self.books = books
        self.messages = 0
        self.number = -1
        self.begun = True  # it is sent to whoever logs in
        self._login = login
        self._frames = Frames("big", "frames of SoupBinTCP")
        self._accepted = False

    def begin(self) -> bytes:
        """Return the frame that asks for the snapshot of the current session."""
        body = self._login.field("user", 6) + self._login.field("password", 10)
        body += b" " * 10 + b"1".rjust(20)
        return struct.pack(">Hc", 1 + len(body), b"L") + body

    def take(self, data: bytes) -> bytes:
        """Take bytes of the connection, however they were cut."""
        for kind, body in self._frames.take(data):
            self._frame(kind, body)
            if self.number >= 0:
                break
        return b""

    def _frame(self, kind: bytes, body: bytes) -> None:
        if kind == b"S" and self._accepted:
            self._message(body)
        elif kind == b"A" and len(body) == 30:
            self._accepted = True
        elif kind == b"J":
            why = _REJECTED.get(body[:1], f"reason {body[:1]!r}")
            raise SnapshotError(f"it refused the login: {why}", "refusals")
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
        self.books.name(locate, body[11:19] if kind == b"R" else body[24:32])
        if kind != b"R":
            reference, side, shares = struct.unpack_from(">QcI", body, 11)
            price = int.from_bytes(body[32:36])
            self.books.add(locate, reference, side != b"B", price, shares)

    def _end(self, digits: bytes) -> None:
        text = digits.strip()
        if not text.isdigit() or int(text) < 1:
            raise SnapshotError(
                f"expected the number of the next message at the end, found {digits!r}"
            )
        # References grow: their order is that of the queues.
        self.books.sort()
        # The server names the first message to apply: the books contain the one before it.
        self.number = int(text) - 1
