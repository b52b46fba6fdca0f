"""The reading end of a journal: segment by segment, every record checked."""

from pathlib import Path

import numpy as np

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from udpfast.core.atomics cimport load_relaxed
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport LAPPED_DAMAGE, LAPPED_READER, RECORD_SIZE, Record
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
    LOOK_PAUSE_NS = 10_000_000   # between two looks whether the writer lives: a look takes 20 us
    POSITION_MAX = 0x7FFFFFFFFFFFFFFF


cdef class JournalCursor:
    """The reading end of a journal: any number of them, whether its writer lives or not.

    Attributes
    ----------
    directory : pathlib.Path
    headers : NDArray[Any]
        Of dtype `RECORD`. The first n are valid after a `poll` that returned n, until the next.
    offsets : NDArray[np.uint64]
        Of uint64: where each payload begins in `payloads`; its size is `length - 64`.
    payloads : NDArray[np.uint8]
        Of uint8. A `poll` that enters a segment of larger records replaces it.
    position, index : int
        Of the next record.
    missed : int
        Records missing before the first one of the last `poll`: segments removed to make room, or
        lost, or bytes that were damaged. Of a part of a journal they count if the first one of
        those that are missing together would lie in it: parts that are read apart add up.
    missed_total : int
    identity : bytes
        Of the journal.
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
            With the oldest record; with the next one to be written; with the first at or behind a
            position; those published at or after a time, UNIX ns.
        end : ("position", int) or ("time", int), optional
            End before the first record at or behind a position; leave out those published at or
            after a time. Times are no order: a clock may have been set back, so that all of the
            journal is looked at.
        follow : bool
            At its end, wait for more as long as its writer lives.
        limit : int
            Records per `poll`, at most.
        room_bytes : int, optional
            For the payloads of one `poll`; by default for 256 bytes each, and never less than the
            largest record takes.
        layouts : Layouts, optional
            That records are handed out by, whichever version wrote them; None: as they are.

        Raises
        ------
        FileNotFoundError
            There is no segment and no writer.
        RegionError
            The file `journal` is another journal's.
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
        """Copy what is new into `headers`, `offsets`, `payloads`; never wait.

        Returns
        -------
        int
            Records copied, all of one segment; they follow each other without a hole. 0: nothing
            new (see `ended`).

        Raises
        ------
        RegionError
            Another journal took this one's place; or all was read, and as the file `journal` is
            lost or damaged nobody can say whether that was all. The layouts of the next segment's
            records are not there, or those of a raw capture where updates were wanted.
        FormatError
            The next record does not fit `room_bytes`, or has a value that its field in `layouts`
            does not hold. It is the next one still.
        """
        return self.poll_all(
            self._limit if limit is None else min(<int64_t>limit, self._limit))

    def extend(self, end: tuple[Literal['position'], int]) -> None:
        """End at another place, further on than the one before, and do not wait for more there.

        Parameters
        ----------
        end : ("position", int)
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
        """Number of the file of names that the last poll's records go by; 0: none."""
        return 0 if self.segment is None else self.segment.header.names

    @property
    def names_mark(self) -> int:
        """By which that file is told from others of this number; 0: nobody said."""
        return 0 if self.segment is None else self.segment.header.names_mark

    @property
    def number(self) -> int:
        """Number of the segment that it reads; 0: none yet."""
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
        """Epoch of the writer of the segment that it reads; 0: none yet."""
        return 0 if self.segment is None else self.segment.header.epoch

    def close(self) -> None:
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
        cdef WrittenMark mark
        path = self.directory / "journal"
        try:
            self._region = Region.attach(path, JOURNAL_KIND, JOURNAL_LAYOUT)
            identity = header_identity(
                <JournalHeader*>(self._region.pointer + JOURNAL_HEADER), path)
            if not self._written(&mark):
                raise RegionError(f"{path}: expected marks with their checksum, found other bytes")
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
        # Another journal may have its place, or a copy become a journal of its own.
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
        # Where the file `journal` does not say which journal this is, most of the segments do. If
        # none of them is of the one that it names, it is another's.
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
        # Place of the first record that was not removed to make room. Who removes says so; where
        # that is lost, the seals of the segments that are left tell of the time before.
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
        # Stand in the segment that has the first record wanted, at a record not behind it.
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
        # None: it was removed, its header is damaged, or it is of another journal.
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
        self._make_room(max(largest, 256 * limit if room_bytes is None else room_bytes))

    cdef _make_room(self, uint64_t room_bytes):
        # Pages that no payload needs are never touched, and so cost nothing.
        self._room_bytes = room_bytes
        self.payloads = np.zeros(room_bytes, np.uint8)
        self._payloads = <uint8_t*><size_t>self.payloads.ctypes.data

    cdef _enter(self, Segment segment):
        # Stand in a segment, whose records are handed out as they are, or translated.
        cdef uint64_t layout_hash = segment.header.layout_hash
        translation = None
        if segment.header.capacity > self._room_bytes:  # not there yet, or smaller, at first
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
                memcpy(header, record, RECORD_SIZE)  # of known size, as nearly all are
                if unlikely(header_size > RECORD_SIZE):
                    memcpy(header, record, header_size)
                if not header_has(<const Record*>header, size):
                    return LOOK_INVALID  # it is not any more what was checked
                self._into_offsets[count[0]] = used
                memcpy(self._into_payloads + used, self.place + header_size, size - header_size)
                used += size - header_size
                count[0] += 1
            elif count[0] > 0:
                return 1  # those of one poll follow each other
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
        # As many of the records copied as there is room for; the others are the next ones again.
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
        # Nothing (more) stands where the next record should. True: look again.
        cdef Segment segment = self.segment
        cdef WrittenMark mark
        cdef int64_t size
        cdef bint known
        if self.position >= self._end_position:
            self.ended = True
            return False
        self._check_identity()
        known = self._written(&mark)  # before the files: what it speaks of is in them
        if known and mark.position <= self.position:
            known = False
        if segment is not None and segment.sealed():
            if self.position < segment.seal.position:
                return self._step_over(known, &mark)
        elif segment is not None:
            size = record_look(self.place, self.room, self.position, self.index)
            if size > 0:
                return True  # it came just now
            if size != LOOK_END and known:
                return self._step_over(known, &mark)
            if size != LOOK_END:
                if self._follow:
                    return self._is_over()
                if self._is_complete() and self._step_over(known, &mark):
                    return True
        if self._enter_next(LAPPED_READER):
            return True
        if known:  # its segment is lost
            self._miss_until(mark.position, mark.index, LAPPED_DAMAGE)
            return True
        if self._follow:
            return self._is_over()
        self._finish()
        return False

    cdef bint _is_over(self) except *:
        # Whether nothing more will come, looked at now and then. Who follows then looks once more:
        # what was written before it was over is there now.
        if self._past:
            self._follow = False
            return True
        now_ns = clock_monotonic_ns()
        if now_ns - self._looked_ns < LOOK_PAUSE_NS:
            return False
        self._looked_ns = now_ns
        if not self._is_complete():
            return False
        self._follow = False
        return True

    def _finish(self):
        # The end. What the file `journal` would say of it, the last seal may.
        cdef Segment segment = self.segment
        self.ended = True
        if self._doubt and (segment is None or not segment.sealed()
                            or not segment.seal.flags & SEAL_LAST or self._later()):
            raise RegionError(
                f"{self._doubt}; read up to record {self.index}, but more records may have been "
                "lost")

    cdef bint _enter_next(self, uint32_t reason) except *:
        # Stand at the first record of the next segment that can be read. False: there is none.
        # LAPPED_READER: nothing is damaged up to here, what is missing may have been removed.
        cdef Segment segment
        numbers = self._later()
        for number in numbers:
            segment = self._open(number)
            if segment is None or segment.header.index < self.index:
                continue  # lost, or one that was brought back from elsewhere
            if segment.header.index > self.index:
                if self._later()[:1] != numbers[:1]:
                    return self._enter_next(reason)  # one came between while the others were listed
                if not self._was_removed(segment.header.index):
                    reason = LAPPED_DAMAGE
                self._miss_until(segment.header.position, segment.header.index, reason)
            self._enter(segment)
            if segment.sealed() and not segment.seal.flags & SEAL_DAMAGED and (
                    segment.seal.first_ns <= segment.seal.last_ns) and (
                    segment.seal.last_ns < self._start_ns
                    or segment.seal.first_ns >= self._end_ns):
                self._stand(segment.seal.position, segment.seal.index)  # none of it is wanted
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
        # Go on behind bytes that are damaged, at what is nearest. False: nothing is known behind.
        cdef Segment segment = self.segment
        cdef uint64_t position = 0, index = 0
        cdef bint found
        with nogil:
            found = segment.find_behind(self.position, &position, &index)
            if not found and not segment.sealed() and not known:
                found = segment.find_valid(self.position, self.index, &position, &index)
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
        # Whether all before a record was removed to make room: who removes says so before.
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
        # Whether nobody will append: closed by its writer, or that one died.
        cdef WrittenMark mark
        if self._region is None or self._region.replaced():
            had = self._region is not None
            self._attach_region()
            if self._region is None:
                if had and not (self.directory / "journal").exists():
                    raise RegionError(f"{self.directory}: expected journal {self.identity.hex()}, "
                                      f"found it removed after record {self.index}")
                return True
        if self._written(&mark) and mark.state in (JOURNAL_CLOSED, JOURNAL_FAILED):
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
    raise ValueError(
        "a place in a journal must be 'begin', 'tail', ('position', int) or ('time', UNIX ns), "
        f"was {place!r}")
