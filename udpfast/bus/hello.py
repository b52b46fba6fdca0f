"""The frames that begin a link or refuse one: their bodies."""

from __future__ import annotations

import enum
import struct
from typing import Any

from msgspec import Struct

from udpfast.bus.lineage import Lineage
from udpfast.bus.wire import name_bytes, name_text

__all__ = ["Answer", "Hello", "Refuse", "RefuseReason", "Welcome"]

#: Most epochs in a HELLO: more than a replica misses while it is down for a day.
LINEAGE_SENT = 16

_HELLO = struct.Struct("<16sQQQQIIQ32sII")
_WELCOME = struct.Struct("<16sQQQQQQIIQ32s32s")
_REFUSE = struct.Struct("<IIQIIQ")
_FENCED = struct.Struct("<QQQQQII32s16s")


class Hello(Struct, frozen=True):
    """The copy that asks, its end, and its epochs.

    Attributes
    ----------
    identity : bytes
        Identity of the store; zeros: the copy is new.
    layout_hash : int
        Hash of the layouts of the records.
    position, index : int
        End of the copy.
    last : (int, int) or None
        Position and checksum of its last record.
    any_source : bool
        It follows this host, whether that is the store's writer or a replica.
    drain : bool
        Its host is taking over and wants the records that this host has of an ended epoch.
    nonce : int
        Random number drawn for the link.
    host : str
        The copy's host.
    lineage : tuple of (int, int)
        Its latest epochs: number and position of each.
    """

    identity: bytes
    layout_hash: int
    position: int
    index: int
    last: tuple[int, int] | None
    any_source: bool
    drain: bool
    nonce: int
    host: str
    lineage: tuple[tuple[int, int], ...]

    def pack(self) -> bytes:
        """Return the body of a HELLO."""
        pairs = self.lineage[-LINEAGE_SENT:]
        position, checksum = self.last or (0, 0)
        flags = (self.last is not None) | self.any_source << 1 | self.drain << 2
        return _HELLO.pack(
            self.identity, self.layout_hash, self.position, self.index, position, checksum, flags,
            self.nonce, name_bytes(self.host), len(pairs), 0,
        ) + Lineage(pairs).pack()  # fmt: skip

    @staticmethod
    def unpack(body: bytes) -> Hello:
        """Return the HELLO in a frame's body.

        Raises
        ------
        ValueError
            The body is too short.
        """
        identity, layout, position, index, at, checksum, flags, nonce, host, count, _ = _unpack(
            _HELLO, body
        )
        last = (at, checksum) if flags & 1 else None
        pairs = tuple(Lineage.unpack(_pairs(body, _HELLO.size, count)).pairs)
        return Hello(
            identity, layout, position, index, last, bool(flags & 2), bool(flags & 4), nonce,
            name_text(host), pairs,
        )  # fmt: skip


class Welcome(Struct, frozen=True):
    """The source's range and its epochs.

    Attributes
    ----------
    identity : bytes
    identity : bytes
        Identity of the store.
    first, first_index : int
        Position and index of the oldest record that the source has.
    end, synced, released, kept : int
        As in `Progress`.
    nonce : int
        Random number drawn for the link.
    host : str
        The source's host.
    writer : str
        The host whose sequencer writes the store, as far as the source knows; empty: unknown.
    lineage : tuple of (int, int)
        All its epochs: number and position of each.
    """

    identity: bytes
    first: int
    first_index: int
    end: int
    synced: int
    released: int
    kept: int
    nonce: int
    host: str
    writer: str
    lineage: tuple[tuple[int, int], ...]

    def pack(self) -> bytes:
        """Return the body of a WELCOME."""
        return _WELCOME.pack(
            self.identity, self.first, self.first_index, self.end, self.synced, self.released,
            self.kept, len(self.lineage), 0, self.nonce, name_bytes(self.host),
            self.writer.encode().ljust(32, b"\0"),
        ) + Lineage(self.lineage).pack()  # fmt: skip

    @staticmethod
    def unpack(body: bytes) -> Welcome:
        """Return the WELCOME in a frame's body.

        Raises
        ------
        ValueError
            The body is too short.
        """
        identity, first, index, end, synced, released, kept, count, _, nonce, host, writer = (
            _unpack(_WELCOME, body)
        )
        pairs = tuple(Lineage.unpack(_pairs(body, _WELCOME.size, count)).pairs)
        return Welcome(
            identity, first, index, end, synced, released, kept, nonce, name_text(host),
            name_text(writer), pairs,
        )  # fmt: skip


class RefuseReason(enum.IntEnum):
    """Why a source does not serve a copy."""

    WRONG_STORE = 1  # another store, or one that was created anew
    LAYOUT = 2  # its records have other layouts
    DIVERGED = 3  # the copy has records that differ from the source's
    GONE = 4  # what the copy needs next was removed
    FENCED = 5  # the source or the copy knows a later epoch
    AUTH = 6
    NAME_IN_USE = 7  # a living link already serves a host of this name
    NOT_WRITER = 8  # the source is a replica, and the copy follows only the writer
    BEHIND = 9  # the source is a replica that lacks records that the copy has
    DAMAGED = 10  # the source's record there is damaged


class Refuse(Struct, frozen=True):
    """Why a source does not serve a copy.

    Attributes
    ----------
    reason : RefuseReason
    at : int
        DIVERGED: the first position that differs; GONE: the first position that is kept; FENCED:
        the epoch; DAMAGED: the position of the damaged record.
    own, other : int
        DIVERGED: checksums of the source's and the copy's record there; 0: missing or removed.
    """

    reason: RefuseReason
    at: int = 0
    own: int = 0
    other: int = 0

    def pack(self) -> bytes:
        """Return the body of a REFUSE."""
        return _REFUSE.pack(self.reason, 0, self.at, self.own, self.other, 0)

    @staticmethod
    def unpack(body: bytes) -> Refuse:
        """Return the REFUSE in a frame's body.

        Raises
        ------
        ValueError
            The body is too short, or the reason is unknown.
        """
        reason, _, at, own, other, _ = _unpack(_REFUSE, body)
        return Refuse(RefuseReason(reason), at, own, other)


class Answer(Struct, frozen=True):
    """State of a host that has promised to take nothing of lower epochs.

    Attributes
    ----------
    promised : int
        The promised epoch: it takes nothing of a lower one.
    epoch : int
        Epoch of its last record.
    end, end_index, released : int
        End of its records, and up to where its readers may see them.
    was_writer : bool
        It was the store's writer when it was asked.
    host : str
        The host that answers.
    identity : bytes
        Identity of its store; zeros: it has none. If it is another store than the one asked about,
        the host has promised nothing.
    """

    promised: int
    epoch: int
    end: int
    end_index: int
    released: int
    was_writer: bool
    host: str
    identity: bytes

    def pack(self) -> bytes:
        """Return the body of an ANSWER."""
        return _FENCED.pack(
            self.promised, self.epoch, self.end, self.end_index, self.released, self.was_writer, 0,
            name_bytes(self.host), self.identity,
        )  # fmt: skip

    @staticmethod
    def unpack(body: bytes) -> Answer:
        """Return the ANSWER in a frame's body.

        Raises
        ------
        ValueError
            The body is too short.
        """
        promised, epoch, end, index, released, was, _, host, identity = _unpack(_FENCED, body)
        return Answer(promised, epoch, end, index, released, bool(was), name_text(host), identity)


def _unpack(what: struct.Struct, body: bytes) -> tuple[Any, ...]:
    if len(body) < what.size:
        raise ValueError(f"expected a body of {what.size} bytes or more, found {len(body)}")
    return what.unpack_from(body)


def _pairs(body: bytes, at: int, count: int) -> bytes:
    if len(body) < at + 16 * count:
        raise ValueError(f"expected {count} epochs, found {(len(body) - at) // 16}")
    return body[at : at + 16 * count]
