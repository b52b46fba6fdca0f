"""What Cboe's TCP servers speak: unit headers without a number, with messages in them.

Sources: Cboe, US Equities/Options Multicast Depth of Book (PITCH) 2.41; BATS, mcastpitch captures.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from udpfast.config import Login
from udpfast.errors import FormatError

__all__ = [
    "HEARTBEAT",
    "HEARTBEAT_NS",
    "LOGIN_RESPONSE",
    "CboeStream",
    "login_refusal",
    "login_request",
    "pack",
]

_HEADER = struct.Struct("<HBBI")
#: Both ends say something at least every five seconds.
HEARTBEAT_NS = 1_000_000_000
HEARTBEAT = _HEADER.pack(_HEADER.size, 0, 0, 0)
_LOGIN, LOGIN_RESPONSE = 0x01, 0x02
_ACCEPTED = b"A"
_REFUSED = {
    b"N": "the login is not authorised",
    b"B": "the session is in use",
    b"S": "the session is not valid",
}


def pack(kind: int, body: bytes) -> bytes:
    """Return one message in a unit header of its own."""
    message = bytes((2 + len(body), kind)) + body
    return _HEADER.pack(_HEADER.size + len(message), 1, 0, 0) + message


def login_request(login: Login) -> bytes:
    """Return what a connection begins with."""
    body = login.field("session", 4) + login.field("user", 4) + b"  " + login.field("password", 10)
    return pack(_LOGIN, body)


def login_refusal(body: bytes) -> str:
    """Return in words why a login was refused; empty: it was accepted."""
    status = body[:1]
    return "" if status == _ACCEPTED else _REFUSED.get(status, f"status {status!r}")


class CboeStream:
    """Messages of a connection, however its bytes were cut."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield type and body of each message that is complete by now.

        Raises
        ------
        FormatError
            These are no unit headers, or their messages do not fit.
        """
        data = self._rest + data
        at = 0
        self._rest = b""
        while at + _HEADER.size <= len(data):
            size, count, _, _ = _HEADER.unpack_from(data, at)
            if size < _HEADER.size:
                raise FormatError(
                    f"expected a unit header of {_HEADER.size} bytes at least, found {size}"
                )
            if at + size > len(data):
                break
            yield from _messages(data[at + _HEADER.size : at + size], count)
            at += size
        self._rest = data[at:]


def _messages(data: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    for _ in range(count):
        size = data[at] if at < len(data) else 0
        if size < 2 or at + size > len(data):
            raise FormatError(f"expected a message of 2 to {len(data) - at} bytes, found {size}")
        yield data[at + 1], data[at + 2 : at + size]
        at += size
