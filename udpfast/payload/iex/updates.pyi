from typing import NamedTuple, Self, final

from typing_extensions import Buffer

from udpfast.core.layout import Kind, RecordFlag
from udpfast.market.found import Outcome
from udpfast.market.names import NameTable

__all__ = ["IexDecoded", "IexDecoder"]

class IexDecoded(NamedTuple):
    kind: Kind | Outcome
    payload: bytes
    flags: RecordFlag
    object: int
    exchange_id: int
    symbol_id: int

@final
class IexDecoder:
    def __new__(cls, names: NameTable, *, deep: bool) -> Self: ...
    def session(self, first_number: int, unseen: int = 0, stream: int = 0) -> None: ...
    def gap(self, stream: int = 0) -> None: ...
    def decode(
        self,
        data: Buffer,
        *,
        number: int = 0,
        stream: int = 0,
        sent_ns: int = 0,
        room: int | None = None,
    ) -> IexDecoded: ...
