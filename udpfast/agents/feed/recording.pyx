"""One ring's records into one journal: from where the last recorder ended, every hole said."""

import cython

from libc.errno cimport EPIPE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.layout cimport (
    KIND_RESTART, LAPPED_DISK, LAPPED_READER, LAPPED_UNKNOWN, Lapped, Record)
from udpfast.core.linux cimport ECANCELED
from udpfast.log.doubt_records cimport doubt_record_lapped
from udpfast.log.journal cimport journal_flush, journal_note_resume
from udpfast.log.recorded_runs cimport source_ended
from udpfast.log.ring cimport ring_awaits
from udpfast.log.segment cimport segment_append

from udpfast.agents.feed.name_copy import NameCopy
from udpfast.errors import FormatError
from udpfast.log.cursor import RingCursor as RingCursorFace
from udpfast.log.journal import Journal as JournalFace
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.recorded_runs import RecordedRuns
from udpfast.market.updates import PAYLOAD_HASH

__all__ = ["Recording"]

cdef enum:
    LOOK_NS = 50_000_000         # whether another file took the ring's place, while nothing comes


@cython.final
cdef class Recording:
    """One ring's records into one journal.

    Parameters
    ----------
    ring : Path
        Of the ring's file.
    directory : str or Path
        Of the journal.
    layouts : Layouts
        Of the ring's records.
    instance : Path or None
        The directory whose names the records go by; None: they have none.
    config : RecordConfig
    name : str
        Of the instance.

    Attributes
    ----------
    journal : Journal
    cursor : RingCursor
    ended : bool
        The ring's writer has ended, and all of it is in the journal.
    dropping : bool
        The disk takes no more; records are counted instead.
    failure : Exception or None
        What ended it.
    missed_before : int
        Records that came while nobody recorded them, and that the ring had no more when it began.
    """

    def __init__(
            self, ring: Path, directory: str | os.PathLike[str], layouts: Layouts,
            instance: Path | None, config: RecordConfig, name: str):
        self._segment_ns = config.segment_s * 1_000_000_000
        self._sync_each = config.sync == "batch"
        self.journal = JournalFace.open(
            directory, layouts, name=name, segment_bytes=config.segment_bytes,
            durable=config.sync != "none")
        try:
            self._attach(ring, 0 if layouts.raw else PAYLOAD_HASH)
            if instance is not None:
                self._names = NameCopy(
                    instance, self.journal.directory, self.cursor.reader.header.names)
                self._table = self._names.source
                self._names_copied = self._names.copied
            self._resume()
            self.missed_before = self._lapped
        except BaseException:
            self.close()
            raise

    def _attach(self, ring, payload_hash):
        try:
            self.cursor = RingCursorFace.attach(
                ring, "begin", RECORDING_BATCH, payload_hash=payload_hash)
        except FormatError:  # overwritten
            self.cursor = RingCursorFace.attach(
                ring, "oldest", RECORDING_BATCH, payload_hash=payload_hash)

    def _resume(self):
        # Stand at the ring's first record that the journal does not have.
        # What is set aside may have been all of it: nobody can say any more.
        begun = self.journal.writer.index > 0 or self.journal.recovery.set_aside > 0
        ended = self.journal.written.source_position == source_ended()
        log = self.cursor.log
        resume = self.journal.resume(log)
        if resume is not None:
            # What was read from the log before is passed over by its index, and what is there no
            # more is missing: both whichever file of the log had it.
            self._next_index = self._recorded_end(resume)
            if (resume.source_position is not None
                    and self.cursor.reader.header.first <= resume.source_position
                    and resume.source_position != source_ended()):
                self.cursor.reader.cursor = resume.source_position
                self.cursor.reader.index = resume.source_index
                self.cursor.skip_lap()
        elif begun:
            # The journal has all of the log before, or nobody knows what it lacks.
            self._next_index = 0
            self._unknown = not ended
        else:
            self._next_index = self.cursor.reader.index
        self._begin_log()
        self._note_missing()
        if resume is None and not (self._unknown or self._lapped):
            # Also for readers: whose records follow, before the first of them is there.
            journal_note_resume(self.journal, self.cursor.reader.cursor, self._next_index)
            journal_flush(self.journal, clock_realtime_ns())

    def _begin_log(self):
        # A segment has the records of one log, and they go by one table of names.
        self.journal.note_source(self.cursor.log)
        if self.journal.source != self.cursor.log:
            self.journal.writer.limit = 0
        if self._names is not None and self.journal.names != self._names.number:
            self.journal.writer.limit = 0

    def _note_missing(self):
        # What is missing where the cursor stands is known by its index, before a record comes.
        if self.cursor.reader.index > self._next_index:
            self._lapped += self.cursor.reader.index - self._next_index
            self._next_index = self.cursor.reader.index

    def _recorded_end(self, resume):
        # The ring's first record that the journal neither has nor says to be missing.
        with JournalCursor.attach(
                self.journal.directory, ("position", resume.position), follow=False,
                layouts=self.journal.layouts) as cursor:
            runs = RecordedRuns(cursor)
            for _ in runs:
                pass
            end = runs.index if runs.log == self.cursor.log else 0
        return max(end, resume.source_index)

    @property
    def position(self) -> int:
        """Position behind the journal's last record."""
        return self.journal.writer.position

    @property
    def backlog(self) -> int:
        """Records in the ring (as of its last flush) that are not in the journal yet."""
        return max(0, self.cursor.tail_index - self.cursor.index) + self._count - self._at

    def turn(self, int64_t now_ns) -> int:
        """Do one turn, as a runner does; for tests."""
        return self.work(now_ns)

    def drop(self, bint dropping) -> None:
        """Count records instead of waiting for room; from the keeper's thread."""
        self.dropping = dropping

    def fail(self, failure: BaseException) -> None:
        """End with this exception at the next turn; from the keeper's thread."""
        self.failure = failure

    def note_current(self) -> None:
        """Publish up to when the journal has all that was published; from the keeper's thread."""
        self.journal.note_current(<int64_t>load_acquire(<uint64_t*>&self._current_ns))

    def sync_names(self) -> None:
        """Have the disk take the names that were copied; from the keeper's thread."""
        if self._names is not None:
            self._names.sync()

    def close(self) -> None:
        """End the journal, and let go of ring and names. Idempotent."""
        try:
            if self._lapped or self._dropped or self._unknown:
                if self._say_missed(self.journal._opened_ns) and self._at == self._count:
                    journal_note_resume(
                        self.journal, self.cursor.reader.cursor, self._next_index)
                    journal_flush(self.journal, clock_realtime_ns())
            elif self.ended:  # nothing is missing, whichever ring comes next
                journal_note_resume(self.journal, source_ended(), self._next_index)
                journal_flush(self.journal, clock_realtime_ns())
            self.sync_names()
            self.journal.close(
                failed=self.cursor is not None and self.cursor.life in ("failed", "left"))
        finally:
            if self._names is not None:
                self._names.close()
            if self.cursor is not None:
                self.cursor.close()

    cdef int work(self, int64_t now_ns) noexcept nogil:
        # Returns records taken, or -errno.
        cdef int taken
        if self.failure is not None:
            return -ECANCELED
        if self._at == self._count:
            if self.ended:
                return 0
            # Where a sync failed, none will say so any more: the policy of a full disk has decided.
            if (self._sync_each and not self.journal.failed
                    and load_acquire(&self.journal.kept.synced_position)
                    != self.journal.writer.position):
                return 0
            taken = self._take()
            if taken == 0 and (self._at_end or now_ns >= self._look_at_ns):
                self._look_at_ns = now_ns + LOOK_NS
                if not self._follow(now_ns):
                    return -ECANCELED
                self._note_current()
            if taken == 0 and self._is_over(now_ns):
                self._roll(now_ns)
            if taken <= 0:
                return taken
        taken = <int>(self._count - self._at)
        if self._table is not None and (
                load_acquire(&self._table.names.header.count) != self._names_copied):
            if not self._copy_names():
                return -ECANCELED
        if self._doubtful:
            self._doubtful = False
            if not self._renew_names():
                return -ECANCELED
        if not self._write(now_ns):
            return 0 if self.failure is None else -ECANCELED
        return taken

    cdef void _note_current(self) noexcept nogil:
        # The ring had nothing more: what was published before the look before this one is in the
        # journal. Release: who sees it finds those records.
        if not (self._lapped or self._dropped or self._unknown):
            store_release(<uint64_t*>&self._current_ns, <uint64_t>self._looked_ns)
        self._looked_ns = clock_realtime_ns()

    cdef int _take(self) noexcept nogil:
        # The next batch from the ring. What was missed before it is told by the indices, which
        # count those that an earlier recorder has seen too.
        cdef const Record* headers = self.cursor._headers
        cdef int64_t count = self.cursor.poll_oldest()
        self._at_end = count == -EPIPE or (count == 0 and ring_awaits(&self.cursor.reader))
        if count <= 0:
            return 0 if self._at_end else <int>count
        self._at = 0
        self._count = count
        while self._at < count and headers[self._at].index < self._next_index:
            self._at += 1
        if self._at < count:
            if headers[self._at].index > self._next_index:
                self._lapped += headers[self._at].index - self._next_index
                self._doubtful = not self._restart_ahead()
            self._next_index = headers[count - 1].index + 1
        return <int>count

    cdef bint _restart_ahead(self) noexcept nogil:
        # Whether the records up to a RESTART to come go by the names of before.
        cdef int64_t i
        for i in range(self._at, self._count):
            if self.cursor._headers[i].kind == KIND_RESTART:
                return True
        return False

    cdef bint _follow(self, int64_t now_ns) noexcept nogil:
        # All of this ring is read: go on in the one that took its place, or end with it. What is
        # missing of its log is said first: the segments of another count that one's records.
        if self._lapped or self._dropped or self._unknown:
            if not self._say_missed(now_ns):
                return self.failure is None
            journal_note_resume(self.journal, self.cursor.reader.cursor, self._next_index)
            journal_flush(self.journal, clock_realtime_ns())
        with gil:
            try:
                followed = self.cursor.follow()
                if followed is None:
                    # What took the place of a killed writer's file may have been lost as well.
                    self.ended = self._at_end and self.cursor.life in ("finished", "failed", "left")
                    return True
                if not followed:
                    self._unknown = True
                    self._next_index = 0
                    self._renew_names()
                # What this file has no more, or never had, is known without a record of it.
                self.cursor.seek_index(self._next_index)
                self._note_missing()
                self._begin_log()
                return self.failure is None
            except BaseException as failure:
                self.failure = failure
                return False

    cdef bint _write(self, int64_t now_ns) noexcept nogil:
        # The rest of the batch into the journal. False: not all of it.
        cdef const Record* header
        cdef bint all_done = True
        if self._is_over(now_ns):
            self._roll(now_ns)
        if self.dropping and self._dropped and self.journal._next is None:
            all_done = False  # still full: one record will say it all
        elif (self._lapped or self._unknown) and not self._say_missed(now_ns):
            all_done = False
        while all_done and self._at < self._count:
            header = self.cursor._headers + self._at
            if header.kind == KIND_RESTART and not self._renew_names():
                return False
            if self._dropped and not self._say_missed(now_ns):
                all_done = False
                break
            if not self._put(
                    header, self.cursor._payloads + self.cursor._offsets[self._at], now_ns):
                all_done = False
                break
            self._at += 1
        if not all_done and self.dropping:
            self._dropped += self._count - self._at
            self._at = self._count
            all_done = True
        # A recorder that takes over reads the ring from here, or counts from here on.
        if self._lapped == 0 and self._dropped == 0 and not self._unknown:
            header = self.cursor._headers + self._at
            if self._at < self._count:
                journal_note_resume(self.journal, header.position, header.index)
            else:
                journal_note_resume(
                    self.journal, self.cursor.reader.cursor, self.cursor.reader.index)
        journal_flush(self.journal, clock_realtime_ns())
        return all_done

    cdef bint _put(self, const Record* header, const unsigned char* payload,
                   int64_t now_ns) noexcept nogil:
        if segment_append(&self.journal.writer, header, payload):
            return True
        return self._roll(now_ns) and segment_append(&self.journal.writer, header, payload)

    cdef bint _say_missed(self, int64_t now_ns) noexcept nogil:
        # Records that are not in the journal: that is a record in it.
        cdef Record header
        cdef Lapped lapped
        # The log before lacks one more at least; what is missing of this one is counted exactly.
        cdef uint64_t missed = self._lapped + self._dropped + self._unknown
        cdef uint32_t reason = LAPPED_DISK if self._dropped else LAPPED_READER
        if self._unknown:
            reason = LAPPED_UNKNOWN
        doubt_record_lapped(&header, &lapped, missed, reason, clock_realtime_ns())
        if not self._put(&header, <const unsigned char*>&lapped, now_ns):
            return False
        self.journal.written.lapped += self._lapped
        self.journal.written.dropped += self._dropped
        self._lapped = self._dropped = 0
        self._unknown = False
        return True

    cdef bint _is_over(self, int64_t now_ns) noexcept nogil:
        # Whether the segment has had its time, which begins with its first record.
        if self._segment_ns == 0 or self.journal.writer.limit == 0:
            return False
        if self.journal.writer.index == self.journal._active.header.index:
            self.journal._opened_ns = now_ns
            return False
        return now_ns - self.journal._opened_ns >= self._segment_ns

    cdef bint _roll(self, int64_t now_ns) noexcept nogil:
        # Once per segment, and as long as none is ready: then the keeper is at it.
        cdef uint64_t source_index = self._next_index
        if self.journal._next is None:
            return False
        if self._at < self._count:
            source_index = self.cursor._headers[self._at].index
        with gil:
            try:
                return self.journal.roll(
                    now_ns, 0 if self._names is None else self._names.number,
                    clock_realtime_ns(), source_index - self._lapped - self._dropped,
                    0 if self._names is None else self._names.mark)
            except BaseException as failure:
                self.failure = failure
                return False

    cdef bint _renew_names(self) noexcept nogil:
        # Another writer may have begun another table: what follows then goes to another segment.
        if self._names is None:
            return True
        with gil:
            try:
                # What took a lost file's place may have taken that of its names, too.
                if not self.cursor.region.replaced() and self._names.renew(
                        self.cursor.reader.header.names):
                    self._table = self._names.source
                    self._names_copied = self._names.copied
                    if self.journal.names != self._names.number:
                        self.journal.writer.limit = 0
                return True
            except BaseException as failure:
                self.failure = failure
                return False

    cdef bint _copy_names(self) noexcept nogil:
        # Before the records that go by them.
        with gil:
            try:
                self._names.copy()
                self._names_copied = self._names.copied
                return True
            except BaseException as failure:
                self.failure = failure
                return False
