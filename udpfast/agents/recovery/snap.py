"""IEX's DEEP+ SNAP: the books of all symbols as of one number.

    r token, channel, session, least number -> s length, d messages of the feed .., x number
                                            -> e reason

Source: IEX, DEEP+ SNAP Specification 1.05.
"""

from __future__ import annotations

import struct

from udpfast.agents.recovery.served import Frames, ServedBooks, SnapshotError
from udpfast.config import Login

__all__ = ["SnapDialogue"]

_REQUEST = struct.Struct("<Hc40sIIq")
_HEADER_BYTES = 40  # of IEX-TP, in front of each message
_ADD = struct.Struct("<c8x8sQIq")
_DIRECTORY_BYTES = 31
_HOUR_NS = 3_600_000_000_000
#: Reason -> words, tally, and how long not to ask again.
_REFUSED = {
    b"A": ("the token is not valid", "refusals", 0),
    b"C": ("no such channel", "refusals", 0),
    b"E": ("a snapshot is being sent already", "refusals", 0),
    b"Q": ("the quota of today is used up", "refusals", _HOUR_NS),
    b"R": ("no snapshot is as new as the feed needs it", "too_old", 0),
    b"S": ("no such session", "refusals", 0),
    b"U": ("it does not know the request", "refusals", 0),
}


class SnapDialogue:
    """One snapshot, from the messages of one connection; see `served.Dialogue`."""

    heartbeat = goodbye = b""

    def __init__(self, login: Login, books: ServedBooks) -> None:
        self.books = books
        self.messages = 0
        self.number = -1
        self.begun = True  # an answer comes at once
        self._login = login
        self._frames = Frames("little", "messages of a SNAP server")
        self._started = False

    def begin(self) -> bytes:
        """Return the request."""
        wanted = self.books.wanted
        return _REQUEST.pack(
            _REQUEST.size - 2, b"r", self._login.field("token", 40), wanted.stream & 0xFFFF,
            wanted.session, wanted.last,
        )  # fmt: skip

    def take(self, data: bytes) -> bytes:
        """Take bytes of the connection, however they were cut."""
        for kind, body in self._frames.take(data):
            self._message(kind, body)
            if self.number >= 0:
                break
        return b""

    def _message(self, kind: bytes, body: bytes) -> None:
        if kind == b"s":
            self._started = True
        elif kind == b"d" and self._started:
            self._record(body)
        elif kind == b"x" and self._started and len(body) >= 8:
            self.number = int.from_bytes(body[:8], "little")
        elif kind == b"e":
            why, tally, pause_ns = _REFUSED.get(body[:1], (f"reason {body[:1]!r}", "refusals", 0))
            raise SnapshotError(f"it refused a request: {why}", tally, pause_ns)
        else:
            raise SnapshotError(f"expected messages of a SNAP server, found type {kind!r}")

    def _record(self, body: bytes) -> None:
        self.messages += 1
        message = body[_HEADER_BYTES + 2 :]
        if len(message) != int.from_bytes(body[_HEADER_BYTES : _HEADER_BYTES + 2], "little"):
            raise SnapshotError(f"expected one message in {len(body)} bytes, found another length")
        kind = message[:1]
        if kind == b"a" and len(message) >= 1 + _ADD.size:
            side, name, number, size, price = _ADD.unpack_from(message, 1)
            instrument = int.from_bytes(name, "little")
            self.books.name(instrument, name)
            self.books.add(instrument, number, side != b"8", price, size)
        elif kind == b"D" and len(message) >= _DIRECTORY_BYTES:
            self.books.name(int.from_bytes(message[10:18], "little"), message[10:18])
        elif kind in b"aDMRLC":
            raise SnapshotError(
                f"expected directories and orders in a snapshot, found {len(message)} bytes of a "
                f"message {kind.decode('latin-1')!r}"
            )
