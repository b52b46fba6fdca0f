"""Datagrams by hand: whole messages to lists of datagrams, in both revisions, good and bad.

Shares nothing with `feed.publication`: tests of either side stay independent of the other.
"""

import struct

__all__ = ["FRAGMENT_SIZE", "HEADER_SIZE", "datagram", "datagrams", "heartbeat"]

HEADER_SIZE = 16
FRAGMENT_SIZE = 512

_SNAPSHOT = 0x10
_HEADER = {"little": struct.Struct("<BBBBHHII"), "big": struct.Struct(">BBBBHHII")}


def datagram(
    payload: bytes = b"",
    *,
    session_id: int = 1,
    seqno: int = 0,
    last_seqno: int = 0,
    object_type: int = 0,
    object_id: int = 0,
    fragment: int = 0,
    fragment_max: int = 0,
    control: int = 2,
    byteorder: str = "little",
) -> bytes:
    """Return one datagram; nothing is checked, so that wrong ones can be built too.

    Parameters
    ----------
    seqno, last_seqno : int
        Taken modulo 2^32.
    control : int
        The first byte as it goes over the wire.
    """
    return (
        _HEADER[byteorder].pack(
            control,
            fragment,
            fragment_max,
            object_type,
            object_id,
            session_id,
            seqno & 0xFFFFFFFF,
            last_seqno & 0xFFFFFFFF,
        )
        + payload
    )


def datagrams(
    payload: bytes,
    *,
    session_id: int = 1,
    seqno: int = 0,
    last_seqno: int = 0,
    object_type: int = 0,
    object_id: int = 0,
    snapshot: bool = False,
    encoding: int = 2,
    revision: str = "current",
    byteorder: str = "little",
) -> list[bytes]:
    """Return the datagrams of one message: fragments of 512 bytes, the last one with the rest.

    The older revision has no snapshot flag: the whole first byte is the encoding
    (docs/protocol.md).
    """
    control = encoding
    if snapshot and revision == "current":
        control |= _SNAPSHOT
    starts = range(0, len(payload) or 1, FRAGMENT_SIZE)
    if len(starts) > 256:
        raise ValueError(f"a message has at most 131072 bytes, was {len(payload)}")
    return [
        datagram(
            payload[start : start + FRAGMENT_SIZE],
            session_id=session_id,
            seqno=seqno,
            last_seqno=last_seqno,
            object_type=object_type,
            object_id=object_id,
            fragment=number,
            fragment_max=len(starts) - 1,
            control=control,
            byteorder=byteorder,
        )
        for number, start in enumerate(starts)
    ]


def heartbeat(*, session_id: int = 1, seqno: int = 0, byteorder: str = "little") -> bytes:
    """Return a heartbeat: object type 0, no payload, a seqno of its own."""
    return datagram(session_id=session_id, seqno=seqno, byteorder=byteorder)
