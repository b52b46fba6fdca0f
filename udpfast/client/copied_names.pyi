from pathlib import Path
from typing import final

__all__ = ["CopiedNames"]

@final
class CopiedNames:
    def __init__(self, directory: Path, used: int, *, durable: bool) -> None: ...
    @property
    def number(self) -> int: ...
    @property
    def mark(self) -> int: ...
