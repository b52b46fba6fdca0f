import os

__all__ = ["read_doubts"]

def read_doubts(directory: str | os.PathLike[str]) -> dict[str, int]: ...
