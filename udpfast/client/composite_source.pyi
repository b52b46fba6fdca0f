from datetime import datetime
from pathlib import Path
from typing import final

from udpfast.client.source import PolledSource
from udpfast.client.store_source import StoreSource

__all__ = ["CompositeSource", "open_source"]

@final
class CompositeSource(PolledSource):
    def __init__(
        self,
        order: StoreSource,
        paths: list[Path],
        *,
        batch: int,
        buffer_bytes: int | None,
        marks: bool = False,
        had: list[int] | None = None,
    ) -> None: ...

def open_source(
    target: str,
    *,
    start: str | datetime | int | tuple[str, int] | None,
    batch: int,
    buffer_bytes: int | None,
    timeout: float | None,
    name: str,
    end: tuple[str, int] | None = None,
    image: bool = False,
) -> CompositeSource: ...
