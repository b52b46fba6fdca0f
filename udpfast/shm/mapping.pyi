from typing import final

__all__ = ["Mapping"]

@final
class Mapping:
    @property
    def size_bytes(self) -> int: ...
    @property
    def writable(self) -> bool: ...
    def collapse(self) -> tuple[int, int, str]: ...
