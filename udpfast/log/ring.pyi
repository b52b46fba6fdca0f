import os
from pathlib import Path
from types import TracebackType
from typing import Self

from udpfast.shm.region import Region

__all__ = ["RING_KIND", "RING_LAYOUT", "Ring", "ring_path"]

RING_KIND: str
RING_LAYOUT: int

class Ring:
    @property
    def region(self) -> Region: ...
    @property
    def restarted(self) -> bool: ...
    @staticmethod
    def create(
        path: str | os.PathLike[str],
        capacity_bytes: int,
        payload_hash: int = 0,
        publish: bool = True,
        names: int = 0,
        huge: bool = False,
    ) -> Ring: ...
    def publish(self) -> None: ...
    def append(
        self,
        kind: int,
        payload: bytes | bytearray | memoryview,
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
    def announce_restart(self, now_ns: int) -> None: ...
    def flush(self) -> None: ...
    @property
    def capacity_bytes(self) -> int: ...
    @property
    def payload_max(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def log(self) -> bytes: ...
    def close(self, failed: bool = False) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

def ring_path(path: str | os.PathLike[str]) -> Path: ...
