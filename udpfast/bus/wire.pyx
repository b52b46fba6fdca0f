"""The bus's frames and datagrams in Python. Their layouts are in `wire.pxd`."""

import enum
import struct
from typing import NamedTuple


__all__ = [
    "SENT_SIZE_LIMIT", "Link", "LinkType", "Refusal",
    "SendFlag", "Sent", "epoch_after", "link_frame", "link_parse", "name_bytes",
    "name_text", "send_datagram", "send_parse",
]

for _what, _size, _expected in (
    ("LinkHeader", sizeof(LinkHeader), LINK_HEADER_SIZE),
    ("Progress", sizeof(Progress), 48),
    ("SendHeader", sizeof(SendHeader), SEND_HEADER_SIZE),
    ("Registration", sizeof(Registration), 72),
    ("EpochBegin", sizeof(EpochBegin), 64),
):
    if _size != _expected:
        raise ImportError(f"{_what} has {_size} bytes, not {_expected}")

#: Size of the largest message that `send` accepts; it must fit one datagram.
SENT_SIZE_LIMIT: int = SENT_SIZE_MAX

_LINK = struct.Struct("<IBBHIIQQ")
_SEND = struct.Struct("<IBBHQQIIQQ")
_MESSAGE = struct.Struct("<HH")


class LinkType(enum.IntEnum):
    """The type of a frame."""

    HELLO = LINK_HELLO
    WELCOME = LINK_WELCOME
    REFUSE = LINK_REFUSE
    SEGMENT = LINK_SEGMENT
    DATA = LINK_DATA
    ACK = LINK_ACK
    HEARTBEAT = LINK_HEARTBEAT
    BYE = LINK_BYE
    ASK = LINK_ASK
    ANSWER = LINK_ANSWER
    NAMES = LINK_NAMES


class SendFlag(enum.IntFlag):
    """Bits of a datagram's `flags`."""

    REGISTER = SEND_REGISTER
    REFUSED = SEND_REFUSED


class Refusal(enum.IntEnum):
    """Why the sequencer refuses a datagram."""

    EPOCH = REFUSED_EPOCH
    INCARNATION = REFUSED_INCARNATION
    NAME_IN_USE = REFUSED_NAME_IN_USE
    SENDERS_FULL = REFUSED_SENDERS_FULL


class Link(NamedTuple):
    """A frame of a link.

    Attributes
    ----------
    type : LinkType
    position, epoch : int
    body : bytes
    """

    type: LinkType
    position: int
    epoch: int
    body: bytes


class Sent(NamedTuple):
    """A datagram to the sequencer, or its refusal.

    Attributes
    ----------
    flags : SendFlag
    store_key, epoch, sender, incarnation, first, number : int
    messages : list of (int, bytes)
        Type and payload; empty if `flags` are set.
    body : bytes
    """

    flags: SendFlag
    store_key: int
    epoch: int
    sender: int
    incarnation: int
    first: int
    number: int
    messages: list[tuple[int, bytes]]
    body: bytes


def link_frame(int type, uint64_t position=0, uint64_t epoch=0, body: bytes = b"") -> bytes:
    """Return a frame. The body is padded with zeros to a multiple of 8 bytes.

    Raises
    ------
    ValueError
        The body is larger than a frame allows.
    """
    cdef LinkHeader header
    cdef bytes content = bytes(body)
    content += bytes((8 - len(content) % 8) % 8)
    if len(content) > LINK_BODY_MAX:
        raise ValueError(f"a body must have at most {LINK_BODY_MAX} bytes, has {len(content)}")
    link_header(&header, type, <uint32_t>len(content), position, epoch,
                <const uint8_t*><const char*>content)
    return (<char*>&header)[:LINK_HEADER_SIZE] + content


def link_parse(data: bytes) -> tuple[Link, int] | None:
    """Return the frame at the beginning of some bytes, and its size; None: it is incomplete.

    Raises
    ------
    ValueError
        The bytes are not a frame.
    """
    cdef bytes content = bytes(data)
    cdef int64_t size = link_look(<const uint8_t*><const char*>content, len(content))
    if size < 0:
        raise ValueError("not a frame of the bus")
    if size == 0:
        return None
    _, kind, _, _, _, _, position, epoch = _LINK.unpack_from(content)
    return Link(kind, position, epoch, content[LINK_HEADER_SIZE:size]), size


def send_datagram(
        uint64_t store_key, uint64_t epoch, uint32_t sender, uint32_t incarnation, uint64_t first,
        uint64_t number, messages: Sequence[tuple[int, bytes]] = (), *, flags: int = 0,
        body: bytes = b"") -> bytes:
    """Return a datagram with messages (type, payload), or one with flags and a body."""
    content = bytes(body) or b"".join(
        _MESSAGE.pack(len(payload), kind) + payload for kind, payload in messages)
    return _SEND.pack(SEND_MAGIC, BUS_VERSION, flags, len(messages), store_key, epoch, sender,
                      incarnation, first, number) + content


def send_parse(data: bytes) -> Sent:
    """Return the contents of a datagram.

    Raises
    ------
    ValueError
        It is not a datagram of the bus, or its messages do not fill it exactly.
    """
    cdef bytes content = bytes(data)
    if len(content) < SEND_HEADER_SIZE:
        raise ValueError(
            f"a datagram must have at least {SEND_HEADER_SIZE} bytes, has {len(content)}")
    magic, version, flags, count, *header = _SEND.unpack_from(content)
    if (magic, version) != (SEND_MAGIC, BUS_VERSION):
        raise ValueError("not a datagram of the bus")
    body = content[SEND_HEADER_SIZE:]
    messages = []
    if not flags:
        if send_count(<const uint8_t*><const char*>body, len(body)) != count:
            raise ValueError(f"expected exactly {count} messages in a body of {len(body)} bytes")
        at = 0
        for _ in range(count):
            length, kind = _MESSAGE.unpack_from(body, at)
            at += MESSAGE_HEADER_SIZE
            messages.append((kind, body[at:at + length]))
            at += length
    return Sent(SendFlag(flags), *header, messages, body)


def epoch_after(uint64_t epoch, uint64_t random, *, promoted: bool) -> int:
    """Return a later epoch: that of a promoted host, or of the same host after a restart.

    An epoch counts promotions in its upper 24 bits and starts since the last one in the next 16;
    the rest is random. So two hosts never have the same one, and however often a host starts that
    does not know of a promotion, the epoch of the promoted host is higher.
    """
    cdef int shift = 40 if promoted else 24
    return (((epoch >> shift) + 1) << shift) | random & 0xFFFFFF


def name_bytes(str name) -> bytes:
    """Return a name as the bus's structs store it: UTF-8, padded with zeros to 32 bytes.

    Raises
    ------
    ValueError
        It is empty, or longer than 31 bytes of UTF-8.
    """
    content = name.encode()
    if not 0 < len(content) < NAME_SIZE or b"\0" in content:
        raise ValueError(f"a name must have 1 to {NAME_SIZE - 1} bytes of UTF-8, was {name!r}")
    return content.ljust(NAME_SIZE, b"\0")


def name_text(content: bytes) -> str:
    """Return the name that `name_bytes` was given."""
    return bytes(content).rstrip(b"\0").decode(errors="replace")
