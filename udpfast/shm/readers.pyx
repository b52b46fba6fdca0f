"""Who reads a ring: each reader keeps one small file, `readers/<pid>-<n>`, for tools to list."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport load_relaxed
from udpfast.errors import RegionError
from udpfast.shm.cursor cimport RingCursor
from udpfast.shm.histogram cimport Histogram, histogram_of
from udpfast.shm.region cimport Region

__all__ = [
    "READER_HOPS",
    "ReaderInfo",
    "ReaderRegistration",
    "list_readers",
    "reader_histograms",
    "remove_dead_readers",
]

#: The hops that a reader measures, as its entry and `udpfast stat` name them.
READER_HOPS = ("loop_to_strategy", "kernel_to_strategy")

_KIND = "READ"
_LAYOUT_HASH = 2  # of ReaderEntry: counts its changes


@dataclass(frozen=True, slots=True)
class ReaderInfo:
    """What one reader said last; its lag is the ring's `tail_index` minus `index`.

    `began_index + read + lapped` equals `index`: nothing that it could have read is unaccounted.
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
    """A reader's own entry, from `create` until `close`, or until its process is gone.

    Attributes
    ----------
    region : Region
    name : str
    """

    @staticmethod
    def create(directory, name, index=0, now_ns=0):
        """Register a reader in an instance's directory; entries of dead ones are removed.

        Parameters
        ----------
        directory : str or path
            Of the instance.
        name : str
            What to call it in lists; the first 64 bytes count.
        index : int
            Of the first record that it will read, unless it is lapped.
        now_ns : int
            UNIX ns; what was published before is read, but not timed.
        """
        cdef ReaderRegistration registration = ReaderRegistration.__new__(ReaderRegistration)
        cdef bytes text = name.encode()[:READER_NAME_SIZE]
        folder = Path(directory) / "readers"
        folder.mkdir(mode=0o700, exist_ok=True)
        remove_dead_readers(directory)
        for number in itertools.count():
            try:
                registration.region = Region.create(
                    folder / f"{os.getpid()}-{number}", _KIND, sizeof(ReaderEntry), _LAYOUT_HASH)
                break
            except FileExistsError:
                continue
        registration.name = name
        registration.entry = <ReaderEntry*>registration.region.pointer
        memcpy(registration.entry.name, <const char*>text, len(text))
        registration.entry.began_index = registration.entry.index = index
        registration.entry.began_ns = now_ns
        registration.region.mark_ready()
        return registration

    def report(self, RingCursor cursor, int64_t now_ns):
        """Say how far the cursor is. From C: `reader_report`.

        Parameters
        ----------
        cursor : RingCursor
        now_ns : int
            UNIX ns.
        """
        if self.region.pointer == NULL:
            raise ValueError(f"registration {self.region.path} is closed")
        reader_report(self.entry, &cursor.reader, now_ns)

    def close(self):
        """Remove the entry. Idempotent."""
        if self.region.pointer != NULL:
            if self.region.writer_pid == os.getpid():  # not in a forked child
                self.region.path.unlink(missing_ok=True)
            self.region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()


def list_readers(directory):
    """Return what the readers of an instance said last, dead ones included, by pid."""
    return [info for info, _ in reader_histograms(directory)]


def reader_histograms(directory):
    """Return what the readers of an instance said last and the latencies that they measured.

    Returns
    -------
    list of (ReaderInfo, dict of str to LatencyHistogram)
        By pid; dead readers included. The histograms are those of `READER_HOPS`, and go on.
    """
    readers = []
    for path in _entries(directory):
        try:
            with Region.attach(path, _KIND, _LAYOUT_HASH) as region:
                readers.append((_info(region), _histograms(region)))
        except (FileNotFoundError, RegionError):
            continue  # gone meanwhile, or not ready yet
    return sorted(readers, key=lambda reader: (reader[0].pid, reader[0].name))


def remove_dead_readers(directory):
    """Remove the entries of processes that are gone; return how many."""
    removed = 0
    for path in _entries(directory):
        try:
            with Region.attach(path, _KIND, _LAYOUT_HASH) as region:
                if region.writer_alive():
                    continue
        except FileNotFoundError:
            continue
        except RegionError:
            # Killed before it was ready: its name still tells whose it was.
            if _process_exists(path.name):
                continue
        path.unlink(missing_ok=True)
        removed += 1
    return removed


def _entries(directory):
    folder = Path(directory) / "readers"
    return list(folder.iterdir()) if folder.is_dir() else []


def _process_exists(name):
    pid = name.partition("-")[0]
    return pid.isdecimal() and Path(f"/proc/{pid}").exists()


cdef _info(Region region):
    cdef ReaderEntry* entry = <ReaderEntry*>region.pointer
    name = (<char*>entry.name)[:READER_NAME_SIZE].rstrip(b"\0").decode(errors="replace")
    return ReaderInfo(
        pid=region.writer_pid,
        name=name,
        position=load_relaxed(&entry.position),
        index=load_relaxed(&entry.index),
        lapped=load_relaxed(&entry.lapped),
        polled_ns=<int64_t>load_relaxed(<const uint64_t*>&entry.polled_ns),
        alive=region.writer_alive(),
        began_index=entry.began_index,
        read=load_relaxed(&entry.read),
    )


cdef _histograms(Region region):
    cdef ReaderEntry* entry = <ReaderEntry*>region.pointer
    first = <uint8_t*>&entry.loop_to_strategy - region.pointer
    return {name: histogram_of(region, first + i * sizeof(Histogram))
            for i, name in enumerate(READER_HOPS)}


if sizeof(ReaderEntry) != 256 + 2 * sizeof(Histogram):
    raise ImportError(f"ReaderEntry has {sizeof(ReaderEntry)} bytes, "
                      f"not {256 + 2 * sizeof(Histogram)}")
