"""Files that are replaced atomically, and whose the files are that root makes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from udpfast.shm.lock import mode_below

__all__ = ["as_owner_of", "replace_file", "replacing", "sync_path"]


@contextmanager
def as_owner_of(directory: Path) -> Iterator[None]:
    """Act as the user and group of a directory, if this process is root.

    What root makes or replaces there is of use to its owner, who goes on with it, only if it is the
    owner's.
    """
    owner, group = directory.stat(), os.getegid()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace a small file atomically. It is readable for whom its directory lets in.

    Parameters
    ----------
    path : pathlib.Path
        The file, which has one writer at a time.
    content : bytes
        New content.
    durable : bool
        Wait until content and name are on the disk.

    Raises
    ------
    OSError
        It cannot be written; the existing file stays.
    """
    fresh = path.with_name(f"{path.name}.next")
    fresh.unlink(missing_ok=True)  # left by a killed process
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode_below(path.parent))
            file.write(content)
            if durable:
                file.flush()
                os.fsync(fd)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)  # of a disk that is full
        raise
    if durable:
        sync_path(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file that a user named, whole or not at all: what was there stays if it fails.

    A device, and a file in a directory in which nothing can be made, are written in place.
    """
    target = Path(os.path.realpath(path))
    before = target.stat().st_mode if target.exists() else None
    if (before is not None and not stat.S_ISREG(before)) or not os.access(target.parent, os.W_OK):
        with target.open("wb") as file:
            yield file
        return
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)  # left by a killed process
    try:
        with partial.open("xb") as file:
            if before is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(before))
            yield file
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Write a file, or a directory's entries, to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
