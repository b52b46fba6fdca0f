from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt

from udpfast.config import RelayLine
from udpfast.feed.publication import Publication
from udpfast.net.sender import DatagramSender

__all__ = ["RelayLines", "line_budget"]

def line_budget(lines: Sequence[RelayLine]) -> dict[str, int]: ...

@final
class RelayLines:
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def senders(self) -> list[list[DatagramSender]]: ...
    def __init__(
        self,
        lines: Sequence[RelayLine],
        counts: npt.NDArray[np.int64] | None = None,
        *,
        parity_wait_ns: int = 2_000_000,
    ) -> None: ...
    def close(self) -> None: ...
    def send_publication(self, publication: Publication, now_ns: int) -> None: ...
    def troubles(self) -> dict[str, str]: ...
