import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from udpfast.shm.region import Region

__all__ = ["CounterBlock"]

class CounterBlock:
    @property
    def region(self) -> Region: ...
    @property
    def lines_incremental(self) -> tuple[str, ...]: ...
    @property
    def lines_snapshot(self) -> tuple[str, ...]: ...
    @staticmethod
    def create(
        path: str | os.PathLike[str],
        lines_incremental: Sequence[str],
        lines_snapshot: Sequence[str],
        publish: bool = True,
    ) -> CounterBlock: ...
    @staticmethod
    def attach(path: str | os.PathLike[str]) -> CounterBlock: ...
    def read(self) -> dict[str, dict[str, int]]: ...
    def add(self, scope: str, name: str, count: int = 1) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
