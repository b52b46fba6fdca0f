"""A store on disk: the bus's records in a journal's segments, filled in place.

`StoreLog` is the writing end, of the sequencer or of a copy. Its directory is a journal for all
that read journals; beside the segments, `bus.state` has what the bus must not forget.
"""

import bisect
import fcntl
import os
import shutil
import threading
from contextlib import suppress

from libc.stdint cimport INT64_MIN
from libc.string cimport memcpy

from udpfast.bus.log cimport Place, log_note, place_look, place_record, place_whole
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport Record
from udpfast.core.oserr cimport check
from udpfast.log.journal cimport journal_flush, journal_keep
from udpfast.log.segment cimport (
    IDENTITY_SIZE, Segment, SegmentHeader, SegmentWriter, checksum_of, record_look, segment_enter,
    segment_place)
from udpfast.market.names cimport NameTable

from udpfast.archive.bus_files import described_by, read_description
from udpfast.archive.store_names import StoreNames
from udpfast.archive.store_state import load_state, save_state
from udpfast.bus.log import saved_lineage
from udpfast.errors import RegionError, WriterExistsError
from udpfast.log.journal import Journal as JournalFace
from udpfast.log.journal_header import is_copy
from udpfast.log.segment import Segment as SegmentFace
from udpfast.log.segment import (
    aside_path, list_segments, segment_file_bytes, segment_path, set_aside)
from udpfast.market.updates import LAYOUTS
from udpfast.shm.instance import admit_group_to_journal, journal_directory

__all__ = ["STORE_LAYOUT", "StoreLog", "StoreView", "store_lineage"]

#: The layout of the records of every store.
STORE_LAYOUT: int = LAYOUTS.hash

cdef enum:
    AHEAD_BYTES = 8 << 20        # how far ahead of the writer pages are touched


def _written_by_another(directory: Path) -> WriterExistsError:
    pid = 0
    with suppress(OSError, RegionError):  # it may have just begun
        pid = described_by(read_description(directory))
    who = f"process {pid}" if pid else "another process"
    return WriterExistsError(f"{directory}: {who} writes this store: only one process can", pid)


cdef object _place(list segments, position, Segment segment, Place* place):
    place.position = position
    place.index = 0
    place.base = <uint64_t><size_t>segment.records - segment.header.position
    place.limit = segment.header.position + segment.limit
    if position < segment.header.position:  # it was removed
        place.limit = position
    return segment.mapping


cdef class StoreLog(Log):
    """The writing end of a store's directory: one process.

    Parameters
    ----------
    directory : str or path
        A journal's name or path; created if it does not exist.
    name : str
        Name of the store, for the segment headers.
    segment_bytes : int
        Bytes of records per segment that this host begins; a copy has its source's segments.
    create : bool
        Create a new store if there is none. Otherwise it becomes a copy once `adopt` is called.
    copied : bool
        Other hosts have copies. Then the files with damaged or missing records, and all behind
        them, are set aside, so that this copy is complete up to its end and the rest can be copied
        again. Otherwise the store continues behind the damage.
    group : str or None
        Group that may read, by name or number; empty: only the owner may; None: no change.
        That may read, by name or number; empty: the owner alone; None: who may now.

    Attributes
    ----------
    directory : Path
    journal : Journal or None
        None while this copy has no identity.
    notes : list[str]
        What was wrong with its files, the newest last.

    Raises
    ------
    ConfigError, PermissionError
        There is no such group, or this user is not a member.
    WriterExistsError
        A living process writes the store.
    RegionError, OSError
        As for `Journal.open`.
    """

    def __init__(
            self, directory: str | Path, name: str, *, segment_bytes: int = 1 << 26,
            create: bool = False, copied: bool = False, group: str | None = None):
        self._lock_fd = -1
        self.directory = journal_directory(directory, create=True)
        self.capacity = segment_bytes
        self.layout_hash = STORE_LAYOUT
        self.identity = bytes(IDENTITY_SIZE)
        self.last_ns = INT64_MIN
        self.damaged_at = -1
        self.notes = []
        self._copied = copied
        self._name = name
        self._segments = []
        self._maps = {}
        self._keeping = threading.Lock()
        self._names = StoreNames(self.directory)
        self._lock_fd = os.open(
            self.directory / "bus.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock_fd)
            self._lock_fd = -1
            raise _written_by_another(self.directory) from None
        try:
            if group is not None:
                admit_group_to_journal(self.directory, group)
            if is_copy(self.directory):
                raise RegionError(
                    f"{self.directory}: expected the directory in which this store was written, "
                    "found a copy of it: it was moved to another disk, or restored from a backup. "
                    "If the original is no longer used, run `udpfast bus adopt store:"
                    f"{self.directory}`. If other hosts have the store, move this directory away, "
                    "and the daemon copies it anew")
            if create or (self.directory / "journal").exists() or list_segments(self.directory):
                self._open(None)
        except BaseException:
            self.close()
            raise

    cdef _open(self, bytes identity):
        cdef Segment segment
        names = {}
        self.journal = JournalFace.open(
            self.directory, LAYOUTS, name=self._name, segment_bytes=self.capacity,
            identity=identity)
        self.identity = self.journal.identity
        self.writer = self.journal.writer
        for number in list_segments(self.directory):
            segment = SegmentFace.open(segment_path(self.directory, number))
            self._segments.append((segment.header.position, segment.header.index, number))
            names[segment.header.names] = segment.header.names_mark
            segment.close()
        self.notes += [note for note in self.journal.recovery.notes if ": set aside as" in note]
        self.notes += self._names.check(names)
        self._note_missing_first()
        if self._copied and identity is None:
            self._set_damaged_aside()
        if self.journal._active is not None:
            self.capacity = self.journal._active.header.capacity
            self.journal._capacity = self.capacity
        self._find_last()
        self.journal.prepare()

    def _note_missing_first(self):
        # Report records before the first segment that is left. Other hosts may have removed them
        # too, so the store continues.
        cdef uint64_t oldest = self.journal.kept.oldest_position
        position = self.first()[0]
        if position > oldest:
            self.notes.append(
                f"records from position {oldest} to {position} are missing: {self.directory} lacks "
                "its first segments. The store continues without them; to copy them again from "
                "another host, move this directory away")

    cdef _set_damaged_aside(self):
        cdef uint64_t position = self._whole_until()
        if position >= self.writer.position:
            return
        self.damaged_at = position
        self.notes.append(
            f"records from position {position} on are damaged or missing: their files are set "
            "aside, to be copied again from another host")
        self._set_aside_from(position)

    cdef uint64_t _whole_until(self):
        # Return the position up to which every record is there. The seals of segments that are
        # followed by others are trusted unless something was found wrong, because these segments
        # were on the disk when they were sealed. The last two segments are read: one of them has
        # the last record.
        cdef Segment segment
        cdef SegmentWriter w
        cdef uint64_t position, index
        recovery = self.journal.recovery
        position, index = self.first()
        believed = len(self._segments) - 2
        if recovery.missing or recovery.set_aside:
            believed = 0
        for at, (start, start_index, number) in enumerate(self._segments):
            if start != position or start_index != index:
                return position
            segment = self._segment(number)
            if (at < believed and segment.sealed()
                    and segment.seal.position - start <= segment.limit):
                position, index = segment.seal.position, segment.seal.index
                continue
            segment.start(&w, False)
            with nogil:
                segment.scan(&w)
            position, index = w.position, w.index
            if segment.sealed() and position < segment.seal.position:
                return position
        return position

    cdef _find_last(self):
        # Find the last record, in the last segment that has one.
        cdef Place place
        cdef int64_t size
        self.last_ns = INT64_MIN
        for position, _, number in reversed(self._segments):
            _memory = self.place_at(position, &place)
            while place.position < self.writer.position:
                size = place_look(&place)
                if place_whole(&place):
                    log_note(self, place_record(&place))
                elif number == self._latest()[2] and self.damaged_at < 0:
                    self.damaged_at = place.position
                    self.notes.append(
                        f"records from position {place.position} on are damaged or missing: "
                        f"`udpfast verify store:{self.directory}` lists them; readers get "
                        "LAPPED in their place")
                if size <= 0:
                    break
                place.position += size
            if self.last_ns != INT64_MIN:
                return

    cdef tuple _entry(self, uint64_t position):
        return self._segments[max(bisect.bisect_right(
            self._segments, position, key=lambda entry: entry[0]) - 1, 0)]

    cdef object _segment(self, uint64_t number):
        cdef Segment segment = self.journal._active
        if segment is not None and segment.header.number == number:
            return segment
        segment = self._maps.get(number)
        if segment is None:
            segment = SegmentFace.open(segment_path(self.directory, number))
            while len(self._maps) > 8:
                del self._maps[next(iter(self._maps))]
            self._maps[number] = segment
        return segment

    cdef object place_at(self, uint64_t position, Place* place):
        place.position = place.limit = position
        place.base = place.index = 0
        if not self._segments:
            return None
        return _place(self._segments, position, self._segment(self._entry(position)[2]), place)

    def behind(self, uint64_t position) -> int:
        """See `Log`."""
        cdef Segment segment
        cdef uint64_t found = 0, index = 0
        at = bisect.bisect_right(self._segments, position, key=lambda entry: entry[0])
        until = self._segments[at][0] if at < len(self._segments) else self.writer.position
        try:
            segment = self._segment(self._entry(position)[2])
        except (OSError, RegionError):  # its file is gone or damaged
            return until
        if segment.find_valid(position, 0, &found, &index):
            return min(found, until)
        return until

    def segment_header(self, uint64_t position) -> bytes:
        """See `Log`."""
        cdef Segment segment
        if not self._segments:
            return b""
        segment = self._segment(self._entry(position)[2])
        return (<const char*>segment.header)[:sizeof(SegmentHeader)]

    def first(self) -> tuple[int, int]:
        """See `Log`."""
        if self._segments:
            return self._segments[0][:2]
        return self.writer.position, self.writer.index

    def synced(self) -> int:
        """See `Log`."""
        if self.journal is None:
            return 0
        return min(self.journal.kept.synced_position, self.writer.position)

    def create(self) -> None:
        """See `Log`."""
        with self._keeping:
            if self.journal is None:
                self._open(None)

    def adopt(self, bytes identity, uint64_t position, uint64_t index) -> None:
        """See `Log`."""
        with self._keeping:  # the keeper's thread prepares segments too
            self._open(identity)
        self.writer.position = self.journal.writer.position = position
        self.writer.index = self.journal.writer.index = index
        self.journal.kept.oldest_position = position
        self.journal.kept.oldest_index = index
        journal_keep(self.journal)
        self.flush()

    def roll(self, header=None) -> bool:
        """See `Log`."""
        cdef SegmentHeader copied
        cdef Journal journal = self.journal
        if not journal.ready:
            return False
        self.flush()
        if header is not None:
            memcpy(&copied, <const char*><bytes>header, sizeof(copied))
            if (copied.checksum != checksum_of(&copied, sizeof(copied))
                    or copied.identity[:IDENTITY_SIZE] != self.identity
                    or copied.position != self.writer.position
                    or copied.index != self.writer.index
                    # A file of this copy is never replaced.
                    or copied.number <= (self._latest()[2] if self._segments else 0)):
                raise ValueError(
                    f"the header of segment {copied.number} at {copied.position} does not fit a "
                    f"copy of {self.count} segments that ends at {self.writer.position}")
            if copied.capacity != journal._capacity:
                # Use the source's segment size from now on; the prepared segment has another one.
                self.capacity = journal._capacity = copied.capacity
                with journal._lock:
                    journal._next.close()
                    journal._next = None
                return False
        journal.roll(
            clock_monotonic_ns(), self._names_number, clock_realtime_ns(), self.session,
            self._names_mark, header)
        self.writer = journal.writer
        self._segments.append((self.writer.position, self.writer.index, journal._number))
        return True

    def begin_names(self, capacity: int) -> Region:
        """Return the region of the table of names for a feed's records; see `StoreNames.begin`.

        If the table changes, the next record begins a new segment.
        """
        cdef Journal journal = self.journal
        number, region = self._names.begin(capacity, self.names_at(self.writer.position))
        self._names_number = number
        self._names_mark = self._names.mark(number)
        if journal._active is not None and journal._active.header.names != self._names_number:
            self.unroll()
            self.writer.limit = 0
        return region

    def find_session(self) -> int:
        """Return the last session of the feed's records; 0: none."""
        cdef Place place
        cdef Segment segment
        cdef int64_t size
        cdef uint64_t session = 0
        if not self._segments:
            return 0
        position, _, number = self._latest()
        segment = self._segment(number)
        session = segment.header.source_index
        _memory = self.place_at(position, &place)
        while place.position < self.writer.position:
            size = place_look(&place)
            if size <= 0:
                break
            session = max(session, <uint64_t>place_record(&place).session)
            place.position += size
        return session

    def names_since(self, uint64_t number, uint64_t known):
        """See `Log`."""
        return self._names.since(number, known)

    cdef object names_count(self, uint64_t number, const uint64_t** count):
        cdef NameTable table
        count[0] = NULL
        if number == 0:
            return None
        try:
            table = self._names.table(number)
        except FileNotFoundError:  # a copy has no file for a table without names
            return None
        count[0] = &table.names.header.count
        return table

    def take_names(self, bytes said) -> None:
        """See `Log`."""
        self._names.take(said)

    def flush(self) -> None:
        """See `Log`."""
        if self.journal is not None:
            self.journal.writer = self.writer
            journal_flush(self.journal, clock_realtime_ns())

    def keep(self, sync: bool = True) -> None:
        """Do what the writer must not wait for: disk space, pages, syncs. For the keeper's thread.

        Raises
        ------
        OSError
            The disk is full or failing.
        """
        if self.journal is None:
            return
        with self._keeping:
            try:
                self.journal.prepare()  # first, because the writer may be waiting for it
            finally:
                if sync:
                    self._names.sync()
                    self.journal.sync(clock_realtime_ns())
            self.journal.populate(AHEAD_BYTES)

    @property
    def dropped(self) -> int:
        """Number of a feed's records that the disk had no room for, since the store began."""
        return 0 if self.journal is None else self.journal.written.dropped

    @property
    def count(self) -> int:
        """Number of segments."""
        return len(self._segments)

    @property
    def second(self) -> int:
        """Position where the second segment begins."""
        return self._segments[1][0]

    def remove_oldest(self) -> bool:
        """Remove the oldest segment, if it is sealed and not the last; return whether it did."""
        with self._keeping:
            if len(self._segments) < 2 or not self.journal.remove_oldest():
                return False
            self._maps.pop(self._segments.pop(0)[2], None)
        return True

    def cut(self, uint64_t position) -> int:
        """See `Log`."""
        cdef uint64_t end_index = self.writer.index
        with self._keeping:
            self._set_aside_from(position)
        self._find_last()
        return end_index - self.writer.index

    def unroll(self) -> bool:
        """See `Log`."""
        cdef Segment segment
        empty = bool(self._segments) and self._latest()[0] == self.writer.position
        if self._segments and not empty and self.journal._active is not None:
            segment = self.journal._active
            self.writer.limit = segment.room_end()
        elif self._segments:
            # The last segment was sealed when the store was closed, but its source may have
            # continued in it.
            try:
                with self._keeping:
                    self._set_aside_from(self.writer.position)
            except OSError as problem:  # no room: nothing can be taken before there is some
                self.writer.limit = 0
                self.notes.append(f"cannot continue in the last segment: {problem}")
        return empty

    def _latest(self):
        return self._segments[len(self._segments) - 1]

    cdef _set_aside_from(self, uint64_t position):
        # Rename segments that begin there or later. In the segment that continues, rename the file
        # with all its records, and put a copy without the removed records in its place, so that
        # readers of the old file are not disturbed.
        cdef Journal journal = self.journal
        cdef SegmentWriter w
        self.flush()
        if journal._ending:
            journal.sync(clock_realtime_ns())
        empty = position == self.writer.position
        with journal._lock:
            if journal._active is not None:
                journal._active.close()
                journal._active = None
            self._maps.clear()
            w = journal.writer
            w.position, w.limit = position, 0
            path = self._drop_segments(position, empty)
            if path is None:
                w.index = journal.kept.oldest_index
            else:
                w.index = self._latest()[1]
                if not empty:
                    os.link(path, aside_path(path))
                    copy = path.with_name(f"{path.name}.copied")
                    shutil.copy2(path, copy)
                    copy.replace(path)
                _take_space(path)
                journal._active = _cut_behind(path, &w, position)
            journal._number = self._latest()[2] if self._segments else 0
            journal.writer = self.writer = w
            journal.kept.synced_position = min(journal.kept.synced_position, position)
            journal.kept.synced_index = min(journal.kept.synced_index, w.index)
        journal_keep(journal)
        self.flush()

    cdef _drop_segments(self, uint64_t position, bint empty):
        # Drop all segments that begin at or behind a position. Returns the path of the one before,
        # or None.
        while self._segments:
            start, _, number = self._latest()
            path = segment_path(self.directory, number)
            if start < position:
                return path
            self._segments.pop()
            if empty:
                path.unlink()
            else:
                set_aside(path)
        return None

    def load(self) -> bytes:
        """See `Log`."""
        try:
            return load_state(self.directory, sure=True)
        except RegionError as problem:
            aside = set_aside(self.directory / "bus.state")
            self.notes.append(f"{problem}: set aside as {aside.name}")
            return b""

    def save(self, bytes state) -> None:
        """See `Log`."""
        save_state(self.directory, state)

    def close(self, failed: bool = False) -> None:
        """Sync and close the store. Idempotent.

        Parameters
        ----------
        failed : bool
            An error ended its feed.
        """
        if self.journal is not None:
            self.flush()
            self._names.sync()
            self.journal.close(failed=failed)
            self.journal = None
        self._names.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


cdef Segment _cut_behind(path, SegmentWriter* w, uint64_t position):
    # Open a segment to continue behind a position, at which a record must end.
    cdef Segment segment = SegmentFace.open(path, writable=True)
    cdef const Record* record
    cdef int64_t size
    segment.start(w, True)
    while w.position < position:
        size = record_look(
            segment.records + (w.position - segment.header.position),
            segment.limit - (w.position - segment.header.position), w.position, w.index)
        if size <= 0:
            raise RegionError(f"{path}: expected a record that ends at {position}, found none")
        record = <const Record*>segment_place(w)
        if w.position >= w.entry_due:
            segment_enter(w)
        w.first_ns = min(w.first_ns, record.published_ns)
        w.last_ns = max(w.last_ns, record.published_ns)
        w.position += size
        w.index += 1
    segment.cut(w)
    check(segment.sync(), "sync", str(path))
    return segment


def _take_space(path):
    # Reserve the space of a whole segment: sealing released what was unused, and the file may have
    # been cut.
    cdef Segment segment = SegmentFace.open(path)
    size = segment_file_bytes(segment.header.capacity)
    segment.close()
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def store_lineage(directory: Path) -> Lineage:
    """Return the epochs of the copy in a directory; an empty `Lineage` if it has none.

    Raises
    ------
    RegionError
        The file `bus.state` is damaged.
    """
    return saved_lineage(load_state(directory))


cdef class StoreView(Log):
    """A store's directory for reading only: it needs no identity, and nothing is written.

    Parameters
    ----------
    directory : path

    Attributes
    ----------
    directory : Path
    """

    def __init__(self, directory: str | Path):
        self.directory = journal_directory(directory)
        self._segments = []
        self._maps = {}

    def refresh(self) -> None:
        """Look for segments that were added or removed."""
        cdef Segment segment
        cdef list found = []
        for number in list_segments(self.directory):
            segment = self._maps.get(number)
            if segment is None:
                try:
                    segment = SegmentFace.open(segment_path(self.directory, number))
                except (FileNotFoundError, RegionError):
                    continue
            found.append((segment.header.position, segment.header.index, number, segment))
        self._maps = {number: segment for _, _, number, segment in found}
        self._segments = [entry[:3] for entry in found]

    def forget(self) -> None:
        """Open every file anew, because records were set aside."""
        self._maps.clear()
        self.refresh()

    def first(self) -> tuple[int, int]:
        """See `Log`."""
        if not self._segments:
            self.refresh()
        return self._segments[0][:2] if self._segments else (0, 0)

    def segment_begin(self, uint64_t position) -> int:
        """Return where the segment begins that has, or will have, the record at a position."""
        if not self._segments:
            self.refresh()
        at = bisect.bisect_right(self._segments, position, key=lambda entry: entry[0]) - 1
        return self._segments[at][0] if at >= 0 else position

    def checksum_at(self, uint64_t position):
        """See `Log`."""
        cdef Place place
        _memory = self.place_at(position, &place)
        if (_memory is None or position + 64 > place.limit or place_look(&place) <= 0
                or place_record(&place).position != position):
            return None
        return place_record(&place).checksum

    cdef object place_at(self, uint64_t position, Place* place):
        cdef Segment segment
        place.position = place.limit = position
        place.base = place.index = 0
        if not self._segments:
            self.refresh()
        at = bisect.bisect_right(self._segments, position, key=lambda entry: entry[0]) - 1
        if at < 0:
            return None
        segment = self._maps[self._segments[at][2]]
        _place(self._segments, position, segment, place)
        if place_look(place) < 0 and at + 1 == len(self._segments):
            self.refresh()
            if self._segments[len(self._segments) - 1][0] == position:
                segment = self._maps[self._segments[len(self._segments) - 1][2]]
                return _place(self._segments, position, segment, place)
        return segment.mapping
