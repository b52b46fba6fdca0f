import socket
from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt

from udpfast.net.options import OptionResult

__all__ = ["DatagramSender"]

@final
class DatagramSender:
    socket: socket.socket
    results: tuple[OptionResult, ...]
    def __init__(
        self,
        destination: str,
        *,
        interface: str = "",
        ttl: int = 1,
        loop: bool = True,
        sndbuf_bytes: int = ...,
        segment: bool = False,
    ) -> None: ...
    def __enter__(self) -> DatagramSender: ...
    def __exit__(self, *exception: object) -> None: ...
    @property
    def tied_to(self) -> int: ...
    def replace_socket(self) -> None: ...
    def close(self) -> None: ...
    def send(
        self,
        datagrams: Sequence[bytes | bytearray | memoryview]
        | tuple[
            bytes | bytearray | memoryview | npt.NDArray[np.uint8],
            npt.NDArray[np.int64],
            npt.NDArray[np.int64],
        ],
    ) -> int: ...
    @property
    def carried(self) -> int: ...
    @property
    def unreachable(self) -> int: ...
    @property
    def trouble(self) -> str: ...
    @property
    def counts(self) -> dict[str, int]: ...
