"""Groups of feeds that one `udpfast run` supervises, and the state of their feeds.

Each group has a JSON file below the root of all instances, `.groups/NAME.json`, which the
supervisor replaces atomically at each change. Readers find the feeds' rings in it, and tools the
restarts.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from udpfast.errors import RegionError, WriterExistsError, did_you_mean, sentence
from udpfast.shm.files import replace_file
from udpfast.shm.instance import GROUPS, instance_directory, instance_root
from udpfast.shm.lock import (
    check_file,
    hold_proof,
    open_existing,
    process_alive,
    process_namespace,
    process_start,
)

__all__ = [
    "FeedState",
    "Group",
    "GroupFeed",
    "GroupFile",
    "list_groups",
    "make_folder",
    "read_group",
    "read_said",
]

#: Most bytes of a file: enough for a thousand feeds with a reason each.
_BYTES_MAX = 1 << 20

FeedState = Literal["starting", "running", "waiting", "ended", "failed"]


class GroupFeed(msgspec.Struct, frozen=True):
    """One feed of a group.

    Attributes
    ----------
    name : str
    address : str
        Address that a reader opens.
    state : str
        starting; running (readers can attach); waiting (it ended with an error and will be
        restarted); ended (it was stopped in good order and stays so); failed (the group was
        stopped, and this feed had ended with an error or did not run).
    core : int or None
        Core of its loop; None: any.
    pid : int
        Process id; 0: none.
    restarts : int
        Number of restarts.
    changed_ns : int
        When the state last changed, UNIX ns.
    failure : str
        What ended it last; empty: nothing did.
    """

    name: str
    address: str
    state: FeedState = "starting"
    core: int | None = None
    pid: int = 0
    restarts: int = 0
    changed_ns: int = 0
    failure: str = ""


class Group(msgspec.Struct, frozen=True):
    """A group as its supervisor last described it.

    Attributes
    ----------
    name : str
    pid, start, namespace : int
        The supervisor's process.
    ended : bool
        The supervisor ended in good order.
    feeds : tuple of GroupFeed
    alive : bool
        The supervisor runs. Only `read_group` sets it.
    """

    name: str
    pid: int
    start: int
    namespace: int
    ended: bool
    feeds: tuple[GroupFeed, ...]
    alive: bool = False

    @property
    def life(self) -> str:
        """State in one word: "running", "stopped" (in good order) or "dead"."""
        return "running" if self.alive else "stopped" if self.ended else "dead"


class GroupFile:
    """The writing end of a group's file, held by the group's one supervisor.

    Raises
    ------
    WriterExistsError
        Another process supervises a group of this name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._path = make_folder(GROUPS) / f"{name}.json"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(_lock_path(name), flags, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            pid = 0
            with suppress(OSError, RegionError):  # it has not written its file yet
                pid = read_group(name).pid
            text = f"group {name} runs already ({f'pid {pid}' if pid else self._path})"
            raise WriterExistsError(f"{text}: only one process can supervise it", pid) from None
        hold_proof(self._lock)

    def write(self, feeds: Iterable[GroupFeed], *, ended: bool = False) -> None:
        """Replace the state of the group."""
        pid = os.getpid()
        group = Group(self._name, pid, process_start(pid), process_namespace(), ended, tuple(feeds))
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(group), indent=1) + b"\n")
        self._path.chmod(0o644)

    def close(self) -> None:
        """Release the group, so that another supervisor can take over. The file stays for tools."""
        os.close(self._lock)


def make_folder(name: str) -> Path:
    """Return a folder below the root of all instances, whose files say what runs; make it."""
    root = instance_root()
    root.mkdir(mode=0o700, exist_ok=True)
    folder = root / name
    folder.mkdir(mode=0o755, exist_ok=True)
    folder.chmod(0o755)  # whoever may enter the root may see the feeds' names
    return instance_directory(name)


def read_said(path: Path, most: int) -> bytes:
    """Return at most so many bytes of a file in such a folder.

    Raises
    ------
    FileNotFoundError, OSError, RegionError
        There is none, or other users can write it.
    """
    instance_directory(path.parent.name)
    fd = open_existing(path, os.O_RDONLY)
    with os.fdopen(fd, "rb") as file:
        check_file(fd, path)
        return file.read(most)


def read_group(name: str) -> Group:
    """Return the state of a group as its supervisor last wrote it.

    Raises
    ------
    FileNotFoundError
        There is no such group.
    RegionError
        Other users can write the file, or it does not hold a group.
    """
    group = _read(name)
    alive = not group.ended and _supervisor_alive(group)
    if not (alive or group.ended):  # unless it has ended, or begun again, in between
        group = _read(name)
        alive = not group.ended and _supervisor_alive(group)
    return msgspec.structs.replace(group, alive=alive)


def _read(name: str) -> Group:
    path = instance_root() / GROUPS / f"{name}.json"
    try:
        text = read_said(path, _BYTES_MAX)
    except FileNotFoundError:
        near = did_you_mean(name, _names())
        raise FileNotFoundError(
            errno.ENOENT,
            f"no group {name!r}{near or '; does it run (udpfast run DIRECTORY)?'}",
            str(path),
        ) from None
    try:
        return msgspec.json.decode(text, type=Group)
    except msgspec.MsgspecError as error:
        raise RegionError(f"{path}: expected a group of feeds, found: {error}") from None


def _supervisor_alive(group: Group) -> bool:
    # In another pid namespace the lock decides, which only its owner can read.
    fd = -1
    with suppress(OSError, RegionError):
        fd = open_existing(_lock_path(group.name), os.O_RDONLY)
    try:
        return process_alive(group.pid, group.start, group.namespace, fd)
    finally:
        if fd >= 0:
            os.close(fd)


def _lock_path(name: str) -> Path:
    return instance_root() / GROUPS / f".{name}.lock"


def list_groups() -> tuple[dict[str, Group], dict[str, str]]:
    """Return this user's groups on this host by name, and why others cannot be read."""
    found, unreadable = {}, {}
    for name in _names():
        try:
            found[name] = read_group(name)
        except FileNotFoundError:  # removed meanwhile
            continue
        except (OSError, RegionError) as error:
            unreadable[name] = sentence(error)
    return found, unreadable


def _names() -> list[str]:
    try:
        paths = sorted((instance_root() / GROUPS).iterdir())
    except OSError:
        return []
    return [path.stem for path in paths if path.suffix == ".json"]
