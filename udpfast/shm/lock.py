"""Who writes a region: locks that the kernel drops when their holder dies, however it dies.

The lock is on the region's own file. But whoever may read a file may lock it, and so keep the next
writer out. Where a group may read, the lock is therefore on a guard file, `.<name>.lock`, which
only the owner can open.

To find out whether a writer lives, a tool must not take a lock that the next writer needs. So a
writer holds a third lock, which can be tested without being taken, from every container. (A pid is
meaningful only in its own pid namespace.)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from pathlib import Path

from udpfast.errors import RegionError, WriterExistsError
from udpfast.shm.trust import describe_owners, trusted_owners

__all__ = [
    "ReplacedError",
    "adapt_mode",
    "check_file",
    "hold_proof",
    "lock_existing",
    "lock_file",
    "mode_below",
    "open_existing",
    "open_guard",
    "process_alive",
    "process_namespace",
    "process_start",
    "release_proof",
    "same_namespace",
    "set_mode",
]

_PID_OFFSET = 40  # RegionHeader.writer_pid, writer_start
_OWNER = struct.Struct("<QQ")
_OTHERS = 0o077
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid


class ReplacedError(WriterExistsError):
    """A file was replaced between opening and locking it, so the lock is on a dead file.

    The process that replaced it may or may not live: try again.
    """


def open_existing(path: Path, flags: int) -> int:
    """Open a file at a path where somebody may have put anything.

    Raises
    ------
    RegionError
        The path is a symbolic link or a directory.
    """
    try:
        # O_NONBLOCK: opening a FIFO that somebody put there must not block. It does not affect
        # files.
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RegionError(f"{path}: expected a regular file, found a symbolic link") from None
        if error.errno == errno.EISDIR:
            raise RegionError(f"{path}: expected a regular file, found a directory") from None
        raise


def check_file(fd: int, path: Path) -> int:
    """Return the size in bytes of a file that only a trusted owner can write.

    Raises
    ------
    RegionError
        It is not a regular file, its owner is not trusted, or others may write to it.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise RegionError(f"{path}: expected a regular file, found mode {status.st_mode:06o}")
    if status.st_uid not in trusted_owners():
        raise RegionError(f"{path}: {describe_owners()}, found {status.st_uid}")
    if status.st_mode & 0o022:
        raise RegionError(
            f"{path}: expected that only its owner may write, "
            f"found mode {stat.S_IMODE(status.st_mode):04o}"
        )
    return status.st_size


def mode_below(directory: Path) -> int:
    """Return the mode for regions in a directory: 0640 if it lets a group in, else 0600."""
    mode = directory.stat().st_mode
    return 0o640 if mode & stat.S_ISGID and mode & 0o050 == 0o050 else 0o600


def lock_file(fd: int, path: Path) -> None:
    """Lock a region's own file; raise `WriterExistsError` if another process holds the lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _exists(path, fd) from None
    _check_named(fd, path)


def open_guard(path: Path) -> int:
    """Lock the guard of a region that others may read; return its descriptor.

    Guards are never removed: unlinking one could remove a lock that another process just took.

    Raises
    ------
    WriterExistsError
        Another process holds the lock.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    guard = os.open(path.with_name(f".{path.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(guard)
        fd = -1
        with contextlib.suppress(OSError, RegionError):
            fd = open_existing(path, os.O_RDONLY)
        try:
            raise _exists(path, fd) from None
        finally:
            if fd >= 0:
                os.close(fd)
    return guard


def lock_existing(fd: int, path: Path) -> int:
    """Lock an existing region by its file or its guard; return the guard, -1 if it has none."""
    if not os.fstat(fd).st_mode & _OTHERS:
        lock_file(fd, path)
        return -1
    guard = open_guard(path)
    try:
        _check_named(fd, path)
    except BaseException:
        os.close(guard)
        raise
    return guard


def adapt_mode(fd: int, guard: int, path: Path) -> int:
    """Give a locked region the mode that its directory asks for now; return its guard.

    Processes that have it open keep access.

    Parameters
    ----------
    fd, guard : int
        The region's file, and its guard or -1, as `lock_existing` returned it.
    path : Path
        Path of the file.
    """
    wanted = mode_below(path.parent)
    if stat.S_IMODE(os.fstat(fd).st_mode) == wanted:
        return guard
    if not wanted & _OTHERS:
        try:  # take both locks: from now on the file's own decides
            lock_file(fd, path)
        except WriterExistsError:
            return guard  # a reader has locked it: keep the mode; the directory still bars others
    return set_mode(fd, guard, path, wanted)


def set_mode(fd: int, guard: int, path: Path, mode: int) -> int:
    """Set the mode of a locked region; return its guard.

    Parameters
    ----------
    fd : int
        The region's file.
    guard : int
        Its guard, or -1. One is created if others than the owner may read.
    path : Path
        Path of the file, whose directory has the group.
    mode : int
    """
    if mode & _OTHERS:
        guard = open_guard(path) if guard < 0 else guard
        os.fchown(fd, -1, path.parent.stat().st_gid)
    os.fchmod(fd, mode)
    return guard


def hold_proof(fd: int) -> bool:
    """Take the lock that shows that this file's writer lives; return whether that succeeded.

    A reader may have locked the file against it; then only the pid shows that the writer lives.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError:
        return False
    return True


def release_proof(fd: int) -> None:
    """Release the lock of `hold_proof`. A forked child may keep the descriptor open."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0))


def _proof_held(fd: int) -> bool:
    # Test for a write lock, which only a process that may write the file can hold. A read lock,
    # which anybody can take, does not conflict.
    asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
    answer: bytes = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
    return bool(_FLOCK.unpack(answer)[0] == fcntl.F_WRLCK)


def process_alive(pid: int, start: int, namespace: int, fd: int, locked: bool = False) -> bool:
    """Return whether the process that claims to write a file is alive.

    In this pid namespace its pid decides, because a forked child may hold the locks of a dead
    process. If it said that it had `locked` the file, the lock must be held too, because a copy
    of the file has the same pid. In another namespace, or if /proc hides other users'
    processes, only the lock decides.

    Parameters
    ----------
    pid, start, namespace : int
        As the process stored them; see `process_start` and `process_namespace`.
    fd : int
        The file; -1: it cannot be opened, so its lock is not tested.
    locked : bool
        The process stored that it had locked the file.
    """
    if same_namespace(namespace):
        alive = process_start(pid) == start != 0
        return alive and (not locked or fd < 0 or _proof_held(fd))
    return fd >= 0 and _proof_held(fd)


def same_namespace(namespace: int) -> bool:
    """Return whether pids of that pid namespace mean the same processes here."""
    return bool(namespace) and namespace == process_namespace()


def process_namespace() -> int:
    """Return the number of this process's pid namespace; 0: /proc does not show all processes."""
    try:
        # Process 1 belongs to another user: it is hidden if /proc is mounted with hidepid. stat()
        # needs no descriptor, and there may be none free.
        Path("/proc/1/stat").stat()
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def process_start(pid: int) -> int:
    """Return when a process began, in clock ticks after boot; 0 if there is no such process.

    Pid and start together identify a process for good; a pid alone is reused (proc(5), field 22).
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return 0
    # The command in parentheses may itself have blanks and parentheses. A zombie counts as dead.
    fields = text[text.rindex(b")") + 2 :].split()
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _check_named(fd: int, path: Path) -> None:
    # Another process may have replaced the file between open and lock: then the lock is void.
    held = os.fstat(fd)
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        named = None
    if named is None or (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
        raise ReplacedError(f"{path}: another process has just replaced this file")


def _exists(path: Path, fd: int) -> WriterExistsError:
    # The header may not be there yet: 0 means that its writer has just begun.
    header = os.pread(fd, _OWNER.size, _PID_OFFSET) if fd >= 0 else b""
    pid, start = _OWNER.unpack(header.ljust(_OWNER.size, b"\0"))
    text = (
        f"{path}: expected no writer, found process {pid}: only one process can write it at a time"
    )
    if pid and start and process_start(pid) != start:
        # A child that was forked without Python's knowledge has its parent's descriptors and locks.
        holders = " and ".join(map(str, _holders(fd))) or "one that this user cannot see"
        text += f"; that process is dead, but process {holders} still holds its lock"
        pid = 0
    return WriterExistsError(text, pid)


def _holders(fd: int) -> list[int]:
    # Return the processes of this user that have the file open.
    wanted = os.fstat(fd)
    found = set()
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.path.samestat(entry.stat(), wanted):
                found.add(int(entry.parts[2]))
    return sorted(found - {os.getpid()})
