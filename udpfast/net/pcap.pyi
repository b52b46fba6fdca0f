import os
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

__all__ = ["CAPTURED", "CaptureBatch", "CaptureEvent", "CaptureReader", "CapturedDatagram"]

CAPTURED: np.dtype[np.void]

class CaptureEvent(IntEnum):
    FOREIGN = 0
    OWN = 1
    EXPIRE = 2
    FINISH = 3
    RESTART = 4

class CapturedDatagram(NamedTuple):
    timestamp_ns: int
    source: tuple[str, int]
    destination: tuple[str, int]
    payload: bytes

class CaptureBatch(NamedTuple):
    headers: npt.NDArray[Any]
    buffer: bytes | memoryview
    def payload(self, index: int) -> memoryview: ...

@final
class CaptureReader:
    damage: str | None
    def __init__(
        self, path: str | os.PathLike[str], *, chunk_bytes: int = ..., events: bool = False
    ) -> None: ...
    def __enter__(self) -> CaptureReader: ...
    def __exit__(self, *exception: object) -> None: ...
    def close(self) -> None: ...
    def read_batch(self, count: int = ...) -> CaptureBatch | None: ...
    def __iter__(self) -> Iterator[CapturedDatagram]: ...
    @property
    def counts(self) -> dict[str, int]: ...
