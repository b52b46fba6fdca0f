"""What sender and listener say to each other besides probes and echoes: bytes, and no socket.

`layout.pxd` shows the header. What a stranger sends is refused by a FormatError, and costs no more
than reading 1200 bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import IntEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from udpfast.errors import FormatError

__all__ = [
    "ANSWER_PROBES",
    "CONTROL_BYTES",
    "HEADER",
    "LINE_NAME",
    "REPORT_INDEX",
    "Clock",
    "Header",
    "Hello",
    "ProbeKind",
    "Refused",
    "Report",
    "Welcome",
    "cookie_of",
    "decode_body",
    "encode",
    "parse_header",
]

HEADER = struct.Struct("<IBBHQQQqqqQ")  # struct ProbeHeader
MAGIC = 0x31574655
#: Each greeting and question has as many; no answer has more.
CONTROL_BYTES = 1200
#: Probes whose arrival one answer tells.
ANSWER_PROBES = 8 * 1024
#: A question with this index asks for the report.
REPORT_INDEX = (1 << 64) - 1

#: What a line may be called: it is shown at the other end, in terminals and pages.
LINE_NAME = r"\A[A-Za-z0-9_-]{1,32}\Z"

_Body = TypeVar("_Body")
_Int64 = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]


class ProbeKind(IntEnum):
    """What a datagram is; as in `layout.pxd`."""

    HELLO = 1
    CHALLENGE = 2
    WELCOME = 3
    REFUSED = 4
    PROBE = 5
    ECHO = 6
    ASK = 7
    ANSWER = 8
    REPORT = 9
    BYE = 10


class Clock(msgspec.Struct, frozen=True):
    """How good a host's clock is, as `host.read_clock` found it, and which host it is.

    Attributes
    ----------
    host : str
        A hash of the boot: two ends with the same one have the same clock.
    source, text : str
    synchronised : bool
    error_ns : int or None
    """

    host: Annotated[str, Meta(max_length=64)] = ""
    source: Annotated[str, Meta(max_length=32)] = "none"
    synchronised: bool = False
    error_ns: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None
    text: Annotated[str, Meta(max_length=200)] = ""


class Hello(msgspec.Struct, frozen=True):
    """What a sender wants to measure.

    Attributes
    ----------
    to : str
        The address that the sender sends to: echoes come from there.
    name : str
        Of the line.
    probes, size : int
        How many there will be on each line, and bytes of each.
    rate : float
        Probes per second.
    train : int
    clock : Clock
        How good the sender's clock is.
    """

    to: Annotated[str, Meta(max_length=64)]
    name: Annotated[str, Meta(pattern=LINE_NAME)]
    probes: Annotated[int, Meta(ge=1, le=1 << 26)]
    size: Annotated[int, Meta(ge=64, le=2048)]
    rate: Annotated[float, Meta(gt=0, le=1e9)]
    train: Annotated[int, Meta(ge=1, le=64)]
    clock: Clock


class Welcome(msgspec.Struct, frozen=True):
    """The listener takes part. `clock`: how good its clock is."""

    clock: Clock


class Refused(msgspec.Struct, frozen=True):
    """The listener does not take part, and why."""

    reason: Annotated[str, Meta(max_length=200)]


class Report(msgspec.Struct, frozen=True):
    """What the listener counted on a line, who made its stamps, and when it began.

    `began`: the number of the first probe that it can have had; those before it had left.
    """

    stamps: Annotated[str, Meta(max_length=64)]
    arrivals: _Int64
    distinct: _Int64
    duplicates: _Int64
    reordered: _Int64
    unsent: _Int64
    strangers: _Int64
    malformed: _Int64
    kernel_drops: _Int64
    nic_stamps: _Int64
    began: _Int64 = 0


class Header(Struct, frozen=True):
    """The header of a datagram that is no probe."""

    kind: ProbeKind
    line: int
    nonce: int
    cookie: int = 0
    index: int = 0
    arrival: int = 0


def encode(header: Header, body: msgspec.Struct | bytes = b"", *, padded: bool = False) -> bytes:
    """Return the bytes of a datagram; `padded`: as long as the longest answer to it."""
    text = body if isinstance(body, bytes) else msgspec.json.encode(body)
    fields = (header.line, 0, header.nonce, header.cookie, header.index, 0, 0, 0, header.arrival)
    made = HEADER.pack(MAGIC, header.kind, *fields) + text
    if len(made) > CONTROL_BYTES:
        raise FormatError(f"a datagram of {len(made)} bytes, at most {CONTROL_BYTES}")
    return made.ljust(CONTROL_BYTES, b"\0") if padded else made


def parse_header(data: bytes) -> Header:
    """Return the header of a datagram.

    Raises
    ------
    FormatError
        It is not one of ours.
    """
    if not HEADER.size <= len(data) <= CONTROL_BYTES:
        raise FormatError(f"expected {HEADER.size} to {CONTROL_BYTES} bytes, found {len(data)}")
    magic, kind, line, _, nonce, cookie, index, _, _, _, arrival = HEADER.unpack_from(data)
    if magic != MAGIC or kind not in ProbeKind._value2member_map_:
        raise FormatError(f"expected magic {MAGIC:#x} and a kind, found {magic:#x} and {kind}")
    return Header(ProbeKind(kind), line, nonce, cookie, index, arrival)


def decode_body(data: bytes, kind: type[_Body]) -> _Body:
    """Return what stands behind the header.

    Raises
    ------
    FormatError
        It is not a text of this kind.
    """
    try:
        return msgspec.json.decode(data[HEADER.size :].rstrip(b"\0"), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"expected a {kind.__name__}, found {error}") from None


def cookie_of(secret: bytes, address: object, nonce: int, line: int) -> int:
    """Return what only those can know who receive at `address`; never 0."""
    text = repr((address, nonce, line)).encode()
    return int.from_bytes(hmac.new(secret, text, hashlib.sha256).digest()[:8], "little") | 1
