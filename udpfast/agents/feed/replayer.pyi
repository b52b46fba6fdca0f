from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from udpfast.agents.bus.store_disk import StoreDisk
from udpfast.config import FeedConfig
from udpfast.net.pcap import CaptureBatch

__all__ = ["Replayer"]

@final
class Replayer:
    def __init__(
        self, config: FeedConfig, directory: Path, disk: StoreDisk | None = None
    ) -> None: ...
    @property
    def finished(self) -> bool: ...
    def play(self, batch: CaptureBatch, start: int, stop: int, limit: int = 64) -> int: ...
    def replay(
        self,
        batch: CaptureBatch,
        channels: npt.NDArray[np.uint8],
        lines: npt.NDArray[np.uint8],
        start: int,
        stop: int,
    ) -> None: ...
    def finish(self) -> None: ...
    def counters(self) -> dict[str, dict[str, int]]: ...
    def close(self) -> None: ...
