from typing import NamedTuple

__all__ = ["OUTCOMES", "WalkedFrame", "walk_frame"]

OUTCOMES: tuple[str, ...]

class WalkedFrame(NamedTuple):
    outcome: str
    source: bytes = b""
    source_port: int = 0
    destination: bytes = b""
    destination_port: int = 0
    payload: bytes = b""

def walk_frame(frame: bytes, checksums: int = 1) -> WalkedFrame: ...
