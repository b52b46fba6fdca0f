from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from udpfast.export.block import Block

__all__ = ["RACE", "Races"]

RACE: np.dtype[np.void]

@final
class Races:
    def __init__(self, position: int, end_position: int) -> None: ...
    @property
    def lines(self) -> list[int]: ...
    def add(self, block: Block) -> None: ...
    def take(self) -> NDArray[Any]: ...
