import enum
from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "SENT_SIZE_LIMIT",
    "Link",
    "LinkType",
    "Refusal",
    "SendFlag",
    "Sent",
    "epoch_after",
    "link_frame",
    "link_parse",
    "name_bytes",
    "name_text",
    "send_datagram",
    "send_parse",
]

SENT_SIZE_LIMIT: int

class LinkType(enum.IntEnum):
    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    SEGMENT = 4
    DATA = 5
    ACK = 6
    HEARTBEAT = 7
    BYE = 8
    ASK = 9
    ANSWER = 10
    NAMES = 11

class SendFlag(enum.IntFlag):
    REGISTER = 1
    REFUSED = 2

class Refusal(enum.IntEnum):
    EPOCH = 1
    INCARNATION = 2
    NAME_IN_USE = 3
    SENDERS_FULL = 4

class Link(NamedTuple):
    type: LinkType
    position: int
    epoch: int
    body: bytes

class Sent(NamedTuple):
    flags: SendFlag
    store_key: int
    epoch: int
    sender: int
    incarnation: int
    first: int
    number: int
    messages: list[tuple[int, bytes]]
    body: bytes

def link_frame(type: int, position: int = 0, epoch: int = 0, body: bytes = b"") -> bytes: ...
def link_parse(data: bytes) -> tuple[Link, int] | None: ...
def send_datagram(
    store_key: int,
    epoch: int,
    sender: int,
    incarnation: int,
    first: int,
    number: int,
    messages: Sequence[tuple[int, bytes]] = (),
    *,
    flags: int = 0,
    body: bytes = b"",
) -> bytes: ...
def send_parse(data: bytes) -> Sent: ...
def epoch_after(epoch: int, random: int, *, promoted: bool) -> int: ...
def name_bytes(name: str) -> bytes: ...
def name_text(content: bytes) -> str: ...
