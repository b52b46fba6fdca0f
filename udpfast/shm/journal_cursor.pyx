"""The reading end of a journal: segment by segment, every record checked."""

from pathlib import Path

import numpy as np

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport load_relaxed
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport RECORD_SIZE, Record
from udpfast.shm.journal cimport (
    JOURNAL_CLOSED, JOURNAL_HEADER, JournalHeader, WrittenMark, marks_written)
from udpfast.shm.region cimport Region
from udpfast.shm.segment cimport LOOK_END, LOOK_INVALID, Segment, record_look, record_size

from udpfast.core.layout import RECORD
from udpfast.errors import FormatError, RegionError
from udpfast.shm.journal import JOURNAL_KIND, JOURNAL_LAYOUT
from udpfast.shm.segment import list_segments, segment_path

__all__ = ["JournalCursor"]

cdef enum:
    LOOK_PAUSE_NS = 10_000_000   # between two looks whether the writer lives: a look takes 20 us
    POSITION_MAX = 0x7FFFFFFFFFFFFFFF


cdef class JournalCursor:
    """The reading end of a journal: any number of them, whether its writer lives or not.

    Attributes
    ----------
    directory : pathlib.Path
    headers : numpy.ndarray
        Of dtype `RECORD`. The first n are valid after a `poll` that returned n, until the next.
    offsets : numpy.ndarray
        Of uint64: where each payload begins in `payloads`; its size is `length - 64`.
    payloads : numpy.ndarray
        Of uint8.
    position, index : int
        Of the next record.
    missed : int
        Records missing before the first one of the last `poll`: segments removed to make room, or
        bytes that were damaged.
    missed_total : int
    ended : bool
        Nothing more will come: the journal ends here and no writer lives, or `end` is reached.
    """

    @staticmethod
    def attach(directory, start="begin", end=None, *, follow=True, limit=1024, room_bytes=None,
               payload_hash=None):
        """Attach to a journal, read-only.

        Parameters
        ----------
        directory : str or path
        start : "begin", "tail", ("position", int) or ("time", int)
            With the oldest record; with the next one to be written; with the first at or behind a
            position; with the first published at or after a time, UNIX ns.
        end : ("position", int) or ("time", int), optional
            End before the first record at or behind a position, or published at or after a time.
        follow : bool
            At its end, wait for more as long as its writer lives.
        limit : int
            Records per `poll`, at most.
        room_bytes : int, optional
            For the payloads of one `poll`; by default for 256 bytes each, and never less than the
            largest record takes.
        payload_hash : int, optional
            As given to `Journal.open`; None: not compared.

        Raises
        ------
        FileNotFoundError
            There is no segment and no writer.
        RegionError
            A segment is of another layout.
        """
        cdef JournalCursor cursor = JournalCursor.__new__(JournalCursor)
        if limit < 1:
            raise ValueError(f"limit must be >= 1, was {limit}")
        cursor.directory = Path(directory)
        cursor._layout_hash = None if payload_hash is None else JOURNAL_LAYOUT ^ payload_hash
        cursor._follow = follow
        cursor._start_ns = INT64_MIN
        cursor._end_ns = INT64_MAX
        cursor._end_position = POSITION_MAX
        if end is not None:
            if _what(end) == "time":
                cursor._end_ns = end[1]
            else:
                cursor._end_position = end[1]
        cursor._attach_region()
        numbers = list_segments(cursor.directory)
        if not numbers and cursor._region is None:
            raise FileNotFoundError(2, "no journal: it has no segments", str(directory))
        cursor._seek(start, numbers)
        cursor._allocate(limit, room_bytes)
        return cursor

    def poll(self, limit=None) -> int:
        """Copy what is new into `headers`, `offsets`, `payloads`; never wait.

        Returns
        -------
        int
            Records copied, all of one segment; they follow each other without a hole. 0: nothing
            new (see `ended`).
        """
        return self.poll_all(
            self._limit if limit is None else min(<int64_t>limit, self._limit))

    def payload(self, i):
        """Return payload i of the last `poll`, read-only, valid until the next `poll`."""
        begin = int(self.offsets[i])
        return memoryview(self.payloads)[begin:begin + self.headers[i]["length"] - RECORD_SIZE]

    @property
    def names(self) -> int:
        """Number of the file of names that the last poll's records go by; 0: none."""
        return 0 if self.segment is None else self.segment.header.names

    @property
    def number(self) -> int:
        """Of the segment that it reads; 0: of none yet."""
        return 0 if self.segment is None else self.segment.header.number

    @property
    def tail_index(self) -> int:
        """Number of records in the journal, as of the writer's last flush; own index if unknown."""
        cdef WrittenMark mark
        if not self._written(&mark):
            return self.index
        return max(self.index, mark.index)

    @property
    def epoch(self) -> int:
        """Of the writer of the segment that it reads; 0: of none yet."""
        return 0 if self.segment is None else self.segment.header.epoch

    def close(self):
        """Let go of the journal. Idempotent; the arrays stay."""
        self.ended = True
        self.segment = None
        self.room = 0
        if self._region is not None:
            self._region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def _attach_region(self):
        try:
            self._region = Region.attach(self.directory / "journal", JOURNAL_KIND, JOURNAL_LAYOUT)
        except (FileNotFoundError, RegionError):
            self._region = None  # never made, or torn: the segments are what counts

    def _seek(self, start, numbers):
        # Stand in the segment that has the first record wanted, at a record not behind it.
        cdef Segment segment
        cdef uint64_t position = 0, index = 0
        what = _what(start)
        if what == "begin":
            return
        if what == "time":
            self._start_ns = start[1]
        elif what == "position":
            self._start_position = start[1]
        else:
            self._start_position = self._tail(numbers)
        for number in numbers:
            segment = self._open(number)
            if segment is None:
                continue
            self.segment = segment
            if segment.sealed() and (segment.seal.position <= self._start_position
                                     or segment.seal.last_ns < self._start_ns):
                # Nothing of it is wanted; if it is the last, its end is where to go on.
                self._stand(segment.seal.position, segment.seal.index)
                continue
            segment.find_start(self._start_position, self._start_ns, &position, &index)
            self._stand(position, index)
            if not segment.sealed() and self._has_later(number, numbers):
                if self._begins_behind(number, numbers):
                    continue
            return

    def _has_later(self, number, numbers):
        return any(other > number for other in numbers)

    def _begins_behind(self, number, numbers):
        # Whether the segment after an unsealed one begins at or before the start: then that one
        # has it.
        cdef Segment segment
        if self._start_position == 0:
            return False
        for other in numbers:
            if other > number:
                segment = self._open(other)
                if segment is not None:
                    return segment.header.position <= self._start_position
        return False

    def _tail(self, numbers):
        cdef WrittenMark mark
        if self._written(&mark):
            return mark.position
        return 0x7FFFFFFFFFFFFFFF

    def _open(self, number):
        # None: it was removed, or its header is damaged.
        cdef Segment segment
        try:
            segment = Segment.open(segment_path(self.directory, number))
        except (FileNotFoundError, RegionError):
            return None
        if self._layout_hash is not None and segment.header.layout_hash != self._layout_hash:
            raise RegionError(f"{segment.path}: expected layout hash {self._layout_hash:016x}, "
                              f"found {segment.header.layout_hash:016x}")
        return segment

    def _allocate(self, limit, room_bytes):
        cdef Segment segment
        largest = 0
        for number in list_segments(self.directory):
            segment = self._open(number)
            if segment is not None:
                largest = segment.header.capacity
                break
        self._limit = limit
        # Pages that no payload needs are never touched, and so cost nothing.
        self._room_bytes = max(largest, 256 * limit if room_bytes is None else room_bytes)
        self.headers = np.zeros(limit, RECORD)
        self.offsets = np.zeros(limit, np.uint64)
        self.payloads = np.zeros(self._room_bytes, np.uint8)
        self._headers = <Record*><size_t>self.headers.ctypes.data
        self._offsets = <uint64_t*><size_t>self.offsets.ctypes.data
        self._payloads = <uint8_t*><size_t>self.payloads.ctypes.data

    cdef void _stand(self, uint64_t position, uint64_t index) noexcept nogil:
        # At a record of the segment.
        cdef uint64_t offset = min(position - self.segment.header.position, self.segment.limit)
        self.place = self.segment.records + offset
        self.room = self.segment.limit - offset
        self.position = position
        self.index = index

    cdef bint ready(self) noexcept nogil:
        # Whether something stands at the place of the next record.
        return self.room >= 8 and load_relaxed(<const uint64_t*>self.place) != 0

    cdef int64_t poll_segment(self, int64_t limit, int64_t* count) noexcept nogil:
        # Copy valid records of this segment. Returns why it ended: LOOK_*, CURSOR_*, 1 = limit.
        cdef int64_t size
        cdef uint64_t used = 0
        cdef const Record* record
        count[0] = 0
        while count[0] < limit:
            size = record_look(self.place, self.room, self.position, self.index)
            if size <= 0:
                return size
            record = <const Record*>self.place
            if self.position >= self._end_position or record.published_ns >= self._end_ns:
                return CURSOR_PAST
            if self.position >= self._start_position and record.published_ns >= self._start_ns:
                if used + size - RECORD_SIZE > self._room_bytes:
                    return CURSOR_FULL
                self._start_ns = INT64_MIN
                memcpy(self._headers + count[0], record, RECORD_SIZE)
                if not header_has(self._headers + count[0], size):
                    return LOOK_INVALID  # it is not any more what was checked
                self._offsets[count[0]] = used
                memcpy(self._payloads + used, self.place + RECORD_SIZE, size - RECORD_SIZE)
                used += size - RECORD_SIZE
                count[0] += 1
            self.place += size
            self.room -= size
            self.position += size
            self.index += 1
        return 1

    cdef int64_t poll_all(self, int64_t limit) except -1:
        cdef int64_t end = LOOK_END, count = 0
        if self._handed_out:
            self.missed = 0
            self._handed_out = False
        while not self.ended:
            if self.segment is not None:
                with nogil:
                    end = self.poll_segment(limit, &count)
            if count > 0:
                self._handed_out = True
                return count
            if end == CURSOR_PAST:
                self.ended = True
            elif end == CURSOR_FULL:
                raise FormatError(f"{self.segment.path}: record {self.index} does not fit "
                                  f"{self._room_bytes} bytes")
            elif not self._advance(end):
                break
        return 0

    cdef bint _advance(self, int64_t end) except *:
        # Nothing (more) stands where the next record should. True: look again.
        cdef Segment segment = self.segment
        cdef uint64_t position = self.position
        if segment is not None and end != LOOK_END:
            if segment.sealed() and self.position < segment.seal.position:
                return self._step_over()
            if not segment.sealed():
                if self._is_rotten():
                    return self._step_over()
                return self._end_or_wait(position)
        if self._enter_next():
            return True
        return self._end_or_wait(position)

    def _end_or_wait(self, uint64_t position):
        # True: there may be more by now.
        if not self._follow:
            self.ended = True
            return False
        now_ns = clock_monotonic_ns()
        if now_ns - self._looked_ns < LOOK_PAUSE_NS:
            return False
        self._looked_ns = now_ns
        if not self._is_complete():
            return False
        # What was written before it was complete is there now; look once more, then no more.
        self._follow = False
        return True

    def _is_rotten(self):
        # The segment is not sealed, and no record stands here. Damage, or the end of what is valid?
        # A writer that lives knows how far it wrote. Where none does, the journal goes on only if a
        # later segment was sealed: then this one had been written.
        cdef WrittenMark mark
        cdef int64_t size
        if not self._is_complete() and self._written(&mark):
            if mark.position <= self.position:
                return False
        elif not self._is_sealed_from(self.number + 1):
            return False
        size = record_look(self.place, self.room, self.position, self.index)
        return size <= 0 and size != LOOK_END

    def _is_sealed_from(self, first):
        cdef Segment segment
        for number in list_segments(self.directory):
            if number >= first:
                segment = self._open(number)
                if segment is not None and segment.sealed():
                    return True
        return False

    cdef bint _enter_next(self) except *:
        # Stand at the first record of the next segment that can be read. False: there is none.
        cdef Segment segment
        current = self.number
        for number in list_segments(self.directory):
            if number <= current:
                continue
            segment = self._open(number)
            if segment is None:
                continue
            if self.segment is not None and segment.header.index > self.index:
                # Segments that a power cut left behind one that it took are not of the journal:
                # its next writer removes them.
                if self._is_complete() and not self._is_sealed_from(number):
                    return False
                self._miss(segment.header.index - self.index)
            self.segment = segment
            self._stand(segment.header.position, segment.header.index)
            return True
        return False

    cdef bint _step_over(self) except *:
        # Go on behind bytes that are damaged.
        cdef uint64_t position = 0, index = 0
        cdef bint found
        with nogil:
            found = self.segment.find_behind(self.position, &position, &index)
        if found:
            self._miss(index - self.index)
            self._stand(position, index)
            return True
        if self.segment.sealed():
            self._miss(self.segment.seal.index - self.index)
            self._stand(self.segment.seal.position, self.segment.seal.index)
            return True
        return self._enter_next()

    def _miss(self, uint64_t count):
        self.missed += count
        self.missed_total += count

    cdef bint _is_complete(self) except *:
        # Whether nobody will append: closed by its writer, or that one died.
        cdef WrittenMark mark
        if self._region is not None and self._region.replaced():
            self._region.close()
            self._region = None
        if self._region is None:
            self._attach_region()
        if self._region is None:
            return True
        if self._written(&mark) and mark.state == JOURNAL_CLOSED:
            return True
        return not self._region.writer_alive()

    cdef bint _written(self, WrittenMark* mark) noexcept:
        # What the writer said last. False: it said nothing that can be believed.
        if self._region is None or self._region.pointer == NULL:
            return False
        return marks_written(<JournalHeader*>(self._region.pointer + JOURNAL_HEADER), mark)


cdef bint header_has(const Record* header, int64_t size) noexcept nogil:
    return header.length >= RECORD_SIZE and record_size(<uint64_t>header.length) == <uint64_t>size


def _what(place):
    # "begin", "tail", "position" or "time".
    if place in ("begin", "tail"):
        return place
    if isinstance(place, tuple) and len(place) == 2 and place[0] in ("position", "time"):
        return place[0]
    raise ValueError("a place in a journal is 'begin', 'tail', ('position', int) or "
                     f"('time', UNIX ns), was {place!r}")
