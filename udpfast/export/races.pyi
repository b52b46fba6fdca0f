from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from udpfast.export.block import Block

__all__ = ["RACE", "WAIT_NS", "Elapsed", "Races"]

RACE: np.dtype[np.void]
WAIT_NS: int

@final
class Elapsed:
    @property
    def ns(self) -> int: ...
    def add(self, block: Block) -> None: ...

@final
class Races:
    behind_ns: int
    unsure: bool
    def __new__(
        cls, position: int, end_position: int, big_endian: bool = False, whole: bool = True
    ) -> Self: ...
    @property
    def lines(self) -> list[int]: ...
    def add(self, block: Block) -> None: ...
    def take(self) -> NDArray[Any]: ...
