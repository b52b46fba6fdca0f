from typing import Any, final

from numpy.typing import NDArray

from udpfast.export.block import Block

__all__ = ["HOPS", "HopCounts"]

HOPS: tuple[str, ...]

@final
class HopCounts:
    def __init__(self) -> None: ...
    def add(self, block: Block) -> None: ...
    def take(
        self,
    ) -> list[
        tuple[
            tuple[int, int, int],
            int,
            int,
            str,
            int,
            NDArray[Any],
            NDArray[Any],
            NDArray[Any],
        ]
    ]: ...
