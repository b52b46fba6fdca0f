"""What the feed says of itself, read by a format of its own: numbers as they are on the wire."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from udpfast.feed.pipeline import FeedMessage
    from udpfast.market.gate import ObjectGate, ObjectOutput

__all__ = ["SaidGap", "SaidSession", "admitted", "gap_of", "session_of"]

_WRAP = 1 << 32
_GAP = struct.Struct("<QQQqII")
_SESSION = struct.Struct("<QQQQIIII")


class SaidGap(NamedTuple):
    """The payload of a GAP."""

    first: int
    last: int
    lost: int
    reason: int
    waited_ns: int


class SaidSession(NamedTuple):
    """The payload of a SESSION."""

    old: int
    new: int
    reason: int
    first: int
    unseen: int


def gap_of(message: FeedMessage) -> SaidGap:
    """Read a GAP."""
    first, last, count, waited_ns, reason, _ = _GAP.unpack(message.payload)
    return SaidGap(first % _WRAP, last % _WRAP, count, reason, waited_ns)


def session_of(message: FeedMessage) -> SaidSession:
    """Read a SESSION."""
    old, new, first, unseen, reason, *_ = _SESSION.unpack(message.payload)
    return SaidSession(old, new, reason, first % _WRAP, unseen)


def admitted(gate: ObjectGate, message: FeedMessage, *, gated: bool = True) -> list[ObjectOutput]:
    """Hand a feed's message to the gate of its objects; return what that lets pass."""
    return gate.admit(
        kind=message.kind,
        channel=message.channel,
        flags=message.flags,
        object_type=message.object_type,
        object_id=message.object_id,
        seqno=message.seqno,
        last_seqno=message.last_seqno,
        session_id=message.session_id,
        payload=message.payload,
        gated=gated,
    )
