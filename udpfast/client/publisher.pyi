from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, final

from typing_extensions import Buffer

from udpfast.client.published_book import PublishedBook
from udpfast.config import PublishConfig

__all__ = ["Publisher"]

TICK_S: float

@final
class Publisher:
    def __init__(
        self,
        settings: str | Path | PublishConfig,
        *,
        encoding: int = ...,
        on_event: Callable[[str], object] | None = None,
    ) -> None: ...
    def send(
        self,
        payload: Buffer,
        object_type: int,
        object_id: int,
        *,
        snapshot: bool = False,
        stamp_offset: int = -1,
        flush: bool = True,
    ) -> int: ...
    def flush(self) -> None: ...
    def open_book(
        self,
        exchange: str,
        symbol: str,
        object_type: int,
        object_id: int,
        *,
        stream_id: int = 0,
        price_precision: int = 0,
        quantity_precision: int = 0,
    ) -> PublishedBook: ...
    def publish_snapshot(
        self, payload: Buffer, object_type: int, object_id: int, *, stamp_offset: int = -1
    ) -> None: ...
    def remove(self, object_type: int, object_id: int) -> bool: ...
    def restart(self, session_id: int | None = None) -> int: ...
    @property
    def session_id(self) -> int: ...
    @property
    def counts(self) -> dict[str, dict[str, int]]: ...
    @property
    def failures(self) -> dict[str, str]: ...
    @property
    def silent(self) -> tuple[str, ...]: ...
    def take_events(self) -> list[str]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
