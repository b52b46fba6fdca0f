import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SEGMENT_ENTRY", "Segment", "SegmentInfo", "list_segments", "segment_path"]

SEGMENT_ENTRY: np.dtype[np.void]

@dataclass(frozen=True, slots=True)
class SegmentInfo:
    path: Path
    identity: bytes
    number: int
    position: int
    index: int
    end_position: int | None
    end_index: int | None
    first_ns: int
    last_ns: int
    durable: bool
    last: bool
    oldest_position: int
    oldest_index: int
    names: int
    opened_ns: int
    epoch: int
    name: str
    capacity_bytes: int
    source: bytes
    source_index: int

def segment_path(directory: str | os.PathLike[str], number: int) -> Path: ...
def list_segments(directory: str | os.PathLike[str]) -> list[int]: ...

class Segment:
    @property
    def path(self) -> Path: ...
    @staticmethod
    def prepare(path: str | os.PathLike[str], capacity_bytes: int) -> Segment: ...
    @staticmethod
    def open(
        path: str | os.PathLike[str], writable: bool = False, layout_hash: int | None = None
    ) -> Segment: ...
    @property
    def layout_hash(self) -> int: ...
    def info(self) -> SegmentInfo: ...
    def index(self) -> npt.NDArray[Any]: ...
    def view(self) -> memoryview: ...
    def close(self) -> None: ...
