"""Where an instance (one running feed) keeps its shared memory: `<root>/<name>/`.

    ring  counters  names  latency  slab  readers/<pid>-<n>

The root is `$UDPFAST_SHM`, or `/dev/shm/udpfast-<uid>`. Both directories belong to one user, and
nobody else may write in them: who can put files there can feed prices to a strategy.
"""

import errno
import os
import re
import stat
from pathlib import Path

from udpfast.errors import ConfigError, RegionError

__all__ = ["instance_directory", "instance_root"]

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def instance_root() -> Path:
    """Return the directory that holds all instances of this user."""
    setting = os.environ.get("UDPFAST_SHM")
    return Path(setting) if setting else Path(f"/dev/shm/udpfast-{os.geteuid()}")


def instance_directory(name_or_path: str | os.PathLike[str], create: bool = False) -> Path:
    """Return the directory of an instance, after checking that only its owner can write there.

    Parameters
    ----------
    name_or_path : str or path
        A name (letters, digits, `.`, `_`, `-`) below the root, or, with a slash in it, a path.
    create : bool
        Make the directory (and the root), readable by its owner alone.

    Raises
    ------
    ConfigError
        The name has other characters.
    FileNotFoundError
        There is no such instance, and `create` is false.
    RegionError
        The directory is a symbolic link, not a directory, another user's, or others may write.
    """
    text = os.fspath(name_or_path)
    if "/" in text:
        directory = Path(text)
    else:
        if not _NAME.fullmatch(text) or text in (".", ".."):
            raise ConfigError(
                f"an instance name has letters, digits, '.', '_' and '-' only, was {text!r}"
            )
        root = instance_root()
        if create:
            root.mkdir(mode=0o700, exist_ok=True)
        _check_directory(root)
        directory = root / text
    if create:
        directory.mkdir(mode=0o700, exist_ok=True)
    _check_directory(directory)
    return directory


def _check_directory(directory: Path) -> None:
    try:
        status = os.lstat(directory)
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT, "no such instance; is its subscriber running?", str(directory)
        ) from None
    if stat.S_ISLNK(status.st_mode):
        raise RegionError(f"{directory}: expected a directory, found a symbolic link")
    if not stat.S_ISDIR(status.st_mode):
        raise RegionError(f"{directory}: expected a directory, found another kind of file")
    if status.st_uid not in (os.geteuid(), 0):
        raise RegionError(
            f"{directory}: expected owner {os.geteuid()} (or root), found {status.st_uid}"
        )
    if status.st_mode & 0o022:
        raise RegionError(
            f"{directory}: expected that only its owner may write, "
            f"found mode {stat.S_IMODE(status.st_mode):04o}"
        )
