"""Journals and their disks: how far each has come, what is on the disk, how much room is left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from udpfast.archive.bus_files import noted_store
from udpfast.archive.feed_settings import noted_journal, read_feed
from udpfast.core.clock import realtime_ns
from udpfast.errors import UdpfastError, sentence
from udpfast.log.journal_state import journal_state
from udpfast.log.segment import Segment, list_segments, segment_file_bytes, segment_path
from udpfast.shm.instance import journal_directory, journal_root

__all__ = [
    "DiskStatus",
    "JournalStatus",
    "Journals",
    "feed_journals",
    "list_journals",
    "read_journals",
]


#: How fast a journal grows is said of so many seconds at least, and of so many if it has files of
#: that age; of a longer time if one file takes it.
RATE_LEAST_S, RATE_S = 10.0, 60.0
#: At most so many files are opened for that.
RATE_SEGMENTS = 64


class JournalStatus(Struct, frozen=True):
    """A journal, or a store, at one moment; of a dead writer what it said last.

    Attributes
    ----------
    directory : str
    state : str
        writing; closed: it is complete; dead: its writer ended without closing it.
    records : int
        That were ever written.
    written_bytes : int
        Of them.
    kept_bytes : int
        Of those that are there still.
    segments : int
        Files that they lie in.
    unsynced_bytes : int
        Written, and not known to be on the disk: a power cut may cost them. Of a journal that is
        never synced (`record.sync = "none"`), all.
    synced_unix_ns : int
        When the disk had all before; 0: never.
    sync_errors, sync_longest_ns : int
        Syncs that failed, and how long the longest took.
    lapped_records, dropped_records : int
        Not recorded: overwritten before they were read; the disk had no room.
    removed_segments : int
        Removed to make room.
    device : int
        Which file system it lies on.
    segment_bytes : int
        What its next file takes of the disk, as its last one did; 0: it has none.
    bytes_per_s : float or None
        How fast it grows, by the files that its writer began last; None: nobody knows yet.
    """

    directory: str
    state: Literal["writing", "closed", "dead"]
    records: int
    written_bytes: int
    kept_bytes: int
    segments: int
    unsynced_bytes: int
    synced_unix_ns: int
    sync_errors: int
    sync_longest_ns: int
    lapped_records: int
    dropped_records: int
    removed_segments: int
    device: int
    segment_bytes: int
    bytes_per_s: float | None


class DiskStatus(Struct, frozen=True):
    """A file system on which journals lie.

    Attributes
    ----------
    directory : str
        Of one of them.
    device : int
    free_bytes, size_bytes : int
        What this user may still write, and all there is.
    bytes_per_s : float or None
        How fast the journals on it grow together; None: nobody knows yet.
    segment_bytes : int
        What the largest next file of a journal takes; 0: nobody knows.
    """

    directory: str
    device: int
    free_bytes: int
    size_bytes: int
    bytes_per_s: float | None
    segment_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether a further segment of each of its journals fits."""
        return self.free_bytes >= self.segment_bytes

    @property
    def free(self) -> float:
        """The part of it that is free, 0 to 1."""
        return self.free_bytes / max(self.size_bytes, 1)

    @property
    def full_s(self) -> float | None:
        """When it is full at this rate, in seconds from now; None: nothing grows.

        What else writes there, and what room old segments make, nobody knows.
        """
        return self.free_bytes / self.bytes_per_s if self.bytes_per_s else None


class Journals(Struct, frozen=True):
    """Journals by directory, why nothing is known of others, and the disks that they lie on."""

    found: dict[str, JournalStatus]
    unreadable: dict[str, str]
    disks: tuple[DiskStatus, ...]


def feed_journals(instance: Path) -> list[Path]:
    """Return where a feed keeps what it brings: its recorder's journals, or the store it writes.

    None of an instance whose settings nobody can read: they say whether it has a recorder; and
    none that no recorder has begun yet: how its agent is says why.
    """
    try:
        return list(_feed_directories(instance))
    except (OSError, UdpfastError, ValueError):
        return []


def list_journals() -> list[Path]:
    """Return the journals and stores below the directory in which they lie by name, sorted."""
    try:
        found = [*journal_root().glob("*/journal"), *journal_root().glob("*/raw/journal")]
    except OSError:  # removed meanwhile, or not ours to see
        return []
    return sorted(path.parent for path in found)


def read_journals(directories: Iterable[Path]) -> Journals:
    """Return how journals are, live or dead; of those that are damaged, why they cannot be read."""
    found, unreadable = {}, {}
    for directory in directories:
        name = str(directory)
        try:
            found[name] = _read_journal(directory)
        except (OSError, UdpfastError) as error:
            unreadable[name] = sentence(error)
    return Journals(found, unreadable, tuple(_disks(found.values())))


def _feed_directories(instance: Path) -> Iterator[Path]:
    store = noted_store(instance)
    if store is not None:
        yield store
    config = read_feed(instance)
    if config is None or not config.record.enabled:
        return
    wanted = config.record.directory or config.name
    target = Path(wanted) if "/" in wanted else journal_root() / wanted
    noted = noted_journal(instance)  # absolute, as the recorder found it
    target = noted or target
    own = [target] * (config.record.what != "raw") + [target / "raw"] * (
        config.record.what != "records"
    )
    yield from (journal for journal in own if noted or _is_begun(journal))


def _is_begun(journal: Path) -> bool:
    try:
        (journal / "journal").lstat()
    except FileNotFoundError:
        return False
    except OSError:  # it is there, and not ours to see: who reads it says so
        pass
    return True


def _read_journal(path: Path) -> JournalStatus:
    directory = journal_directory(path)  # whose it is
    state = journal_state(directory)
    segment_bytes, rate = _segment_facts(directory, state.position)
    return JournalStatus(
        directory=str(path),
        state="writing" if state.alive else "closed" if state.closed else "dead",
        records=state.index,
        written_bytes=state.position,
        # The two ends are read one after the other, and a writer goes on meanwhile.
        kept_bytes=max(state.position - state.oldest_position, 0),
        segments=len(list_segments(directory)),
        unsynced_bytes=max(state.position - state.synced_position, 0),
        synced_unix_ns=state.synced_ns,
        sync_errors=state.sync_errors,
        sync_longest_ns=state.sync_longest_ns,
        lapped_records=state.lapped,
        dropped_records=state.dropped,
        removed_segments=state.removed,
        device=directory.stat().st_dev,
        segment_bytes=segment_bytes,
        bytes_per_s=rate if state.alive else 0.0,
    )


def _segment_facts(directory: Path, end: int) -> tuple[int, float | None]:
    # What the next file takes, and how fast the journal has grown up to `end`: since its writer
    # began the newest file that is old enough. So every look finds the same, the first as well.
    size_bytes, rate, next_ns = 0, None, 0
    for number in reversed(list_segments(directory)[-RATE_SEGMENTS:]):
        try:
            segment = Segment.open(segment_path(directory, number))
        except (OSError, UdpfastError):  # removed meanwhile, or damaged
            break
        info = segment.info()
        segment.close()
        if info.last_ns and next_ns - info.last_ns > RATE_S * 1e9:  # nobody wrote in between
            break
        size_bytes = size_bytes or segment_file_bytes(info.capacity_bytes)
        next_ns = info.opened_ns
        if not next_ns:  # it does not say
            break
        age_s = (realtime_ns() - info.opened_ns) / 1e9
        if age_s >= RATE_LEAST_S:
            rate = (end - info.position) / age_s
        if age_s >= RATE_S:
            break
    return size_bytes, rate


def _disks(journals: Iterable[JournalStatus]) -> Iterator[DiskStatus]:
    by_device: dict[int, list[JournalStatus]] = {}
    for journal in journals:
        by_device.setdefault(journal.device, []).append(journal)
    for device, own in by_device.items():
        rates = [each.bytes_per_s for each in own if each.bytes_per_s is not None]
        try:
            disk = os.statvfs(own[0].directory)
        except OSError:  # removed meanwhile
            continue
        yield DiskStatus(
            directory=own[0].directory,
            device=device,
            free_bytes=disk.f_bavail * disk.f_frsize,
            size_bytes=disk.f_blocks * disk.f_frsize,
            bytes_per_s=sum(rates) if rates else None,
            segment_bytes=max(each.segment_bytes for each in own),
        )
