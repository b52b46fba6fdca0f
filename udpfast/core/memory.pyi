from typing import final

__all__ = ["Memory"]

@final
class Memory:
    def __init__(self, size_bytes: int) -> None: ...
    @property
    def size_bytes(self) -> int: ...
