from pathlib import Path

__all__ = ["NO_IDENTITY", "adopt_copy", "is_copy"]

NO_IDENTITY: bytes

def is_copy(directory: Path) -> bool: ...
def adopt_copy(directory: Path) -> None: ...
