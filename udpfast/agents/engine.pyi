from pathlib import Path
from typing import final

from udpfast.config import FeedConfig
from udpfast.shm.ring import Ring

__all__ = ["LATENCY_HOPS", "Engine"]

LATENCY_HOPS: tuple[str, ...]

@final
class Engine:
    @property
    def directory(self) -> Path: ...
    @property
    def ring_face(self) -> Ring: ...
    def __init__(self, config: FeedConfig, directory: Path) -> None: ...
    def close(self) -> None: ...
    def read_counters(self) -> dict[str, dict[str, int]]: ...
    def announce_restart(self, unix_ns: int) -> None: ...
