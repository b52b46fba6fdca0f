from pathlib import Path
from typing import final

from udpfast.client.ring_source import RingSource

__all__ = ["HistorySeam"]

@final
class HistorySeam:
    def __init__(
        self,
        directory: Path,
        live: RingSource,
        start_ns: int,
        options: tuple[int, int | None],
    ) -> None: ...
