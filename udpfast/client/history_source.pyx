"""History, then live: the records of a ring from the journal that has them, then from the ring.

A record is known for good by its ring's log and its index there. The journal says which log its
records are of, and which index comes behind its last one. So each record comes once, whatever
either is called, whichever of the two is empty, finished or begun anew:

    history   the journal is read. Where it ends, or records are missing in it, the ring goes on if
              it has the next record; else the journal, if it has more by now; else the ring does,
              from its oldest record on, and what neither has is said to be missing.
    live      the ring is read. Where records are missing in it, the journal goes on if it has some
              of them. Where the ring was closed, the file that took its place goes on, if it is
              there by then; else that is the end.
"""

import contextlib
from pathlib import Path

cimport cython
from libc.errno cimport EBADMSG, EPIPE
from libc.stdint cimport INT64_MIN, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport Source
from udpfast.core.check cimport unlikely
from udpfast.core.idle cimport Idle
from udpfast.core.layout cimport (
    KIND_CONNECTION, KIND_LAPPED, LAPPED_READER, LAPPED_UNKNOWN, Lapped,
    RECORD_SIZE, Record)
from udpfast.log.cursor cimport RingCursor
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.segment cimport IDENTITY_SIZE, SegmentHeader

from udpfast.archive.names import known_names
from udpfast.client.journal_source import JournalSource
from udpfast.errors import ConfigError, FormatError, RegionError, UdpfastError, shown
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.log.journal_place import find_recorded, segments_of
from udpfast.log.journal_state import journal_state
from udpfast.log.segment import Segment, list_segments, segment_path
from udpfast.market.updates import LAYOUTS
from udpfast.shm.instance import journal_directory

__all__ = ["HistorySource", "is_history_of", "open_own_history"]

# In place of a position: the ring's writer closed it, and the journal has all (agents.recording).
cdef uint64_t SOURCE_ENDED = <uint64_t>-1


@cython.final
cdef class HistorySource(Source):
    """A journal, and the ring whose records it has.

    Parameters
    ----------
    directory : pathlib.Path
        Of the journal.
    start : "begin", ("position", int) or ("time", int)
        Where to begin in it. Of a time, what the ring has written already counts, too.
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
        self.start_ns = start[1] if start[0] == "time" else INT64_MIN
        self.start_until = live.cursor.tail_index
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
            if unlikely(count == -EPIPE or (count > 0 and self.live.missed)):
                with gil:
                    count = self._disturbed(count)
                if count == 0:
                    continue
            if count > 0:
                self.index = self.live.cursor.reader.index
            left = self._leave_out(count)
            if left > 0:
                self.missed = self.missed_between  # told with the record that comes next
                self.missed_reason = self.between_reason
                self.missed_said += self.missed
                self.missed_between = 0
            if left != 0 or count <= 0:
                return left

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
        cdef int64_t count
        try:
            count = cursor.poll_all(min(limit, cursor._limit))
        except RegionError:
            # It was begun anew, or removed: what it had may be elsewhere.
            if not self.exact or not self._miss(0):
                raise
            return 0
        if cursor.missed and self.exact and self._miss(cursor.missed):
            return 0
        self._miss_between(cursor.missed, self.history.missed_reason)
        cursor.missed = 0
        if self.payloads != cursor._payloads:
            self._use_journal()
        if count == 0:
            self._go_over()
            return 0
        self._note(count)
        self.missed, self.missed_reason = self.missed_between, self.between_reason
        self.missed_said += self.missed
        self.missed_between = 0
        return count

    def _use_journal(self):
        cdef JournalCursor cursor = self.history.cursor
        self.history.use_arrays(cursor.headers, cursor.offsets, cursor.payloads)
        self._use(self.history)

    cdef _note(self, int64_t count):
        # Which record of the ring comes behind these. A segment says which one its first is.
        cdef JournalCursor cursor = self.history.cursor
        cdef const SegmentHeader* header = cursor.segment.header
        cdef Lapped lapped
        cdef int64_t i
        if self.headers[0].index == header.index:
            self.log = header.source[:IDENTITY_SIZE]
            self.index = header.source_index
            self.exact = True
        elif self.headers[0].index != self.journal_index:
            self.exact = False
        for i in range(count):
            if self.headers[i].kind != KIND_LAPPED:
                self.index += 1
                continue
            memcpy(&lapped, self.payloads + self.offsets[i], sizeof(lapped))
            self.index += lapped.missed - (lapped.reason == LAPPED_UNKNOWN)
        self.journal_index = self.headers[count - 1].index + 1

    cdef bint _miss(self, uint64_t missed) except -1:
        # Records are missing in the journal, or all the rest of it is: whether the ring has them.
        if not self._ring_has(SOURCE_ENDED):
            return False
        self._place(SOURCE_ENDED)
        return True

    cdef bint _go_over(self) except -1:
        # The journal was read up to where it was when that was looked at last. The ring comes next
        # if it has the next record, or the journal has no more; else there is more of that.
        cdef JournalCursor journal = self.history.cursor
        cdef uint64_t position = SOURCE_ENDED
        before = self.state
        if journal.position <= before.resume_position:
            self.log, self.index, self.exact = before.source, before.source_index, True
            position = before.source_position
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
        if self._stands_at(position):
            return True
        ring.seek_oldest()
        return ring.reader.index <= self.index

    cdef bint _stands_at(self, uint64_t position) except -1:
        # Whether a position is one of this file. Of a file that another one followed only what was
        # flushed counts: what comes behind it may have been in a third.
        cdef RingCursor ring = self.live.cursor
        return ring.reader.header.first <= position != SOURCE_ENDED and ring.holds(position) and (
            position <= ring.tail_position or not ring.region.replaced())

    cdef _place(self, uint64_t position):
        # Stand in the ring at what comes next; where that is not there any more, at the oldest.
        cdef RingCursor ring = self.live.cursor
        cdef bint same
        self._choose_file()
        same = ring.log == self.log
        if same and self._stands_at(position):
            ring.seek(position, self.index)
        else:
            ring.seek_oldest()
            if same:
                self._miss_between(
                    max(ring.reader.index, self.index) - self.index, LAPPED_READER)
            else:
                self._miss_log()
        self.skip_until = self.index if same else 0
        if not same:
            self.log, self.index = ring.log, ring.reader.index
        self.history.detach()
        self.history = None
        self._use(self.live)
        self.renew_names()

    def _miss_log(self):
        # A log began anew: what came before its oldest record, and what the one before it had and
        # nobody kept. Of that one nothing is missing if its recorder said so.
        cdef uint64_t missed = self.live.cursor.reader.index
        if self.history is not None and self.state.source_position != SOURCE_ENDED:
            self._miss_between(missed + 1, LAPPED_UNKNOWN)
        else:
            self._miss_between(missed, LAPPED_READER)

    cdef _choose_file(self):
        # Where another file took the ring's place: what the one before still has comes first.
        cdef RingCursor ring = self.live.cursor
        found = ring.successor()
        if found is None:
            return
        log, first_index = found
        if ring.log == self.log and not (log == self.log and self.index >= first_index):
            return
        ring.renew()
        self.live.take_file()

    # --- live -----------------------------------------------------------------------------------

    cdef int64_t _disturbed(self, int64_t count) noexcept:
        # Records of the ring are missing before these, or it was closed. 0: something else comes.
        cdef uint64_t first
        try:
            if count == -EPIPE:
                return 0 if self._go_on() else count
            first = self.live.headers[0].index
            if self.live.missed_reason == LAPPED_UNKNOWN:
                return 0 if self._change_log(first) else count
            self.log = self.live.log
            self.index = max(first - self.live.missed, self.skip_until)
            if first > self.index:
                if self._look_back(first):
                    return 0
                self._miss_between(first - self.index, LAPPED_READER)
            return count
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef bint _go_on(self) except -1:
        # Its writer closed the ring: whether the next one's file is there.
        cdef RingCursor ring = self.live.cursor
        self.log, self.index = ring.log, ring.reader.index
        if ring.successor() is None:
            return False
        ring.renew()
        ring.seek_oldest()
        self.live.take_file()
        if ring.log != self.log:
            self._change_log(ring.reader.index)
        elif ring.reader.index > self.index and not self._look_back(ring.reader.index):
            self._miss_between(ring.reader.index - self.index, LAPPED_READER)
        if self.history is None:
            self._use(self.live)
            self.renew_names()
        return True

    cdef bint _change_log(self, uint64_t first) except -1:
        # The ring began anew, and its record `first` is at hand: whether the journal has some of
        # what lies between. Of the log before nobody else knows how far it went.
        self.skip_until = self.start_until = 0
        if self._look_back(<uint64_t>-1):
            return True
        self._miss_between(1, LAPPED_UNKNOWN)
        self.log, self.index = self.live.log, 0
        if self._look_back(first):
            return True
        self._miss_between(first, LAPPED_UNKNOWN)
        return False

    cdef bint _look_back(self, uint64_t before) except -1:
        # Whether the journal has some of what is missing up to there: then it is read again.
        found = None
        with contextlib.suppress(FileNotFoundError, FormatError, RegionError):
            found = find_recorded(self.journal, self.log, self.index, LAYOUTS)
        if found is None or found[1] >= before:
            return False
        self._miss_between(found[1] - self.index, LAPPED_READER)
        self._open(("position", found[0]))
        self.index, self.exact = found[1], True
        self.journal_index = self.history.cursor.index
        return True

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
        if count <= 0 or self.headers[0].index >= max(self.start_until, self.skip_until):
            return count
        for i in range(count):
            header = self.headers + i
            if header.kind != KIND_CONNECTION and (header.index < self.skip_until or (
                    header.index < self.start_until and header.published_ns < self.start_ns)):
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
    for number in list_segments(directory)[-1:]:
        with contextlib.suppress(FileNotFoundError, RegionError):
            last = Segment.open(segment_path(directory, number))
            return last.info().name == Path(live.directory).name
        return False
    return True


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
