from pathlib import Path
from typing import Literal, final

from udpfast.log.cursor import RingCursor

__all__ = ["FeedCursor", "RingFeedCursor", "StoreFeedCursor", "open_feed_cursor"]

class FeedCursor:
    @property
    def kind(self) -> str: ...
    @property
    def missed(self) -> int: ...
    @property
    def readers(self) -> Path: ...

@final
class RingFeedCursor(FeedCursor):
    def __init__(self, cursor: RingCursor) -> None: ...

@final
class StoreFeedCursor(FeedCursor):
    def __init__(
        self,
        directory: Path,
        start: Literal["writer", "tail"],
        limit: int,
        room_bytes: int | None = None,
    ) -> None: ...

def open_feed_cursor(
    instance: Path,
    start: Literal["writer", "tail"],
    limit: int,
    room_bytes: int | None = None,
) -> FeedCursor: ...
