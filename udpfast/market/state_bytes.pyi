__all__ = ["ENTRY_HASH", "read_mark"]

ENTRY_HASH: int

def read_mark(entry: bytes) -> dict[str, int]: ...
