from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["RecordHash"]

@final
class RecordHash:
    @property
    def records(self) -> int: ...
    def add(
        self, headers: NDArray[Any], offsets: NDArray[np.uint64], payloads: NDArray[np.uint8]
    ) -> None: ...
    def hexdigest(self) -> str: ...
