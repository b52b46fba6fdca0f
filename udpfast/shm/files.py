"""Small files that are written as a whole: who reads one finds all of the old one or of the new."""

from __future__ import annotations

import os
from pathlib import Path

from udpfast.shm.lock import mode_below

__all__ = ["replace_file", "sync_path"]


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a small file, whole when it is seen; who its directory lets in may read it.

    Parameters
    ----------
    path : pathlib.Path
        Of one writer at a time.
    content : bytes
    durable : bool
        Wait until the disk has it, and its name.

    Raises
    ------
    OSError
        It cannot be written; the file that was there stays.
    """
    fresh = path.with_name(f"{path.name}.next")
    fresh.unlink(missing_ok=True)  # left by one that was killed
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode_below(path.parent))
        file.write(content)
        if durable:
            file.flush()
            os.fsync(fd)
    fresh.replace(path)
    if durable:
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Have the disk take a file, or a directory's names."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
