import socket
from collections.abc import Callable
from typing import Any, NamedTuple, final

from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.options import OptionResult

__all__ = ["DatagramReceiver", "ReceivedDatagram"]

class ReceivedDatagram(NamedTuple):
    payload: bytes
    received_ns: int
    flags: int

@final
class DatagramReceiver:
    socket: socket.socket
    results: tuple[OptionResult, ...]
    replaced: Callable[[], object] | None
    @property
    def tied_to(self) -> int: ...
    def __init__(
        self,
        line: LineAddress,
        options: ReceiveOptions | None = None,
        channel: int = 0,
        line_index: int = 0,
        capacity: int = 64,
        address_index: int = 0,
        memory: DatagramReceiver | None = None,
    ) -> None: ...
    def __enter__(self) -> DatagramReceiver: ...
    def __exit__(self, *exception: object) -> None: ...
    def close(self) -> None: ...
    def replace_socket(self) -> bool: ...
    def find_tie(self) -> int: ...
    def fileno(self) -> int: ...
    @property
    def address(self) -> tuple[Any, ...]: ...
    def receive(self) -> list[ReceivedDatagram]: ...
    def read_kernel_drops(self) -> int: ...
    @property
    def kernel_drops(self) -> int: ...
    @property
    def counts(self) -> dict[str, int]: ...
