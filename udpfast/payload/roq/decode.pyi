from typing import NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from udpfast.core.layout import Kind, RecordFlag
from udpfast.market.found import Outcome
from udpfast.market.names import NameTable

__all__ = ["Decoded", "Decoder", "decode", "size_bound"]

class Decoded(NamedTuple):
    kind: Kind | Outcome
    payload: bytes
    flags: RecordFlag
    message_type: int
    exchange_id: int
    symbol_id: int
    fields_unknown: int
    truncated: int
    names_full: int
    names_long: int

@final
class Decoder:
    def __new__(cls, names: NameTable, *, support_mask: int = 255) -> Self: ...
    def decode(self, payload: Buffer, *, room: int | None = None) -> Decoded: ...
    def decode_into(self, payload: Buffer, into: Buffer | NDArray[np.uint8]) -> int: ...

def decode(
    payload: Buffer, names: NameTable, *, support_mask: int = 255, room: int | None = None
) -> Decoded: ...
def size_bound(payload_size: int) -> int: ...
