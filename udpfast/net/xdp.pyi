from collections.abc import Sequence
from typing import NamedTuple, final

from udpfast.net.options import OptionResult
from udpfast.net.xdp_host import XdpLine, XdpOptions

__all__ = ["XdpDatagram", "XdpReceiver"]

BIND_PAUSE_S: float

class XdpDatagram(NamedTuple):
    payload: bytes
    channel: int
    line: int
    address: int
    flags: int
    monotonic_ns: int

@final
class XdpReceiver:
    address: str
    interface_index: int
    queue_count: int
    queues: tuple[int, ...]
    results: tuple[OptionResult, ...]
    fallbacks: tuple[str, ...]
    def __init__(
        self, lines: Sequence[XdpLine], options: XdpOptions | None = None, capacity: int = 64
    ) -> None: ...
    def __enter__(self) -> XdpReceiver: ...
    def __exit__(self, *exception: object) -> None: ...
    def close(self) -> None: ...
    def receive(self) -> list[XdpDatagram]: ...
    def read_counts(self) -> list[dict[str, int]]: ...
