"""Which piece of a ring's records is being read, and what is missing before the next: see `seam`.

The identity of its ring's log and its index there identify a record for good. The reader stands at
one index of one log, the record that comes next, and reads a piece as long as that continues there:
the journal in runs (`recorded_runs`), the ring by its cursor. Where the piece does not continue (a
hole, another log, its end, another file at the ring's path), `go_on` lists the pieces, those of the
ring first, so that none is overwritten between the looks into journal and ring. `seam` then chooses
the next piece. Records in between are lost; they are reported with the next record.
"""

import contextlib

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint32_t, uint64_t

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.core.layout cimport LAPPED_READER, LAPPED_UNKNOWN
from udpfast.log.cursor cimport RingCursor
from udpfast.log.recorded_runs cimport RecordedRuns, source_ended

from udpfast.client.journal_source import JournalSource
from udpfast.client.seam import Piece, Where, log_behind, next_piece
from udpfast.errors import FormatError, RegionError, RingClosedError
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.log.journal_place import find_later, find_recorded, logs_of, recorded_end
from udpfast.log.journal_state import journal_state
from udpfast.log.recorded_runs import RecordedRuns
from udpfast.market.updates import LAYOUTS

__all__ = ["UNREADABLE", "HistorySeam"]

# Larger than every index.
cdef uint64_t NO_INDEX = <uint64_t>-1

#: Exceptions raised for a file that does not exist, is damaged, or is of another version.
UNREADABLE: tuple[type[Exception], ...] = FileNotFoundError, FormatError, RegionError


@cython.final
cdef class HistorySeam:
    """The record of a ring's history that comes next, and the piece that has it.

    Parameters
    ----------
    directory : pathlib.Path
        Directory of the journal.
    live : RingSource
        The ring.
    start_ns : int
        Skip records that were published before, UNIX ns.
    options : tuple
        The records and the bytes that one poll of the journal may take.
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
        # Begin with the next record that the ring gets; skip everything before.
        self.place(self.live.cursor.log, self.live.cursor.index)
        self.last_ns = self.live._last_ns()
        with contextlib.suppress(*UNREADABLE):
            self.passed.update(logs_of(self.journal))
        self.passed.discard(self.log)

    cdef bint count_by_time(self, uint64_t end=NO_INDEX) except -1:
        # Damage hid how many records come before the next one. If the ring has this log, what was
        # published behind the last record is next there; otherwise the journal's next record is,
        # at `end`. Return False if its index is not known either: only a journal begun anew may
        # have it, nobody knows from where on.
        cdef RingCursor ring = self.live.cursor
        cdef uint64_t index = self.index
        files = [each for each in (ring, ring.successor()) if each is not None]
        files = [each for each in files if each.log == self.log]
        for each in files:
            index, found = _find_published_behind(each, index, self.last_ns)
            if found:
                break
        if not files and end == NO_INDEX:
            return self.recorded_piece()[0] is None
        index = min(index, end) if files else end
        self.miss(max(index, self.index) - self.index, self.reason())
        self.place(self.log, index)
        return True

    cdef place(self, log, uint64_t index):
        # Set the record that comes next.
        self.log, self.index, self.exact = log, index, True

    cdef uint64_t tell(self) noexcept nogil:
        # Return how many records are missing before the next one, and count them as reported.
        cdef uint64_t missed = self.missed_between
        self.missed_said += missed
        self.missed_between = 0
        self.doubted = False
        return missed

    cdef open(self, start):
        # Read the journal from `start` to its end as last seen.
        batch, buffer_bytes = self.options
        cursor = JournalCursorFace.attach(
            self.journal, start, follow=False, limit=batch, room_bytes=buffer_bytes,
            layouts=LAYOUTS)
        cursor.extend(("position", self.state.resume_position))
        self.recorded = JournalSource(cursor)
        self.entered = True

    cdef bint stands_at(self, uint64_t position) except -1:
        # Return whether the next record is at this position of the mapped file. In a file that was
        # replaced only flushed records count: those behind may have been in a third file.
        cdef RingCursor ring = self.live.cursor
        return ring.log == self.log and (
            ring.reader.header.first <= position != source_ended() and ring.holds(position)
            and (position <= ring.tail_position or not ring.region.replaced()))

    cdef use_ring(self):
        # Read the ring from now on.
        cdef RingCursor ring = self.live.cursor
        if ring.log != self.log and not self.ahead:  # skip all of a log that was passed
            ring.seek_index(NO_INDEX)
        self.entered = True

    cdef leave_journal(self):
        self.recorded.detach()
        self.runs = None

    cdef bint was_replaced(self) except -1:
        # Return whether another journal is now at the path: it may have the records that we lack.
        with contextlib.suppress(*UNREADABLE):
            return journal_state(self.journal).identity != self.runs.cursor.identity
        return False

    cdef bint go_on(self) except -1:
        # Move to the next record. Return False if there is no other piece than the current one.
        cdef RecordedRuns runs = self.runs
        cdef uint64_t first
        if not self.exact and self.log:  # a lower bound cannot be compared with other pieces
            self.count_by_time()
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
        # Before a record that is yet to be written, nothing is missing: the journal may get it.
        first = self.index if chosen.first == chosen.end else max(chosen.first, self.index)
        moved = first != self.index
        if moved and not chosen.first_ns < self.start_ns:
            self.miss(first - self.index, self.reason())
        self.index = first
        return self.stand(chosen, other if chosen.where is Where.PRESENT else at) or moved

    def _files(self):
        # Return the pieces of the mapped file and of the one at its path, and the latter's cursor.
        cdef RingCursor ring = self.live.cursor
        cdef RingCursor other = ring.successor()
        in_place = other is None and not ring.region.replaced()
        first, end, first_ns = ring.extent()
        if self.live.removed:
            end = max(first, min(end, self.live.removed_index))  # no more of it is read
        files = [Piece(Where.HELD, ring.log, first, end, first_ns, in_place)]
        if other is not None:
            files.append(Piece(Where.PRESENT, other.log, *other.extent(), True))
        return files, other

    cdef tuple recorded_piece(self):
        # Return the journal's piece of this log from the current index on, and where it is.
        # If the file `journal` is lost, that must be the next record for sure, and one to return:
        # otherwise nothing would say that the journal was read.
        found = None
        stated = False
        with contextlib.suppress(*UNREADABLE):
            state = journal_state(self.journal)
            if state.source == self.log and state.source_index <= self.index:
                return None, None  # the usual case, decided without reading records
            stated = True
        with contextlib.suppress(*UNREADABLE):
            found = find_recorded(self.journal, self.log, self.index, LAYOUTS)
        if found is None or not stated and not (
                self.exact and found.published_ns >= self.start_ns):
            return None, None
        return _piece_of(found), (found.position, found.index, found.journal_index)

    def _log_behind(self, files, standing):
        # This log is over: return the piece that comes next, and where it is. The positions are
        # those of segments, so that losses recorded at a segment's beginning are reported, too.
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
            if self.start_ns == INT64_MIN:  # start with the oldest record there is
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
        # This log is over. Where it ended is unknown, unless the journal states that with the next
        # log, or the recorder stated that the journal is complete.
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
        # Wait for the first record of the next log; until then the journal may get more of this
        # one. Return False if the reader is waiting there already.
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
        # Read that piece from now on. Return False if it is the one being read.
        cdef RingCursor ring = self.live.cursor
        cdef bint ahead = self.ahead
        self.ahead = False
        if piece.where is Where.JOURNAL:
            if self.runs is not None:
                return False
            end = INT64_MAX  # where its segments end, if nothing else says it
            with contextlib.suppress(*UNREADABLE):
                self.state = journal_state(self.journal)
                end = self.state.resume_position
            position, index, journal_index = at
            self.open(("position", position))
            self.runs = RecordedRuns(self.recorded.cursor, self.log, index, journal_index)
            self.runs.cursor._start_ns = self.start_ns
            self.runs.cursor.extend(("position", max(end, position + 1)))
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
        # Return whether the recorder stated that the journal has this log to its end. `self.state`
        # must not change: it limits how far the journal is being read.
        state = self.state
        with contextlib.suppress(*UNREADABLE):
            state = journal_state(self.journal)
        return (state.source == self.log and state.source_position == source_ended()
                and state.source_index == self.index)

    cdef doubt(self):
        # Report once that an unknown number of records is missing between two logs.
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


def _find_published_behind(cursor, index, since_ns):
    # Return the index of a file's first record from an index on that was published later, and True;
    # or the index behind its last record, and False. Those published at the same time are passed
    # over: if damage hid some of them, nothing tells which of them were read.
    cursor.seek_index(index)
    with contextlib.suppress(RingClosedError):
        while count := cursor.poll():
            headers = cursor.headers[:count]
            later = headers["index"][headers["published_ns"] > since_ns]
            if len(later):
                return int(later[0]), True
            index = int(headers["index"][count - 1]) + 1
    return index, False
