import os
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from udpfast.shm.cursor import RingCursor
from udpfast.shm.region import Region

__all__ = ["ReaderInfo", "ReaderRegistration", "list_readers", "remove_dead_readers"]

@dataclass(frozen=True, slots=True)
class ReaderInfo:
    pid: int
    name: str
    position: int
    index: int
    lapped: int
    polled_ns: int
    alive: bool

class ReaderRegistration:
    @property
    def region(self) -> Region: ...
    @property
    def name(self) -> str: ...
    @staticmethod
    def create(directory: str | os.PathLike[str], name: str) -> ReaderRegistration: ...
    def report(self, cursor: RingCursor, now_ns: int) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

def list_readers(directory: str | os.PathLike[str]) -> list[ReaderInfo]: ...
def remove_dead_readers(directory: str | os.PathLike[str]) -> int: ...
