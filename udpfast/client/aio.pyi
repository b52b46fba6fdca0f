from collections.abc import Awaitable
from typing import Self, final

from udpfast.client.reader import Reader
from udpfast.client.record import ReadRecord

__all__ = ["Arrivals", "Records"]

@final
class Records:
    def __init__(self, reader: Reader) -> None: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[ReadRecord]: ...

class Arrivals:
    async def wait(self, reader: Reader, timeout: float | None = None) -> bool: ...
    def release(self) -> None: ...
