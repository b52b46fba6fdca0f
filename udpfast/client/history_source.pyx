"""History, then live: the records of a ring from the journal that has them, then from the ring.

A record is known for good by its ring's log and its index there. The journal says which log its
records are of, and which index comes behind its last one. So each record comes once, whatever
either is called, whichever of the two is empty, finished or begun anew:

    history   the journal is read. Where it ends, or records are missing in it, the ring goes on if
              it has the next record; else the journal, if it has more by now; else the ring does,
              from its oldest record on.
    live      the ring is read. If its next record is not the one that comes next, the journal goes
              on if it has some of those between, also of logs between; what neither has by then is
              said to be missing. Where the ring was closed, the file that took its place goes on,
              if it is there by then; else that is the end.
"""

import contextlib
from pathlib import Path

cimport cython
from libc.errno cimport EBADMSG, EPIPE
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport Source
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.idle cimport Idle
from udpfast.core.layout cimport (
    KIND_CONNECTION, KIND_LAPPED, LAPPED_READER, LAPPED_UNKNOWN, Lapped,
    RECORD_SIZE, Record)
from udpfast.log.cursor cimport RingCursor
from udpfast.log.doubt cimport lapped_record
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.segment cimport IDENTITY_SIZE, SegmentHeader, record_look

from udpfast.archive.names import known_names
from udpfast.client.journal_source import JournalSource
from udpfast.errors import (
    ConfigError, FormatError, RegionError, RingClosedError, UdpfastError, shown)
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.log.journal_place import find_later, find_recorded, segments_of
from udpfast.log.journal_state import journal_state
from udpfast.log.segment import Segment, list_segments, segment_path
from udpfast.market.updates import LAYOUTS
from udpfast.shm.instance import journal_directory

__all__ = ["HistorySource", "is_history_of", "open_own_history"]

# In place of a position: the ring's writer closed it, and the journal has all (agents.recording).
cdef uint64_t SOURCE_ENDED = <uint64_t>-1

# Behind every index.
cdef uint64_t NO_INDEX = <uint64_t>-1


@cython.final
cdef class HistorySource(Source):
    """A journal, and the ring whose records it has.

    Parameters
    ----------
    directory : pathlib.Path
        Of the journal.
    start : "begin", "tail", ("position", int) or ("time", int)
        Where to begin in it; at the tail, in the ring. Of a time, what the ring has written already
        counts, too.
    live : RingSource
    addresses : tuple of str
        Of the journal, and of the ring.
    batch, buffer_bytes
        As `Reader` has them.
    """

    def __init__(
            self, directory, start, RingSource live not None, addresses, *, batch, buffer_bytes):
        self.journal = directory
        self.options = batch, buffer_bytes
        self.history_address, self.live_address = addresses
        self.live = live
        self.directory = live.directory
        self.entry = live.entry
        self.passed = set()
        self.start_ns = self.last_ns = start[1] if start[0] == "time" else INT64_MIN
        self.start_until, self.start_log = live.cursor.tail_index, live.log
        if start == "tail":
            self.state = journal_state(directory)
            self.last_ns = live._last_ns()
            self.log, self.index = live.log, live.cursor.index
            self._use(live)
            self.names = live.names
            return
        self._open(start)
        if start[0] == "position" and start[1] > self.state.position:
            self.history.detach()
            raise ConfigError(
                f"start must be position {self.state.position} or earlier, where the journal "
                f"{directory} ends, was {shown(start[1])}")

    def _open(self, start):
        # Read the journal from there to where it is now.
        batch, buffer_bytes = self.options
        self.state = journal_state(self.journal)
        cursor = JournalCursorFace.attach(
            self.journal, start, follow=False, limit=batch, room_bytes=buffer_bytes,
            layouts=LAYOUTS)
        cursor.extend(("position", self.state.resume_position))
        self.history = JournalSource(cursor)
        self.exact = False
        self._use(self.history)
        self.names = self.history.names

    @property
    def origin(self) -> str:
        """The address whose records the last wait brought."""
        return self.live_address if self.history is None else self.history_address

    @property
    def log(self) -> bytes:
        """Of the ring."""
        return self.live.log

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        cdef int64_t count, left
        self.sought = False
        while True:
            if self.history is not None:
                with gil:
                    count = self.look(limit)
                if count != 0:
                    return count
                continue
            count = self.live.wait(limit, until_ns, idle)
            if unlikely(self.payloads != self.live.payloads):  # of another file, with larger ones
                with gil:
                    self._use(self.live)
            if count > 0 and self.headers[0].kind == KIND_CONNECTION:  # no ring has it
                self.missed = 0
                return count
            if unlikely(count == -EPIPE or (count > 0 and (
                    self.placed or self.live.missed or self.headers[0].index != self.index))):
                with gil:
                    count = self._disturbed(count)
                if count == 0:
                    continue
            if count <= 0:
                return count
            left = self._leave_out(count)
            self.index = max(self.index, self.live.cursor.reader.index)
            if left > 0:
                if self.headers[left - 1].kind != KIND_LAPPED:
                    self.last_ns = self.headers[left - 1].published_ns
                self._tell()
                return left

    cdef void _tell(self) noexcept nogil:
        # What is missing is told with the record that comes next.
        self.missed, self.missed_reason = self.missed_between, self.between_reason
        self.missed_said += self.missed
        self.missed_between = 0

    # --- history --------------------------------------------------------------------------------

    cdef int64_t look(self, int64_t limit) noexcept:
        # Records of the journal; 0: the ring has its turn, or there is more of the journal.
        try:
            return self._read(limit)
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef int64_t _read(self, int64_t limit) except -1:
        cdef JournalCursor cursor = self.history.cursor
        cdef uint64_t at = cursor.index
        cdef int64_t count
        if self.turning:
            self._place(SOURCE_ENDED)
            return 0
        try:
            count = cursor.poll_all(min(limit, cursor._limit))
        except RegionError:
            # It was begun anew, or removed: what it had may be elsewhere.
            if cursor.segment is None and self._begin_again() or self._count_up_to(at):
                self._place(SOURCE_ENDED)
                return 0
            raise
        if cursor.missed and self._count_up_to(at) and (
                count == 0 or self._oldest() < self.index + cursor.missed):
            self._place(SOURCE_ENDED)
            return 0
        self._miss_between(cursor.missed, self.history.missed_reason)
        cursor.missed = 0
        if self.payloads != cursor._payloads:
            self._use_journal()
        if count == 0:
            self._go_over()
            return 0
        count = self._note(count)
        if count:
            self._tell()
        return count

    cdef bint _begin_again(self):
        # Nothing was read of a journal that is not there any more: what there is now is read, from
        # the beginning, when the ring's next record comes.
        with contextlib.suppress(FileNotFoundError, FormatError):
            if journal_state(self.journal).identity == self.state.identity:
                return False
        self.log, self.index = bytes(IDENTITY_SIZE), 0
        return True

    def _use_journal(self):
        cdef JournalCursor cursor = self.history.cursor
        self.history.use_arrays(cursor.headers, cursor.offsets, cursor.payloads)
        self._use(self.history)

    cdef int64_t _note(self, int64_t count) except -1:
        # Which record of the ring comes behind these. A segment says which one its first is.
        # Returns how many count: where some are missing that the ring has still, it goes on.
        cdef JournalCursor cursor = self.history.cursor
        cdef const SegmentHeader* header = cursor.segment.header
        cdef Lapped lapped
        cdef uint64_t missed
        cdef int64_t i
        if self.headers[0].index == header.index:
            if self._ring_is_between(header, count) or self._ring_is_before(header):
                self.turning = True
                return 0
            if header.source[:IDENTITY_SIZE] != self.log:
                self.passed.add(self.log)
                self.log = header.source[:IDENTITY_SIZE]
            self.index = header.source_index
            self.exact = True
        elif self.headers[0].index != self.journal_index:
            self.exact = False
        for i in range(count):
            if self.headers[i].kind != KIND_LAPPED:
                self._doubt()
                self.index += 1
                self.last_ns = self.headers[i].published_ns
                continue
            memcpy(&lapped, self.payloads + self.offsets[i], sizeof(lapped))
            missed = lapped.missed - (lapped.reason == LAPPED_UNKNOWN)
            if lapped.reason == LAPPED_UNKNOWN:
                self.doubtful = False
            if missed and self.exact and self._oldest() < self.index + missed:
                self._doubt()
                self._miss_between(lapped.missed - missed, LAPPED_UNKNOWN)
                self.turning = True
                return i
            self.index += missed
        self.journal_index = self.headers[count - 1].index + 1
        return count

    cdef bint _ring_is_between(self, const SegmentHeader* header, int64_t count) except -1:
        # A segment begins. If it is of another log, the file at hand may have more of the log
        # before, or be of a log between the two.
        cdef RingCursor ring = self.live.cursor
        cdef int64_t i
        log = header.source[:IDENTITY_SIZE]
        if log == self.log or log == ring.log or ring.log in self.passed or not (
                self.exact and self.headers[0].index == self.journal_index):
            return False
        if ring.log == self.log:
            return ring.tail_index > self.index
        for i in range(count):
            if self.headers[i].kind != KIND_LAPPED:
                return self._oldest_at_hand() < self.headers[i].published_ns
        return False

    cdef int64_t _oldest_at_hand(self) except? 0:
        # When the oldest record of the file at hand was published; INT64_MAX: it has none that
        # is later than what was read.
        cdef RingCursor ring = self.live.cursor
        cdef int64_t oldest_ns = INT64_MAX
        ring.seek_oldest()
        with contextlib.suppress(RingClosedError):
            if ring.poll(1) and self.live.headers[0].published_ns >= self.last_ns:
                oldest_ns = self.live.headers[0].published_ns
        ring.seek_oldest()
        return oldest_ns

    cdef bint _ring_is_before(self, const SegmentHeader* header) except -1:
        # A segment begins. If records are missing before its first one, the ring may have some.
        cdef bint known = self.exact and self.headers[0].index == self.journal_index
        log = header.source[:IDENTITY_SIZE]
        if header.source_index == 0 or not (known or header.index == 0):
            return False
        if log == self.log and known and self.index >= header.source_index:
            return False
        before = self.log, self.index
        if not (known and log == self.log):
            self.log, self.index = log, 0
        if self._oldest() < header.source_index:
            self.exact = True
            return True
        self.log, self.index = before
        return False

    cdef _doubt(self):
        # Records of a new log follow: its recorder did not say that the one before lacks some.
        if self.doubtful:
            self._miss_between(1, LAPPED_UNKNOWN)
            self.doubtful = False

    cdef bint _count_up_to(self, uint64_t journal_index):
        # Know which record of the ring comes at this one of the journal's. Who began amid a segment
        # counts from its begin, which is in memory also where its file was removed. False: it
        # cannot be known, because of damage before.
        cdef JournalCursor cursor = self.history.cursor
        cdef const SegmentHeader* header
        cdef const Lapped* lapped
        cdef uint64_t offset = 0, index, at
        cdef int64_t size
        if self.exact and self.journal_index == journal_index:
            return True
        if cursor.segment is None or cursor._translation is not None:
            return False
        header = cursor.segment.header
        index, at = header.index, header.source_index
        while index < journal_index:
            size = record_look(
                cursor.segment.records + offset, cursor.segment.limit - offset,
                header.position + offset, index)
            if size <= 0:
                return False
            if (<const Record*>(cursor.segment.records + offset)).kind == KIND_LAPPED:
                lapped = <const Lapped*>(cursor.segment.records + offset + RECORD_SIZE)
                at += lapped.missed - (lapped.reason == LAPPED_UNKNOWN)
            else:
                at += 1
            offset += size
            index += 1
        if index > journal_index:
            return False
        self.log, self.index = header.source[:IDENTITY_SIZE], at
        self.journal_index = index
        self.exact = True
        return True

    cdef bint _go_over(self) except -1:
        # The journal was read up to where it was when that was looked at last. The ring comes next
        # if it has the next record, or the journal has no more; else there is more of that.
        cdef JournalCursor journal = self.history.cursor
        cdef uint64_t position = SOURCE_ENDED
        before = self.state
        if journal.position <= before.resume_position:
            self.log, self.index, self.exact = before.source, before.source_index, True
            self.journal_index = journal.index
            position = before.source_position
        else:
            self._count_up_to(journal.index)
        if self._ring_has(position):
            self._place(position)
            return True
        with contextlib.suppress(FileNotFoundError, FormatError):
            self.state = journal_state(self.journal)
        if self.state.identity == before.identity and self.state.position > journal.position:
            end = self.state.resume_position
            journal.extend(("position", end if end > journal.position else self.state.position))
            return False
        self._place(position)
        return True

    # --- from one to the other ------------------------------------------------------------------

    cdef bint _ring_has(self, uint64_t position) except -1:
        # Whether the record that comes next is there, or is the next to be written.
        cdef RingCursor ring = self.live.cursor
        self._choose_file()
        if ring.log != self.log:
            return False
        return self._stands_at(position) or self._oldest() <= self.index

    cdef uint64_t _oldest(self) except? 0:
        # Index of the oldest record of this log that the ring has, or that is written next.
        cdef RingCursor ring = self.live.cursor
        self._choose_file()
        if ring.log != self.log:
            return NO_INDEX
        ring.seek_oldest()
        return ring.reader.index

    cdef bint _stands_at(self, uint64_t position) except -1:
        # Whether a position is one of this file. Of a file that another one followed only what was
        # flushed counts: what comes behind it may have been in a third.
        cdef RingCursor ring = self.live.cursor
        return ring.reader.header.first <= position != SOURCE_ENDED and ring.holds(position) and (
            position <= ring.tail_position or not ring.region.replaced())

    cdef _place(self, uint64_t position):
        # Stand in the ring at what comes next; where that is not there any more, at the oldest.
        cdef RingCursor ring = self.live.cursor
        self._choose_file()
        if ring.log == self.log and self._stands_at(position):
            ring.seek(position, self.index)
        else:
            ring.seek_oldest()
        self.turning = False
        self.history.detach()
        self.history = None
        self._use_ring()

    cdef _use_ring(self):
        # Which record comes first is looked at when it is there.
        self.placed = True
        self._use(self.live)
        self.renew_names()

    cdef _choose_file(self):
        # Where another file took the ring's place: what the one before still has comes first.
        cdef RingCursor ring = self.live.cursor
        found = ring.successor()
        if found is None:
            return
        log, first_index = found
        if log == self.log:
            if ring.log == self.log and self.index < first_index:
                return
        elif ring.log not in self.passed and (
                ring.log == self.log or self._oldest_at_hand() < INT64_MAX):
            return
        ring.renew()
        self.live.take_file()

    # --- live -----------------------------------------------------------------------------------

    cdef int64_t _disturbed(self, int64_t count) noexcept:
        # It is not known to be the next record that the ring has here, or the ring was closed. 0:
        # something else comes.
        cdef RingCursor ring = self.live.cursor
        cdef uint64_t first
        try:
            if count == -EPIPE:
                return 0 if self._go_on() else self._end(count)
            first = self.headers[0].index
            if self.live.missed and not self.sought:
                # A lapped cursor jumps to the newest record: there are some before it. Once: a
                # writer that laps this one again and again is not to be caught.
                self.sought = self.placed = True
                ring.seek_oldest()
                return 0
            if self.live.log != self.log:
                if self._change_log(first, self.headers[0].published_ns):
                    return 0
            elif first > self.index:
                if self._look_back(first):
                    return 0
                self._miss_up_to(first)
            self.placed = False
            return count
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef bint _go_on(self) except -1:
        # Its writer closed the ring: whether the next one's file is there.
        cdef RingCursor ring = self.live.cursor
        if ring.successor() is None:
            return False
        ring.renew()
        ring.seek_oldest()
        self.live.take_file()
        self._use_ring()
        return True

    cdef int64_t _end(self, int64_t code) except? -1:
        # Nothing more comes: what is missing has no record before which it could be told.
        cdef Lapped lapped
        cdef uint64_t end = max(self.live.cursor.reader.index, self.live.cursor.tail_index)
        if self.live.log != self.log:
            if self._change_log(end, INT64_MAX):
                return 0
        elif end > self.index:
            if self._look_back(end):
                return 0
            self._miss_between(end - self.index, LAPPED_READER)
            self.index = end
        if self.missed_between == 0:
            return code
        lapped_record(
            self.headers, &lapped, self.missed_between, self.between_reason, clock_realtime_ns())
        self.headers.position = self.live.cursor.reader.cursor
        self.headers.index = end
        memcpy(self.payloads, &lapped, sizeof(lapped))
        self.offsets[0] = 0
        self.missed_said += self.missed_between
        self.missed = self.missed_between = 0
        return 1

    cdef bint _change_log(self, uint64_t first, int64_t until_ns) except -1:
        # The ring is of another log, and its record `first` is at hand: whether the journal has
        # some of what lies between, of the log before, of others, or of this one.
        if self._look_back(NO_INDEX):
            return True
        with contextlib.suppress(FileNotFoundError, FormatError, RegionError):
            self.state = journal_state(self.journal)
        # Of the log before nobody else knows how far it went, unless its recorder said so.
        doubtful = not self._is_whole()
        later = None
        with contextlib.suppress(FileNotFoundError, FormatError, RegionError):
            later = find_later(self.journal, self.passed | {self.log}, self.last_ns, LAYOUTS)
        if self.live.log != self.start_log:
            self.start_until = 0
        self.passed.add(self.log)
        if later is not None and (
                later.index < first if later.segment.source == self.live.log
                else later.published_ns < until_ns):
            self._read_again(later.segment.position, later.position)
            self.log, self.index = later.segment.source, later.segment.source_index
            self.journal_index = later.segment.index
            self._miss_between(self.index, LAPPED_READER)
            self.doubtful = doubtful
            return True
        if doubtful:
            self._miss_between(1, LAPPED_UNKNOWN)
        self.log, self.index = self.live.log, 0
        self._miss_up_to(first)
        return False

    cdef _miss_up_to(self, uint64_t first):
        # The ring's record `first` is at hand, and nobody has those before. They are told, unless
        # it was published before the reader begins, and they with it.
        if not (first < self.start_until and self.live.headers[0].published_ns < self.start_ns):
            self._miss_between(first - self.index, LAPPED_READER)
        self.index = first

    cdef bint _is_whole(self):
        # Whether nothing of the log before is missing: its recorder said so, or there was none.
        return self.log == bytes(IDENTITY_SIZE) or (
            self.state.source == self.log and self.state.source_position == SOURCE_ENDED
            and self.state.source_index == self.index)

    cdef bint _look_back(self, uint64_t before) except -1:
        # Whether the journal has some of what is missing up to there: then it is read again.
        found = None
        with contextlib.suppress(FileNotFoundError, FormatError, RegionError):
            state = journal_state(self.journal)
            if state.source == self.log and state.source_index <= self.index:
                return False  # most often, and without a look at the records
            found = find_recorded(self.journal, self.log, self.index, LAYOUTS)
        if found is None or found.index >= before:
            return False
        self._miss_between(found.index - self.index, LAPPED_READER)
        self._read_again(found.position, found.position)
        self.index, self.journal_index = found.index, found.journal_index
        return True

    cdef _read_again(self, uint64_t position, uint64_t found):
        # Go on in the journal from a position on, at least up to the record that was found there.
        self._open(("position", position))
        self.history.cursor._start_ns = self.start_ns
        self.history.cursor.extend(("position", max(self.state.resume_position, found + 1)))
        self.exact = True

    cdef _miss_between(self, uint64_t missed, uint32_t reason):
        if missed:
            if self.missed_between == 0 or reason == LAPPED_UNKNOWN:
                self.between_reason = reason
            self.missed_between += missed

    cdef _use(self, Source source):
        self.use_arrays(source.headers_array, source.offsets_array, source.payloads_array)

    cdef int64_t _leave_out(self, int64_t count) noexcept nogil:
        # Of the ring's records: what was handed out, and, of those that were written before it was
        # opened, what was published too early.
        cdef int64_t i, kept = 0
        cdef Record* header
        if self.headers[0].index >= max(self.start_until, self.index):
            return count
        for i in range(count):
            header = self.headers + i
            if header.index < self.index or (
                    header.index < self.start_until and header.published_ns < self.start_ns):
                continue
            if kept != i:
                memmove(self.headers + kept, header, RECORD_SIZE)
                self.offsets[kept] = self.offsets[i]
            kept += 1
        return kept

    # --- as any source --------------------------------------------------------------------------

    cdef check(self):
        self.live.check()

    cdef fail(self, int64_t code):
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self.live.fail(code)

    cdef renew_names(self):
        cdef Source source = self.live if self.history is None else self.history
        source.renew_names()
        self.names = source.names

    cdef bint names_missing(self):
        cdef Source source = self.live if self.history is None else self.history
        return source.names_missing() or self.names is not source.names

    cdef names_published(self):
        return {*known_names(self.journal), *self.live.names_published()}

    cdef sleeper(self):
        return self.live.sleeper()

    cdef report(self, uint64_t read):
        if self.history is None:
            self.live.report(read)

    cdef uint64_t next_index(self):
        return self.live.next_index() if self.history is None else self._as_of_ring()

    cdef uint64_t missed_total(self):
        return self.missed_said + self.missed_between

    cdef uint64_t written(self):
        return self.live.written()

    cdef uint64_t writer_epoch(self):
        return self.live.writer_epoch()

    cdef bint writer_alive(self):
        return self.live.writer_alive()

    cdef bint writer_ended(self):
        return self.live.writer_ended()

    cdef bint writer_failed(self):
        return self.live.writer_failed()

    cdef bint detached(self):
        return self.live.detached()

    cdef detach(self):
        self.entry = NULL
        if self.history is not None:
            self.history.detach()
        self.live.detach()

    cdef uint64_t _as_of_ring(self):
        # What the journal's next record is in the ring, about: records that its recorder missed
        # are counted there and not here.
        cdef uint64_t behind = self.state.resume_index - min(
            <uint64_t>self.state.resume_index, self.history.cursor.index)
        return self.state.source_index - min(<uint64_t>self.state.source_index, behind)


def is_history_of(directory, RingSource live not None) -> bool:
    """Return whether a journal is the one that keeps a ring's records.

    It has records of the ring's log, and no others since; or it is where the ring's recorder
    records to, but the ring began anew, and the recorder has not found that out yet.
    """
    try:
        state = journal_state(directory)
    except (FileNotFoundError, FormatError, RegionError):
        return False
    if state.source == live.log:
        return True
    if Path(directory) not in _journals_of(live.directory) or segments_of(directory, live.log):
        return False
    numbers = list_segments(directory)
    if not numbers:
        return True
    with contextlib.suppress(FileNotFoundError, RegionError):
        last = Segment.open(segment_path(directory, max(numbers)))
        return last.info().name == Path(live.directory).name
    return False


def open_own_history(RingSource live not None, start_ns, batch, buffer_bytes, address):
    """Return the source that begins with the journal of a ring's records.

    Parameters
    ----------
    live : RingSource
    start_ns : int
        Begin with what was published then or later, UNIX ns.
    batch, buffer_bytes
        As `Reader` has them.
    address : str
        Of the ring.

    Raises
    ------
    ConfigError
        No journal has its records.
    """
    looked = _journals_of(live.directory)
    for directory in looked:
        if is_history_of(directory, live):
            return HistorySource(
                directory, ("time", start_ns), live, (f"journal:{directory}", address),
                batch=batch, buffer_bytes=buffer_bytes)
    raise ConfigError(
        f"start must be 'tail', 'begin' or 'oldest' for {address}, because no journal has "
        f"its records (looked at {', '.join(map(str, looked)) or 'none'})")


def _journals_of(instance):
    # Where its recorder said that it records to; else the journal of its name.
    found = []
    with contextlib.suppress(OSError, ValueError):
        found.append(Path((Path(instance) / "journal").read_text()))
    with contextlib.suppress(OSError, UdpfastError):
        found.append(journal_directory(Path(instance).name))
    return found
