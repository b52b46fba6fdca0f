import os
from types import TracebackType
from typing import Self, final

from udpfast.log.journal import Journal

__all__ = ["CompositeCopy"]

@final
class CompositeCopy:
    def __init__(
        self,
        target: str,
        directory: str | os.PathLike[str] | None = None,
        *,
        segment_bytes: int = ...,
        durable: bool = True,
    ) -> None: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def lapped(self) -> int: ...
    def turn(self) -> int: ...
    def end(self) -> int: ...
    def reached(self, end: int) -> bool: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
