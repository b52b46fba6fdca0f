from pathlib import Path
from typing import final

from udpfast.config import FeedConfig
from udpfast.shm.answers import AnswersRegion

__all__ = ["Wanted"]

@final
class Wanted:
    def __init__(self, config: FeedConfig, directory: Path) -> None: ...
    @property
    def regions(self) -> list[AnswersRegion]: ...
