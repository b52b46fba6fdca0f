"""The Source of "journal:DIRECTORY": the records of a journal."""

cimport cython
from libc.errno cimport EPIPE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from udpfast.archive.copied_sessions cimport input_of
from udpfast.client.record cimport NameCache
from udpfast.client.source cimport PolledSource
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.layout cimport (
    CONNECTION_DISCONNECTED, CONNECTION_FANOUT, CONNECTION_READY, KIND_CONNECTION, RECORD_SIZE,
    Connection, Lapped, Record)
from udpfast.log.doubt_records cimport doubt_record, doubt_record_lapped
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.shm.region cimport Region

import contextlib
import warnings

import numpy as np

from udpfast.archive.bus_files import read_composite
from udpfast.archive.feed_settings import has_datagrams_only
from udpfast.archive.names import damaged_names, journal_names, known_names, names_path
from udpfast.archive.recorded_feed import feed_name
from udpfast.core.layout import RECORD
from udpfast.client.appearing import deadline_of, when_there
from udpfast.client.no_writer import warn_of_later_start
from udpfast.client.source import START_EXPECTED
from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.core.moment import Moment, unix_ns
from udpfast.errors import (
    ConfigError, FormatError, NotReadyError, RegionError, RingClosedError, shown)
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.log.journal_span import check_part
from udpfast.log.journal_state import JOURNAL_KIND, JOURNAL_LAYOUT, is_raw, journal_state
from udpfast.log.segment import Segment, list_segments, segment_path
from udpfast.market.updates import LAYOUTS
from udpfast.shm.instance import journal_directory

__all__ = [
    "JournalSource", "journal_start", "journal_there", "open_source", "segment_names"]


@cython.final
cdef class JournalSource(PolledSource):
    """A cursor in a journal, and the names of the segment that it is reading.

    Parameters
    ----------
    cursor : JournalCursor
        The cursor; closed by `detach`.
    endless : bool
        At the end of the journal, wait for its next writer; the cursor has no end.
    live : bool
        It is being written, and read to whatever end it will have.
    """

    def __init__(
            self, JournalCursor cursor not None, bint endless=False, bint live=False):
        self.recorded = True
        self.directory = cursor.directory
        self.cursor = cursor
        self.use_arrays(cursor.headers, cursor.offsets, cursor.payloads)
        self.names = NameCache()
        self.names_number = -1
        with contextlib.suppress(FileNotFoundError):
            self.inputs = read_composite(self.directory)
        self.input_names = {}
        self.endless, self.live = endless, live
        self.own_arrays = (
            np.zeros(1, RECORD), np.zeros(1, np.uint64),
            np.zeros(max(sizeof(Lapped), sizeof(Connection)), np.uint8))

    @property
    def origin(self) -> str:
        """For a composite's copy, the address of the store whose records the last wait returned."""
        of_input = self.inputs is not None and self.names.address is not None
        return f"store:{self.names.address}" if of_input else ""

    @property
    def log(self) -> bytes:
        """Identity of the log whose records the journal now gets; zeros: not known."""
        with contextlib.suppress(FileNotFoundError, FormatError):
            return journal_state(self.directory).source
        return bytes(16)

    cdef bint ready(self) noexcept nogil:
        return self.next < self.count or self.cursor.ready()

    cdef int64_t poll(self, int64_t limit) except -1:
        cdef int64_t count
        if self.next < self.count:
            return self.next_input(limit)
        if self.gone and not self.done:
            if not self.cursor.go_on():
                return 0
            self.gone, self.returning = False, True
        if self.returning and self.cursor.is_current():
            self.returning = False
            return self.say_writer(CONNECTION_READY)
        count = self.cursor.poll_all(min(limit, self.cursor._limit))
        if self.payloads != self.cursor._payloads:
            self.use_arrays(self.cursor.headers, self.cursor.offsets, self.cursor.payloads)
        self.missed, self.missed_reason = self.cursor.missed, self.cursor.missed_reason
        if count == 0 and self.missed:
            return self.say_missed(self.cursor.position, self.cursor.index)
        if count == 0:
            return self.meet_end() if self.cursor.ended else 0
        return count if self.inputs is None else self.begin_inputs(count, limit)

    cdef int64_t meet_end(self) except -1:
        # All was read, and nobody writes. The next writer may be of another run of the feed, or
        # lack records: READY waits until RESTART and LAPPED were read, which tell. Among others
        # what was live is said to have ended, since the reader goes on; a recording is not.
        if self.done or not (self.endless or self.among and self.live):
            return -EPIPE
        self.gone, self.returning, self.live = self.endless, False, False
        return self.say_writer(CONNECTION_DISCONNECTED)

    cdef int64_t say_writer(self, uint32_t status) except -1:
        # Hand out a CONNECTION, which is in no journal.
        cdef Connection said
        cdef int64_t now_ns = clock_realtime_ns()
        headers, offsets, payloads = self.own_arrays
        self.use_arrays(headers, offsets, payloads)
        memset(&said, 0, sizeof(said))
        doubt_record(self.headers, KIND_CONNECTION, sizeof(said), now_ns)
        said.status = status
        said.scope = CONNECTION_FANOUT
        with contextlib.suppress(FileNotFoundError, FormatError):
            if status == CONNECTION_DISCONNECTED:
                said.silent_ns = max(0, now_ns - journal_state(self.directory).written_ns)
        self.headers.position = self.cursor.position
        self.headers.index = self.cursor.index
        memcpy(self.payloads, &said, sizeof(said))
        self.offsets[0] = 0
        if self.inputs is not None:
            self.input = -1
            self.names = self.names_of(-1)
        self.missed = 0
        return 1

    cdef int64_t say_missed(self, uint64_t position, uint64_t index) noexcept:
        # Hand out a LAPPED record: damage at the end has no record behind it that could report it,
        # and records missing from a copy may be of any input.
        cdef Lapped lapped
        doubt_record_lapped(self.headers, &lapped, self.missed, self.missed_reason, 0)
        self.headers.position = position
        self.headers.index = index - self.missed
        memcpy(self.payloads, &lapped, sizeof(lapped))
        self.offsets[0] = 0
        if self.inputs is not None:
            self.input = -1
            self.names = self.names_of(-1)
        self.missed = self.cursor.missed = 0
        return 1

    cdef int64_t begin_inputs(self, int64_t count, int64_t limit) except -1:
        # A copy hands out LAPPED first, if records are missing, then the records input by input.
        self.next, self.count = 0, count
        if self.cursor.names != self.names_number:
            self.renew_names()
        if self.missed == 0:
            return self.next_input(limit)
        headers, offsets, payloads = self.own_arrays
        self.use_arrays(headers, offsets, payloads)
        return self.say_missed(self.cursor._headers.position, self.cursor._headers.index)

    cdef int64_t next_input(self, int64_t limit) except -1:
        cdef const Record* first = self.cursor._headers + self.next
        cdef int64_t input = input_of(first.session)
        cdef int64_t count = 1, most = min(limit, self.count - self.next)
        while count < most and input_of(first[count].session) == input:
            count += 1
        if self.payloads != self.cursor._payloads:
            self.use_arrays(self.cursor.headers, self.cursor.offsets, self.cursor.payloads)
        memmove(self.headers, first, count * RECORD_SIZE)
        memmove(self.offsets, self.offsets + self.next, count * sizeof(uint64_t))
        self.next += count
        self.missed = 0
        self.input = input
        self.names = self.names_of(input)
        return count

    cdef NameCache names_of(self, int64_t input):
        # Return the NameCache of an input, with its place and address; below 0: of no input.
        cdef NameCache names = self.input_names.get(input)
        if names is None:
            names = self.input_names[input] = NameCache(self.table)
            if 0 <= input < len(self.inputs):
                names.source = <uint32_t>input + 1
                names.address = str(self.inputs[input])
        return names

    cdef fail(self, int64_t code):
        if self.failure is not None:
            raise self.failure
        raise RingClosedError(f"journal {self.directory}: all of it has been read")

    cdef renew_names(self):
        cdef int64_t number = self.cursor.names
        if number == self.names_number:
            return
        self.names_number = number
        self.names = segment_names(
            self.directory, number, self.cursor.names_mark, self.cursor.number)
        self.table = self.names.table
        self.input_names = {}

    cdef bint names_missing(self):
        return <int64_t>self.cursor.names != self.names_number

    cdef names_published(self):
        return known_names(self.directory)

    cdef tuple feeds(self):
        feed = recorded_feed(self.cursor, self.directory)
        if self.inputs is None or not 0 <= self.input < len(self.inputs):
            return feed, feed
        return f"{feed}/{self.inputs[self.input].name}", feed

    cdef uint64_t next_index(self):
        if self.next < self.count:
            return self.cursor._headers[self.next].index
        return self.cursor.index

    cdef object end(self):
        self.look_for_writer()
        return self.written() if self.cursor.knows_end() else None

    cdef bint passed(self, end) except -1:
        self.look_for_writer()
        return self.next_index() > end

    cdef look_for_writer(self):
        # The next poll finds at once that nobody writes any more, and says so: what is held is not
        # as it seems before that was read.
        if self.endless and not (self.done or self.gone or self.next < self.count):
            self.cursor.has_ended()

    cdef uint64_t missed_total(self):
        return self.cursor.missed_total

    cdef uint64_t written(self):
        return self.cursor.tail_index

    cdef uint64_t writer_epoch(self):
        return self.cursor.epoch

    cdef bint writer_alive(self):
        return _is_written(self.directory)

    cdef bint writer_ended(self):
        with contextlib.suppress(FileNotFoundError, FormatError):
            state = journal_state(self.directory)
            return state.closed and not state.failed
        return False

    cdef bint writer_failed(self):
        with contextlib.suppress(FileNotFoundError, FormatError):
            return journal_state(self.directory).failed
        return False

    cdef detach(self):
        self.done = True  # records in memory are still handed out
        self.cursor.close()


def segment_names(directory: Path, number: int, mark: int, segment: int) -> NameCache:
    """Return the names for the ids in a segment's records; warn if they, or some, are unknown.

    Parameters
    ----------
    directory : path
        Directory of the journal.
    number, mark : int
        Identify the segment's file of names, as in its header; 0: it has none.
    segment : int
        Number of the segment.
    """
    if number == 0:
        return NameCache()
    try:
        table = journal_names(directory, number, mark)
        if damaged := damaged_names(table):
            warnings.warn(
                f"{names_path(directory, number)}: {damaged} of {len(table)} names are damaged: "
                "records and books that they would name have none", stacklevel=3)
        return NameCache(table)
    except (FileNotFoundError, FormatError) as problem:
        # The file was removed, damaged by a power cut, or is of another journal. The records are
        # still usable without names.
        warnings.warn(
            f"{directory}: the names of instruments are not known in segment {segment}: {problem}",
            stacklevel=3)
        return NameCache()


def open_source(
        target: str, *, start: Moment | tuple[str, int], batch: int,
        buffer_bytes: int | None, timeout: float | None, name: str,
        end: Moment | tuple[str, int] | None = None,
        image: bool = False) -> JournalSource:
    """Open a journal at one of its ends, at a time, or at a position.

    Parameters
    ----------
    target : str
        The journal's name, or its directory.
    start : "begin", "oldest", "tail", a time or ("position", int)
        Where to begin. Times are those of `Reader`.
    end : a time or ("position", int) or "never", optional
        The time or position of the first record that is not read; "never": as for `Reader`.
    batch, buffer_bytes, timeout, name
        As for `Reader`; `name` is ignored, because readers of a journal are not listed.

    Raises
    ------
    FileNotFoundError
        No such journal appeared within `timeout` seconds.
    """
    if image:
        raise ConfigError(
            f"image must be False for journal:{target}: reading starts without an earlier state")
    first = journal_start(start)
    endless = isinstance(end, str) and end == "never"
    last = None if end is None or endless else _place(end, "end")
    directory = when_there(lambda: journal_there(target), deadline_of(timeout))
    cursor = JournalCursorFace.attach(
        directory, first, last, limit=batch, room_bytes=buffer_bytes,
        layouts=CONTROL_LAYOUTS if is_raw(directory) else LAYOUTS)
    written = _is_written(directory)
    span = check_part(directory, first if isinstance(first, tuple) else None, last,
                      grows=endless or written)
    if first[0] == "time" and span is not None:
        warn_of_later_start(directory, first[1], span.last_ns)
    return JournalSource(cursor, endless, written and last is None)


cdef recorded_feed(JournalCursor cursor, directory):
    # Return the name of the feed whose records a cursor read last, as their segment states it.
    if cursor.segment is not None:
        return feed_name(cursor.segment.info().name, directory)
    recorded = ""
    with contextlib.suppress(FileNotFoundError, FormatError, RegionError):  # removed meanwhile
        segment = Segment.open(segment_path(directory, cursor._number))
        recorded = segment.info().name
        segment.close()
    return feed_name(recorded, directory)


def journal_there(target: str) -> Path:
    """Return the directory of a journal that exists.

    Raises
    ------
    FileNotFoundError
        There is no such journal.
    NotReadyError
        It is being created and has no segment yet.
    """
    directory = journal_directory(target)
    try:
        Region.attach(directory / "journal", JOURNAL_KIND, JOURNAL_LAYOUT).close()
    except FileNotFoundError:
        if has_datagrams_only(directory):
            raise FileNotFoundError(
                2, "no records there: its feed keeps datagrams only (record.what)", str(directory)
            ) from None
        if not list_segments(directory):
            raise FileNotFoundError(
                2, "no journal there: it has no segments", str(directory)) from None
    except NotReadyError:
        if not list_segments(directory):
            raise
    except RegionError:  # opening the cursor reports it
        pass
    return directory


def journal_start(
        start: Moment | tuple[str, int] | None) -> str | tuple[str, int]:
    """Return the `start` of a `JournalCursor` for the `start` of a `Reader`."""
    if start is None or start in ("begin", "oldest"):
        return "begin"
    return start if start == "tail" else _place(start, "start", START_EXPECTED)


def _is_written(directory):
    with contextlib.suppress(FileNotFoundError, FormatError):
        return journal_state(directory).alive
    return False


def _place(where, what, expected="a time"):
    if isinstance(where, tuple) and len(where) == 2 and where[0] == "time":
        return "time", unix_ns(where[1], what, expected)
    if isinstance(where, tuple) and len(where) == 2 and where[0] == "position":
        if not isinstance(where[1], int) or where[1] < 0 or where[1].bit_length() > 63:
            raise ConfigError(f"{what} must be a position, 0 or more, was {shown(where)}")
        return where
    return "time", unix_ns(where, what, expected)
