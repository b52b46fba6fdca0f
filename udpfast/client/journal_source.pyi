from datetime import datetime
from pathlib import Path
from typing import final

from udpfast.client.record import NameCache
from udpfast.client.source import PolledSource
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_span import Place

__all__ = [
    "JournalSource",
    "journal_start",
    "journal_there",
    "open_source",
    "segment_names",
    "unix_ns",
]

@final
class JournalSource(PolledSource):
    def __init__(self, cursor: JournalCursor) -> None: ...
    @property
    def origin(self) -> str: ...
    @property
    def log(self) -> bytes: ...

def segment_names(directory: Path, number: int, mark: int, segment: int) -> NameCache: ...
def open_source(
    target: str,
    *,
    start: str | datetime | int | tuple[str, int],
    batch: int,
    buffer_bytes: int | None,
    timeout: float | None,
    name: str,
    end: str | datetime | int | tuple[str, int] | None = None,
    image: bool = False,
) -> JournalSource: ...
def journal_there(target: str) -> Path: ...
def journal_start(start: str | datetime | int | tuple[str, int] | None) -> str | Place: ...
def unix_ns(when: str | datetime | int, what: str, expected: str = "a time") -> int: ...
