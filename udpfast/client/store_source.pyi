from datetime import datetime
from pathlib import Path
from typing import final

from udpfast.client.image_join import ImageJoin
from udpfast.client.source import PolledSource

__all__ = ["StoreSource", "open_source"]

@final
class StoreSource(PolledSource):
    def __init__(
        self,
        directory: Path,
        *,
        start: object,
        end: int | None = None,
        batch: int,
        buffer_bytes: int | None,
        name: str = "",
        join: ImageJoin | None = None,
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
) -> StoreSource: ...
