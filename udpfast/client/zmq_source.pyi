from typing import Literal, final

from udpfast.client.source import Source

__all__ = ["ZmqSource", "open_source"]

@final
class ZmqSource(Source):
    def __init__(
        self,
        endpoint: str,
        topic: bytes,
        keys: tuple[bytes, bytes, bytes] | None,
        batch: int,
        buffer_bytes: int | None,
        image: bool = False,
        silent_ns: int | None = None,
    ) -> None: ...
    def await_answer(self, timeout: float | None) -> None: ...

def open_source(
    target: str,
    *,
    start: Literal["tail", "begin"],
    batch: int,
    buffer_bytes: int | None,
    timeout: float | None,
    name: str,
    image: bool = False,
) -> ZmqSource: ...
