"""Cboe's spin servers: the books of one unit as of one number.

    log in -> accepted -> image available (one a second) -> ask for it -> accepted, orders, finished

An image contains everything up to its number and that itself, and its orders come in the order in
which they were added, so that queues can be made of them.

Source: Cboe, US Equities/Options Multicast Depth of Book (PITCH) 2.41.
"""

from __future__ import annotations

import struct

from udpfast.agents.recovery.cboe import (
    HEARTBEAT,
    LOGIN_RESPONSE,
    CboeStream,
    login_refusal,
    login_request,
    pack,
)
from udpfast.agents.recovery.numbers import Numbers
from udpfast.agents.recovery.served import ServedBooks, SnapshotError
from udpfast.config import Login
from udpfast.errors import FormatError

__all__ = ["SpinDialogue"]

_AVAILABLE, _REQUEST, _RESPONSE, _FINISHED = 0x80, 0x81, 0x82, 0x83
_ADD_LONG, _ADD_SHORT, _ADD_EXPANDED = 0x21, 0x22, 0x2F
_ADDS = {
    _ADD_LONG: struct.Struct("<4xQcI6sQ"),
    _ADD_SHORT: struct.Struct("<4xQcH6sH"),
    _ADD_EXPANDED: struct.Struct("<4xQcI8sQ"),
}
_REFUSED = {b"O": "the image is out of range", b"S": "an image is being sent already"}
_NUMBERS = Numbers(32, skips_zero=True)


class SpinDialogue:
    """One image, from the messages of one connection; see `served.Dialogue`."""

    heartbeat = HEARTBEAT
    goodbye = b""

    def __init__(self, login: Login, books: ServedBooks) -> None:
        self.books = books
        self.messages = 0
        self.number = -1
        self.begun = False
        self._login = login
        self._stream = CboeStream()
        self._accepted = self._asked = False
        self._image = self._orders = -1

    def begin(self) -> bytes:
        """Return the login."""
        return login_request(self._login)

    def take(self, data: bytes) -> bytes:
        """Take bytes of the connection, however they were cut."""
        say = b""
        try:
            for kind, body in self._stream.take(data):
                say += self._message(kind, body)
                if self.number >= 0:
                    break
        except (FormatError, struct.error) as problem:
            raise SnapshotError(f"expected messages of a spin server, found others: {problem}") \
                from None  # fmt: skip
        return say

    def _message(self, kind: int, body: bytes) -> bytes:
        self.messages += 1
        if kind == LOGIN_RESPONSE:
            why = login_refusal(body)
            if why:
                raise SnapshotError(f"it refused the login: {why}", "refusals")
            self._accepted = True
        elif kind == _AVAILABLE and self._accepted and not self._asked:
            return self._ask(*struct.unpack_from("<I", body))
        elif kind == _RESPONSE and self._asked and not self.begun:
            self._begin(*struct.unpack_from("<IIc", body))
        elif kind in _ADDS and self.begun:
            self._add(kind, body)
        elif kind == _FINISHED and self.begun:
            self._finish(*struct.unpack_from("<I", body))
        return b""

    def _ask(self, image: int) -> bytes:
        # One that contains what the feed lacks; another one comes every second.
        wanted = self.books.wanted
        if _NUMBERS.unwrapped(image, wanted.number) < wanted.last:
            return b""
        self._asked = True
        return pack(_REQUEST, struct.pack("<I", image))

    def _begin(self, image: int, orders: int, status: bytes) -> None:
        if status != b"A":
            why = _REFUSED.get(status, f"status {status!r}")
            raise SnapshotError(f"it refused a request: {why}", "refusals")
        self._image, self._orders = image, orders
        self.begun = True

    def _add(self, kind: int, body: bytes) -> None:
        number, side, size, symbol, price = _ADDS[kind].unpack_from(body)
        if kind == _ADD_SHORT:
            price *= 100
        name = symbol.ljust(8)
        instrument = int.from_bytes(name, "little")
        self.books.name(instrument, name)
        self.books.add(instrument, number, side != b"B", price, size)

    def _finish(self, image: int) -> None:
        if image != self._image:
            raise SnapshotError(f"expected the end of image {self._image}, found that of {image}")
        if self.books.count != self._orders:
            raise SnapshotError(
                f"expected {self._orders} orders in image {image}, found {self.books.count}"
            )
        self.number = image
