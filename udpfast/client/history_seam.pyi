from pathlib import Path
from typing import final

from udpfast.client.ring_source import RingSource

__all__ = ["UNREADABLE", "HistorySeam"]

UNREADABLE: tuple[type[Exception], ...]

@final
class HistorySeam:
    def __init__(
        self,
        directory: Path,
        live: RingSource,
        start_ns: int,
        options: tuple[int, int | None],
    ) -> None: ...
