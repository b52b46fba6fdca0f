"""History, then live: the records of a ring from the journal that has them, then from the ring.

A record is known for good by its ring's log and its index there. The source stands at one index of
one log, which is what comes next, and reads a piece for as long as that goes on exactly there: the
journal in runs (`recorded_runs`), the ring by its cursor. Where it does not go on (a hole, another
log, its end, another file in the ring's place), `_go_on` looks what pieces there are, the ring's
first, so that nothing is overwritten after it was looked for in the journal; `seam` says which of
them comes next. What lies between is nowhere: it is said with the record that comes next.

So each record comes once, whatever the two are called, whichever of them is empty, finished or
begun anew.
"""

import contextlib

cimport cython
from libc.errno cimport EBADMSG, EPIPE
from libc.stdint cimport INT64_MIN, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport Source
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.idle cimport Idle
from udpfast.core.layout cimport (
    KIND_CONNECTION, KIND_LAPPED, LAPPED_DAMAGE, LAPPED_READER, LAPPED_UNKNOWN, Lapped, RECORD_SIZE,
    Record)
from udpfast.log.cursor cimport RingCursor
from udpfast.log.doubt cimport lapped_record
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.recorded_runs cimport RecordedRuns
from udpfast.log.ring cimport ring_ready
from udpfast.log.segment cimport IDENTITY_SIZE

from udpfast.archive.names import known_names
from udpfast.client.journal_source import JournalSource
from udpfast.client.seam import Piece, Where, log_behind, next_piece
from udpfast.errors import ConfigError, FormatError, RegionError, shown
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.log.journal_place import find_later, find_recorded, logs_of, recorded_end
from udpfast.log.journal_state import journal_state
from udpfast.log.recorded_runs import RecordedRuns
from udpfast.market.updates import LAYOUTS

__all__ = ["HistorySource"]

# In place of a position: the ring's writer closed it, and the journal has all (agents.recording).
cdef uint64_t SOURCE_ENDED = <uint64_t>-1

# Behind every index.
cdef uint64_t NO_INDEX = <uint64_t>-1

_NO_LOG = bytes(IDENTITY_SIZE)
_UNREADABLE = FileNotFoundError, FormatError, RegionError


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
        self.live.steered = True
        self.directory = live.directory
        self.entry = live.entry
        self.passed = set()
        self.log = b""
        self.start_ns = self.last_ns = start[1] if start[0] == "time" else INT64_MIN
        self.start_until, self.start_log = live.cursor.tail_index, live.cursor.log
        self.state = journal_state(directory)
        if start == "tail":
            self._place(live.cursor.log, live.cursor.index)
            self.last_ns = live._last_ns()
            with contextlib.suppress(*_UNREADABLE):
                self.passed.update(logs_of(directory))
            self.passed.discard(self.log)
            self._use(live)
            self.names = live.names
            return
        at = start[1] if start[0] == "position" else 0
        if at > self.state.position:
            raise ConfigError(
                f"start must be position {self.state.position} or earlier, where the journal "
                f"{directory} ends, was {shown(at)}")
        self.whole = at <= self.state.oldest_position
        self.start_from = live.cursor.extent()[0]
        self._open(start)
        self.runs = RecordedRuns(self.recorded.cursor)
        self.names = self.recorded.names

    cdef _open(self, start):
        # Read the journal from there to where it is known to be.
        batch, buffer_bytes = self.options
        cursor = JournalCursorFace.attach(
            self.journal, start, follow=False, limit=batch, room_bytes=buffer_bytes,
            layouts=LAYOUTS)
        cursor.extend(("position", self.state.resume_position))
        self.recorded = JournalSource(cursor)
        self._use(self.recorded)

    @property
    def origin(self) -> str:
        """The address whose records the last wait brought."""
        return self.live_address if self.runs is None else self.history_address

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        cdef int64_t count, left
        self.sought = False
        while True:
            if self.runs is not None:
                with gil:
                    count = self._look(limit)
                if count != 0:
                    return count
                continue
            count = self.live.wait(limit, until_ns, idle)
            if unlikely(self.payloads != self.live.payloads):  # of another file, with larger ones
                with gil:
                    self._use(self.live)
            if unlikely(count > 0 and self.headers[0].kind == KIND_CONNECTION
                        and self.headers[0].index == self.live.cursor.reader.index):
                self.missed = 0  # of the writer: no ring has it
                return count
            if unlikely(count == -EPIPE or (
                    count > 0 and (self.ahead or self.headers[0].index > self.index))):
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
        self.doubted = False

    cdef int64_t _leave_out(self, int64_t count) noexcept nogil:
        # Leave out those of the ring's records that were handed out, and, where they are older than
        # this source, what was published too early.
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

    # --- the journal ----------------------------------------------------------------------------

    cdef int64_t _look(self, int64_t limit) noexcept:
        # Records of the journal; 0: the ring has its turn, or there is more of the journal.
        try:
            return self._read(limit)
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef int64_t _read(self, int64_t limit) except -1:
        cdef RecordedRuns runs = self.runs
        cdef int64_t count
        try:
            count = runs.look(min(limit, runs.cursor._limit))
        except RegionError:
            # It was begun anew, or removed: what it had may be elsewhere.
            if not self._journal_gone():
                raise
            return 0
        if self.payloads != runs.cursor._payloads:
            self.recorded.use_arrays(
                runs.cursor.headers, runs.cursor.offsets, runs.cursor.payloads)
            self._use(self.recorded)
        if count == 0:
            self._journal_ended()
            return 0
        if not self._comes_next():
            return 0
        if runs.index < self.index:  # it was read elsewhere
            runs.take(min(<uint64_t>count, self.index - runs.index))
            return 0
        if runs.unknown:
            self._doubt()
        count = runs.take(min(count, limit))
        runs.forget_missing()
        self.index, self.exact = runs.index, runs.exact
        self.last_ns = self.headers[count - 1].published_ns
        self._tell()
        return count

    cdef bint _comes_next(self) except -1:
        # Whether the journal's record at hand is what comes next, or one of before.
        cdef RecordedRuns runs = self.runs
        if runs.log == self.log and runs.index == self.index:
            return True
        if runs.skipped or not self.log:
            self._begin_with()
        if runs.log == self.log:
            if not self.exact:  # no other piece can be compared with what was read
                self._miss(max(runs.index, self.index) - self.index, runs.reason)
                self.index, self.exact = runs.index, runs.exact
            if runs.index <= self.index:
                return True
        self._go_on()
        return self.runs is runs

    cdef _begin_with(self):
        # The journal's record at hand is the first one wanted, or the first behind some that were
        # published too early: what is missing before those is of no interest.
        cdef RecordedRuns runs = self.runs
        if self.whole and not runs.skipped:
            return
        runs.skipped = False
        self.missed_between = 0
        if runs.from_log == runs.log or self.start_ns != INT64_MIN:
            self._place(runs.from_log, runs.from_index)
            self.exact = runs.from_exact
        else:
            self._place(runs.log, runs.index)
            self.exact = runs.exact
        order = logs_of(self.journal)
        self.passed.update(order[:order.index(self.log)] if self.log in order else ())

    cdef _place(self, log, uint64_t index):
        # Know what comes next.
        self.log, self.index, self.exact = log, index, True

    cdef bint _journal_ended(self) except -1:
        # The journal was read up to where it was when that was looked at last. The ring comes next
        # if it goes on from there, or the journal has no more; else there is more of that.
        cdef RecordedRuns runs = self.runs
        cdef JournalCursor cursor = runs.cursor
        cdef uint64_t position = SOURCE_ENDED
        if self.whole and not self.log and not runs.skipped and runs.reason == LAPPED_DAMAGE:
            # None of it can be read, and so nobody knows where it began: the ring may have it.
            return self._read_elsewhere()
        before = self.state
        if cursor.position <= before.resume_position and before.source != _NO_LOG:
            runs.log, runs.index, runs.exact = before.source, before.source_index, True
            position = before.source_position
        elif not runs.known and not runs.skipped:
            runs.locate(cursor.index, True)
        log, from_index = runs.log, runs.index
        if (runs.known or runs.skipped) and (runs.from_exact or self.start_ns != INT64_MIN):
            log, from_index = runs.from_log, runs.from_index
        if self.whole and not runs.skipped and log == self.start_log:
            from_index = min(from_index, self.start_from)  # the ring may have some of before
        if runs.skipped or not self.log and (
                not self.whole or before.position > before.oldest_position
                or before.source != _NO_LOG):
            if self.log and log != self.log:
                self.passed.add(self.log)
            self.missed_between = 0
            # From a time on, all is wanted that was not passed over: also what no recorder had.
            self._place(log, from_index if runs.skipped or self.start_ns == INT64_MIN else 0)
            self.exact = runs.exact
            runs.forget_missing()
        elif runs.log == self.log and runs.exact and not self.exact:
            self._miss(max(runs.index, self.index) - self.index, runs.reason)
            self._place(runs.log, runs.index)
        if runs.log == self.log and runs.index == self.index and self._stands_at(position):
            self._leave_journal()
            self.live.cursor.seek(position, self.index)
            self._use_ring()
            return True
        with contextlib.suppress(*_UNREADABLE):
            self.state = journal_state(self.journal)
        if self.state.identity == before.identity and self.state.position > cursor.position:
            end = self.state.resume_position
            cursor.extend(("position", end if end > cursor.position else self.state.position))
            return False
        return self._read_elsewhere()

    cdef bint _journal_gone(self) except -1:
        # What comes next may be elsewhere. False: nobody knows what that is.
        cdef RecordedRuns runs = self.runs
        cdef bint lost = runs.cursor.segment is None
        if not self.log:
            if runs.locate(runs.cursor.index, True):
                self._place(runs.log, runs.index)
            elif not lost and not self.whole:
                return False  # else it begins with what there is, wherever that is
        elif not self.exact:
            return False
        return self._read_elsewhere()

    cdef bint _read_elsewhere(self) except -1:
        self._leave_journal()
        if not self._go_on():
            self._use_ring()
        return True

    cdef bint _was_replaced(self) except -1:
        # Whether another journal is where the one that is read was: it may have what this lacks.
        with contextlib.suppress(*_UNREADABLE):
            return journal_state(self.journal).identity != self.runs.cursor.identity
        return False

    cdef _leave_journal(self):
        self.recorded.detach()
        self.runs = None

    # --- the ring -------------------------------------------------------------------------------

    cdef bint _stands_at(self, uint64_t position) except -1:
        # Whether what comes next is at this position of the file at hand. Of one that another one
        # followed only what was flushed counts: what comes behind it may have been in a third.
        cdef RingCursor ring = self.live.cursor
        return ring.log == self.log and (
            ring.reader.header.first <= position != SOURCE_ENDED and ring.holds(position)
            and (position <= ring.tail_position or not ring.region.replaced()))

    cdef _use_ring(self):
        cdef RingCursor ring = self.live.cursor
        if ring.log != self.log and not self.ahead:  # of a log that was passed nothing comes
            ring.seek_index(NO_INDEX)
        self._use(self.live)
        self.renew_names()

    cdef int64_t _disturbed(self, int64_t count) noexcept:
        # The ring has not what comes next, or was closed. 0: something else comes.
        cdef uint64_t first
        try:
            if count == -EPIPE:
                return 0 if self._go_on() else self._end(count)
            first = self.headers[0].index
            if self.ahead or not self.sought:
                # A lapped cursor jumps to the newest record: there are some before it. Once: a
                # writer that laps this one again and again is not to be caught.
                self.sought = True
                if self._go_on():
                    return 0
            else:
                piece, at = self._recorded()
                if piece is not None and piece.first < first:
                    self._miss(piece.first - self.index, LAPPED_READER)
                    self.index = piece.first
                    self._stand(piece, at)
                    return 0
            if first > self.index:
                if not (first < self.start_until
                        and self.headers[0].published_ns < self.start_ns):
                    self._miss(first - self.index, LAPPED_READER)
                self.index = first
            return count
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef int64_t _end(self, int64_t code) except? -1:
        # Nothing more comes: what is missing has no record before which it could be told.
        cdef Lapped lapped
        cdef uint64_t end = max(self.live.cursor.reader.index, self.live.cursor.tail_index)
        if self.ahead:
            whole = not self.log and self.start_ns == INT64_MIN
            self._pass_log(False)
            self._place(self.live.cursor.log, end if whole else 0)
            self.ahead = False
        if self.live.cursor.log == self.log and end > self.index:
            self._miss(end - self.index, LAPPED_READER)
            self.index = end
        if self.missed_between == 0:
            return code
        lapped_record(
            self.headers, &lapped, self.missed_between, self.between_reason, clock_realtime_ns())
        self.headers.position = self.live.cursor.reader.cursor
        self.headers.index = self.index
        memcpy(self.payloads, &lapped, sizeof(lapped))
        self.offsets[0] = 0
        self.missed_said += self.missed_between
        self.missed = self.missed_between = 0
        return 1

    # --- from one to the other ------------------------------------------------------------------

    cdef bint _go_on(self) except -1:
        # Stand at what comes next. False: there is nothing but what is read already.
        cdef RecordedRuns runs = self.runs
        cdef uint64_t first
        files, other = self._files()
        standing = None
        if runs is not None and runs.index != self.index and self._was_replaced():
            self._leave_journal()
            runs = None
        if runs is not None:
            first_ns = runs.cursor._headers[runs.begin].published_ns
            standing = Piece(Where.JOURNAL, runs.log, runs.index, runs.index + 1, first_ns)
            piece, at = standing, None
        else:
            piece, at = self._recorded()
        chosen = next_piece(self.log, self.index, files if piece is None else [*files, piece])
        if chosen is None:
            chosen, at = self._log_behind(files, standing)
            if chosen is None:
                return False
            if chosen.first == chosen.end:
                return self._wait_in(chosen)
        # Before what is still to be written, nothing is missing yet: the journal may get it.
        first = self.index if chosen.first == chosen.end else max(chosen.first, self.index)
        moved = first != self.index
        if moved and not chosen.first_ns < self.start_ns:
            self._miss(first - self.index, self._reason())
        self.index = first
        return self._stand(chosen, other if chosen.where is Where.PRESENT else at) or moved

    def _files(self):
        # What the file at hand has, and the one in its place, if that is another.
        cdef RingCursor ring = self.live.cursor
        cdef RingCursor other = ring.successor()
        in_place = other is None and not ring.region.replaced()
        files = [Piece(Where.HELD, ring.log, *ring.extent(), in_place)]
        if other is not None:
            files.append(Piece(Where.PRESENT, other.log, *other.extent(), True))
        return files, other

    def _recorded(self):
        # What the journal has of this log from here on.
        found = None
        with contextlib.suppress(*_UNREADABLE):
            state = journal_state(self.journal)
            if state.source == self.log and state.source_index <= self.index:
                return None, None  # most often, and without a look at the records
            found = find_recorded(self.journal, self.log, self.index, LAYOUTS)
        if found is None:
            return None, None
        return _piece_of(found), (found.position, found.index, found.journal_index)

    def _log_behind(self, files, standing):
        # This log is over: which piece comes next, and where it is. What a recorder missed at its
        # begin is told there.
        found = {}
        order = []

        def begins():
            with contextlib.suppress(*_UNREADABLE):
                for each in find_later(self.journal, self.passed | {self.log}, LAYOUTS):
                    segment = each.segment
                    piece = _piece_of(each)
                    found[piece] = segment.position, segment.source_index, segment.index
                    yield piece

        since_ns = self.last_ns if standing is None else INT64_MIN
        with contextlib.suppress(*_UNREADABLE):
            order = logs_of(self.journal)
        later = begins() if standing is None else [standing]
        chosen = log_behind(self.log, self.passed, since_ns, files, order, later)
        if chosen is not None and chosen.first < chosen.end:
            self._change_log(chosen, order)
        return chosen, found.get(chosen)

    cdef _change_log(self, piece, order):
        cdef uint64_t begin = 0
        if not self.log:
            if self.start_ns == INT64_MIN:  # begins with what there is
                begin = piece.first
                if piece.log == self.start_log:
                    begin = min(begin, self.start_from)
                if self.runs is not None and self.runs.log == piece.log:
                    begin = min(begin, self.runs.from_index)
        else:
            behind = order.index(self.log) + 1 if self.log in order else 0
            self._pass_log(piece.where is Where.JOURNAL and 0 < behind < len(order) and (
                order[behind] == piece.log))
        self._place(piece.log, begin)

    cdef _pass_log(self, told):
        # This log is over. Nobody else knows how far it went, unless the journal tells that with
        # the next one, or its recorder said that it has all.
        if not self.log:
            return
        self.passed.add(self.log)
        if not told and not self._is_whole():
            self._doubt()
        with contextlib.suppress(*_UNREADABLE):
            end, exact = recorded_end(self.journal, self.log, LAYOUTS)
            self._miss(max(self.index, end) - self.index, self._reason())
            if not exact:
                self._doubt()

    cdef uint32_t _reason(self):
        return LAPPED_READER if self.runs is None else self.runs.reason

    cdef bint _wait_in(self, piece) except -1:
        # Nothing is there yet of the log behind this one: until then, the journal may get more of
        # this. False: that is where it waits already.
        cdef RingCursor ring = self.live.cursor
        if piece.where is Where.PRESENT:
            ring.renew()
            self.live.take_file()
        elif self.runs is None and self.ahead and ring.reader.index == piece.end:
            return False
        if self.runs is not None:
            self._leave_journal()
        self.ahead = True
        ring.seek_index(0)
        self._use_ring()
        return True

    cdef bint _stand(self, piece, at) except -1:
        # Read that piece from now on. False: that is what was read already.
        cdef RingCursor ring = self.live.cursor
        cdef bint ahead = self.ahead
        self.ahead = False
        if piece.where is Where.JOURNAL:
            if self.runs is not None:
                return False
            with contextlib.suppress(*_UNREADABLE):
                self.state = journal_state(self.journal)
            position, index, journal_index = at
            self._open(("position", position))
            self.runs = RecordedRuns(self.recorded.cursor, self.log, index, journal_index)
            self.runs.cursor._start_ns = self.start_ns
            self.runs.cursor.extend(
                ("position", max(self.state.resume_position, position + 1)))
            return True
        if piece.where is Where.PRESENT:
            ring.renew()
            self.live.take_file()
        elif self.runs is None and not ahead and ring.reader.index == max(
                piece.first, min(self.index, piece.end)):
            return False
        if self.runs is not None:
            self._leave_journal()
        ring.seek_index(self.index)
        self._use_ring()
        return True

    cdef bint _is_whole(self):
        # Whether nothing of this log is missing: its recorder said so. `self.state` stays: it says
        # up to where the journal is being read.
        state = self.state
        with contextlib.suppress(*_UNREADABLE):
            state = journal_state(self.journal)
        return (state.source == self.log and state.source_position == SOURCE_ENDED
                and state.source_index == self.index)

    cdef _doubt(self):
        # Nobody knows how many records are missing between two logs: that is said once.
        if not self.doubted:
            self._miss(1, LAPPED_UNKNOWN)
            self.doubted = True

    cdef _miss(self, uint64_t missed, uint32_t reason):
        if missed:
            if self.missed_between == 0 or reason == LAPPED_UNKNOWN:
                self.between_reason = reason
            self.missed_between += missed

    cdef _use(self, Source source):
        self.use_arrays(source.headers_array, source.offsets_array, source.payloads_array)

    # --- as any source --------------------------------------------------------------------------

    cdef check(self):
        cdef RingCursor ring = self.live.cursor
        if self.runs is not None or (
                ring.region.replaced() and not ring_ready(&ring.reader) and self._go_on()):
            return
        self.live.check()

    cdef fail(self, int64_t code):
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self.live.fail(code)

    cdef renew_names(self):
        cdef Source source = self.live if self.runs is None else self.recorded
        source.renew_names()
        self.names = source.names

    cdef bint names_missing(self):
        cdef Source source = self.live if self.runs is None else self.recorded
        return source.names_missing() or self.names is not source.names

    cdef names_published(self):
        return {*known_names(self.journal), *self.live.names_published()}

    cdef sleeper(self):
        return self.live.sleeper()

    cdef report(self, uint64_t read):
        if self.runs is None:
            self.live.report(read)

    cdef uint64_t next_index(self):
        return self.index

    cdef uint64_t missed_total(self):
        return self.missed_said + self.missed_between

    cdef uint64_t written(self):
        # What the journal has is all that is known of logs that come before the ring's.
        cdef uint64_t written = self.live.written()
        if self.live.cursor.log == self.log:
            return max(written, self.index)
        if self.runs is not None:
            written += max(self.runs.cursor.tail_index, self.runs.cursor.index) - (
                self.runs.cursor.index)
        return self.index + written

    cdef bint between(self):
        return self.runs is not None or self.live.cursor.region.replaced()

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
        if self.runs is not None:
            self.recorded.detach()
        self.live.detach()


def _piece_of(found):
    return Piece(
        Where.JOURNAL, found.segment.source, found.index, found.index + 1, found.published_ns)
