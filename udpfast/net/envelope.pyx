"""Messages of the ZeroMQ fan-out in Python, for tools, tests and other subscribers.

`envelope.pxd` has the layout, and docs/zmq.md describes it byte by byte.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from udpfast.errors import FormatError

__all__ = [
    "ENVELOPE_DTYPE", "TOPIC_SIZE_MAX", "EnvelopeType", "Message",
    "pack_names", "unpack", "unpack_names",
]

if sizeof(Envelope) != ENVELOPE_SIZE:
    raise ImportError(f"Envelope has {sizeof(Envelope)} bytes, not {ENVELOPE_SIZE}")

#: The envelope as a numpy dtype.
ENVELOPE_DTYPE: np.dtype[Any] = np.dtype([
    ("magic", "<u4"), ("version", "u1"), ("type", "u1"), ("heartbeat_ms", "<u2"), ("layout", "<u8"),
    ("ring", "<u8"), ("epoch", "<u8"), ("began", "<u8"), ("began_at", "<u8"), ("stream", "<u8"),
    ("sequence", "<u8"), ("unseen", "<u8"), ("index", "<u8"), ("tail", "<u8"), ("count", "<u4"),
    ("table", "<u4"), ("names", "<u4"), ("last", "<u4"),
])

#: Most bytes that a topic may have.
TOPIC_SIZE_MAX: int = LONGEST_TOPIC

_NAME_SIZE = struct.Struct("<H")
_FIRST_ID = struct.Struct("<I")


class EnvelopeType(IntEnum):
    """The type of a message of the fan-out."""

    RECORDS = ENVELOPE_RECORDS
    LAST = ENVELOPE_LAST
    NAMES = ENVELOPE_NAMES
    BEGIN = ENVELOPE_BEGIN
    ALIVE = ENVELOPE_ALIVE
    END = ENVELOPE_END
    REFUSED = ENVELOPE_REFUSED
    FAILED = ENVELOPE_FAILED


class Message(NamedTuple):
    """The parts of a message.

    Attributes
    ----------
    topic : bytes
        The subscription that it belongs to.
    answer : bool
        True: it answers one subscriber; False: it is for all subscribers of the topic.
    envelope : numpy.void
        The envelope, dtype `ENVELOPE_DTYPE`.
    body : bytes
        The bytes behind the envelope.
    """

    topic: bytes
    answer: bool
    envelope: np.void
    body: bytes


def unpack(message) -> Message:
    """Split a message of the fan-out into its parts.

    Raises
    ------
    FormatError
        It is not such a message, or of another version; states what was expected and found.
    """
    data = bytes(message)
    end = next((i for i, byte in enumerate(data) if byte <= TOPIC_ANSWER), len(data))
    cdef Envelope envelope
    cdef const uint8_t[::1] view = data or b"\0"
    if envelope_read(&view[0], len(data), end, &envelope) < 0:
        raise FormatError(
            f"expected a message of the fan-out (magic {ENVELOPE_MAGIC:08x}, version "
            f"{ENVELOPE_VERSION}), found {len(data)} bytes with magic {envelope.magic:08x}, "
            f"version {envelope.version}")
    start = end + 1
    return Message(
        data[:end], data[end] == TOPIC_ANSWER,
        np.frombuffer(data, ENVELOPE_DTYPE, 1, start)[0], data[start + ENVELOPE_SIZE:])


def pack_names(first_id: int, names: Iterable[bytes]) -> bytes:
    """Return the body of a NAMES message for names (bytes) with consecutive ids."""
    return _FIRST_ID.pack(first_id) + b"".join(_NAME_SIZE.pack(len(n)) + n for n in names)


def unpack_names(body, count: int) -> tuple[int, list[bytes]]:
    """Split the body of a NAMES message.

    Returns
    -------
    tuple of (int, list of bytes)
        The first id, and the `count` names with ids from it on.

    Raises
    ------
    FormatError
        The body is shorter or longer than its names are.
    """
    names = []
    at = _FIRST_ID.size
    try:
        first_id, = _FIRST_ID.unpack_from(body)
        for _ in range(count):
            size, = _NAME_SIZE.unpack_from(body, at)
            at += _NAME_SIZE.size
            names.append(bytes(body[at:at + size]))
            at += size
    except struct.error:
        at = len(body) + 1
    if at != len(body):
        raise FormatError(f"expected {count} names, found {len(body)} bytes that hold "
                          f"{'fewer' if at > len(body) else 'more'}")
    return first_id, names
