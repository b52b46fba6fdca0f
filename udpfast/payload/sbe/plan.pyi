from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Never, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

__all__ = ["DAMAGE", "DATA", "ROW", "Plan", "Verdict", "Walk", "bytes_places"]

DAMAGE: np.dtype[np.void]
DATA: np.dtype[np.void]
ROW: np.dtype[np.void]

class Verdict(IntEnum):
    SOUND = 0
    OTHER = 1
    FOREIGN = 2
    UNKNOWN = 3
    HEADER_SHORT = 4
    BLOCK_BEYOND = 5
    GROUP_BEYOND = 6
    DATA_BEYOND = 7
    COUNT_BEYOND = 8
    ROWS_MANY = 9
    BYTES_LEFT = 10

class Plan:
    template_count: int
    level_count: int
    slots: list[int]
    def __new__(
        cls,
        *,
        big: bool,
        schema_id: int,
        version: int,
        header_size: int,
        header: Sequence[tuple[int, int, int, int]],
        templates: Sequence[tuple[int, int, int, int]],
        ops: Sequence[tuple[Any, ...]],
        slots: Sequence[int],
    ) -> Self: ...
    def template(self, payload: Buffer) -> int | None: ...
    def walk(
        self,
        addresses: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        keep: object,
        *,
        wanted: int = -1,
        prefix: int = -1,
    ) -> Walk: ...
    def read(
        self, payload: bytes
    ) -> (
        tuple[int, list[list[tuple[int, int, int, int, list[tuple[int, int] | None]]]]]
        | tuple[None, dict[str, int]]
    ): ...

def bytes_places(payloads: list[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]: ...

@final
class Walk:
    plan: Plan
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @property
    def counts(self) -> dict[Verdict, int]: ...
    def damage(self) -> NDArray[Any]: ...
    def count(self, level: int) -> int: ...
    def rows(self, level: int) -> NDArray[Any]: ...
    def data(self, level: int) -> NDArray[Any]: ...
    def gather(
        self,
        level: int,
        absent: NDArray[np.uint8],
        leaves: NDArray[np.int64],
        since: NDArray[np.uint64],
    ) -> NDArray[np.uint8]: ...
    def texts(
        self, level: int, slot: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.bool_]]: ...
