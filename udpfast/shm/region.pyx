"""Mapped files that refuse to be misread: created once, locked by one writer, checked by readers.

A writer creates a region, fills it and calls `mark_ready`. It holds a lock on the file for as
long as it lives; the kernel drops the lock when it dies, however it dies. Readers map read-only.

What takes the place of a dead writer's file is made beside it, as `.<name>.next`, and renamed over
it by `mark_ready`. So a start that fails, or is killed, leaves what was there as it was, and nobody
ever finds a file that is half made. Of writers that start at once exactly one comes by.
"""

import contextlib
import fcntl
import json
import os
import weakref
from pathlib import Path

from libc.string cimport memcpy

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
    LOOKS_MAX = 100              # each but the last saw another start put its file there

if sizeof(RegionHeader) != REGION_HEADER_SIZE:
    raise ImportError(f"RegionHeader has {sizeof(RegionHeader)} bytes, not {REGION_HEADER_SIZE}")


cdef class Region:
    """One mapped file. Made by `create`, `attach` or `reopen_for_write`, never by its name.

    Attributes
    ----------
    path : pathlib.Path
    size_bytes : int
        Of the whole file, its 128-byte header included.
    writable : bool
    """

    def __cinit__(self):
        self._fd = self._guard = self._old = -1

    @staticmethod
    def create(
            path: str | os.PathLike[str], kind: str, size_bytes: int, layout_hash: int,
            mode: int | None = None, replace: bool = False, keep: bool = True,
            huge: bool = False) -> Region:
        """Create the file, reserve and touch all its memory, and lock it for writing.

        Readers are refused until `mark_ready` is called; with `replace` they find what was there
        until then, if anything was.

        Parameters
        ----------
        path : str or path
            Must not exist (see `replace`); its directory must.
        kind : str
            Four ASCII characters.
        size_bytes : int
            Of the whole file, the 128-byte header included.
        layout_hash : int
            64 bits; readers must bring the same.
        mode : int, optional
            Permissions, exactly: the umask is not applied. By default 0600, and 0640 where the
            directory is of the set-group-id kind that lets a group read (`shm.instance`).
        replace : bool
            Take the place of a file that a dead writer left there, at `mark_ready`.
        keep : bool
            With `replace`: until then that file stays; False: nobody reads it, and its memory is
            needed for this one.
        huge : bool
            Have the kernel make pages of 2 MiB of it, as far as it has some: `collapse` then finds
            nothing to copy, and says how many there are.

        Raises
        ------
        WriterExistsError
            A living process writes the file that is there, or is about to.
        FileExistsError
            The file exists and `replace` is false.
        OSError
            ENOSPC: the file system cannot hold it; the message names need and free space.
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
        """Map an existing region, after comparing all that its header says.

        Parameters
        ----------
        path : str or path
            A symbolic link is refused.
        kind : str
        layout_hash : int
        writable : bool
            Map for writing, without becoming its writer (no lock is taken).
        populate : bool
            Touch all its memory now; False: each page when it is read.

        Raises
        ------
        RegionError
            Anything differs; the message says what was expected and what was found.
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
                # Its lock alone tells whether the writer lives: it must stay in sight, whatever
                # becomes of our rights and of the path.
                region._fd, fd = fd, -1
            return region
        finally:
            if fd >= 0:
                os.close(fd)

    @staticmethod
    def reopen_for_write(
            path: str | os.PathLike[str], kind: str, layout_hash: int,
            claim: bool = True) -> Region:
        """Become the writer of a region whose writer is dead; its contents stay as they are.

        Parameters
        ----------
        path : str or path
        kind : str
        layout_hash : int
        claim : bool
            Say so in its header now; False: at `mark_ready`. Until then it is locked, no more.

        Raises
        ------
        WriterExistsError
            Its writer lives; the message names the pid.
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

        What was created with `replace` takes its place now, and what was reopened without `claim`
        says who writes it.
        """
        _open_pointer(self)
        if not self._claimed:
            _claim(self)
        # Orders the header and the first contents before `ready`; read by _map_checked.
        store_release(&(<RegionHeader*>self.pointer).ready, 1)
        if self._aside is not None:
            _switch(self)

    def describe(self, description: dict[str, Any]) -> None:
        """Store a JSON object behind the header, before `mark_ready`: the region names its parts.

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
        """Return what `describe` stored; an empty dict if nothing was.

        Raises
        ------
        RegionError
            It is not a JSON object.
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
        """Move the region onto pages of 2 MiB (best before readers attach); contents stay.

        Returns
        -------
        wanted, got : int
            Bytes; what is left of the last 2 MiB is not wanted.
        reason : str
            Why less was got; empty if all was.
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
        """Whether the writer's process runs, in whichever container.

        True, too, where nobody can tell: it is out of sight, and its lock cannot be looked at.
        """
        cdef RegionHeader* header = <RegionHeader*>_open_pointer(self)
        # Where the writer's pid is in sight the descriptor was closed when it was attached: the
        # lock is looked for where it was. Who may not open it any more, or has no descriptor free,
        # does without.
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
        """Whether its path now names another file, or none: time to attach again."""
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
        """Let go of lock and mapping. Views stay valid: the last one unmaps. Idempotent.

        In a forked child it lets go of the child's mapping only: the lock is the parent's.
        """
        self.pointer = NULL
        self._mapping = None
        _give_up(self)
        descriptors = _taken(self)
        for fd in descriptors:
            # A child that was forked past Python may hold the descriptor too, and with it the lock.
            if fd >= 0:
                fcntl.flock(fd, fcntl.LOCK_UN)
                release_proof(fd)
        _close_all(*descriptors)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def __dealloc__(self):
        _give_up(self)
        _close_all(*_taken(self))


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
    # Not 0: it holds a lock on this very file, which a copy of it has not.
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
        os.ftruncate(fd, 0)  # what a start that was killed left
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
    # The file that is there, locked: its descriptor, and its guard's.
    fd = open_existing(path, os.O_RDWR)
    try:
        check_file(fd, path)
        return fd, lock_existing(fd, path)
    except BaseException:
        os.close(fd)
        raise


def _lock_aside(path, aside):
    # First the lock at which starts meet, then the one by which a writer lives, and which a start
    # that goes on in the file that is there takes alone.
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
    # Who replaces a file while it is being locked may be gone as well: it is looked at again.
    for _ in range(LOOKS_MAX):
        try:
            return lock(*arguments)
        except ReplacedError as error:
            failure = error
    raise failure


cdef _switch(Region region):
    # The new file is complete: now it takes the old one's place, in one step.
    region._guard = set_mode(
        region._fd, region._guard, region.path,
        mode_below(region.path.parent) if region._mode is None else region._mode)
    region._aside.rename(region.path)
    region._aside = None
    old, region._old = region._old, -1
    _close_all(old)


cdef _claim(Region region):
    # Who may read it is decided by its new writer, who holds the lock by now.
    region._guard = adapt_mode(region._fd, region._guard, region.path)
    _write_owner(region)


cdef _hold(Region region, int fd, int guard):
    region._fd = fd
    region._guard = guard
    _WRITERS.add(region)


cdef _give_up(Region region):
    # A start that came to nothing leaves nothing.
    aside, region._aside = region._aside, None
    if aside is not None and region._fd >= 0:
        _remove_own(aside, region._fd)


def _remove_own(path, fd):
    with contextlib.suppress(OSError):
        if os.path.samestat(os.lstat(path), os.fstat(fd)):
            path.unlink()


cdef tuple _taken(Region region):
    # Its descriptors, for who closes them: forgotten first, since another thread may close the
    # region meanwhile, and their numbers may be other files' by then.
    cdef int fd = region._fd, guard = region._guard, old = region._old
    region._fd = region._guard = region._old = -1
    return fd, guard, old


def _close_all(*descriptors):
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


# Regions that this process writes. A forked child has their descriptors, too, and would hold their
# locks when this process is gone: it lets go of them at once. (The lock itself stays: it goes with
# the last descriptor, or when its holder says so.)
_WRITERS = weakref.WeakSet()


def _leave_in_child():
    cdef Region region
    for region in list(_WRITERS):
        region._aside = None  # the parent's to remove
        _close_all(*_taken(region))
    _WRITERS.clear()


os.register_at_fork(after_in_child=_leave_in_child)


def _reserve(fd, path, size_bytes, huge):
    # All memory is taken now: a page that is missing later would be SIGBUS in the hot loop.
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
    # Around one small page the kernel makes a huge one at once. Of 512 small ones it copies each.
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
        ("size", size, header.size),
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
    # A mapping holds what it was made of as a descriptor does, and a forked child has both: a lock
    # would outlive its holder by it. So the file is opened once more.
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
