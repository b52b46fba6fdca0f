from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from udpfast.net.sender import DatagramSender
from udpfast.shm.histogram import LatencyHistogram

__all__ = ["LINES_MAX", "Outgoing"]

LINES_MAX: int

@final
class Outgoing:
    histograms: tuple[LatencyHistogram, ...]
    def __init__(
        self,
        senders: Sequence[DatagramSender],
        samples: Sequence[Mapping[str, npt.NDArray[Any]]],
        due_ns: npt.NDArray[np.int64],
        *,
        nonce: int,
        size_bytes: int,
        stamped: bool,
        departs: Sequence[bool],
    ) -> None: ...
    def set_cookie(self, line: int, cookie: int) -> None: ...
    def set_greeting(self, line: int, greeting: bytes) -> None: ...
    def greet(self) -> None: ...
    def stop(self) -> None: ...
    def take_mail(self) -> list[tuple[int, bytes]]: ...
    def run(self, linger_ns: int, spin: bool = ...) -> None: ...
    def counts(self, line: int) -> dict[str, int]: ...
    @property
    def due(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def utc_offset(self) -> int: ...
