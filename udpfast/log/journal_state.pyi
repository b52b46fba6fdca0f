import os
from dataclasses import dataclass

__all__ = [
    "JOURNAL_KIND",
    "JOURNAL_LAYOUT",
    "JournalState",
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
    failed: bool
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

def journal_state(directory: str | os.PathLike[str]) -> JournalState: ...
def is_raw(directory: str | os.PathLike[str]) -> bool: ...
def journal_identity(directory: str | os.PathLike[str]) -> bytes: ...
