from collections.abc import Sequence
from typing import Self, final

from typing_extensions import Buffer

from udpfast.log.cursor import RingCursor
from udpfast.log.ring import Ring
from udpfast.market.book import OrderBook

__all__ = [
    "BookLoop",
    "DecodeLoop",
    "EncodeLoop",
    "Loop",
    "RingLoop",
    "VerifyLoop",
]

class Loop:
    def __new__(cls, buffers: Sequence[Buffer], *arguments: object) -> Self: ...
    def run(self, count: int) -> int: ...

@final
class VerifyLoop(Loop): ...

@final
class DecodeLoop(Loop):
    def __new__(cls, payloads: Sequence[Buffer], general: bool = False) -> Self: ...

@final
class EncodeLoop(Loop): ...

@final
class BookLoop(Loop):
    def __new__(cls, updates: Sequence[Buffer], book: OrderBook) -> Self: ...

@final
class RingLoop(Loop):
    def __new__(cls, payloads: Sequence[Buffer], ring: Ring, cursor: RingCursor) -> Self: ...
