from datetime import datetime
from pathlib import Path
from typing import final

from udpfast.client.image_join import ImageJoin
from udpfast.client.source import Source
from udpfast.log.cursor import RingCursor

__all__ = ["RingSource", "open_source"]

@final
class RingSource(Source):
    def __init__(
        self, directory: Path, cursor: RingCursor, name: str, join: ImageJoin | None = None
    ) -> None: ...
    @property
    def log(self) -> bytes: ...

def open_source(
    target: str,
    *,
    start: str | datetime | int,
    batch: int,
    buffer_bytes: int | None,
    timeout: float | None,
    name: str,
    image: bool = False,
    populate: bool = True,
    tell: bool = True,
) -> Source: ...
