from typing import Any, Never, final

import numpy as np
from numpy.typing import NDArray

from udpfast.client.record import NameCache
from udpfast.core.layout import Kind
from udpfast.market.updates import Update

__all__ = ["Batch", "BatchMemory"]

@final
class BatchMemory:
    def __init__(
        self,
        headers: NDArray[np.void],
        offsets: NDArray[np.uint64],
        payloads: NDArray[np.uint8],
    ) -> None: ...

@final
class Batch:
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @property
    def lapped(self) -> int: ...
    @property
    def names(self) -> NameCache: ...
    @property
    def headers(self) -> NDArray[np.void]: ...
    def __len__(self) -> int: ...
    def payload(self, i: int) -> memoryview: ...
    def update(self, i: int) -> Update: ...
    def select(self, kind: Kind) -> NDArray[Any]: ...
    def copy(self) -> Batch: ...
