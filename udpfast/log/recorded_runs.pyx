"""A journal's records by their index in their source's log, in runs of one log without a hole.

A segment's header names the log of its first record and that record's index in it. From there on
the records are counted; a LAPPED in the journal stands for as many as it says. Behind damage, the
segment's index by time gives the count again, or what is said of the place where the segment ends:
by the next one of the same log, or by the recorder that goes on there. Where more damage is before
that place, the index is a lower bound until the next segment.
"""

import contextlib

cimport cython
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memmove

from udpfast.core.layout cimport (
    KIND_LAPPED, LAPPED_DAMAGE, LAPPED_READER, LAPPED_UNKNOWN, RECORD_SIZE, Lapped, Record)
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.segment cimport IDENTITY_SIZE, Segment

from udpfast.errors import FormatError, RegionError
from udpfast.log.journal_state import journal_state
from udpfast.log.segment import Segment as SegmentFace
from udpfast.log.segment import list_segments, segment_path

__all__ = ["RecordedRuns"]


@cython.final
cdef class RecordedRuns:
    """Records of a journal by their index in their source's log.

    Parameters
    ----------
    cursor : JournalCursor
        The cursor that reads the records into its arrays.
    log : bytes, optional
        Log of the record at the cursor; b"": unknown until it is read.
    index, journal_index : int
        Index of that record in its log, and in the journal.

    Attributes
    ----------
    log : bytes
        Log of the next record, or of the one that would follow the journal's end.
    index : int
        Index of that record in its log.
    exact : bool
        `index` is exact. If not, damage makes it a lower bound.
    unknown : bool
        An unknown number of records of the previous log is missing.
    """

    def __init__(
            self, JournalCursor cursor not None, log: bytes = b"", index: int = 0,
            journal_index: int = 0):
        self.cursor = cursor
        self.log, self.index, self.journal_index = log, index, journal_index
        self.known = self.exact = self.from_exact = bool(log)
        self.from_log, self.from_index = log, index

    def __iter__(self) -> Iterator[NDArray[np.void]]:
        """Yield the headers of one run after another, each valid until the next.

        During a run, `log` and `index` are those of its first record; at the end they are those of
        the record that would come next.
        """
        cdef int64_t count
        while (count := self.look(self.cursor._limit)):
            yield self.cursor.headers[self.begin:self.begin + count]
            self.begin += count
            self.index += count

    cdef int64_t look(self, int64_t limit) except -1:
        # Return how many records of one run are in memory; 0: the journal ends here.
        cdef const Record* headers
        cdef int64_t count = 0
        while count == 0:
            if self.begin == self.end and not self._poll(limit):
                return 0
            headers = self.cursor._headers + self.begin
            while self.begin + count < self.end and headers[count].kind != KIND_LAPPED:
                count += 1
            if count == 0:
                self._step_over()
        return count

    cdef int64_t take(self, int64_t count) noexcept:
        # Move `count` records of the run to the front of the arrays, to be returned.
        cdef JournalCursor cursor = self.cursor
        if self.begin:
            memmove(cursor._headers, cursor._headers + self.begin, count * RECORD_SIZE)
            memmove(
                cursor._offsets, cursor._offsets + self.begin, count * sizeof(uint64_t))
        self.begin += count
        self.index += count
        return count

    cdef forget_missing(self):
        # Called once the records missing before the next one have been reported.
        self.unknown = self.skipped = False
        self.reason = LAPPED_READER

    cdef bint _poll(self, int64_t limit) except -1:
        # Read the next records of a segment. False: there are none.
        cdef JournalCursor cursor = self.cursor
        cdef uint64_t begin = cursor.index, missed, first, end, before = self.index
        # Which record comes next: to read on amid a segment, the cursor may begin before it.
        cdef uint64_t at = max(begin, self.journal_index)
        cdef bytes log = self.log
        cdef Segment segment
        cdef int64_t count = cursor.poll_all(limit)
        missed, cursor.missed = cursor.missed, 0
        if missed and cursor.missed_reason == LAPPED_DAMAGE:
            self.reason = LAPPED_DAMAGE
        self.begin, self.end = 0, count
        first = end = cursor._headers[0].index if count else cursor.index
        skipped = first > at + missed
        self.skipped = self.skipped or skipped
        if count and first == cursor.segment.header.index:
            self.log = cursor.segment.header.source[:IDENTITY_SIZE]
            self.index, self.exact = cursor.segment.header.source_index, True
        elif missed or skipped or count and not (self.known and first == begin):
            self.index += missed
            if not self.locate(first, count == 0):
                self.exact = False
                # It may be counted from before a LAPPED that was read, past other damage. Behind
                # the segment, what is missing may be of another log.
                segment = cursor.segment
                if self.log == log and segment is not None and segment.header.index < at:
                    if count == 0:
                        end = min(first, segment.seal.index) if segment.sealed() else at
                    self.index = max(self.index, before + min(missed, max(end, at) - at))
        # Only the first record of a log, and the last ones of the previous log, tell whether
        # records of the previous log are missing, and damage may have hit either.
        if not self.known:
            pass
        elif self.log == log:
            self.unknown = self.unknown or missed > 0 and before == 0
        elif missed or first != cursor.segment.header.index or (
                cursor.segment.header.source_index > 0):
            self.unknown = True
        if skipped or not self.known:
            self._note_begin(first)
        self.known = self.known or count > 0
        self.journal_index = first + count
        return count > 0

    cdef _note_begin(self, uint64_t first):
        # Note where the skipped records end: damage between the last of them and the first returned
        # record may belong to either.
        cdef JournalCursor cursor = self.cursor
        cdef Segment segment = cursor.segment
        cdef uint64_t left = cursor.left_out
        self.from_log, self.from_index, self.from_exact = self.log, self.index, self.exact
        if left >= first:
            return
        if segment is None or segment.header.index >= left:
            segment = self._segment_before(left) or segment
        if segment is not None and segment.header.index <= left:
            self.from_exact = segment.count_to(left, &self.from_index)
            self.from_log = segment.header.source[:IDENTITY_SIZE]

    def _segment_before(self, index):
        # Return the last segment that begins before a record; None: it is lost.
        cdef Segment segment
        numbers = []
        with contextlib.suppress(FileNotFoundError):
            numbers = list_segments(self.cursor.directory)
        for number in reversed(numbers):
            with contextlib.suppress(FileNotFoundError, RegionError):
                segment = SegmentFace.open(segment_path(self.cursor.directory, number))
                if segment.header.index < index:
                    return segment
        return None

    def _counted_end(self, Segment segment):
        # Return the journal's index where a segment, or what is written of it, ends, and the index
        # in the segment's source there. (0, 0): nothing says it.
        cdef Segment later
        source = segment.header.source[:IDENTITY_SIZE]
        with contextlib.suppress(FileNotFoundError, FormatError, RegionError):
            for number in list_segments(self.cursor.directory):
                if number > segment.header.number:
                    later = SegmentFace.open(segment_path(self.cursor.directory, number))
                    if later.header.source[:IDENTITY_SIZE] != source:
                        return 0, 0
                    return later.header.index, later.header.source_index
            state = journal_state(self.cursor.directory)
            if state.identity == self.cursor.identity and state.source == source:
                return state.resume_index, state.source_index
        return 0, 0

    cdef bint locate(self, uint64_t journal_index, bint behind):
        # Take log and index from the segment that has the record or, with `behind`, the previous
        # one. The current segment stays mapped even if its file was removed. False: they are
        # unknown, because of damage before it or because the segment has other layouts.
        cdef JournalCursor cursor = self.cursor
        cdef Segment segment = cursor.segment
        cdef uint64_t index = 0, end, end_source, counted = 0
        if behind and segment is not None and segment.header.index >= journal_index:
            segment = self._segment_before(journal_index) or segment
        if segment is None or cursor._translation is not None or (
                segment.header.index > journal_index):
            return False
        self.exact = segment.count_to(journal_index, &index)
        if not self.exact:
            end, end_source = self._counted_end(segment)
            self.exact = segment.count_back(
                cursor.position if behind else cursor._headers[0].position, journal_index,
                end, end_source, &counted) and counted >= index
            if self.exact:
                index = counted
        self.log, self.index = segment.header.source[:IDENTITY_SIZE], index
        self.journal_index = journal_index
        return self.exact

    cdef void _step_over(self) noexcept:
        # Skip a LAPPED: the recorder itself missed records.
        cdef JournalCursor cursor = self.cursor
        cdef Lapped lapped
        memcpy(&lapped, cursor._payloads + cursor._offsets[self.begin], sizeof(lapped))
        if lapped.reason == LAPPED_UNKNOWN:
            self.unknown = True
            lapped.missed -= 1
        elif self.reason != LAPPED_DAMAGE:
            self.reason = lapped.reason
        self.index += lapped.missed
        self.begin += 1
