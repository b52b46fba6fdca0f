"""Proof that bytes come from a host that has the bus's key, and come once, in order.

A link begins with 16 random bytes from either end. What follows goes in sealed pieces:

    0        4              20
    +--------+--------------+------------------+
    | length | tag          | `length` bytes   |
    +--------+--------------+------------------+

The tag is the beginning of HMAC-SHA256 over the piece's number and its bytes, by a key that is made
of the bus's key, both random numbers and the direction: a piece of another link, another place or
the other end has another tag. A datagram carries at its end

    +---------+--------+-----+
    | session | number | tag |
    +---------+--------+-----+
    0         8        16    32

the time at which its host's daemon began (UNIX ns) and its number there.

Of two keys the first one seals, and both are believed: keys are exchanged by adding the new one
behind the old one everywhere, then putting it first everywhere, then removing the old one.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence

__all__ = ["NONCE_SIZE", "DatagramSeal", "LinkSeal", "UnauthenticError"]

NONCE_SIZE = 16
TAG_SIZE = 16
#: Bytes of a piece: more would keep the other end waiting for the tag to be right.
PIECE_MAX = 1 << 16
#: Datagrams that may overtake each other.
WINDOW = 4096

_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_PLACE = struct.Struct("<QQ")


class UnauthenticError(ValueError):
    """Bytes are not from a host that has the key, or came before."""


def _tag(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), "sha256")[:TAG_SIZE]


class LinkSeal:
    """One end of a link.

    Parameters
    ----------
    keys : sequence of bytes
        Of the bus: one or two.
    nonce : bytes
        `NONCE_SIZE` random bytes, drawn for this link.
    began : bool
        This end began the link; it chooses the key, the other end follows.
    """

    def __init__(self, keys: Sequence[bytes], nonce: bytes, *, began: bool) -> None:
        self._keys = keys
        self._nonce = nonce
        self._began = began
        self._received = bytearray()
        self._waiting = bytearray()  # what cannot be sealed yet
        self._key: bytes | None = keys[0] if began else None
        self._other: bytes | None = None  # its nonce
        self._sent = self._taken = 0
        self._greeted = False

    def wrap(self, data: bytes) -> bytes:
        """Return what is to be sent, so that the other end gets `data`: maybe less, for now."""
        self._waiting += data
        out = b"" if self._greeted else self._nonce
        self._greeted = True
        if self._key is None or self._other is None:
            return out
        pieces = [out]
        key = self._of(self._key, self._began)
        for at in range(0, len(self._waiting), PIECE_MAX):
            piece = bytes(self._waiting[at : at + PIECE_MAX])
            tag = _tag(key, _NUMBER.pack(self._sent), piece)
            self._sent += 1
            pieces += [_LENGTH.pack(len(piece)), tag, piece]
        self._waiting.clear()
        return b"".join(pieces)

    def unwrap(self, data: bytes) -> bytes:
        """Return what the other end sent, as far as it is there and proven.

        Raises
        ------
        UnauthenticError
            It is not from a host that has the key, or not what comes next.
        """
        self._received += data
        if self._other is None:
            if len(self._received) < NONCE_SIZE:
                return b""
            self._other = bytes(self._received[:NONCE_SIZE])
            del self._received[:NONCE_SIZE]
        found = []
        while len(self._received) >= _LENGTH.size + TAG_SIZE:
            (size,) = _LENGTH.unpack_from(self._received)
            if not 0 < size <= PIECE_MAX:
                raise UnauthenticError(f"expected a piece of 1 to {PIECE_MAX} bytes, found {size}")
            end = _LENGTH.size + TAG_SIZE + size
            if len(self._received) < end:
                break
            tag = bytes(self._received[_LENGTH.size : _LENGTH.size + TAG_SIZE])
            piece = bytes(self._received[_LENGTH.size + TAG_SIZE : end])
            self._check(tag, piece)
            found.append(piece)
            del self._received[:end]
        return b"".join(found)

    def _check(self, tag: bytes, piece: bytes) -> None:
        for key in self._keys if self._key is None else (self._key,):
            expected = _tag(self._of(key, not self._began), _NUMBER.pack(self._taken), piece)
            if hmac.compare_digest(tag, expected):
                self._key = key
                self._taken += 1
                return
        raise UnauthenticError("a piece that no key of this host seals so, here")

    def _of(self, key: bytes, by_who_began: bool) -> bytes:
        assert self._other is not None
        first, second = (self._nonce, self._other) if self._began else (self._other, self._nonce)
        return hmac.digest(key, b"udpfast bus link" + bytes([by_who_began]) + first + second,
                           "sha256")  # fmt: skip


class DatagramSeal:
    """A host's datagrams to others, and theirs to it.

    Parameters
    ----------
    keys : sequence of bytes
        Of the bus: one or two.
    session : int
        UNIX ns: when this daemon began. It grows with each.
    """

    def __init__(self, keys: Sequence[bytes], session: int) -> None:
        self._keys = [hmac.digest(key, b"udpfast bus datagram", "sha256") for key in keys]
        self._session = session
        self._number = 0
        self._seen: dict[str, tuple[int, int, int]] = {}  # session, highest number, those before it

    def wrap(self, data: bytes, to: str) -> bytes:
        """Return a datagram as it is sent to a host, by its address."""
        self._number += 1
        place = _PLACE.pack(self._session, self._number)
        return b"".join([data, place, _tag(self._keys[0], to.encode(), data, place)])

    def unwrap(self, data: bytes, sender: str, to: str) -> bytes:
        """Return what a host sent to this one, both by their addresses.

        Raises
        ------
        UnauthenticError
            It has not the key; or the datagram came before.
        """
        size = len(data) - _PLACE.size - TAG_SIZE
        if size < 0:
            raise UnauthenticError("a datagram without a tag")
        content, place, tag = data[:size], data[size:-TAG_SIZE], data[-TAG_SIZE:]
        if not any(
            hmac.compare_digest(tag, _tag(key, to.encode(), content, place)) for key in self._keys
        ):
            raise UnauthenticError("a datagram that no key of this host seals so")
        self._check_place(sender, *_PLACE.unpack(place))
        return content

    def _check_place(self, sender: str, session: int, number: int) -> None:
        known, highest, before = self._seen.get(sender, (0, 0, 0))
        if session < known:
            raise UnauthenticError("a datagram of a daemon that is over")
        if session > known:
            highest = before = 0
        if number > highest:
            ahead = number - highest
            before = before << ahead | 1 << ahead - 1 if highest and ahead <= WINDOW else 0
            self._seen[sender] = session, number, before & (1 << WINDOW) - 1
            return
        bit = highest - number - 1
        if bit < 0 or bit >= WINDOW or before >> bit & 1:
            raise UnauthenticError("a datagram that came before, or is too late")
        self._seen[sender] = session, highest, before | 1 << bit
