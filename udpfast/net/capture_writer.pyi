import os
from typing import Literal, final

from udpfast.net.pcap import CaptureBatch

__all__ = ["CaptureWriter"]

@final
class CaptureWriter:
    @property
    def frames(self) -> int: ...
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        nanoseconds: bool = True,
        byteorder: Literal["little", "big"] = "little",
        vlan: int | None = None,
    ) -> None: ...
    def write(self, batch: CaptureBatch) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> CaptureWriter: ...
    def __exit__(self, *exception: object) -> None: ...
