from pathlib import Path
from typing import final

from udpfast.agents.bus.store_disk import StoreDisk
from udpfast.config import FeedConfig
from udpfast.log.ring import Ring

__all__ = ["LATENCY_HOPS", "Engine", "engine_memory_size"]

LATENCY_HOPS: tuple[str, ...]

@final
class Engine:
    @property
    def directory(self) -> Path: ...
    @property
    def ring_face(self) -> Ring | None: ...
    @property
    def capture_face(self) -> Ring | None: ...
    def __init__(
        self,
        config: FeedConfig,
        directory: Path,
        publish: bool = True,
        disk: StoreDisk | None = None,
    ) -> None: ...
    def publish(self, unix_ns: int) -> None: ...
    def close(self, failed: bool = False) -> None: ...
    def missing_pages(self) -> list[str]: ...
    def read_counters(self) -> dict[str, dict[str, int]]: ...

def engine_memory_size(config: FeedConfig) -> tuple[int, int]: ...
