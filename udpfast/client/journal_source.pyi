from datetime import datetime
from typing import final

from udpfast.client.source import Source
from udpfast.shm.journal_cursor import JournalCursor

__all__ = ["JournalSource", "open_source"]

@final
class JournalSource(Source):
    def __init__(self, cursor: JournalCursor) -> None: ...

def open_source(
    target: str,
    *,
    start: str | datetime | int,
    batch: int,
    buffer_bytes: int | None,
    timeout: float | None,
    name: str,
    end: str | datetime | int | None = None,
    image: bool = False,
) -> JournalSource: ...
