from typing import Self, final

from typing_extensions import Buffer

__all__ = ["DecodePaths"]

@final
class DecodePaths:
    def __new__(cls, *, names_max: int = 4096) -> Self: ...
    def decode(self, payload: Buffer, *, room: int | None = None) -> int: ...
