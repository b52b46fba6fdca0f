from typing import NamedTuple, Self, final

__all__ = [
    "OUTCOMES",
    "GuardedBytes",
    "GuardedFraming",
    "GuardedPayload",
    "WalkedFrame",
    "walk_frame",
]

OUTCOMES: tuple[str, ...]

class WalkedFrame(NamedTuple):
    outcome: str
    source: bytes = b""
    source_port: int = 0
    destination: bytes = b""
    destination_port: int = 0
    payload: bytes = b""

def walk_frame(frame: bytes, checksums: int = 1) -> WalkedFrame: ...

@final
class GuardedBytes:
    def put(self, data: bytes) -> memoryview: ...

@final
class GuardedFraming:
    def __new__(cls, name: str) -> Self: ...
    def walk(self, datagram: bytes) -> tuple[int, int]: ...

@final
class GuardedPayload:
    def __new__(cls, number: int) -> Self: ...
    def changes(self, data: bytes) -> list[dict[str, int]]: ...
    def decode(self, data: bytes) -> int: ...
