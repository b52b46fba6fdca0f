from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from udpfast.net.sender import DatagramSender

__all__ = ["PaceResult", "PacedSender"]

@dataclass(frozen=True, slots=True)
class PaceResult:
    datagrams: int
    unsent: int
    late_ns_max: int
    elapsed_ns: int

@final
class PacedSender:
    def __init__(
        self, senders: Sequence[DatagramSender], *, message_bytes: int = ..., session_id: int = ...
    ) -> None: ...
    @property
    def fragments(self) -> int: ...
    def send(
        self,
        due_ns: npt.NDArray[np.int64],
        stamps_ns: npt.NDArray[np.int64],
        seqnos: npt.NDArray[np.uint32],
        lines: npt.NDArray[np.uint8],
    ) -> PaceResult: ...
