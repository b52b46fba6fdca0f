from dataclasses import dataclass

from udpfast.log.cursor import RingCursor
from udpfast.log.ring import Ring

__all__ = ["LoadResult", "read_load", "write_load"]

@dataclass(slots=True)
class LoadResult:
    first: int = 0
    received: int = 0
    lapped: int = 0
    torn: int = 0
    repeated: int = 0
    skipped: int = 0
    restarts: int = 0
    closed: bool = False
    elapsed_ns: int = 0

def write_load(ring: Ring, records: int, size_min: int, size_max: int) -> int: ...
def read_load(cursor: RingCursor, result: LoadResult, idle_polls_max: int = 100_000) -> None: ...
