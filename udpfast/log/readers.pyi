import os
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from udpfast.log.cursor import RingCursor
from udpfast.shm.histogram import LatencyHistogram
from udpfast.shm.region import Region

__all__ = [
    "READERS_MAX",
    "READER_HOPS",
    "ReaderInfo",
    "ReaderRegistration",
    "list_readers",
    "reader_histograms",
    "remove_dead_readers",
]

READERS_MAX: int
READER_HOPS: tuple[str, ...]

@dataclass(frozen=True, slots=True)
class ReaderInfo:
    pid: int
    name: str
    position: int
    index: int
    lapped: int
    polled_ns: int
    alive: bool
    began_index: int
    read: int

class ReaderRegistration:
    @property
    def region(self) -> Region: ...
    @property
    def name(self) -> str: ...
    @staticmethod
    def create(
        directory: str | os.PathLike[str], name: str, index: int = 0, now_ns: int = 0
    ) -> ReaderRegistration: ...
    def report(self, cursor: RingCursor, now_ns: int, read: int | None = None) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

def list_readers(directory: str | os.PathLike[str]) -> list[ReaderInfo]: ...
def reader_histograms(
    directory: str | os.PathLike[str],
) -> list[tuple[ReaderInfo, dict[str, LatencyHistogram]]]: ...
def remove_dead_readers(directory: str | os.PathLike[str]) -> int: ...
