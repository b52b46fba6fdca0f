import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import Buffer

from udpfast.shm.recovery import Recovery
from udpfast.shm.region import Region
from udpfast.shm.segment import SegmentInfo

__all__ = [
    "JOURNAL_KIND",
    "JOURNAL_LAYOUT",
    "Journal",
    "JournalState",
    "Resume",
    "is_raw",
    "journal_identity",
    "journal_state",
]

JOURNAL_KIND: str
JOURNAL_LAYOUT: int

@dataclass(frozen=True, slots=True)
class JournalState:
    identity: bytes
    alive: bool
    closed: bool
    epoch: int
    position: int
    index: int
    written_ns: int
    synced_position: int
    synced_index: int
    synced_ns: int
    syncs: int
    sync_errors: int
    sync_longest_ns: int
    lapped: int
    dropped: int
    removed: int
    oldest_position: int
    oldest_index: int
    cut_bytes: int
    source: bytes
    source_position: int
    source_index: int
    resume_position: int
    resume_index: int

@dataclass(frozen=True, slots=True)
class Resume:
    position: int
    source_index: int
    source_position: int | None

def journal_state(directory: str | os.PathLike[str]) -> JournalState: ...
def is_raw(directory: str | os.PathLike[str]) -> bool: ...
def journal_identity(directory: str | os.PathLike[str]) -> bytes: ...

class Journal:
    @property
    def directory(self) -> Path: ...
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
        payload_hash: int = 0,
        *,
        name: str = "",
        segment_bytes: int = ...,
        durable: bool = True,
    ) -> Journal: ...
    def roll(
        self, now_ns: int, names: int = 0, unix_ns: int = 0, source_index: int = 0
    ) -> bool: ...
    def append(
        self,
        kind: int,
        payload: Buffer,
        flags: int = 0,
        received_ns: int = 0,
        published_ns: int = 0,
        frame: bytes | None = None,
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
    def note_missed(self, lapped: int, dropped: int) -> None: ...
    def state(self) -> JournalState: ...
    def close(self, unix_ns: int = 0) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
