"""A directory for as long as a command runs; the next command removes what a killed one left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["scratch_directory"]

_OWNER = "owner"


@contextlib.contextmanager
def scratch_directory(prefix: str, within: Path | None = None) -> Iterator[Path]:
    """Make a directory, in memory if that can be, and remove it at the end.

    Before that, remove those of the same prefix whose commands are dead (kill -9, the OOM killer).

    Parameters
    ----------
    prefix : str
        The beginning of its name, which says whose it is.
    within : Path, optional
        Where it is made.
    """
    # Regions belong into memory; a temporary directory on disk works too, only slower.
    memory = Path("/dev/shm")
    root = within or (memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir()))
    _remove_dead(root, prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=root) as name:
        # Locked before it has its name: whoever finds it free knows that nobody is left.
        new = Path(name) / f"{_OWNER}.new"
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            new.rename(new.with_name(_OWNER))
            yield Path(name)
        finally:
            os.close(fd)


def _remove_dead(root: Path, prefix: str) -> None:
    for path in root.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # gone meanwhile, another user's, or in use
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            fd = os.open(path / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(fd)
