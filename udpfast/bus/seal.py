"""Prove that bytes come from a host that has the bus's key, and that they come once and in order.

A link (`LinkSeal`) begins with 16 random bytes from each end. Sealed pieces follow:

    0        4              20
    +--------+--------------+------------------+
    | length | tag          | `length` bytes   |
    +--------+--------------+------------------+

The tag is the first 16 bytes of the HMAC-SHA256 of the piece's number and its bytes. Its key is
derived from the bus's key, both random numbers and the direction, so that a piece of another link,
place or direction has another tag. A datagram ends with

    +---------+--------+-----+
    | session | number | tag |
    +---------+--------+-----+
    0         8        16    32

session is the time at which the daemon of the sending host began (UNIX ns), number the datagram's
number since then.

Of two keys the first one seals, and both are accepted. To exchange a key, add the new one behind
the old one on every host, then put it first on every host, then remove the old one.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence

__all__ = ["NONCE_SIZE", "DatagramSeal", "UnauthenticError"]

NONCE_SIZE = 16
TAG_SIZE = 16
#: How far a datagram may be overtaken by later ones.
WINDOW = 4096

_PLACE = struct.Struct("<QQ")


class UnauthenticError(ValueError):
    """Bytes are not from a host that has the key, or were received before."""


def _tag(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), "sha256")[:TAG_SIZE]


class DatagramSeal:
    """Seal a host's datagrams to others, and check theirs.

    Parameters
    ----------
    keys : sequence of bytes
        Keys of the bus, one or two.
    session : int
        When this daemon began, UNIX ns; it grows with each start.
    """

    def __init__(self, keys: Sequence[bytes], session: int) -> None:
        self._keys = [hmac.digest(key, b"udpfast bus datagram", "sha256") for key in keys]
        self._session = session
        self._number = 0
        self._seen: dict[str, tuple[int, int, int]] = {}  # session, highest, earlier ones

    def wrap(self, data: bytes, to: str) -> bytes:
        """Return a datagram sealed for the host at an address."""
        self._number += 1
        place = _PLACE.pack(self._session, self._number)
        return b"".join([data, place, _tag(self._keys[0], to.encode(), data, place)])

    def unwrap(self, data: bytes, sender: str, to: str) -> bytes:
        """Return the contents of a datagram that one address sent to another.

        Raises
        ------
        UnauthenticError
            It was sealed without the key, or was received before.
        """
        size = len(data) - _PLACE.size - TAG_SIZE
        if size < 0:
            raise UnauthenticError("a datagram without a tag")
        content, place, tag = data[:size], data[size:-TAG_SIZE], data[-TAG_SIZE:]
        if not any(
            hmac.compare_digest(tag, _tag(key, to.encode(), content, place)) for key in self._keys
        ):
            raise UnauthenticError("a datagram that was not sealed with a key of this host")
        self._check_place(sender, *_PLACE.unpack(place))
        return content

    def _check_place(self, sender: str, session: int, number: int) -> None:
        known, highest, before = self._seen.get(sender, (0, 0, 0))
        if session < known:
            raise UnauthenticError("a datagram from a daemon that has ended")
        if session > known:
            highest = before = 0
        if number > highest:
            ahead = number - highest
            before = before << ahead | 1 << ahead - 1 if highest and ahead <= WINDOW else 0
            self._seen[sender] = session, number, before & (1 << WINDOW) - 1
            return
        bit = highest - number - 1
        if bit < 0 or bit >= WINDOW or before >> bit & 1:
            raise UnauthenticError("a datagram that arrived before, or too late")
        self._seen[sender] = session, highest, before | 1 << bit
