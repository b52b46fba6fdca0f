"""The writing end of a journal, as Python sees it. The protocol is in `journal.pxd`."""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport load_acquire, load_relaxed, store_release
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport RECORD_SIZE, Record
from udpfast.core.oserr cimport check
from udpfast.shm.recovery cimport recover
from udpfast.shm.region cimport Region
from udpfast.shm.segment cimport (
    SEAL_DURABLE,
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

from udpfast.core.layout import CONTROL_DTYPES, RECORD, layout_hash
from udpfast.errors import RegionError
from udpfast.shm.instance import journal_directory
from udpfast.shm.segment import Segment as SegmentFace
from udpfast.shm.segment import list_segments, segment_path

__all__ = ["JOURNAL_KIND", "JOURNAL_LAYOUT", "Journal", "JournalState", "journal_state"]

#: Kind and layout hash of a journal's region; with a hash of the payloads, that of its segments.
JOURNAL_KIND = "JRNL"
JOURNAL_LAYOUT = layout_hash(RECORD, *CONTROL_DTYPES.values())

if sizeof(JournalHeader) != 352:
    raise ImportError(f"JournalHeader has {sizeof(JournalHeader)} bytes, not 352")


@dataclass(frozen=True, slots=True)
class JournalState:
    """What a journal's writer said last.

    Attributes
    ----------
    alive : bool
        The writer's process runs, and has not closed the journal.
    closed : bool
        The writer closed it: it is complete.
    epoch : int
        How many writers there have been.
    position, index : int
        Behind the last record.
    written_ns : int
        When that was, UNIX ns.
    synced_position, synced_index : int
        The disk has all records below. What is beyond may be lost with the power, not with the
        process.
    synced_ns : int
        When that was known, UNIX ns; 0: nothing was synced yet, or its writer never does.
    syncs, sync_errors, sync_longest_ns : int
        Calls that brought that about, those that failed, and the longest, in ns.
    lapped, dropped : int
        Records that were overwritten before they were read, and that the disk did not take.
    removed : int
        Segments removed to make room.
    cut_bytes : int
        That the last recovery cut off.
    """

    alive: bool
    closed: bool
    epoch: int
    position: int
    index: int
    written_ns: int
    synced_position: int
    synced_index: int
    synced_ns: int
    syncs: int
    sync_errors: int
    sync_longest_ns: int
    lapped: int
    dropped: int
    removed: int
    cut_bytes: int


def journal_state(directory) -> JournalState:
    """Return what the writer of a journal said last.

    Raises
    ------
    RegionError, FileNotFoundError
        There is no file `journal`, or the power failed while it was made: the segments may be
        fine all the same.
    """
    cdef Region region = Region.attach(Path(directory) / "journal", JOURNAL_KIND, JOURNAL_LAYOUT)
    with region:
        return _state(region)


cdef class Journal:
    """The writing end of a journal: one process; one thread that appends, one that keeps.

    Attributes
    ----------
    directory : pathlib.Path
    region : Region
        Who writes it, how far it is.
    recovery : Recovery
        What was found when it was opened.
    failed : bool
        A sync failed: `synced_position` stays where it is.
    """

    @staticmethod
    def open(directory, payload_hash=0, *, name="", segment_bytes=1 << 27, durable=True):
        """Open a journal for writing: a new one, or where the last writer ended.

        What the last writer left is cut to its valid prefix, whether it closed the journal, was
        killed or lost its power; `recovery` says what was cut.

        Parameters
        ----------
        directory : str or path
            Made if it is not there.
        payload_hash : int
            Hash of the layouts that payloads have.
        name : str
            Of the instance, for its segments' headers.
        segment_bytes : int
            For the records of one segment.
        durable : bool
            Whether `sync` will be called: segments are then sealed when the disk has them.

        Raises
        ------
        WriterExistsError
            A living process writes it.
        RegionError
            Its last records have another layout.
        OSError
            A file cannot be read or written.
        """
        if not SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_MAX or segment_bytes % 4096:
            raise ValueError(f"segment_bytes must be a multiple of 4096 from {SEGMENT_BYTES_MIN} "
                             f"to {SEGMENT_BYTES_MAX}, was {segment_bytes}")
        cdef Journal journal = Journal.__new__(Journal)
        journal.directory = journal_directory(directory, create=True)
        journal._layout_hash = JOURNAL_LAYOUT ^ payload_hash
        journal._capacity = segment_bytes
        journal._name = name.encode()[:SEGMENT_NAME_SIZE]
        journal._durable = durable
        journal._lock = threading.Lock()
        journal._ending = []
        journal._open_region()
        try:
            journal._recover()
        except BaseException:
            journal.region.close()
            raise
        return journal

    def _open_region(self):
        path = self.directory / "journal"
        try:
            self.region = Region.reopen_for_write(path, JOURNAL_KIND, JOURNAL_LAYOUT)
        except (FileNotFoundError, RegionError):
            # None yet, or torn by a power cut: what counts is in the segments.
            self.region = Region.create(
                path, JOURNAL_KIND, JOURNAL_SIZE, JOURNAL_LAYOUT, replace=True)
        self.header = <JournalHeader*>(self.region.pointer + JOURNAL_HEADER)

    def _recover(self):
        found = []
        numbers = list_segments(self.directory)
        self._number = max(numbers, default=0)
        (self.directory / "next.segment").unlink(missing_ok=True)
        self._active = recover(
            self.directory, self._layout_hash, &self.writer, clock_realtime_ns(), found)
        self.recovery = found[0]
        if self._active is None:
            self.writer.limit = 0
        self._opened_ns = clock_monotonic_ns()
        self.header.epoch += 1
        self.header.cut_bytes = self.recovery.cut_bytes
        self.header.synced_position = min(self.header.synced_position, self.writer.position)
        self.header.synced_index = min(self.header.synced_index, self.writer.index)
        if not self._durable:  # what follows is never synced: nobody shall wait for it
            self.header.synced_ns = 0
        journal_flush(self.header, &self.writer, clock_realtime_ns())
        store_release(&self.header.state, JOURNAL_OPEN)
        self.region.mark_ready()

    # --- the writer's thread --------------------------------------------------------------------

    def roll(self, int64_t now_ns, uint64_t names=0, int64_t unix_ns=0) -> bool:
        """Go on with the next segment, if the keeper has it ready.

        Parameters
        ----------
        now_ns : int
            Monotonic: from when on the segment's time counts.
        names : int
            Number of the file of names for its records; 0: none.
        unix_ns : int
            For its header.
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
            header.layout_hash = self._layout_hash
            header.number = self._number
            header.position = self.writer.position
            header.index = self.writer.index
            header.opened_ns = unix_ns
            header.epoch = self.header.epoch
            memcpy(header.name, <const char*>self._name, len(self._name))
            segment.begin(&header)
            segment.start(&self.writer, True)
            path = segment_path(self.directory, self._number)
            # From now on readers find it: its header is complete.
            segment.path.rename(path)
            segment.path = path
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

    def append(self, kind, payload, flags=0, received_ns=0, published_ns=0, frame=None) -> int:
        """Append one record; return its position. For tools and tests: recorders use C.

        The segments that it takes are made on the way; it waits for the disk.

        Raises
        ------
        ValueError
            The payload does not fit a segment, or the frame has not 16 bytes.
        """
        cdef Record record
        cdef bytes content = bytes(payload)
        cdef bytes frame_bytes = bytes(16) if frame is None else bytes(frame)
        cdef uint64_t position
        self._check_open()
        if len(frame_bytes) != sizeof(record.frame):
            raise ValueError(f"frame must have 16 bytes, has {len(frame_bytes)}")
        if <uint64_t>len(content) > self._capacity - SEGMENT_END_SIZE - RECORD_SIZE:
            raise ValueError(f"payload must fit a segment of {self._capacity} bytes, "
                             f"has {len(content)}")
        memset(&record, 0, sizeof(record))
        record.length = <int>(RECORD_SIZE + len(content))
        record.kind = kind
        record.flags = flags
        record.received_ns = received_ns
        record.published_ns = published_ns
        memcpy(&record.frame, <const char*>frame_bytes, sizeof(record.frame))
        while True:
            position = self.writer.position
            if segment_append(&self.writer, &record, <const unsigned char*><const char*>content):
                journal_flush(self.header, &self.writer, published_ns)
                return position
            self.prepare()
            self.roll(clock_monotonic_ns(), unix_ns=clock_realtime_ns())

    def flush(self, int64_t unix_ns):
        """Say how far the journal is, for tools and for `sync`."""
        self._check_open()
        journal_flush(self.header, &self.writer, unix_ns)

    @property
    def ready(self) -> bool:
        """Whether there is a segment for `roll`."""
        return self._next is not None

    @property
    def opened(self) -> bool:
        """Whether there is a segment to append to."""
        return self._active is not None

    @property
    def ending(self) -> bool:
        """Whether a segment was ended that `sync` has not sealed yet."""
        return bool(self._ending)

    @property
    def names(self) -> int:
        """Number of the file of names of the segment in use; 0: none."""
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
        """Take the space of the next segment, unless that is done; return whether it did.

        Raises
        ------
        OSError
            ENOSPC: the disk is full. EIO and others: it is not well.
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

    def populate(self, uint64_t ahead_bytes):
        """Touch the pages that the writer will need next, `ahead_bytes` far.

        Raises
        ------
        OSError
            The disk cannot read or take them.
        """
        cdef Segment active, following
        cdef uint64_t used = 0
        cdef int rc = 0
        with self._lock:
            active, following = self._active, self._next
            if active is not None:
                used = (load_acquire(&self.header.position) - active.header.position
                        + active.header.first_byte)
        with nogil:
            if active is not None:
                # Where a segment is taken up again, what lies before is there already.
                active.populated = max(active.populated, used & ~<uint64_t>4095)
                rc = active.populate(used + ahead_bytes)
                used = active.mapping.size_bytes - used
            if rc == 0 and following is not None and used < ahead_bytes:
                rc = following.populate(ahead_bytes - used)
        check(rc, "touch pages of", str(self.directory))

    def sync(self, int64_t unix_ns) -> int:
        """Have the disk take what was written until now; return the position up to which it has.

        Segments that were ended are sealed. Without `durable` only that is done.

        Raises
        ------
        OSError
            The disk did not take it. What the kernel then still has in memory is anybody's guess,
            so nothing is called synced any more until the journal is opened again.
        """
        cdef uint64_t position, index
        cdef Segment segment, active
        cdef SegmentWriter ended
        cdef int64_t started_ns = clock_monotonic_ns()
        cdef int rc = 0
        self._check_open()
        index = load_relaxed(&self.header.index)
        position = load_acquire(&self.header.position)
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
            return self.header.synced_position
        if active is not None:
            with nogil:
                rc = active.sync()
            self._note_failure(rc)
        if renamed:
            _sync_directory(self.directory)
        self.header.syncs += 1
        self.header.sync_longest_ns = max(
            self.header.sync_longest_ns, clock_monotonic_ns() - started_ns)
        if not self.failed:
            self.header.synced_index = index
            self.header.synced_ns = unix_ns
            store_release(&self.header.synced_position, position)
        return self.header.synced_position

    cdef _seal(self, Segment segment, SegmentWriter* w, int64_t unix_ns, bint durable):
        segment.write_seal(w, unix_ns, SEAL_DURABLE if durable else 0)
        segment.release_rest(w.position - segment.header.position)
        segment.close()

    def _note_failure(self, int rc):
        if rc < 0:
            self.header.sync_errors += 1
            self.failed = True
            check(rc, "sync", str(self.directory))

    def remove_oldest(self) -> int:
        """Remove the oldest segment that is sealed; return the bytes of disk that it had.

        0: there is none. Readers that have it open go on reading it.
        """
        numbers = list_segments(self.directory)
        with self._lock:
            kept = len(self._ending) + (self._active is not None)
        if len(numbers) <= kept:
            return 0
        path = segment_path(self.directory, numbers[0])
        size = path.stat().st_blocks * 512
        path.unlink()
        self.header.removed += 1
        return size

    def size_bytes(self) -> int:
        """Return the bytes of disk that its segments have."""
        return sum(segment_path(self.directory, number).stat().st_blocks * 512
                   for number in list_segments(self.directory))

    # --- both -----------------------------------------------------------------------------------

    def note_missed(self, uint64_t lapped, uint64_t dropped):
        """Count records that did not get into the journal."""
        self._check_open()
        self.header.lapped += lapped
        self.header.dropped += dropped

    def state(self) -> JournalState:
        """Return how far it is, as tools see it."""
        self._check_open()
        return _state(self.region)

    def close(self, int64_t unix_ns=0):
        """End it: sync, seal, and say that nothing more will come. Both threads have ended.

        Idempotent. A journal whose last segment cannot be synced is left as it is.
        """
        if self.region.pointer == NULL:
            return
        if self.region.writer_pid != os.getpid():  # a forked child
            self.region.close()
            return
        unix_ns = unix_ns or clock_realtime_ns()
        try:
            journal_flush(self.header, &self.writer, unix_ns)
            with self._lock:
                self._end_active()
            self.sync(unix_ns)
            # Orders the last record and its seal before the end; read by journal cursors.
            store_release(&self.header.state, JOURNAL_CLOSED)
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


def _sync_directory(directory):
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


cdef _state(Region region):
    cdef JournalHeader* header = <JournalHeader*>(region.pointer + JOURNAL_HEADER)
    closed = load_acquire(&header.state) == JOURNAL_CLOSED
    return JournalState(
        alive=not closed and region.writer_alive(), closed=closed, epoch=header.epoch,
        position=load_acquire(&header.position), index=header.index,
        written_ns=header.written_ns,
        synced_position=load_acquire(&header.synced_position),
        synced_index=header.synced_index, synced_ns=header.synced_ns, syncs=header.syncs,
        sync_errors=header.sync_errors, sync_longest_ns=header.sync_longest_ns,
        lapped=header.lapped, dropped=header.dropped, removed=header.removed,
        cut_bytes=header.cut_bytes)
