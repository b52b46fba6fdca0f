import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from udpfast.log.segment import SegmentInfo

__all__ = ["SegmentCheck", "verify_segments"]

@dataclass(frozen=True, slots=True)
class SegmentCheck:
    path: Path
    info: SegmentInfo | None
    records: int
    end_position: int
    end_index: int
    missing: int
    cut_bytes: int
    problems: tuple[str, ...]

def verify_segments(directory: str | os.PathLike[str]) -> Iterator[SegmentCheck]: ...
