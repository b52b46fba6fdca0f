import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "SEGMENT_ENTRY",
    "SEGMENT_FORMAT",
    "Segment",
    "SegmentInfo",
    "aside_path",
    "list_segments",
    "segment_file_bytes",
    "segment_path",
    "segments_identities",
    "segments_identity",
    "set_aside",
]

SEGMENT_ENTRY: np.dtype[np.void]
SEGMENT_FORMAT: int

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
    names_mark: int
    layout_hash: int
    opened_ns: int
    epoch: int
    name: str
    capacity_bytes: int
    source: bytes
    source_index: int

def segment_path(directory: str | os.PathLike[str], number: int) -> Path: ...
def list_segments(directory: str | os.PathLike[str]) -> list[int]: ...
def segment_file_bytes(capacity_bytes: int) -> int: ...
def segments_identities(directory: str | os.PathLike[str]) -> Counter[bytes]: ...
def segments_identity(directory: str | os.PathLike[str]) -> bytes | None: ...
def aside_path(path: Path) -> Path: ...
def set_aside(path: Path) -> Path: ...

class Segment:
    @property
    def path(self) -> Path: ...
    @staticmethod
    def prepare(path: str | os.PathLike[str], capacity_bytes: int) -> Segment: ...
    @staticmethod
    def open(path: str | os.PathLike[str], writable: bool = False) -> Segment: ...
    @property
    def layout_hash(self) -> int: ...
    def info(self) -> SegmentInfo: ...
    def index(self) -> npt.NDArray[Any]: ...
    def view(self) -> memoryview: ...
    def close(self) -> None: ...
