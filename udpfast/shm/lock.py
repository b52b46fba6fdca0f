"""Who writes a region: locks that the kernel drops when their holder dies, however it dies.

The lock lies on the region's own file. But whoever may read a file may lock it, and keep the next
writer out. So where a group may read, the lock that decides lies on a guard, `.<name>.lock`, which
only the owner can open.

Who only wants to know whether a writer lives must not disturb a next one. So a writer holds a third
lock, which can be looked at without being taken, from every container: what a pid means is known
in its own pid namespace only.
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
    """A file was replaced between its opening and its locking: what was locked is nobody's.

    Whoever replaced it may live or not: look again.
    """


def open_existing(path: Path, flags: int) -> int:
    """Open a file that may be anything that somebody put there.

    Raises
    ------
    RegionError
        It is a symbolic link or a directory.
    """
    try:
        # O_NONBLOCK: a pipe that somebody put there must not block us; nothing to regular files.
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
        It is no regular file, its owner is not trusted, or others may write to it.
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
    """Return the mode of regions in a directory: 0640 where it lets its group in, else 0600."""
    mode = directory.stat().st_mode
    return 0o640 if mode & stat.S_ISGID and mode & 0o050 == 0o050 else 0o600


def lock_file(fd: int, path: Path) -> None:
    """Lock a region's own file; raise `WriterExistsError` if another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _exists(path, fd) from None
    _check_named(fd, path)


def open_guard(path: Path) -> int:
    """Lock the guard of a region that others may read; return its descriptor.

    It is never removed: who unlinks a lock may unlink the one that another has just taken.

    Raises
    ------
    WriterExistsError
        Another process has it.
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
    """Lock a region that is there by what decides there; return the guard, -1 if it has none."""
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
    """Have a locked region readable by whom its directory lets in by now; return its guard.

    Whoever has it open keeps it.

    Parameters
    ----------
    fd, guard : int
        The region's file, and its guard or -1, as `lock_existing` returned it.
    path : Path
        Of the file.
    """
    wanted = mode_below(path.parent)
    if stat.S_IMODE(os.fstat(fd).st_mode) == wanted:
        return guard
    if not wanted & _OTHERS:
        try:  # both locks: from now on the file's own decides
            lock_file(fd, path)
        except WriterExistsError:
            return guard  # a reader has locked it: it stays as it is, behind its directory
    return set_mode(fd, guard, path, wanted)


def set_mode(fd: int, guard: int, path: Path, mode: int) -> int:
    """Set who may read a region that is locked; return its guard.

    Parameters
    ----------
    fd : int
        The region's file.
    guard : int
        Its guard, if it has one; else -1. One is made if others than the owner may read.
    path : Path
        Of the file, whose directory names the group.
    mode : int
    """
    if mode & _OTHERS:
        guard = open_guard(path) if guard < 0 else guard
        os.fchown(fd, -1, path.parent.stat().st_gid)
    os.fchmod(fd, mode)
    return guard


def hold_proof(fd: int) -> bool:
    """Take the lock by which others see that the writer of this file lives; return whether it did.

    A reader may have locked the file against writing: then others see it by the pid alone.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError:
        return False
    return True


def release_proof(fd: int) -> None:
    """Let go of what `hold_proof` took: a forked child may hold the descriptor on."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0))


def _proof_held(fd: int) -> bool:
    # A lock for reading would meet one for writing, which only who may write the file can take.
    asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
    answer: bytes = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
    return bool(_FLOCK.unpack(answer)[0] == fcntl.F_WRLCK)


def process_alive(pid: int, start: int, namespace: int, fd: int, locked: bool = False) -> bool:
    """Return whether a process runs that said so of itself, and has `fd`'s file open to write.

    In this pid namespace by its pid: a child that it forked may hold its locks when it is gone.
    If it said that it had `locked` the file, by the lock as well: a copy of the file has the pid,
    and nobody writes it. In another namespace, or where the others' processes are hidden from this
    one, by the lock alone.

    Parameters
    ----------
    pid, start, namespace : int
        What the process said of itself; `process_start` and `process_namespace` say what they are.
    fd : int
        The file that it writes; -1: it cannot be opened, and its lock is not looked at.
    locked : bool
        It said that it had locked the file.
    """
    if same_namespace(namespace):
        alive = process_start(pid) == start != 0
        return alive and (not locked or fd < 0 or _proof_held(fd))
    return fd >= 0 and _proof_held(fd)


def same_namespace(namespace: int) -> bool:
    """Return whether pids of that pid namespace mean the same processes here."""
    return bool(namespace) and namespace == process_namespace()


def process_namespace() -> int:
    """Return the number of this process's pid namespace; 0: /proc does not show its processes."""
    try:
        # Process 1 is another user's: it is not there where /proc is mounted with hidepid.
        # Asked without a descriptor: there may be none free.
        Path("/proc/1/stat").stat()
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def process_start(pid: int) -> int:
    """Return when a process began, in clock ticks after boot; 0 if there is no such process.

    Pid and start together name a process for good: a pid alone is used again (proc(5), field 22).
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return 0
    # The command, in parentheses, may itself hold spaces and parentheses. A zombie is dead.
    fields = text[text.rindex(b")") + 2 :].split()
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _check_named(fd: int, path: Path) -> None:
    # Between open and lock, another process may have replaced the file: then we hold nothing.
    held = os.fstat(fd)
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        named = None
    if named is None or (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
        raise ReplacedError(f"{path}: another process has just replaced it")


def _exists(path: Path, fd: int) -> WriterExistsError:
    # Its header may not be there yet: 0 says that its writer has just begun.
    header = os.pread(fd, _OWNER.size, _PID_OFFSET) if fd >= 0 else b""
    pid, start = _OWNER.unpack(header.ljust(_OWNER.size, b"\0"))
    text = (
        f"{path}: expected no writer, found process {pid}: only one process can write it at a time"
    )
    if pid and start and process_start(pid) != start:
        # Forked past Python, a child has its parent's descriptors, and with them the locks.
        holders = " and ".join(map(str, _holders(fd))) or "one that this user cannot see"
        text += f"; that process is dead, but process {holders} still holds its lock"
        pid = 0
    return WriterExistsError(text, pid)


def _holders(fd: int) -> list[int]:
    # Processes of this user that have the file open.
    wanted = os.fstat(fd)
    found = set()
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.path.samestat(entry.stat(), wanted):
                found.add(int(entry.parts[2]))
    return sorted(found - {os.getpid()})
