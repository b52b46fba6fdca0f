"""Mapped files that cannot be misread: locked by their one writer, and checked by readers.

A writer creates a region, fills it and calls `mark_ready`. It holds a lock on the file as long as
it lives; the kernel drops the lock when it dies, however it dies. Readers map read-only.

A file that replaces a dead writer's is created beside it, as `.<name>.next`, and renamed by
`mark_ready`. So a start that fails or is killed leaves the old file as it was, and nobody ever
finds a half-made file. Of writers that start at the same time exactly one succeeds.
"""

import contextlib
import fcntl
import json
import os
import weakref
from pathlib import Path

from libc.string cimport memcpy
from posix.unistd cimport close as close_file

from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.oserr cimport check
from udpfast.shm.mapping cimport HUGE_PAGE, Mapping, map_file

from udpfast.errors import NotReadyError, RegionError
from udpfast.shm.lock import (
    ReplacedError, adapt_mode, check_file, hold_proof, lock_existing, lock_file, mode_below,
    open_existing, open_guard, process_alive, process_namespace, process_start, release_proof,
    same_namespace, set_mode,
)

__all__ = ["Region"]

cdef bytes _MAGIC = b"UDPFAST\0"

cdef enum:
    LOOKS_MAX = 100              # attempts; each failed one saw another start replace the file

if sizeof(RegionHeader) != REGION_HEADER_SIZE:
    raise ImportError(f"RegionHeader has {sizeof(RegionHeader)} bytes, not {REGION_HEADER_SIZE}")


cdef class Region:
    """One mapped file. Made by `create`, `attach` or `reopen_for_write`, not by calling the class.

    Attributes
    ----------
    path : pathlib.Path
    size_bytes : int
        Size of the whole file with its 128-byte header.
    writable : bool
        It is mapped for writing.
    """

    def __cinit__(self):
        self._fd = self._guard = self._old = -1

    @staticmethod
    def create(
            path: str | os.PathLike[str], kind: str, size_bytes: int, layout_hash: int,
            mode: int | None = None, replace: bool = False, keep: bool = True,
            huge: bool = False) -> Region:
        """Create the file, reserve and touch all its memory, and lock it for writing.

        Readers are refused until `mark_ready` is called. With `replace`, they find the existing
        file until then, if there is one.

        Parameters
        ----------
        path : str or path
            The file, which must not exist (but see `replace`); its directory must.
        kind : str
            Four ASCII characters.
        size_bytes : int
            Size of the whole file with its 128-byte header.
        layout_hash : int
            64 bits; readers must pass the same value.
        mode : int, optional
            Exact permissions; the umask is not applied. By default 0600, or 0640 if the directory
            has the set-group-id mode that lets a group read (`shm.instance`).
        replace : bool
            Replace a file that a dead writer left there, at `mark_ready`.
        keep : bool
            With `replace`: keep that file until then. False: remove it at once, because nobody
            reads it and its memory is needed for the new one.
        huge : bool
            Ask the kernel for pages of 2 MiB, as far as it has them. `collapse` then has nothing to
            copy, and returns how many there are.

        Raises
        ------
        WriterExistsError
            A living process writes the existing file, or is about to.
        FileExistsError
            The file exists and `replace` is False.
        OSError
            ENOSPC: the file system has no room for it; the message has the needed and free bytes.
        """
        cdef Region region
        path = Path(path)
        name = _kind_bytes(kind)
        if size_bytes < REGION_HEADER_SIZE:
            raise ValueError(f"size_bytes must be >= {REGION_HEADER_SIZE}, was {size_bytes}")
        if replace:
            return _create_aside(path, name, size_bytes, layout_hash, mode, keep, huge)
        if mode is None:
            mode = mode_below(path.parent)
        guard = fd = -1
        try:
            if mode & 0o077:
                guard = open_guard(path)
            # For the owner alone until it is locked.
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                         mode & 0o700)
            lock_file(fd, path)
            hold_proof(fd)
            os.fchmod(fd, mode)
            _reserve(fd, path, size_bytes, huge)
            region = _map(fd, path, size_bytes, True)
        except BaseException:
            _close_all(fd, guard)
            raise
        _hold(region, fd, guard)
        _write_header(region, name, layout_hash)
        return region

    @staticmethod
    def attach(
            path: str | os.PathLike[str], kind: str, layout_hash: int, writable: bool = False,
            populate: bool = True) -> Region:
        """Map an existing region, after checking everything that its header says.

        Parameters
        ----------
        path : str or path
            A symbolic link is refused.
        kind : str
        layout_hash : int
        writable : bool
            Map for writing, without becoming the writer (no lock is taken).
        populate : bool
            Touch all its memory now. False: touch each page when it is read.

        Raises
        ------
        RegionError
            The header differs; the message says what was expected and what was found.
        OSError
            There is no such file, or it cannot be opened.
        """
        cdef Region region
        path = Path(path)
        fd = open_existing(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            region = _map_checked(fd, path, kind, layout_hash, writable, populate)
            if not writable and not same_namespace(
                    (<const RegionHeader*>region.pointer).writer_namespace):
                # Only the lock tells whether the writer lives: keep the file open, whatever happens
                # to this process's rights or the path.
                region._fd, fd = fd, -1
            return region
        finally:
            if fd >= 0:
                os.close(fd)

    @staticmethod
    def reopen_for_write(
            path: str | os.PathLike[str], kind: str, layout_hash: int,
            claim: bool = True) -> Region:
        """Become the writer of a region whose writer is dead. The contents stay as they are.

        Parameters
        ----------
        path : str or path
        kind : str
        layout_hash : int
        claim : bool
            Name this process in the header now. False: only lock the region until `mark_ready`.

        Raises
        ------
        WriterExistsError
            Its writer is alive; the message has its pid.
        RegionError
            It is not a region of this kind and layout, or was never made ready.
        """
        cdef Region region
        path = Path(path)
        fd, guard = _insist(_lock_there, path)
        try:
            hold_proof(fd)
            region = _map_checked(fd, path, kind, layout_hash, True)
        except BaseException:
            _close_all(fd, guard)
            raise
        _hold(region, fd, guard)
        if claim:
            _claim(region)
        return region

    def mark_ready(self) -> None:
        """Let readers attach: everything in the region has its first value.

        A file created with `replace` takes its place now, and the header of a region that was
        reopened without `claim` now names this process.
        """
        _open_pointer(self)
        if not self._claimed:
            _claim(self)
        # Orders the header and the first contents before `ready`; read by _map_checked.
        store_release(&(<RegionHeader*>self.pointer).ready, 1)
        if self._aside is not None:
            _switch(self)

    def describe(self, description: dict[str, Any]) -> None:
        """Store a JSON object that describes the region, behind the header and before `mark_ready`.

        It must fit the rest of the first page (3968 bytes of UTF-8).
        """
        cdef RegionHeader* header = <RegionHeader*>_open_pointer(self)
        cdef bytes text = json.dumps(description, separators=(",", ":")).encode()
        cdef Py_ssize_t room = min(self.size_bytes, <Py_ssize_t>REGION_PAGE) - REGION_HEADER_SIZE
        if len(text) > room:
            raise ValueError(f"description must fit {room} bytes, has {len(text)}")
        memcpy(self.pointer + REGION_HEADER_SIZE, <const char*>text, len(text))
        header.description_size = len(text)

    def description(self) -> dict[str, Any]:
        """Return what `describe` stored; an empty dict if nothing was stored.

        Raises
        ------
        RegionError
            The stored description is not a JSON object.
        """
        cdef RegionHeader* header = <RegionHeader*>_open_pointer(self)
        cdef uint64_t size = header.description_size
        cdef uint64_t room = min(self.size_bytes, <Py_ssize_t>REGION_PAGE) - REGION_HEADER_SIZE
        if size == 0:
            return {}
        if size > room:
            raise RegionError(
                f"{self.path}: expected a description of at most {room} bytes, found {size}")
        text = self.view()[REGION_HEADER_SIZE:REGION_HEADER_SIZE + size].tobytes()
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RegionError(f"{self.path}: expected a JSON description: {error}") from None
        if not isinstance(found, dict):
            raise RegionError(
                f"{self.path}: expected a JSON object as description, found {text[:40]!r}")
        return found

    def view(self) -> memoryview:
        """Return a memoryview of the whole file. It keeps the mapping alive after `close`."""
        _open_pointer(self)
        return memoryview(self._mapping)

    def collapse(self) -> tuple[int, int, str]:
        """Move the region to pages of 2 MiB, best before readers attach. The contents stay.

        Returns
        -------
        wanted, got : int
            Bytes that could be moved, and bytes that were; the rest behind the last multiple of
            2 MiB is not counted.
        reason : str
            Why fewer were moved; empty if all were.
        """
        _open_pointer(self)
        return self._mapping.collapse()

    @property
    def created_ns(self) -> int:
        """When the writer created it (or took it over), UNIX ns."""
        return (<RegionHeader*>_open_pointer(self)).created_ns

    @property
    def writer_pid(self) -> int:
        """Pid of the process that created it, or took it over last."""
        return (<RegionHeader*>_open_pointer(self)).writer_pid

    def writer_alive(self) -> bool:
        """Return whether the writer's process runs, in whichever container.

        True, too, if that cannot be determined: the process and its lock are both out of sight.
        """
        cdef RegionHeader* header = <RegionHeader*>_open_pointer(self)
        # If the writer's pid is in sight, the descriptor was closed after attaching, so open the
        # path to test the lock. If that is forbidden or no descriptor is free, the pid alone
        # decides.
        kept = self._fd if not self.writable else -1
        fd = -1
        try:
            if not self.replaced():
                fd = kept if kept >= 0 else open_existing(self.path, os.O_RDONLY)
        except FileNotFoundError:
            pass
        except (OSError, RegionError):
            if not same_namespace(header.writer_namespace):
                return True
        try:
            return process_alive(
                header.writer_pid, header.writer_start, header.writer_namespace, fd,
                (<uint64_t*>header.reserved)[0] != 0)
        finally:
            if fd >= 0 and fd != kept:
                os.close(fd)

    def replaced(self) -> bool:
        """Return whether its path now names another file or none: time to attach again."""
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return True
        return (status.st_dev, status.st_ino) != self._identity

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.pointer == NULL

    def close(self) -> None:
        """Release lock and mapping. Views stay valid; the last one unmaps. Idempotent.

        In a forked child it releases only the child's mapping: the lock is the parent's.
        """
        self.pointer = NULL
        self._mapping = None
        _give_up(self)
        descriptors = _taken(self)
        for fd in descriptors:
            # A child that was forked without Python's knowledge may hold the descriptor and so the
            # lock.
            if fd >= 0:
                fcntl.flock(fd, fcntl.LOCK_UN)
                release_proof(fd)
        _close_all(*descriptors)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def __dealloc__(self):
        cdef int fd
        _give_up(self)
        # In C: this module's names may be gone, because the interpreter ends.
        for fd in (self._fd, self._guard, self._old):
            if fd >= 0:
                close_file(fd)


cdef uint8_t* _open_pointer(Region region) except NULL:
    if region.pointer == NULL:
        raise ValueError(f"region {region.path} is closed")
    return region.pointer


cdef _write_header(Region region, bytes name, layout_hash):
    cdef RegionHeader* header = <RegionHeader*>region.pointer
    header.version = REGION_VERSION
    header.layout_hash = layout_hash
    header.size = region.size_bytes
    memcpy(header.kind, <const char*>name, 4)
    memcpy(header.magic, <const char*>_MAGIC, 8)
    _write_owner(region)


cdef _write_owner(Region region):
    cdef RegionHeader* header = <RegionHeader*>region.pointer
    header.created_ns = clock_realtime_ns()
    header.writer_start = process_start(os.getpid())
    header.writer_namespace = process_namespace()
    # Not 0: this file itself is locked, which a copy of it would not be.
    (<uint64_t*>header.reserved)[0] = hold_proof(region._fd)
    header.writer_pid = os.getpid()
    region._claimed = True


def _kind_bytes(kind):
    name = kind.encode("ascii")
    if len(name) != 4:
        raise ValueError(f"kind must have 4 characters, was {kind!r}")
    return name


cdef Region _create_aside(path, bytes name, size_bytes, layout_hash, mode, keep, huge):
    cdef Region region
    aside = path.with_name(f".{path.name}.next")
    fd, old, guard = _insist(_lock_aside, path, aside)
    try:
        if not keep:
            path.unlink(missing_ok=True)
        hold_proof(fd)
        os.ftruncate(fd, 0)  # left by a killed start
        _reserve(fd, aside, size_bytes, huge)
        region = _map(fd, path, size_bytes, True)
    except BaseException:
        _remove_own(aside, fd)
        _close_all(fd, guard, old)
        raise
    _hold(region, fd, guard)
    region._old = old
    region._aside = aside
    region._mode = mode
    _write_header(region, name, layout_hash)
    return region


def _lock_there(path):
    # Lock the existing file; return its descriptor and its guard's.
    fd = open_existing(path, os.O_RDWR)
    try:
        check_file(fd, path)
        return fd, lock_existing(fd, path)
    except BaseException:
        os.close(fd)
        raise


def _lock_aside(path, aside):
    # First take the lock that concurrent starts compete for, then the lock of a living writer. A
    # start that continues the existing file takes only the latter.
    fd = old = guard = -1
    locked = False
    try:
        fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        check_file(fd, aside)
        lock_file(fd, aside)
        locked = True
        with contextlib.suppress(FileNotFoundError):
            old, guard = _lock_there(path)
        return fd, old, guard
    except BaseException:
        if locked:
            _remove_own(aside, fd)
        _close_all(fd, guard, old)
        raise


def _insist(lock, *arguments):
    # The process that replaced a file while it was being locked may be gone: try again.
    for _ in range(LOOKS_MAX):
        try:
            return lock(*arguments)
        except ReplacedError as error:
            failure = error
    raise failure


cdef _switch(Region region):
    # The new file is complete: it takes the old one's place in one step.
    region._guard = set_mode(
        region._fd, region._guard, region.path,
        mode_below(region.path.parent) if region._mode is None else region._mode)
    region._aside.rename(region.path)
    region._aside = None
    old, region._old = region._old, -1
    _close_all(old)


cdef _claim(Region region):
    # The new writer, which holds the lock by now, sets who may read the file.
    region._guard = adapt_mode(region._fd, region._guard, region.path)
    _write_owner(region)


cdef _hold(Region region, int fd, int guard):
    region._fd = fd
    region._guard = guard
    _WRITERS.add(region)


cdef _give_up(Region region):
    # A start that failed leaves nothing behind.
    aside, region._aside = region._aside, None
    if aside is not None and region._fd >= 0:
        _remove_own(aside, region._fd)


def _remove_own(path, fd):
    with contextlib.suppress(OSError):
        if os.path.samestat(os.lstat(path), os.fstat(fd)):
            path.unlink()


cdef tuple _taken(Region region):
    # Hand the descriptors over for closing. The region forgets them first, because another thread
    # may close it at the same time, when their numbers may already belong to other files.
    cdef int fd = region._fd, guard = region._guard, old = region._old
    region._fd = region._guard = region._old = -1
    return fd, guard, old


def _close_all(*descriptors):
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


# Regions that this process writes. A forked child has their descriptors too and would hold their
# locks when this process is gone, so it closes them at once. (The lock itself stays: it ends with
# the last descriptor, or when its holder releases it.)
_WRITERS = weakref.WeakSet()


def _leave_in_child():
    cdef Region region
    for region in list(_WRITERS):
        region._aside = None  # the parent will remove it
        _close_all(*_taken(region))
    _WRITERS.clear()


os.register_at_fork(after_in_child=_leave_in_child)


def _reserve(fd, path, size_bytes, huge):
    # Reserve all memory now: a page that is missing later would raise SIGBUS in the hot loop.
    try:
        if huge:
            _reserve_huge(fd, size_bytes)
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError as error:
        path.unlink(missing_ok=True)
        space = os.statvfs(path.parent)
        check(-error.errno, f"reserve {size_bytes} bytes ({space.f_bavail * space.f_frsize} free)",
              str(path))


def _reserve_huge(fd, size_bytes):
    # The kernel makes a huge page around one small page without copying; 512 small ones it would
    # copy.
    cdef Mapping mapping
    os.ftruncate(fd, size_bytes)
    for at in range(0, size_bytes - HUGE_PAGE + 1, HUGE_PAGE):
        os.posix_fallocate(fd, at, 1)
    mapping = map_file(fd, size_bytes, True, False)
    mapping.collapse()


_OF_A_VERSION = ("version", "layout hash")


cdef Region _map_checked(fd, path, kind, layout_hash, writable, populate=True):
    size = check_file(fd, path)
    if size < REGION_HEADER_SIZE:
        raise NotReadyError(f"{path}: expected at least {REGION_HEADER_SIZE} bytes, found {size}")
    cdef Region region = _map(fd, path, size, writable, populate)
    cdef RegionHeader* header = <RegionHeader*>region.pointer
    cdef uint64_t ready = load_acquire(&header.ready)
    for what, expected, found in (
        ("magic", _MAGIC, header.magic[:8]),
        ("version", REGION_VERSION, header.version),
        ("kind", _kind_bytes(kind), header.kind[:4]),
        ("size", header.size, size),
        ("layout hash", f"{layout_hash:016x}", f"{header.layout_hash:016x}"),
        ("ready", 1, ready),
    ):
        if expected != found:
            refusal = RegionError if ready else NotReadyError
            why = ": it is of another version of udpfast" if what in _OF_A_VERSION else ""
            raise refusal(f"{path}: expected {what} {expected!r}, found {found!r}{why}")
    return region


cdef Region _map(fd, path, Py_ssize_t size_bytes, bint writable, bint populate=True):
    cdef Region region = Region.__new__(Region)
    # A mapping keeps its open file description alive, and a forked child inherits it, which would
    # keep the lock beyond the death of its holder. So map another open file description.
    own = os.open(f"/proc/self/fd/{fd}", (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        region._mapping = map_file(own, size_bytes, writable, populate)
    finally:
        os.close(own)
    region.pointer = region._mapping.pointer
    status = os.fstat(fd)
    region._identity = (status.st_dev, status.st_ino)
    region.path = path
    region.size_bytes = size_bytes
    region.writable = writable
    return region
