from collections.abc import Iterator
from typing import final

import numpy as np
import numpy.typing as npt

from udpfast.log.journal_cursor import JournalCursor

__all__ = ["RecordedRuns"]

@final
class RecordedRuns:
    log: bytes
    index: int
    exact: bool
    unknown: bool
    def __init__(
        self, cursor: JournalCursor, log: bytes = b"", index: int = 0, journal_index: int = 0
    ) -> None: ...
    def __iter__(self) -> Iterator[npt.NDArray[np.void]]: ...
