import socket
from collections.abc import Mapping
from typing import Any, final

import numpy.typing as npt

from udpfast.shm.histogram import LatencyHistogram

__all__ = ["TRACKS_MAX", "Reflector"]

TRACKS_MAX: int

@final
class Reflector:
    def open(
        self,
        sock: socket.socket,
        arrays: Mapping[str, npt.NDArray[Any]],
        *,
        nonce: int,
        cookie: int,
        line: int,
        size_bytes: int,
        stamped: bool,
    ) -> int: ...
    def close(self, place: int) -> None: ...
    def stop(self) -> None: ...
    def take_mail(self) -> list[tuple[int, bytes]]: ...
    def counts(self, place: int) -> dict[str, int]: ...
    def histograms(self, place: int) -> tuple[LatencyHistogram, LatencyHistogram]: ...
    def run(self, spin: bool = ...) -> None: ...
