"""The readers of a ring: each keeps one small file, `readers/<pid>-<n>`, which tools list.

A file belongs to its reader, which may be another user's, broken or hostile. So only the reader
itself maps it (truncating a mapped file kills the process that mapped it). Tools read a copy, trust
nothing in it, and look at no more than `READERS_MAX` readers.
"""

import contextlib
import itertools
import os
import stat
import time
import weakref
from pathlib import Path

from msgspec import Struct

from libc.string cimport memcpy

from udpfast.errors import RegionError, WriterExistsError
from udpfast.log.cursor cimport RingCursor
from udpfast.shm.histogram cimport Histogram, histogram_copied
from udpfast.shm.lock import open_existing, process_alive, process_namespace
from udpfast.shm.region cimport REGION_VERSION, Region, RegionHeader

__all__ = [
    "READERS_MAX",
    "READER_HOPS",
    "ReaderInfo",
    "ReaderRegistration",
    "list_readers",
    "reader_histograms",
    "remove_dead_readers",
]

#: The hops that a reader measures, as its entry and `udpfast stat` name them.
READER_HOPS = ("loop_to_strategy", "kernel_to_strategy")

#: Most readers that are listed; a host has no use for more. A list of this length may be
#: incomplete.
READERS_MAX = 1024

# Most files that are searched for entries, so that a flood of other files costs no more than this.
_LOOKED_AT_MAX = 65_536
# Creating an entry takes milliseconds.
_MAKING_S = 60

_KIND = "READ"
_LAYOUT_HASH = 2  # version of ReaderEntry
_HISTOGRAMS = 256  # offset of the histograms in an entry


class ReaderInfo(Struct, frozen=True):
    """The state that one reader published last. Its lag is the ring's `tail_index` minus `index`.

    `began_index + read + lapped` equals `index`: every record that it could read is accounted for.
    """

    pid: int
    name: str
    position: int
    index: int
    lapped: int
    polled_ns: int
    alive: bool
    began_index: int
    read: int


cdef class ReaderRegistration:
    """A reader's own entry, which lasts until `close` or the end of its process.

    Attributes
    ----------
    region : Region
    name : str
    """

    @staticmethod
    def create(
            directory: str | os.PathLike[str], name: str, index: int = 0,
            now_ns: int = 0) -> ReaderRegistration:
        """Register a reader in an instance's directory, and remove the entries of dead readers.

        Parameters
        ----------
        directory : str or path
            The instance's directory.
        name : str
            Name of the reader in lists, cut to 64 bytes.
        index : int
            Index of the first record that it will read, unless it is lapped.
        now_ns : int
            UNIX ns; records published before are read but not timed.
        """
        cdef ReaderRegistration registration
        folder = Path(directory) / "readers"
        folder.mkdir(mode=0o700, exist_ok=True)  # in an instance it exists, with its own mode
        remove_dead_readers(directory)
        for number in itertools.count():
            with contextlib.suppress(FileExistsError, WriterExistsError):
                registration = _register(folder / f"{os.getpid()}-{number}", name, index, now_ns)
                # While it was being made, another pid namespace may have taken it for dead and
                # removed it.
                if not registration.region.replaced():
                    # Leave also if the reader is dropped without `close`.
                    registration._leave = weakref.finalize(
                        registration, _remove, registration.region.path, os.getpid())
                    return registration
                registration.region.close()

    def report(self, RingCursor cursor, int64_t now_ns, read: int | None = None) -> None:
        """Publish how far the cursor is. In C: `reader_report`.

        Parameters
        ----------
        cursor : RingCursor
        now_ns : int
            UNIX ns.
        read : int, optional
            Records read since the beginning; by default unchanged.
        """
        if self.region.pointer == NULL:
            raise ValueError(f"registration {self.region.path} is closed")
        if read is not None:
            store_relaxed(&self.entry.read, <uint64_t>read)
        reader_report(self.entry, &cursor.reader, now_ns)

    def close(self) -> None:
        """Remove the entry. Idempotent."""
        if self.region.pointer != NULL:
            self._leave()
            self.region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()


def _remove(path, pid):
    if pid == os.getpid():  # not in a forked child
        path.unlink(missing_ok=True)


cdef ReaderRegistration _register(path, name, index, now_ns):
    cdef ReaderRegistration registration = ReaderRegistration.__new__(ReaderRegistration)
    cdef bytes text = name.encode()[:READER_NAME_SIZE]
    registration.region = Region.create(
        path, _KIND, sizeof(ReaderEntry), _LAYOUT_HASH, mode=0o600)
    registration.name = name
    registration.entry = <ReaderEntry*>registration.region.pointer
    memcpy(registration.entry.name, <const char*>text, len(text))
    registration.entry.began_index = registration.entry.index = index
    registration.entry.began_ns = now_ns
    if path.parent.stat().st_mode & stat.S_ISGID:  # the feed's owner may be another user
        path.chmod(0o640)
    registration.region.mark_ready()
    return registration


def list_readers(directory: str | os.PathLike[str]) -> list[ReaderInfo]:
    """Return the last state of an instance's readers, dead ones included, sorted by pid."""
    return [info for info, _ in _read_entries(directory, _HISTOGRAMS)]


def reader_histograms(
        directory: str | os.PathLike[str]) -> list[tuple[ReaderInfo, dict[str, LatencyHistogram]]]:
    """Return the last state of an instance's readers and the latencies that they measured.

    Returns
    -------
    list of (ReaderInfo, dict of str to LatencyHistogram)
        Sorted by pid, dead readers included. The histograms are copies, by `READER_HOPS`.
    """
    return [(info, _histograms(text))
            for info, text in _read_entries(directory, sizeof(ReaderEntry))]


def remove_dead_readers(directory: str | os.PathLike[str]) -> int:
    """Remove the entries of processes that are gone; return how many.

    Files that are not entries are removed too: at once if the process in their name is gone or
    belongs to another user, otherwise as soon as they are older than creating an entry takes.
    Entries of other users stay if this user may not remove them.
    """
    removed = 0
    for path in _entries(directory):
        if removed == READERS_MAX:  # the next call removes the rest
            break
        try:
            info, _ = _read_entry(path, _HISTOGRAMS)
            alive = info.alive
        except RegionError:
            alive = _may_become_one(path)
        except OSError:
            continue
        if not alive:
            with contextlib.suppress(OSError):  # already removed, or not ours to remove
                path.unlink()
                removed += 1
    return removed


def _entries(directory):
    # Return the files that may be entries, at most _LOOKED_AT_MAX of them.
    try:
        with os.scandir(Path(directory) / "readers") as found:
            return [Path(entry.path) for entry in itertools.islice(found, _LOOKED_AT_MAX)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _may_become_one(path):
    # Return whether a file may still become an entry. Its name tells its owner even before it is
    # ready; a name can be forged, but not for longer than _MAKING_S.
    pid = path.name.partition("-")[0]
    try:
        status = path.lstat()
        return (pid.isdecimal() and Path(f"/proc/{pid}").stat().st_uid == status.st_uid
                and time.time() - status.st_mtime < _MAKING_S)
    except OSError:
        return False


def _read_entries(directory, size):
    found = []
    for path in _entries(directory):
        if len(found) == READERS_MAX:
            break
        with contextlib.suppress(OSError, RegionError):  # removed, not ready, or no entry
            found.append(_read_entry(path, size))
    return sorted(found, key=lambda each: (each[0].pid, each[0].name))


def _read_entry(path, size):
    # Return an entry and its first `size` bytes: a copy, which later changes to the file cannot
    # affect.
    fd = open_existing(path, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size != sizeof(ReaderEntry):
            raise RegionError(f"{path}: expected an entry of {sizeof(ReaderEntry)} bytes")
        text = os.pread(fd, size, 0)
        if len(text) != size:
            raise RegionError(f"{path}: expected {size} bytes, found {len(text)}")
        return _info(text, path, fd, status.st_uid), text
    finally:
        os.close(fd)


cdef _info(bytes text, path, fd, owner):
    cdef const ReaderEntry* entry = <const ReaderEntry*><const char*>text
    cdef const RegionHeader* header = <const RegionHeader*>entry
    if (header.magic[:8] != b"UDPFAST\0" or header.version != REGION_VERSION
            or header.kind[:4] != _KIND.encode() or header.layout_hash != _LAYOUT_HASH
            or header.ready != 1):
        raise RegionError(f"{path}: expected the entry of a reader")
    name = (<const char*>entry.name)[:READER_NAME_SIZE].rstrip(b"\0").decode(errors="replace")
    return ReaderInfo(
        pid=header.writer_pid,
        # The name is printed to terminals: it must contain no control characters.
        name="".join(each if each.isprintable() else "?" for each in name),
        position=entry.position,
        index=entry.index,
        lapped=entry.lapped,
        polled_ns=entry.polled_ns,
        alive=process_alive(
            header.writer_pid, header.writer_start, header.writer_namespace, fd)
        and _owns(header.writer_pid, header.writer_namespace, owner),
        began_index=entry.began_index,
        read=entry.read,
    )


def _owns(pid, namespace, owner):
    # Do not believe an entry that names a process of another user: it would never be removed. In
    # another pid namespace the pid means nothing; there a lock has proved that the owner lives.
    if not namespace or namespace != process_namespace():
        return True
    try:
        return owner in (0, os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return False


def _histograms(text):
    return {name: histogram_copied(text, _HISTOGRAMS + i * sizeof(Histogram))
            for i, name in enumerate(READER_HOPS)}


if sizeof(ReaderEntry) != _HISTOGRAMS + 2 * sizeof(Histogram):
    raise ImportError(f"ReaderEntry has {sizeof(ReaderEntry)} bytes, "
                      f"not {_HISTOGRAMS + 2 * sizeof(Histogram)}")
