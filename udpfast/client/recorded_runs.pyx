"""A journal's records as their ring counted them: in runs of one log, without a hole.

A segment's header says which log its first record is of, and that record's index there; from then
on they are counted, and a LAPPED in the journal stands for as many as it says. Behind damage the
index is known again with the next segment: until then it is the least that it can be.
"""

import contextlib

cimport cython
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memmove

from udpfast.client.journal_source cimport JournalSource
from udpfast.core.layout cimport (
    KIND_LAPPED, LAPPED_DAMAGE, LAPPED_READER, LAPPED_UNKNOWN, RECORD_SIZE, Lapped, Record)
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.segment cimport IDENTITY_SIZE, SegmentHeader, record_look

from udpfast.errors import RegionError
from udpfast.log.segment import Segment, segment_path

__all__ = ["RecordedRuns"]


@cython.final
cdef class RecordedRuns:
    """Records of a journal by their place in their ring's log.

    Parameters
    ----------
    source : JournalSource
        Whose arrays the records are in.
    log : bytes, optional
        Of the record that the source begins with; b"": it is not known before it is read.
    index, journal_index : int
        Of that record, in its log and in the journal.
    """

    def __init__(self, JournalSource source not None, log=b"", index=0, journal_index=0):
        self.source = source
        self.cursor = source.cursor
        self.log, self.index, self.journal_index = log, index, journal_index
        self.known = self.exact = bool(log)
        self.from_index = index

    cdef int64_t look(self, int64_t limit) except -1:
        # How many records of one run stand in memory; 0: the journal ends here.
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
        # Move so many of the run to the front of the arrays, to be handed out.
        cdef JournalCursor cursor = self.cursor
        if self.begin:
            memmove(cursor._headers, cursor._headers + self.begin, count * RECORD_SIZE)
            memmove(
                cursor._offsets, cursor._offsets + self.begin, count * sizeof(uint64_t))
        self.begin += count
        self.index += count
        return count

    cdef forget_missing(self):
        # What was missing before the next record was said.
        self.unknown = self.skipped = self.begins = False
        self.reason = LAPPED_READER

    cdef bint _poll(self, int64_t limit) except -1:
        # Have the next records of a segment in memory. False: there are none.
        cdef JournalCursor cursor = self.cursor
        cdef uint64_t at = cursor.index, missed, first
        cdef int64_t count = cursor.poll_all(limit)
        missed, cursor.missed = cursor.missed, 0
        if missed and cursor.missed_reason == LAPPED_DAMAGE:
            self.reason = LAPPED_DAMAGE
        self.begin, self.end = 0, count
        first = cursor._headers[0].index if count else cursor.index
        skipped = first > at + missed
        self.skipped = self.skipped or skipped
        if count and first == cursor.segment.header.index:
            self._enter(cursor.segment.header)
        elif not skipped and (count == 0 or self.known and first == self.journal_index + missed):
            self.index += missed
            self.exact = self.exact and missed == 0
        elif not self.locate(first):
            self.exact = False
        if skipped or not self.known:
            self.from_index = self.index
        self.known = self.known or count > 0
        self.journal_index = first + count
        return count > 0

    cdef _enter(self, const SegmentHeader* header):
        log = header.source[:IDENTITY_SIZE]
        if log != self.log and not (self.skipped and self._log_before(header) == log):
            self.begins = True
        self.log, self.index, self.exact = log, header.source_index, True

    cdef _log_before(self, const SegmentHeader* header):
        # The log of the segment before; None: it is not there.
        with contextlib.suppress(FileNotFoundError, RegionError):
            path = segment_path(self.cursor.directory, header.number - 1)
            return Segment.open(path).info().source
        return None

    cdef bint locate(self, uint64_t journal_index):
        # Count from the segment's begin, which is in memory also where its file was removed. False:
        # that cannot be done, because of damage before, or of a segment of other layouts.
        cdef JournalCursor cursor = self.cursor
        cdef const SegmentHeader* header
        cdef const Lapped* lapped
        cdef uint64_t offset = 0, index, at
        cdef int64_t size
        if cursor.segment is None:
            return False
        header = cursor.segment.header
        index, at = header.index, header.source_index
        while index < journal_index and cursor._translation is None:
            size = record_look(
                cursor.segment.records + offset, cursor.segment.limit - offset,
                header.position + offset, index)
            if size <= 0:
                break
            if (<const Record*>(cursor.segment.records + offset)).kind == KIND_LAPPED:
                lapped = <const Lapped*>(cursor.segment.records + offset + RECORD_SIZE)
                at += lapped.missed - (lapped.reason == LAPPED_UNKNOWN)
            else:
                at += 1
            offset += size
            index += 1
        if index > journal_index:
            return False
        self.log = header.source[:IDENTITY_SIZE]
        self.index = at + (journal_index - index)  # of those not counted, one each at least
        self.journal_index = journal_index
        self.exact = index == journal_index
        return self.exact

    cdef void _step_over(self) noexcept:
        # A LAPPED: the recorder itself missed some.
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
