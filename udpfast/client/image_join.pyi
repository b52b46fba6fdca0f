from pathlib import Path
from typing import final

from udpfast.archive.feed_cursor import FeedCursor

__all__ = ["ImageJoin"]

@final
class ImageJoin:
    @property
    def left(self) -> int: ...
    def __init__(self, directory: Path, cursor: FeedCursor, patience_s: float) -> None: ...
    @property
    def payload_max(self) -> int: ...
