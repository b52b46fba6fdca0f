"""The writing end of a journal, as Python sees it. The protocol is in `journal.pxd`."""

import contextlib
import os
import threading

from msgspec import Struct

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport FLIGHT_UNKNOWN, RECORD_SIZE, Record
from udpfast.core.oserr cimport check
from udpfast.log.journal_header cimport take_header
from udpfast.log.journal_state cimport region_state
from udpfast.log.marks cimport (
    JOURNAL_CLOSED, JOURNAL_FAILED, JOURNAL_HEADER, JOURNAL_OPEN, JournalHeader, WrittenMark,
    marks_written)
from udpfast.log.recovery cimport recover
from udpfast.log.segment cimport (
    IDENTITY_SIZE,
    SEAL_DURABLE,
    SEAL_LAST,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SEGMENT_END_SIZE,
    SEGMENT_NAME_SIZE,
    Segment,
    SegmentHeader,
    SegmentWriter,
    segment_append,
    segment_end,
)

from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.errors import RegionError
from udpfast.log.journal_layouts import check_layouts, keep_layouts
from udpfast.log.journal_state import JournalState
from udpfast.log.segment import Segment as SegmentFace
from udpfast.log.segment import list_segments, segment_file_bytes, segment_path, set_aside
from udpfast.shm.files import sync_path
from udpfast.shm.instance import journal_directory

__all__ = ["Journal", "Resume"]


class Resume(Struct, frozen=True):
    """The place in a journal from which a ring's records continue.

    Attributes
    ----------
    position : int
        Position in the journal. Each record from here on is one of the ring's, or says how many
        are missing.
    source_index : int
        Index in the ring of the first of these records.
    source_position : int or None
        Position of that record in the ring; None: unknown.
    """

    position: int
    source_index: int
    source_position: int | None


cdef class Journal:
    """The writing end of a journal: one process, one thread that appends and one that keeps.

    Attributes
    ----------
    directory : pathlib.Path
        The journal's directory.
    layouts : Layouts
        Layouts of the records that are appended.
    region : Region
        The file `journal`: who writes the journal, and how far.
    recovery : Recovery
        What opening the journal found.
    failed : bool
        A sync failed: `synced_position` no longer moves.
    made : bool
        Opening the journal created the file `journal`: the journal is new, or the file was lost.
    """

    @staticmethod
    def open(
            directory: str | os.PathLike[str], layouts: Layouts = CONTROL_LAYOUTS, *,
            name: str = "", segment_bytes: int = 1 << 27, durable: bool = True,
            identity: bytes | None = None) -> Journal:
        """Open a journal for writing: a new one, or an existing one where its last writer ended.

        An existing journal is cut to its valid prefix, whether its last writer closed it, was
        killed or lost its power. `recovery` says what was cut off.

        Parameters
        ----------
        directory : str or path
            The journal's directory; created if it does not exist.
        layouts : Layouts
            Layouts of the records to append. They may differ from those of earlier records.
        name : str
            Name of the instance, for the segment headers.
        segment_bytes : int
            Bytes of records per segment: a multiple of 4096.
        durable : bool
            Whether `sync` will be called. If so, a segment is sealed once it is on the disk.
        identity : bytes, optional
            Identity for a new journal that copies another host's; by default a random one.

        Raises
        ------
        WriterExistsError
            A living process writes the journal.
        RegionError
            The journal is a raw capture and `layouts` are not those of one, or the reverse.
        OSError
            A file could not be read or written.
        """
        if not SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_MAX or segment_bytes % 4096:
            raise ValueError(
                f"segment_bytes must be a multiple of 4096 from {SEGMENT_BYTES_MIN} to "
                f"{SEGMENT_BYTES_MAX}, was {segment_bytes}")
        cdef Journal journal = Journal.__new__(Journal)
        journal.directory = journal_directory(directory, create=True)
        journal.layouts = layouts
        journal._capacity = segment_bytes
        journal._name = name.encode()[:SEGMENT_NAME_SIZE]
        journal._durable = durable
        journal._lock = threading.Lock()
        journal._ending = []
        journal._notes = []
        journal.region = take_header(
            journal.directory, &journal.written, &journal.kept, &journal.made, journal._notes,
            identity)
        journal.header = <JournalHeader*>(journal.region.pointer + JOURNAL_HEADER)
        try:
            check_layouts(journal.directory, layouts)
            journal._notes += keep_layouts(journal.directory, layouts)
            journal._recover()
        except BaseException:
            journal.region.close()
            raise
        return journal

    def _recover(self):
        found = []
        self._number = max(self.written.number, max(list_segments(self.directory), default=0))
        (self.directory / "next.segment").unlink(missing_ok=True)
        self._active = recover(
            self.directory, self.identity, self.layouts.hash, &self.written, &self.kept,
            &self.writer, clock_realtime_ns(), self._notes, found)
        self.recovery = found[0]
        if self._active is None:
            self.writer.limit = 0
        self._opened_ns = clock_monotonic_ns()
        self.written.epoch += 1
        self.written.state = JOURNAL_OPEN
        self.written.cut_bytes = self.recovery.cut_bytes
        self.kept.synced_position = min(self.kept.synced_position, self.writer.position)
        self.kept.synced_index = min(self.kept.synced_index, self.writer.index)
        if not self._durable:  # it will never be synced: nobody must wait for that
            self.kept.synced_ns = 0
        self.kept.current_ns = 0     # what came since then is not in it yet
        journal_keep(self)
        journal_flush(self, clock_realtime_ns())
        if self.made and self.region.path.exists():
            set_aside(self.region.path)
        self.region.mark_ready()

    # --- the writer's thread --------------------------------------------------------------------

    def roll(
            self, int64_t now_ns, uint64_t names=0, int64_t unix_ns=0, uint64_t source_index=0,
            uint32_t names_mark=0, copied: bytes | None = None) -> bool:
        """Begin the next segment, if the keeper has it ready; return whether it did.

        Parameters
        ----------
        now_ns : int
            Monotonic: the time from which the segment's age counts.
        names : int
            Number of the file of names that its records use; 0: none.
        unix_ns : int
            When the segment begins, UNIX ns, for its header.
        source_index : int
            Index in the source of the segment's first record, or of the first missing one.
        names_mark : int
            Mark that identifies that file of names; 0: not stated.
        copied : bytes, optional
            Header of the segment of another host that this one will be a copy of.
        """
        cdef SegmentHeader header
        cdef Segment segment
        self._check_open()
        with self._lock:
            if self._next is None:
                return False
            self._end_active()
            segment = self._next
            self._next = None
            self._number += 1
            memset(&header, 0, sizeof(header))
            header.names = <uint32_t>names
            header.names_mark = names_mark
            header.layout_hash = self.layouts.hash
            header.number = self._number
            header.position = self.writer.position
            header.index = self.writer.index
            header.opened_ns = unix_ns
            header.epoch = self.written.epoch
            memcpy(header.identity, self.header.identity, IDENTITY_SIZE)
            memcpy(header.source, self.written.source, IDENTITY_SIZE)
            header.source_index = source_index
            memcpy(header.name, <const char*>self._name, len(self._name))
            if copied is not None:
                memcpy(&header, <const char*><bytes>copied, sizeof(header))
                self._number = header.number
            segment.begin(&header)
            path = segment_path(self.directory, self._number)
            # Readers find it from now on: its header is complete.
            segment.path.rename(path)
            segment.path = path
            segment.start(&self.writer, True)  # not of one that failed, which is unmapped
            self.written.number = <uint32_t>self._number
            self._active = segment
            self._renamed = True
            self._opened_ns = now_ns
        return True

    cdef _end_active(self):
        if self._active is not None:
            segment_end(&self.writer)
            self._ending.append(
                (self._active, (<char*>&self.writer)[:sizeof(SegmentWriter)]))
            self._active = None
            self.writer.limit = 0

    def append(
            self, kind: int, payload: Buffer, flags: int = 0, received_ns: int = 0,
            published_ns: int = 0, *, line: int = 0, number: int = 0, object: int = 0,
            flight_ns: int = FLIGHT_UNKNOWN, stream: int = 0, session: int = 0) -> int:
        """Append one record; return its position. For tools and tests: recorders append from C.

        It creates segments as needed and waits for the disk.

        Raises
        ------
        ValueError
            The payload does not fit a segment.
        """
        cdef Record record
        cdef bytes content = bytes(payload)
        cdef uint64_t position
        self._check_open()
        if <uint64_t>len(content) > self._capacity - SEGMENT_END_SIZE - RECORD_SIZE:
            raise ValueError(
                f"a payload must fit into a segment of {self._capacity} bytes, has {len(content)}")
        memset(&record, 0, sizeof(record))
        record.length = <int>(RECORD_SIZE + len(content))
        record.kind = kind
        record.flags = flags
        record.received_ns = received_ns
        record.published_ns = published_ns
        record.line = line
        record.number = number
        record.object = object
        record.flight_ns = flight_ns
        record.stream = stream
        record.session = session
        while True:
            position = self.writer.position
            if segment_append(&self.writer, &record, <const unsigned char*><const char*>content):
                journal_flush(self, published_ns)
                return position
            self.prepare()
            self.roll(clock_monotonic_ns(), unix_ns=clock_realtime_ns())

    def flush(self, int64_t unix_ns) -> None:
        """Publish how far the journal is written, for tools and for `sync`."""
        self._check_open()
        journal_flush(self, unix_ns)

    def note_source(self, identity: bytes) -> None:
        """Set the source of the records that follow: the identity of a ring, 16 bytes."""
        cdef bytes source = bytes(identity)
        if len(source) != IDENTITY_SIZE:
            raise ValueError(f"identity must have {IDENTITY_SIZE} bytes, has {len(source)}")
        self._check_open()
        memcpy(self.written.source, <const char*>source, IDENTITY_SIZE)

    def resume(self, source: bytes) -> Resume | None:
        """Return where the records of a ring continue in this journal.

        Parameters
        ----------
        source : bytes
            The ring's identity, 16 bytes.

        Returns
        -------
        Resume or None
            None: the journal has no record of that ring.
        """
        cdef WrittenMark* mark = &self.written
        self._check_open()
        if mark.source[:IDENTITY_SIZE] == source and mark.resume_index <= self.writer.index:
            return Resume(mark.resume_position, mark.source_index, mark.source_position)
        # The file `journal` was lost: use the last segment that began with that ring.
        for number in reversed(list_segments(self.directory)):
            try:
                info = SegmentFace.open(segment_path(self.directory, number)).info()
            except (FileNotFoundError, RegionError):
                continue
            if info.source == source and info.position <= self.writer.position:
                return Resume(info.position, info.source_index, None)
        return None

    @property
    def source(self) -> bytes | None:
        """Identity of the ring whose records the open segment has; None: no segment is open."""
        if self._active is None:
            return None
        return self._active.header.source[:IDENTITY_SIZE]

    @property
    def identity(self) -> bytes:
        """The journal's identity: 16 random bytes, made once."""
        self._check_open()
        return self.header.identity[:IDENTITY_SIZE]

    @property
    def ready(self) -> bool:
        """Whether a segment is ready for `roll`."""
        return self._next is not None

    @property
    def opened(self) -> bool:
        """Whether a segment is open for appending."""
        return self._active is not None

    @property
    def ending(self) -> bool:
        """Whether `sync` has an ended segment to seal."""
        return bool(self._ending)

    @property
    def names(self) -> int:
        """Number of the file of names of the open segment; 0: none."""
        return 0 if self._active is None else self._active.header.names

    @property
    def position(self) -> int:
        """Position of the next record."""
        return self.writer.position

    @property
    def index(self) -> int:
        """Index of the next record: the number of records ever written."""
        return self.writer.index

    # --- the keeper's thread --------------------------------------------------------------------

    def prepare(self) -> bool:
        """Reserve the space of the next segment, unless it is reserved; return whether it did.

        Raises
        ------
        OSError
            ENOSPC: the disk is full. EIO and others: the disk is failing.
        """
        cdef Segment segment
        self._check_open()
        with self._lock:  # a roll that is under way has not renamed its file yet
            if self._next is not None:
                return False
        segment = SegmentFace.prepare(self.directory / "next.segment", self._capacity)
        with self._lock:
            self._next = segment
        return True

    def populate(self, uint64_t ahead_bytes) -> None:
        """Touch the pages that the writer will need next, so that it meets no page fault.

        Parameters
        ----------
        ahead_bytes : int
            How far ahead of the writer.

        Raises
        ------
        OSError
            The disk cannot read or allocate them.
        """
        cdef Segment active, following
        cdef uint64_t used = 0
        cdef int rc = 0
        with self._lock:
            active, following = self._active, self._next
            if active is not None:
                used = (load_acquire(&self.written.position) - active.header.position
                        + active.header.first_byte)
        with nogil:
            if active is not None:
                # In a segment that was taken up again, the pages before `used` are mapped already.
                active.populated = max(active.populated, used & ~<uint64_t>4095)
                rc = active.populate(used + ahead_bytes)
                used = active.mapping.size_bytes - used
            if rc == 0 and following is not None and used < ahead_bytes:
                rc = following.populate(ahead_bytes - used)
        check(rc, "touch pages of", str(self.directory))

    def sync(self, int64_t unix_ns) -> int:
        """Write everything appended so far to the disk; return the position up to which it is.

        Segments that were ended are sealed. Without `durable`, it only seals.

        Raises
        ------
        OSError
            The disk refused the data. What the kernel then still has in memory is undefined, so
            nothing counts as synced any more until the journal is opened again.
        """
        cdef uint64_t position, index
        cdef WrittenMark said
        cdef Segment segment, active
        cdef SegmentWriter ended
        cdef int64_t started_ns = clock_monotonic_ns()
        cdef bint renamed = False
        cdef int rc = 0
        self._check_open()
        # Position and index of one moment: the writer's thread may be between the two.
        if not marks_written(self.header, &said):
            memcpy(&said, &self.written, sizeof(said))
        index, position = said.index, said.position
        with self._lock:
            ending, active = list(self._ending), self._active
            renamed, self._renamed = self._renamed, False
        for segment, state in ending:
            memcpy(&ended, <const char*>state, sizeof(ended))
            if self._durable:
                with nogil:
                    rc = segment.sync()
                self._note_failure(rc)
            self._seal(segment, &ended, unix_ns, self._durable and not self.failed)
            with self._lock:
                self._ending.pop(0)
        if not self._durable:
            return self.kept.synced_position
        if active is not None:
            with nogil:
                rc = active.sync()
            self._note_failure(rc)
        if renamed:
            sync_path(self.directory)
        self.kept.syncs += 1
        self.kept.sync_longest_ns = max(
            self.kept.sync_longest_ns, clock_monotonic_ns() - started_ns)
        if not self.failed:
            self.kept.synced_index = index
            self.kept.synced_ns = unix_ns
            # Release: the writer's thread waits for this position where `sync = batch`.
            store_release(&self.kept.synced_position, position)
        journal_keep(self)
        return self.kept.synced_position

    cdef _seal(self, Segment segment, SegmentWriter* w, int64_t unix_ns, bint durable):
        cdef uint64_t flags = SEAL_DURABLE if durable else 0
        if self._closing:
            flags |= SEAL_LAST
        segment.write_seal(
            w, unix_ns, flags, self.kept.oldest_position, self.kept.oldest_index)
        segment.release_rest(w.position - segment.header.position)
        segment.close()

    def _note_failure(self, int rc):
        if rc < 0:
            self.kept.sync_errors += 1
            journal_keep(self)
            self.failed = True
            check(rc, "sync", str(self.directory))

    def note_current(self, int64_t unix_ns) -> None:
        """Publish that the journal has all that its source had published by then.

        Readers that want no more than that do not wait for a later record.
        """
        self._check_open()
        if self.kept.current_ns != unix_ns:
            self.kept.current_ns = unix_ns
            journal_keep(self)

    def oldest(self) -> SegmentInfo | None:
        """Return a `SegmentInfo` of the segment that `remove_oldest` would remove, or None.

        A file of another journal, or one that is unreadable, is never removed.
        """
        with self._lock:
            kept = {(<Segment>segment).header.number for segment, _ in self._ending}
            if self._active is not None:
                kept.add(self._active.header.number)
        for number in list_segments(self.directory):
            if number not in kept:
                info = self._info(number)
                if info is not None:
                    return info
        return None

    def remove_oldest(self) -> int:
        """Remove the oldest sealed segment; return the bytes of disk that it had; 0: there is none.

        Readers that have it open can still read it.
        """
        info = self.oldest()
        if info is None:
            return 0
        size = info.path.stat().st_blocks * 512
        self._note_oldest(info.number)
        info.path.unlink()
        return size

    def _info(self, number):
        # None: the segment is gone, damaged, or of another journal.
        try:
            info = SegmentFace.open(segment_path(self.directory, number)).info()
        except (FileNotFoundError, RegionError):
            return None
        return info if info.identity == self.identity else None

    cdef _note_oldest(self, removed):
        # Called before a segment is removed: readers learn from it that these records were removed
        # on purpose.
        self.kept.removed += 1
        for number in list_segments(self.directory):
            info = self._info(number) if number > removed else None
            if info is not None:
                self.kept.oldest_number = number
                self.kept.oldest_position, self.kept.oldest_index = info.position, info.index
                break
        journal_keep(self)
        sync_path(self.region.path)

    def size_bytes(self) -> int:
        """Return the bytes of disk that the journal takes: segments, the next one, and names."""
        total = 0
        for path in self.directory.iterdir():
            if path.suffix in (".segment", ".names"):
                with contextlib.suppress(FileNotFoundError):  # a roll renamed it just now
                    total += path.stat().st_blocks * 512
        return total

    @property
    def segment_bytes(self) -> int:
        """Bytes of disk that a new segment takes."""
        return segment_file_bytes(self._capacity)

    # --- both -----------------------------------------------------------------------------------

    def state(self) -> JournalState:
        """Return the journal's state as tools see it."""
        self._check_open()
        return region_state(self.region)

    def close(self, int64_t unix_ns=0, bint failed=False) -> None:
        """Close the journal: sync it, seal it, and say how it ended. Both threads must have ended.

        Idempotent. If the last segment cannot be synced, the journal stays as it is.

        Parameters
        ----------
        unix_ns : int
            Time for the seal; 0: now.
        failed : bool
            An error ended what it records; the next writer may continue.
        """
        if self.region.pointer == NULL:
            return
        if self.region.writer_pid != os.getpid():  # a forked child
            self.region.close()
            return
        unix_ns = unix_ns or clock_realtime_ns()
        try:
            journal_flush(self, unix_ns)
            with self._lock:
                self._end_active()
            self._closing = True
            self.sync(unix_ns)
            # Readers must find the last record and its seal before they see that the journal ended.
            self.written.state = JOURNAL_FAILED if failed else JOURNAL_CLOSED
            journal_flush(self, unix_ns)
        finally:
            if self._next is not None:
                self._next.path.unlink(missing_ok=True)
                self._next.close()
                self._next = None
            self.region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    cdef _check_open(self):
        if self.region.pointer == NULL:
            raise ValueError(f"journal {self.directory} is closed")
