import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import Buffer

from udpfast.core.layouts import Layouts
from udpfast.log.journal_state import JournalState
from udpfast.log.recovery import Recovery
from udpfast.log.segment import SegmentInfo
from udpfast.shm.region import Region

__all__ = ["Journal", "Resume"]

@dataclass(frozen=True, slots=True)
class Resume:
    position: int
    source_index: int
    source_position: int | None

class Journal:
    @property
    def directory(self) -> Path: ...
    @property
    def layouts(self) -> Layouts: ...
    @property
    def region(self) -> Region: ...
    @property
    def recovery(self) -> Recovery: ...
    @property
    def failed(self) -> bool: ...
    @property
    def made(self) -> bool: ...
    @staticmethod
    def open(
        directory: str | os.PathLike[str],
        layouts: Layouts = ...,
        *,
        name: str = "",
        segment_bytes: int = ...,
        durable: bool = True,
        identity: bytes | None = None,
    ) -> Journal: ...
    def roll(
        self,
        now_ns: int,
        names: int = 0,
        unix_ns: int = 0,
        source_index: int = 0,
        names_mark: int = 0,
        copied: bytes | None = None,
    ) -> bool: ...
    def append(
        self,
        kind: int,
        payload: Buffer,
        flags: int = 0,
        received_ns: int = 0,
        published_ns: int = 0,
        *,
        line: int = 0,
        number: int = 0,
        object: int = 0,
        flight_ns: int = ...,
        stream: int = 0,
        session: int = 0,
    ) -> int: ...
    def flush(self, unix_ns: int) -> None: ...
    def note_source(self, identity: bytes) -> None: ...
    def resume(self, source: bytes) -> Resume | None: ...
    @property
    def source(self) -> bytes | None: ...
    @property
    def identity(self) -> bytes: ...
    @property
    def ready(self) -> bool: ...
    @property
    def opened(self) -> bool: ...
    @property
    def ending(self) -> bool: ...
    @property
    def names(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def index(self) -> int: ...
    def prepare(self) -> bool: ...
    def populate(self, ahead_bytes: int) -> None: ...
    def sync(self, unix_ns: int) -> int: ...
    def oldest(self) -> SegmentInfo | None: ...
    def remove_oldest(self) -> int: ...
    def size_bytes(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    def state(self) -> JournalState: ...
    def close(self, unix_ns: int = 0, failed: bool = False) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
