from typing import Self, final

__all__ = ["Memory"]

@final
class Memory:
    def __new__(cls, size_bytes: int) -> Self: ...
    @property
    def size_bytes(self) -> int: ...
