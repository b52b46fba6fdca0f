from typing import Any, Literal, Never, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "Rows"]

@final
class Block:
    count: int
    def __init__(
        self,
        headers: NDArray[Any],
        offsets: NDArray[np.uint64],
        payloads: NDArray[np.uint8],
        count: int,
    ) -> None: ...
    @property
    def headers(self) -> NDArray[Any]: ...
    def partitions(self) -> tuple[NDArray[np.int32], list[tuple[int, int, int]]]: ...
    def ids(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]: ...
    def between(self, position: int, end_position: int) -> int: ...
    def select(
        self, kinds: int, rows: bool = False, keep: NDArray[np.bool_] | None = None
    ) -> Rows: ...

@final
class Rows:
    count: int
    ordinals: NDArray[np.int32]
    asks: NDArray[np.bool_]
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    def column(
        self,
        base: Literal["record", "payload", "row", "update", "ids"],
        offset: int,
        dtype: np.dtype[Any] | type[np.generic],
    ) -> NDArray[Any]: ...
    def texts(
        self, base: Literal["record", "payload", "row", "update", "ids"], offset: int, width: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]: ...
    def payloads(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]: ...
    def snapshots(self) -> NDArray[np.bool_]: ...
    def sizes(self) -> NDArray[np.int32]: ...
    def nested(self, dtype: np.dtype[Any]) -> tuple[NDArray[np.int32], NDArray[Any]]: ...
