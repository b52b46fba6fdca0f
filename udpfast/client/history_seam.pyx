"""Which piece of a ring's records is read, and what is missing before the next: see `seam`.

A record is known for good by its ring's log and its index there. Whoever reads stands at one index
of one log, which is what comes next, and reads a piece for as long as that goes on exactly there:
the journal in runs (`recorded_runs`), the ring by its cursor. Where it does not go on (a hole,
another log, its end, another file in the ring's place), `go_on` looks what pieces there are, the
ring's first, so that nothing is overwritten after it was looked for in the journal; `seam` says
which of them comes next. What lies between is nowhere: it is said with the record that comes next.
"""

import contextlib

cimport cython
from libc.stdint cimport INT64_MIN, int64_t, uint32_t, uint64_t

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.core.layout cimport LAPPED_READER, LAPPED_UNKNOWN
from udpfast.log.cursor cimport RingCursor
from udpfast.log.recorded_runs cimport RecordedRuns, source_ended

from udpfast.client.journal_source import JournalSource
from udpfast.client.seam import Piece, Where, log_behind, next_piece
from udpfast.errors import FormatError, RegionError
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.log.journal_place import find_later, find_recorded, logs_of, recorded_end
from udpfast.log.journal_state import journal_state
from udpfast.log.recorded_runs import RecordedRuns
from udpfast.market.updates import LAYOUTS

__all__ = ["UNREADABLE", "HistorySeam"]

# Behind every index.
cdef uint64_t NO_INDEX = <uint64_t>-1

#: What opening a file raises that is not there, damaged, or of another version.
UNREADABLE: tuple[type[Exception], ...] = FileNotFoundError, FormatError, RegionError


@cython.final
cdef class HistorySeam:
    """What comes next of a ring's records, and the piece that has it.

    Parameters
    ----------
    directory : pathlib.Path
        Of the journal.
    live : RingSource
    start_ns : int
        What was published before is of no interest.
    options : tuple
        Of a cursor in the journal: records and bytes of a poll.
    """

    def __init__(
            self, directory: Path, RingSource live not None, int64_t start_ns,
            options: tuple[int, int | None]):
        self.journal = directory
        self.live = live
        self.options = options
        self.passed = set()
        self.log = b""
        self.start_ns = self.last_ns = start_ns
        self.start_log = live.cursor.log
        self.state = journal_state(directory)

    cdef begin_at_tail(self):
        # Begin with what the ring gets next: nothing of before is of interest.
        self.place(self.live.cursor.log, self.live.cursor.index)
        self.last_ns = self.live._last_ns()
        with contextlib.suppress(*UNREADABLE):
            self.passed.update(logs_of(self.journal))
        self.passed.discard(self.log)

    cdef place(self, log, uint64_t index):
        # Know what comes next.
        self.log, self.index, self.exact = log, index, True

    cdef uint64_t tell(self) noexcept nogil:
        # How many are missing before the record that comes next: that is said with it.
        cdef uint64_t missed = self.missed_between
        self.missed_said += missed
        self.missed_between = 0
        self.doubted = False
        return missed

    cdef open(self, start):
        # Read the journal from there to where it is known to be.
        batch, buffer_bytes = self.options
        cursor = JournalCursorFace.attach(
            self.journal, start, follow=False, limit=batch, room_bytes=buffer_bytes,
            layouts=LAYOUTS)
        cursor.extend(("position", self.state.resume_position))
        self.recorded = JournalSource(cursor)
        self.entered = True

    cdef bint stands_at(self, uint64_t position) except -1:
        # Whether what comes next is at this position of the file at hand. Of one that another one
        # followed only what was flushed counts: what comes behind it may have been in a third.
        cdef RingCursor ring = self.live.cursor
        return ring.log == self.log and (
            ring.reader.header.first <= position != source_ended() and ring.holds(position)
            and (position <= ring.tail_position or not ring.region.replaced()))

    cdef use_ring(self):
        # The ring has its turn.
        cdef RingCursor ring = self.live.cursor
        if ring.log != self.log and not self.ahead:  # of a log that was passed nothing comes
            ring.seek_index(NO_INDEX)
        self.entered = True

    cdef leave_journal(self):
        self.recorded.detach()
        self.runs = None

    cdef bint was_replaced(self) except -1:
        # Whether another journal is where the one that is read was: it may have what this lacks.
        with contextlib.suppress(*UNREADABLE):
            return journal_state(self.journal).identity != self.runs.cursor.identity
        return False

    cdef bint go_on(self) except -1:
        # Stand at what comes next. False: there is nothing but what is read already.
        cdef RecordedRuns runs = self.runs
        cdef uint64_t first
        files, other = self._files()
        standing = None
        if runs is not None and runs.index != self.index and self.was_replaced():
            self.leave_journal()
            runs = None
        if runs is not None:
            first_ns = runs.cursor._headers[runs.begin].published_ns
            standing = Piece(Where.JOURNAL, runs.log, runs.index, runs.index + 1, first_ns)
            piece, at = standing, None
        else:
            piece, at = self.recorded_piece()
        chosen = next_piece(self.log, self.index, files if piece is None else [*files, piece])
        if chosen is None:
            chosen, at = self._log_behind(files, standing)
            if chosen is None:
                return False
            if chosen.first == chosen.end:
                return self.wait_in(chosen)
        # Before what is still to be written, nothing is missing yet: the journal may get it.
        first = self.index if chosen.first == chosen.end else max(chosen.first, self.index)
        moved = first != self.index
        if moved and not chosen.first_ns < self.start_ns:
            self.miss(first - self.index, self.reason())
        self.index = first
        return self.stand(chosen, other if chosen.where is Where.PRESENT else at) or moved

    def _files(self):
        # What the file at hand has, and the one in its place, if that is another.
        cdef RingCursor ring = self.live.cursor
        cdef RingCursor other = ring.successor()
        in_place = other is None and not ring.region.replaced()
        files = [Piece(Where.HELD, ring.log, *ring.extent(), in_place)]
        if other is not None:
            files.append(Piece(Where.PRESENT, other.log, *other.extent(), True))
        return files, other

    cdef tuple recorded_piece(self):
        # What the journal has of this log from here on.
        found = None
        with contextlib.suppress(*UNREADABLE):
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
            with contextlib.suppress(*UNREADABLE):
                for each in find_later(self.journal, self.passed | {self.log}, LAYOUTS):
                    segment = each.segment
                    piece = _piece_of(each)
                    found[piece] = segment.position, segment.source_index, segment.index
                    yield piece

        since_ns = self.last_ns if standing is None else INT64_MIN
        with contextlib.suppress(*UNREADABLE):
            order = logs_of(self.journal)
        later = begins() if standing is None else [standing]
        chosen = log_behind(self.log, self.passed, since_ns, files, order, later)
        if chosen is not None and chosen.first < chosen.end:
            self.change_log(chosen, order)
        return chosen, found.get(chosen)

    cdef change_log(self, piece, order):
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
            self.pass_log(piece.where is Where.JOURNAL and 0 < behind < len(order) and (
                order[behind] == piece.log))
        self.place(piece.log, begin)

    cdef pass_log(self, told):
        # This log is over. Nobody else knows how far it went, unless the journal tells that with
        # the next one, or its recorder said that it has all.
        if not self.log:
            return
        self.passed.add(self.log)
        if not told and not self.is_whole():
            self.doubt()
        with contextlib.suppress(*UNREADABLE):
            end, exact = recorded_end(self.journal, self.log, LAYOUTS)
            self.miss(max(self.index, end) - self.index, self.reason())
            if not exact:
                self.doubt()

    cdef uint32_t reason(self):
        return LAPPED_READER if self.runs is None else self.runs.reason

    cdef bint wait_in(self, piece) except -1:
        # Nothing is there yet of the log behind this one: until then, the journal may get more of
        # this. False: that is where it waits already.
        cdef RingCursor ring = self.live.cursor
        if piece.where is Where.PRESENT:
            ring.renew()
            self.live.take_file()
        elif self.runs is None and self.ahead and ring.reader.index == piece.end:
            return False
        if self.runs is not None:
            self.leave_journal()
        self.ahead = True
        ring.seek_index(0)
        self.use_ring()
        return True

    cdef bint stand(self, piece, at) except -1:
        # Read that piece from now on. False: that is what was read already.
        cdef RingCursor ring = self.live.cursor
        cdef bint ahead = self.ahead
        self.ahead = False
        if piece.where is Where.JOURNAL:
            if self.runs is not None:
                return False
            with contextlib.suppress(*UNREADABLE):
                self.state = journal_state(self.journal)
            position, index, journal_index = at
            self.open(("position", position))
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
            self.leave_journal()
        ring.seek_index(self.index)
        self.use_ring()
        return True

    cdef bint is_whole(self):
        # Whether nothing of this log is missing: its recorder said so. `self.state` stays: it says
        # up to where the journal is being read.
        state = self.state
        with contextlib.suppress(*UNREADABLE):
            state = journal_state(self.journal)
        return (state.source == self.log and state.source_position == source_ended()
                and state.source_index == self.index)

    cdef doubt(self):
        # Nobody knows how many records are missing between two logs: that is said once.
        if not self.doubted:
            self.miss(1, LAPPED_UNKNOWN)
            self.doubted = True

    cdef miss(self, uint64_t missed, uint32_t reason):
        if missed:
            if self.missed_between == 0 or reason == LAPPED_UNKNOWN:
                self.between_reason = reason
            self.missed_between += missed


def _piece_of(found):
    return Piece(
        Where.JOURNAL, found.segment.source, found.index, found.index + 1, found.published_ns)
