from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self, final

from udpfast.client.aio import Records
from udpfast.client.batch import Batch
from udpfast.client.record import NameCache, ReadRecord
from udpfast.core.idle import IdleStrategy
from udpfast.core.layout import Kind

__all__ = ["Reader"]

@final
class Reader:
    @property
    def address(self) -> str: ...
    @property
    def directory(self) -> Path | None: ...
    def __init__(
        self,
        address: str,
        *,
        idle: str | IdleStrategy = "backoff",
        start: str | datetime | int | tuple[str, int] | None = None,
        end: str | datetime | int | tuple[str, int] | None = None,
        batch: int = 4096,
        buffer_bytes: int | None = None,
        timeout: float | None = 0.0,
        name: str = "",
        kinds: Kind | Iterable[Kind] | None = None,
        exchanges: str | Iterable[str] | None = None,
        symbols: str | Iterable[str] | None = None,
        image: bool = False,
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> ReadRecord: ...
    def __aiter__(self) -> Records: ...
    async def arrival(self, timeout: float | None = None) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def poll(self, limit: int | None = None, timeout: float | None = None) -> Batch: ...
    @property
    def names(self) -> NameCache: ...
    @property
    def lag(self) -> int: ...
    @property
    def lapped(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def joining(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
