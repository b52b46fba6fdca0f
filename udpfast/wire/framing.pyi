from enum import IntEnum, IntFlag
from typing import NamedTuple, final

from typing_extensions import Buffer

from udpfast.errors import FormatError
from udpfast.wire.facts import FramingFacts

__all__ = [
    "FRAMINGS",
    "Framing",
    "Malformed",
    "MalformedError",
    "NumberedMessage",
    "ParsedUnit",
    "UnitFlag",
]

FRAMINGS: tuple[str, ...]

class Malformed(IntEnum):
    HEADER_SHORT = -1
    TOO_LONG = -2
    VERSION = -3
    KIND = -4
    LENGTH_BEYOND = -5
    LENGTH_BELOW = -6
    COUNT_AND_BYTES = -7
    MESSAGE_SHORT = -8
    MESSAGE_BEYOND = -9
    RANGE = -10
    UNITS_MANY = -11
    FRAGMENT_BEYOND = -12
    FRAGMENT_SHORT = -13

class MalformedError(FormatError):
    reason: Malformed
    def __init__(self, framing: str, size: int, reason: Malformed) -> None: ...

class UnitFlag(IntFlag):
    HEARTBEAT = 1
    SNAPSHOT = 2
    RETRANSMISSION = 4
    UNSEQUENCED = 8
    RESET = 16
    START_OF_SESSION = 32
    END_OF_SESSION = 64

class ParsedUnit(NamedTuple):
    stream: int
    session: int
    number: int
    count: int  # type: ignore[assignment]  # hides tuple.count, as meant
    flags: UnitFlag
    fragment: int
    fragments: int
    messages: int
    offset: int
    size: int
    sent_ns: int
    object: int
    detail: int
    encoding: int

class NumberedMessage(NamedTuple):
    number: int
    data: bytes

@final
class Framing:
    facts: FramingFacts
    index: int
    def __init__(self, name: str) -> None: ...
    @property
    def name(self) -> str: ...
    def label(self, unit: ParsedUnit) -> str: ...
    def units(self, datagram: Buffer) -> list[ParsedUnit]: ...
    def messages(self, datagram: Buffer) -> list[NumberedMessage]: ...
