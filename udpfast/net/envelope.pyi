from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "ENVELOPE_DTYPE",
    "TOPIC_SIZE_MAX",
    "EnvelopeType",
    "Message",
    "pack_names",
    "unpack",
    "unpack_names",
]

TOPIC_SIZE_MAX: int
ENVELOPE_DTYPE: np.dtype[Any]

class EnvelopeType(IntEnum):
    RECORDS = 1
    LAST = 2
    NAMES = 3
    BEGIN = 4
    ALIVE = 5
    END = 6
    REFUSED = 7
    FAILED = 8

class Message(NamedTuple):
    topic: bytes
    answer: bool
    envelope: Any
    body: bytes

def unpack(message: Any) -> Message: ...
def pack_names(first_id: int, names: Iterable[bytes]) -> bytes: ...
def unpack_names(body: Any, count: int) -> tuple[int, list[bytes]]: ...
