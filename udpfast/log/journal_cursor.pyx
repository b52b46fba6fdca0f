"""The reading end of a journal: it goes segment by segment and checks every record."""

from pathlib import Path

import numpy as np

from libc.stdint cimport (
    INT64_MAX, INT64_MIN, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t)
from libc.string cimport memcmp, memcpy

from udpfast.core.atomics cimport load_relaxed
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport (
    KIND_LAPPED, LAPPED_DAMAGE, LAPPED_READER, RECORD_SIZE, Lapped, Record)
from udpfast.log.journal_state cimport header_identity
from udpfast.log.marks cimport (
    JOURNAL_CLOSED, JOURNAL_FAILED, JOURNAL_HEADER, JournalHeader, KeptMark, WrittenMark,
    marks_kept, marks_written)
from udpfast.log.segment cimport (
    IDENTITY_SIZE, LOOK_END, LOOK_INVALID, SEAL_DAMAGED, SEAL_LAST, Segment, record_look,
    record_size)
from udpfast.shm.region cimport Region

from udpfast.core.layout import RECORD
from udpfast.errors import FormatError, RegionError
from udpfast.log.journal_layouts import journal_layouts
from udpfast.log.journal_state import JOURNAL_KIND, JOURNAL_LAYOUT
from udpfast.log.segment import list_segments, segment_path, segments_identity
from udpfast.log.translation import Translation

__all__ = ["JournalCursor"]

cdef enum:
    LOOK_PAUSE_NS = 10_000_000   # between checks that the writer lives; a check takes 20 us
    # A record is in its ring so long after its `published_ns` at most: all records of a batch of
    # datagrams have the time at which the batch was taken.
    CURRENT_MARGIN_NS = 200_000_000
    POSITION_MAX = 0x7FFFFFFFFFFFFFFF


cdef class JournalCursor:
    """The reading end of a journal. A journal has any number, whether its writer lives or not.

    Attributes
    ----------
    directory : pathlib.Path
    headers : NDArray[Any]
        Array of dtype `RECORD`. After a `poll` that returned n, the first n are valid until the
        next `poll`.
    offsets : NDArray[np.uint64]
        Offset of each payload in `payloads`; a payload has `length - 64` bytes.
    payloads : NDArray[np.uint8]
        The payloads. A `poll` that enters a segment of larger records replaces this array.
    position, index : int
        Position and index of the next record.
    missed : int
        Records missing before the first one of the last `poll`, because their segments were
        removed to make room or lost, or because their bytes are damaged. A cursor over a part of
        a journal counts a run of missing records if the first of them would lie in the part, so
        that the counts of adjacent parts add up.
    missed_total : int
        Sum of `missed` since `attach`.
    identity : bytes
        The journal's identity, 16 bytes.
    ended : bool
        Nothing more will come: the journal ends here and no writer lives, or `end` is reached.
    """

    @staticmethod
    def attach(
            directory: str | os.PathLike[str],
            start: Literal['begin', 'tail'] | tuple[Literal['position', 'time'], int] = "begin",
            end: tuple[Literal['position', 'time'], int] | None = None, *, follow: bool = True,
            limit: int = 1024, room_bytes: int | None = None,
            layouts: Layouts | None = None) -> JournalCursor:
        """Attach to a journal, read-only.

        Parameters
        ----------
        directory : str or path
        start : "begin", "tail", ("position", int) or ("time", int)
            Where to begin: "begin": the oldest record; "tail": the next record to be written;
            "position": the first record at or behind it; "time": skip all records published
            before it, in UNIX ns.
        end : ("position", int) or ("time", int), optional
            "position": end before the first record at or behind it; "time": skip all records
            published at or after it. Times may step back with the clock, so with a time the
            whole journal is read, up to where its recorder says that all before that time is in it.
        follow : bool
            At the end of the journal, wait for more as long as its writer lives.
        limit : int
            Most records per `poll`.
        room_bytes : int, optional
            Room for the payloads of one `poll` in bytes; by default 256 per record, and at least
            what the largest record takes.
        layouts : Layouts, optional
            Layouts in which records are returned, whichever version wrote them; None: as stored.

        Raises
        ------
        FileNotFoundError
            There is no segment and no writer.
        RegionError
            The file `journal` belongs to another journal.
        """
        cdef JournalCursor cursor = JournalCursor.__new__(JournalCursor)
        if limit < 1:
            raise ValueError(f"limit must be >= 1, was {limit}")
        cursor.directory = Path(directory)
        cursor._layouts = layouts
        cursor._translations = {}
        cursor._follow = follow
        cursor._doubt = ""
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
            raise FileNotFoundError(2, "no journal there: it has no segments", str(directory))
        cursor._identify(numbers)
        cursor._allocate(limit, room_bytes)
        cursor._seek(start, numbers)
        return cursor

    def poll(self, limit: int | None = None) -> int:
        """Copy the new records into `headers`, `offsets` and `payloads`. Never waits.

        Returns
        -------
        int
            Number of records copied, which are consecutive and of one segment. 0: nothing new;
            see `ended`.

        Raises
        ------
        RegionError
            Another journal took this one's place. Or everything was read, but the file `journal`
            is lost or damaged, so that more records may have been lost. Or the layouts of the next
            segment's records are missing, or are those of a raw capture where updates are expected.
        FormatError
            The next record does not fit `room_bytes`, or has a value that its field in `layouts`
            cannot hold. The cursor stays at that record.
        """
        return self.poll_all(
            self._limit if limit is None else min(<int64_t>limit, self._limit))

    def extend(self, end: tuple[Literal['position'], int]) -> None:
        """Move the end further on, and do not wait for more records there.

        Parameters
        ----------
        end : ("position", int)
            The new end, behind the previous one.
        """
        self._follow = False
        self._end_position = end[1]
        self.ended = False

    def payload(self, i: int) -> memoryview:
        """Return payload i of the last `poll`, read-only, valid until the next `poll`."""
        begin = int(self.offsets[i])
        return memoryview(self.payloads)[begin:begin + self.headers[i]["length"] - RECORD_SIZE]

    @property
    def names(self) -> int:
        """Number of the file of names that the last poll's records use; 0: none."""
        return 0 if self.segment is None else self.segment.header.names

    @property
    def names_mark(self) -> int:
        """Mark that identifies that file among others of its number; 0: not stated."""
        return 0 if self.segment is None else self.segment.header.names_mark

    @property
    def number(self) -> int:
        """Number of the current segment; 0: none yet."""
        return 0 if self.segment is None else self.segment.header.number

    @property
    def tail_index(self) -> int:
        """Number of records in the journal as of the writer's last flush; `index` if unknown."""
        cdef WrittenMark mark
        if not self._written(&mark):
            return self.index
        return max(self.index, mark.index)

    @property
    def epoch(self) -> int:
        """Epoch of the writer of the current segment; 0: none yet."""
        return 0 if self.segment is None else self.segment.header.epoch

    def close(self) -> None:
        """Release the journal. Idempotent; the arrays stay valid."""
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
        cdef WrittenMark mark
        path = self.directory / "journal"
        try:
            self._region = Region.attach(path, JOURNAL_KIND, JOURNAL_LAYOUT)
            identity = header_identity(
                <JournalHeader*>(self._region.pointer + JOURNAL_HEADER), path)
            if not self._written(&mark):
                raise RegionError(_no_marks(path))
        except FileNotFoundError:
            self._region = None
            self._doubt = f"{path}: expected this file beside the segments, found none"
        except RegionError as problem:  # torn by a power cut, or damaged
            self._region = None
            self._doubt = str(problem)
        else:
            self._doubt = ""
            if self.identity is None:
                self.identity = identity
            self._check_identity()

    cdef _check_identity(self):
        # Another journal may have taken its place, or the copy may have become a journal of its
        # own.
        cdef JournalHeader* header
        if self._region is None or self._region.pointer == NULL:
            return
        header = <JournalHeader*>(self._region.pointer + JOURNAL_HEADER)
        if memcmp(header.identity, <const char*>self.identity, IDENTITY_SIZE) != 0:
            raise RegionError(
                f"{self.directory}: expected journal {self.identity.hex()}, found "
                f"{header.identity[:IDENTITY_SIZE].hex()}: the journal was begun again, or a "
                "copy of it was recorded to")

    def _identify(self, numbers):
        # If the file `journal` does not say which journal this is, the majority of the segments
        # does. If no segment is of the journal that the file names, the file belongs to another
        # journal.
        if self._region is None:
            self.identity = segments_identity(self.directory)
            return
        for number in numbers:
            if self._open(number) is not None:
                return
        others = segments_identity(self.directory)
        if others is not None and others != self.identity:
            raise RegionError(
                f"{self.directory / 'journal'}: expected journal {others.hex()}, like the "
                f"segments, found {self.identity.hex()}")

    def _oldest(self, numbers):
        # Return the place of the first record that was not removed to make room. The keeper's mark
        # has it; if the mark is lost, the seals of the remaining segments have earlier values.
        cdef KeptMark mark
        cdef Segment segment
        if self._region is not None and marks_kept(
                <JournalHeader*>(self._region.pointer + JOURNAL_HEADER), &mark):
            return mark.oldest_position, mark.oldest_index
        oldest = (0, 0)
        for number in numbers:
            segment = self._open(number)
            if segment is not None and segment.sealed():
                oldest = max(oldest, (segment.seal.oldest_position, segment.seal.oldest_index))
        return oldest

    def _seek(self, start, numbers):
        # Enter the segment that has the first record wanted, at or before that record.
        cdef Segment segment
        cdef uint64_t position = 0, index = 0
        self.position, self.index = self._oldest(numbers)
        self.left_out = self.index
        what = _what(start)
        if what == "begin":
            return
        if what == "time":
            self._start_ns = start[1]
            return
        self._start_position = start[1] if what == "position" else self._tail()
        for number in reversed(numbers):
            segment = self._open(number)
            if segment is None or segment.header.position > self._start_position:
                continue
            self._enter(segment)
            if segment.sealed() and segment.seal.position <= self._start_position:
                self._stand(segment.seal.position, segment.seal.index)
            else:
                segment.find_start(self._start_position, INT64_MIN, &position, &index)
                self._stand(position, index)
            self.left_out = self.index
            return

    def _tail(self):
        cdef WrittenMark mark
        if self._written(&mark):
            return mark.position
        return <uint64_t>INT64_MAX

    def _open(self, number):
        # None: the segment was removed, its header is damaged, or it is of another journal.
        cdef Segment segment
        try:
            segment = Segment.open(segment_path(self.directory, number))
        except (FileNotFoundError, RegionError):
            return None
        if segment.header.identity[:IDENTITY_SIZE] != self.identity:
            return None
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
        self.headers = np.zeros(limit, RECORD)
        self.offsets = np.zeros(limit, np.uint64)
        self._headers = <Record*><size_t>self.headers.ctypes.data
        self._offsets = <uint64_t*><size_t>self.offsets.ctypes.data
        room_bytes = 256 * limit if room_bytes is None else room_bytes
        self._make_room(max(largest, room_bytes, sizeof(Lapped)))  # what is missing is told there

    cdef _make_room(self, uint64_t room_bytes):
        # Pages that no payload needs are never touched, and so cost nothing.
        self._room_bytes = room_bytes
        self.payloads = np.zeros(room_bytes, np.uint8)
        self._payloads = <uint8_t*><size_t>self.payloads.ctypes.data

    cdef _enter(self, Segment segment):
        # Make a segment the current one; its records are returned as stored or translated.
        cdef uint64_t layout_hash = segment.header.layout_hash
        translation = None
        if segment.header.capacity > self._room_bytes:  # the first one was smaller, or missing
            self._make_room(segment.header.capacity)
            self._translation = None
        if self._layouts is not None and self._layouts.hash != layout_hash:
            translation = self._translations.get(layout_hash)
            if translation is None:
                translation = self._read_layouts(segment)
                self._translations[layout_hash] = translation
        if translation is None:
            self._source = (self.headers, self.offsets, self.payloads)
        elif translation is not self._translation:
            header = translation.source.header
            self._source = (
                np.zeros(self._limit, header), np.zeros(self._limit, np.uint64),
                np.zeros(self._room_bytes, np.uint8))
        headers, offsets, payloads = self._source
        self._into_headers = <uint8_t*><size_t>headers.ctypes.data
        self._into_offsets = <uint64_t*><size_t>offsets.ctypes.data
        self._into_payloads = <uint8_t*><size_t>payloads.ctypes.data
        self._header_size = headers.itemsize
        self._translation = translation
        self.segment = segment
        self._number = segment.header.number

    def _read_layouts(self, Segment segment):
        layouts = journal_layouts(self.directory, segment.header.layout_hash)
        if layouts.raw != self._layouts.raw:
            kinds = ("records of a feed", "a raw capture")
            raise RegionError(f"{segment.path}: expected {kinds[self._layouts.raw]}, found "
                              f"{kinds[layouts.raw]}")
        return Translation(layouts, self._layouts)

    cdef void _stand(self, uint64_t position, uint64_t index) noexcept nogil:
        # Place the cursor at a record of the current segment.
        cdef uint64_t offset = min(position - self.segment.header.position, self.segment.limit)
        self.place = self.segment.records + offset
        self.room = self.segment.limit - offset
        self.position = position
        self.index = index

    cdef bint ready(self) noexcept nogil:
        # Return whether there is anything at the place of the next record.
        return self.room >= 8 and load_relaxed(<const uint64_t*>self.place) != 0

    cdef int64_t poll_segment(self, int64_t limit, int64_t* count) noexcept nogil:
        # Copy valid records of the current segment. Returns why it stopped: LOOK_*, CURSOR_*, 1:
        # limit.
        cdef int64_t size
        cdef uint64_t used = 0, header_size
        cdef uint8_t* header
        cdef const Record* record
        count[0] = 0
        while count[0] < limit:
            size = record_look(self.place, self.room, self.position, self.index)
            if size <= 0:
                return size
            record = <const Record*>self.place
            if self.position >= self._end_position:
                return CURSOR_PAST
            if record.published_ns >= self._end_ns:
                self._past = True
            if (self.position >= self._start_position and record.published_ns >= self._start_ns
                    and record.published_ns < self._end_ns):
                header_size = self._header_size
                if <uint64_t>size < header_size:
                    return LOOK_INVALID
                if used + size - header_size > self._room_bytes:
                    return CURSOR_FULL
                header = self._into_headers + count[0] * header_size
                memcpy(header, record, RECORD_SIZE)  # of constant size: nearly all headers are
                if unlikely(header_size > RECORD_SIZE):
                    memcpy(header, record, header_size)
                if not header_has(<const Record*>header, size):
                    return LOOK_INVALID  # the header changed since it was checked
                self._into_offsets[count[0]] = used
                memcpy(self._into_payloads + used, self.place + header_size, size - header_size)
                used += size - header_size
                count[0] += 1
            elif count[0] > 0:
                return 1  # the records of one poll are consecutive
            else:
                self.left_out = self.index + 1
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
                if self._translation is not None:
                    count = self._translate(count)
                self._handed_out = True
                if self._headers[count - 1].kind != KIND_LAPPED:
                    self._last_ns = self._headers[count - 1].published_ns
                return count
            if end == CURSOR_PAST:
                self.ended = True
            elif end == CURSOR_FULL:
                raise FormatError(f"{self.segment.path}: record {self.index} does not fit "
                                  f"{self._room_bytes} bytes")
            elif not self._advance(end):
                break
        return 0

    cdef int64_t _translate(self, int64_t count) except -1:
        # Translate as many of the copied records as fit; the next poll begins with the rest.
        headers, offsets, payloads = self._source
        headers = headers[:count]
        done = 0
        try:
            done = self._translation.run(
                headers, offsets, payloads, (self.headers, self.offsets, self.payloads))
            if done == 0:
                raise FormatError(f"record {headers['index'][0]} does not fit {self._room_bytes} "
                                  "bytes, translated")
        except FormatError as problem:
            raise FormatError(f"{self.segment.path}: {problem}") from None
        finally:
            if done < count:
                self._stand(headers["position"][done], headers["index"][done])
        return done

    cdef bint _advance(self, int64_t end) except *:
        # There is no valid record at the cursor. Find out why, and move on. True: try again.
        cdef Segment segment = self.segment
        cdef WrittenMark mark
        cdef int64_t size
        cdef bint known
        if self.position >= self._end_position:
            self.ended = True
            return False
        self._check_identity()
        known = self._written(&mark)  # read before the files, so that they contain what it names
        if known and mark.position <= self.position:
            known = False
        if segment is not None and segment.sealed():
            if self.position < segment.seal.position:
                return self._step_over(known, &mark)
        elif segment is not None:
            size = record_look(self.place, self.room, self.position, self.index)
            if size > 0:
                return True  # it arrived just now
            if size != LOOK_END and known:
                return self._step_over(known, &mark)
            if size != LOOK_END:
                if self._follow:
                    return self._is_over()
                if self._is_complete() and self._step_over(known, &mark):
                    return True
        if self._enter_next(LAPPED_READER):
            return True
        if known:  # the segment that has it is lost
            self._miss_until(mark.position, mark.index, LAPPED_DAMAGE)
            return True
        if self._follow:
            return self._is_over()
        self._finish()
        return False

    cdef bint _is_over(self) except *:
        # Return whether nothing more will come; checked now and then. The caller then reads once
        # more, because records written before the end are visible by now.
        if self._past:
            self._follow = False
            return True
        now_ns = clock_monotonic_ns()
        if now_ns - self._looked_ns < LOOK_PAUSE_NS:
            return False
        self._looked_ns = now_ns
        if not (self._is_complete() or self._is_past()):
            return False
        self._follow = False
        return True

    cdef bint go_on(self) except *:
        # Read on if the journal has another writer, or has had one behind its end; looks now and
        # then. Return whether it does.
        cdef WrittenMark mark
        cdef bint complete
        now_ns = clock_monotonic_ns()
        if now_ns - self._looked_ns < LOOK_PAUSE_NS:
            return False
        complete = self._is_complete()  # attaches to the file `journal` if it was replaced
        if self._region is None:
            self._check_removed()
        self._check_identity()
        self._looked_ns = now_ns
        if not self._written(&mark):
            return False
        # Until its first mark, the writer that takes over lives behind the marks of the last one.
        if mark.position <= self.position and (complete or mark.epoch <= self._ended_epoch):
            return False
        self.ended, self._follow = False, True
        self._again_ns, self._last_ns = mark.written_ns, INT64_MIN
        self._current_index = UINT64_MAX
        return True

    cdef bint is_current(self) except *:
        # Behind `go_on`: return whether all was read that had been published when that writer was
        # first seen. Among it is what the journal lacks, and that another feed began.
        cdef KeptMark kept
        cdef WrittenMark mark
        if self._last_ns >= self._again_ns:
            return True
        if (self._current_index == UINT64_MAX and self._region is not None
                and self._region.pointer != NULL
                and marks_kept(<JournalHeader*>(self._region.pointer + JOURNAL_HEADER), &kept)
                and kept.current_ns >= self._again_ns and self._written(&mark)):
            self._current_index = mark.index
        return self.index >= self._current_index

    cdef bint has_ended(self) except *:
        # Return whether all was read and nobody will append any more, as the next poll then finds.
        cdef WrittenMark mark
        if self.ended or not self._follow:
            return True
        if self._written(&mark) and mark.position > self.position:
            return False
        self._looked_ns = 0
        return self._is_over()

    def _finish(self):
        # End the journal. If the file `journal` is missing, or its marks are damaged, the last seal
        # may confirm the end.
        cdef Segment segment = self.segment
        self.ended = True
        doubt = self._doubt
        if not doubt and not self.knows_end():
            doubt = _no_marks(self.directory / "journal")
        if doubt and (segment is None or not segment.sealed()
                      or not segment.seal.flags & SEAL_LAST or self._later()):
            raise RegionError(
                f"{doubt}; read up to record {self.index}, but more records may have been "
                "lost")

    cdef bint _enter_next(self, uint32_t reason) except *:
        # Go to the first record of the next readable segment. False: there is none. reason
        # LAPPED_READER: nothing up to here is damaged; missing records may have been removed.
        cdef Segment segment
        numbers = self._later()
        for number in numbers:
            segment = self._open(number)
            if segment is None or segment.header.index < self.index:
                continue  # it is lost, or was restored from elsewhere
            if segment.header.index > self.index:
                if self._later()[:1] != numbers[:1]:
                    return self._enter_next(reason)  # another one appeared meanwhile
                if not self._was_removed(segment.header.index):
                    reason = LAPPED_DAMAGE
                self._miss_until(segment.header.position, segment.header.index, reason)
            self._enter(segment)
            if segment.sealed() and not segment.seal.flags & SEAL_DAMAGED and (
                    segment.seal.first_ns <= segment.seal.last_ns) and (
                    segment.seal.last_ns < self._start_ns
                    or segment.seal.first_ns >= self._end_ns):
                self._stand(segment.seal.position, segment.seal.index)  # none is wanted
                self.left_out = self.index
            else:
                self._stand(segment.header.position, segment.header.index)
            return True
        return False

    def _later(self):
        try:
            return [number for number in list_segments(self.directory) if number > self._number]
        except FileNotFoundError:
            raise RegionError(f"{self.directory}: expected journal {self.identity.hex()}, found "
                              f"nothing: it was removed after record {self.index}") from None

    cdef bint _step_over(self, bint known, const WrittenMark* mark) except *:
        # Continue behind damaged bytes, at the nearest place known. False: none is known.
        cdef Segment segment = self.segment
        cdef uint64_t position = 0, index = 0, end = UINT64_MAX
        cdef bint found
        if segment.sealed():
            end = segment.seal.position
        elif known:
            end = mark.position
        with nogil:
            found = segment.find_behind(self.position, &position, &index)
            if not found:
                found = segment.find_valid(self.position, self.index, &position, &index) and (
                    position < end)
        if found:
            self._miss_until(position, index, LAPPED_DAMAGE)
            return True
        if segment.sealed():
            self._miss_until(segment.seal.position, segment.seal.index, LAPPED_DAMAGE)
            return True
        if self._enter_next(LAPPED_DAMAGE):
            return True
        if known:
            self._miss_until(mark.position, mark.index, LAPPED_DAMAGE)
        return known

    cdef bint _was_removed(self, uint64_t index) noexcept:
        # Return whether all records before this one were removed to make room; the keeper notes
        # that before it removes them.
        cdef KeptMark mark
        return (self._region is not None and self._region.pointer != NULL
                and marks_kept(<JournalHeader*>(self._region.pointer + JOURNAL_HEADER), &mark)
                and mark.oldest_index >= index)

    cdef _miss_until(self, uint64_t position, uint64_t index, uint32_t reason):
        if self.position >= self._start_position:
            self.missed_reason = max(reason, self.missed_reason if self.missed else reason)
            self.missed += index - self.index
            self.missed_total += index - self.index
        if self.segment is None:
            self.position, self.index = position, index
        else:
            self._stand(position, index)

    cdef bint _is_complete(self) except *:
        # Return whether nobody will append any more: the writer closed the journal, or died.
        cdef WrittenMark mark
        cdef bint known
        if self._region is None or self._region.replaced():
            had = self._region is not None
            self._attach_region()
            if self._region is None:
                if had:
                    self._check_removed()
                return True
        known = self._written(&mark)
        if not (known and mark.state in (JOURNAL_CLOSED, JOURNAL_FAILED)
                or not self._region.writer_alive()):
            return False
        if known:
            self._ended_epoch = mark.epoch
        return True

    cdef _check_removed(self):
        if not (self.directory / "journal").exists():
            raise RegionError(f"{self.directory}: expected journal {self.identity.hex()}, "
                              f"found it removed after record {self.index}")

    cdef bint _is_past(self) noexcept:
        # Return whether the journal has all that was published before the requested time, although
        # nothing later has come.
        cdef KeptMark mark
        return (self._region is not None and self._region.pointer != NULL
                and marks_kept(<JournalHeader*>(self._region.pointer + JOURNAL_HEADER), &mark)
                and mark.current_ns - CURRENT_MARGIN_NS >= self._end_ns)

    cdef bint knows_end(self) noexcept:
        # Return whether `tail_index` is what the writer said.
        cdef WrittenMark mark
        return self._written(&mark)

    cdef bint _written(self, WrittenMark* mark) noexcept:
        # Load the writer's last mark. False: there is none, or it is damaged.
        if self._region is None or self._region.pointer == NULL:
            return False
        return marks_written(<JournalHeader*>(self._region.pointer + JOURNAL_HEADER), mark)


cdef bint header_has(const Record* header, int64_t size) noexcept nogil:
    return header.length >= RECORD_SIZE and record_size(<uint64_t>header.length) == <uint64_t>size


def _no_marks(path):
    return f"{path}: expected marks with their checksum, found other bytes"


def _what(place):
    # Check the place; return "begin", "tail", "position" or "time".
    if place in ("begin", "tail"):
        return place
    if isinstance(place, tuple) and len(place) == 2 and place[0] in ("position", "time"):
        return place[0]
    raise ValueError(
        "a place in a journal must be 'begin', 'tail', ('position', int) or ('time', UNIX ns), "
        f"was {place!r}")
