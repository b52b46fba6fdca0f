import os
from dataclasses import dataclass
from pathlib import Path

from udpfast.log.journal_state import JournalState

__all__ = ["JournalMap", "JournalPart", "journal_map"]

@dataclass(frozen=True, slots=True)
class JournalPart:
    number: int
    path: Path | None
    position: int
    index: int
    end_position: int
    end_index: int
    first_ns: int
    last_ns: int
    sealed: bool
    names: int
    opened_ns: int
    name: str
    missing: int
    problem: str
    @property
    def lost(self) -> bool: ...
    @property
    def records(self) -> int: ...

@dataclass(frozen=True, slots=True)
class JournalMap:
    identity: bytes
    state: JournalState | None
    parts: tuple[JournalPart, ...]
    ignored: tuple[str, ...]
    @property
    def complete(self) -> bool: ...

def journal_map(directory: str | os.PathLike[str]) -> JournalMap: ...
