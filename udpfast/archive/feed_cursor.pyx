"""A cursor over the records that a feed writes to a ring or a store, for agents and late joiners.

Of a store it reads only the records of this host's feed, from the RESTART with which the feed
began, as far as readers may see them.
"""

cimport cython
from libc.errno cimport EBADMSG, EPIPE
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint64_t

from udpfast.archive.live cimport BusLive
from udpfast.core.atomics cimport load_acquire, load_relaxed, store_relaxed
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.log.cursor cimport RingCursor
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.marks cimport WrittenMark
from udpfast.log.readers cimport ReaderEntry, reader_report
from udpfast.log.ring cimport ring_awaits, ring_poll, ring_ready, ring_stuck
from udpfast.shm.region cimport RegionHeader

from udpfast.archive.bus_files import Live, noted_store, shared_directory
from udpfast.archive.names import names_path
from udpfast.errors import (
    FormatError, ImageError, NotReadyError, RegionError, RingClosedError)
from udpfast.log.cursor import RingCursor as RingCursorFace
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.market.updates import LAYOUTS, PAYLOAD_HASH

__all__ = ["FeedCursor", "RingFeedCursor", "StoreFeedCursor", "open_feed_cursor"]

cdef enum:
    LOOK_NS = 1_000_000          # without new records, files are checked this often
    ALIVE_NS = 1_000_000_000     # a daemon that was silent for so long is not running
    #: A restarted agent reads no more than a ring holds by default.
    BACK_BYTES = 1 << 26


cdef class FeedCursor:
    """A cursor over the records that a feed writes. For one thread.

    Attributes
    ----------
    kind : str
        "ring" or "store".
    readers : pathlib.Path
        The directory in whose `readers/` readers register.
    missed : int
        Records missing before the first one of the last poll.
    """

    @property
    def readers(self) -> Path:
        """The directory in whose `readers/` readers register."""
        raise NotImplementedError

    cdef bint ready(self) noexcept nogil:
        # Return whether there may be something to poll, by a quick check.
        return False

    cdef bint jumped(self) noexcept nogil:
        # Return whether records may be missing before the next one, which has not come yet.
        return False

    cdef int64_t poll(self, int64_t limit) noexcept nogil:
        # Return how many records were copied, which are consecutive; 0: nothing new; -EPIPE: the
        # feed ended and everything was read; another -errno: call `fail`.
        return -EPIPE

    cdef uint64_t position(self) noexcept nogil:
        # Position of the next record.
        return 0

    cdef uint64_t index(self) noexcept nogil:
        return 0

    cdef uint64_t end(self) noexcept:
        # Position behind the last record, as of the writer's last flush.
        return 0

    cdef uint64_t end_index(self) noexcept:
        return 0

    cdef int64_t created_ns(self) noexcept nogil:
        # Identify the file of a ring, and so its writer.
        return 0

    cdef uint64_t epoch(self) noexcept nogil:
        # Epoch of the feed; it grows with each start.
        return 0

    cdef uint64_t began(self) noexcept nogil:
        # Position of the feed's first record.
        return 0

    cdef uint64_t began_index(self) noexcept nogil:
        return 0

    cdef void report(self, ReaderEntry* entry) noexcept nogil:
        # Publish the progress to a reader's entry.
        pass

    cdef seek(self, uint64_t position, uint64_t index):
        # Continue at a record that another reader has read up to.
        pass

    cdef bint follow(self) except -1:
        # Continue in the file that replaced the one that ended, if there is one; return whether it
        # did.
        return False

    cdef bint ended(self) except -1:
        # Return whether the feed has ended; unread records may remain.
        return True

    cdef bint failed(self) except -1:
        # Return whether an error ended the feed; another one may continue the log.
        return False

    cdef bint gone(self) except -1:
        # Return whether the feed's process was killed.
        return False

    cdef bint stuck(self, int64_t now_ns, int64_t patience_ns) noexcept nogil:
        # Return whether the feed's process has not been up to date for `patience_ns`.
        return False

    cdef check(self):
        # Raise if no record will ever come. Called now and then while none comes.
        pass

    cdef fail(self, int64_t code):
        # Raise the error for a negative result of `poll`.
        raise RingClosedError("all of it has been read")

    cdef int64_t names_number(self) noexcept:
        # Number of the table of names that the records of the last poll use.
        return 0

    cdef names_file(self):
        return None

    cdef uint64_t names_mark(self) noexcept:
        # Mark of that table, as the ring states it; 0: not stated.
        return 0

    cdef use_arrays(self, headers, offsets, payloads):
        self.headers = <Record*><size_t>headers.ctypes.data
        self.offsets = <uint64_t*><size_t>offsets.ctypes.data
        self.payloads = <uint8_t*><size_t>payloads.ctypes.data

    cdef close(self):
        # Idempotent.
        pass


@cython.final
cdef class RingFeedCursor(FeedCursor):
    """Cursor over the ring of a feed.

    Parameters
    ----------
    cursor : RingCursor
        The ring's cursor, which is closed with this one.
    """

    def __init__(self, RingCursor cursor not None):
        self.kind = "ring"
        self.cursor = cursor
        self.take_file()

    cdef take_file(self):
        cdef RingCursor cursor = self.cursor
        self.use_arrays(cursor.headers, cursor.offsets, cursor.payloads)
        self.log = cursor.reader.header.log[0]
        self.born = <uint64_t>cursor.reader.header.born_ns

    @property
    def readers(self) -> Path:
        return self.cursor.region.path.parent

    cdef bint ready(self) noexcept nogil:
        return ring_ready(&self.cursor.reader)

    cdef bint jumped(self) noexcept nogil:
        return self.cursor.reader.jumped

    cdef int64_t poll(self, int64_t limit) noexcept nogil:
        cdef int64_t count
        self.cursor.reader.waiting = False  # return everything there is
        self.missed = 0
        count = ring_poll(&self.cursor.reader, self.headers, self.offsets, self.payloads,
                          self.cursor._room, min(limit, self.cursor._limit), &self.missed)
        return -EPIPE if count == 0 and ring_awaits(&self.cursor.reader) else count

    cdef uint64_t position(self) noexcept nogil:
        return self.cursor.reader.cursor

    cdef uint64_t index(self) noexcept nogil:
        return self.cursor.reader.index

    cdef uint64_t end(self) noexcept:
        return load_acquire(&self.cursor.reader.header.tail)

    cdef uint64_t end_index(self) noexcept:
        return load_relaxed(&self.cursor.reader.header.tail_index)

    cdef int64_t created_ns(self) noexcept nogil:
        return (<const RegionHeader*>self.cursor.region.pointer).created_ns

    cdef uint64_t epoch(self) noexcept nogil:
        # Acquire: `began` was stored before the epoch.
        return load_acquire(&self.cursor.reader.header.epoch)

    cdef uint64_t began(self) noexcept nogil:
        return load_relaxed(&self.cursor.reader.header.began)

    cdef uint64_t began_index(self) noexcept nogil:
        return load_relaxed(&self.cursor.reader.header.began_index)

    cdef void report(self, ReaderEntry* entry) noexcept nogil:
        reader_report(entry, &self.cursor.reader, clock_realtime_ns())

    cdef seek(self, uint64_t position, uint64_t index):
        self.cursor.seek(position, index)

    cdef bint follow(self) except -1:
        if not self.cursor.follow():
            return False
        self.take_file()
        return True

    cdef bint ended(self) except -1:
        return self.cursor.closed_by_writer or self.failed()

    cdef bint failed(self) except -1:
        return self.cursor.life in ("failed", "left")

    cdef bint gone(self) except -1:
        return self.cursor.life == "gone"

    cdef bint stuck(self, int64_t now_ns, int64_t patience_ns) noexcept nogil:
        return ring_stuck(self.cursor.reader.header, now_ns, patience_ns)

    cdef check(self):
        if self.cursor.region.replaced() and not (
                self.follow() or self.ready() or self.cursor.closed_by_writer):
            raise RingClosedError(f"{self.cursor.region.path}: another file has taken its place")

    cdef fail(self, int64_t code):
        self.cursor._raise(code)

    cdef names_file(self):
        return self.readers / "names"

    cdef uint64_t names_mark(self) noexcept:
        return self.cursor.reader.header.names

    cdef close(self):
        self.cursor.close()


@cython.final
cdef class StoreFeedCursor(FeedCursor):
    """Cursor over the store of a feed.

    Parameters
    ----------
    directory : pathlib.Path
    start : {"writer", "tail"}
    limit : int
        Most records per poll.
    room_bytes : int, optional
        Room for the payloads of one poll.

    Raises
    ------
    NotReadyError
        No feed has begun to write the store yet.
    ImageError
        Apps write the store, so it has no feed.
    FormatError
        `start` is "writer", and the feed's first record was removed or is too far back.
    """

    def __init__(
            self, directory: Path, start: Literal['writer', 'tail'], limit: int,
            room_bytes: int | None = None):
        cdef const uint8_t[::1] memory
        cdef JournalCursor cursor
        self.kind = "store"
        try:
            self.live = Live(directory)
        except FileNotFoundError:
            raise NotReadyError(f"{directory}: no feed has written here yet") from None
        memory = self.live.memory
        self.said = <const BusLive*>&memory[0]
        self.cuts = load_acquire(&self.said.cuts)
        # Acquire: the other fields about this feed were stored before.
        if load_acquire(&self.said.feed_end) == 0:
            if self.said.shared[0] and not self.said.by_feed:  # the store's daemon says so
                raise ImageError(
                    f"{directory}: expected a store that a feed writes; apps write this one, and "
                    "their messages have no image")
            raise NotReadyError(f"{directory}: no feed has written here yet")
        place = ("position", self.said.feed_began) if start == "writer" else "tail"
        cursor = JournalCursorFace.attach(
            directory, place, limit=limit, room_bytes=room_bytes, layouts=LAYOUTS)
        self.stand(cursor)
        if start == "writer" and (
                cursor.index > self.said.feed_index
                or self.end() > self.said.feed_began + BACK_BYTES):
            self.close()
            raise FormatError(f"{directory}: the beginning of its feed is too far back")
        self.log = int.from_bytes(cursor.identity[:8], "little")
        # State saved before another feed began is void: see RESTART.
        self.born = self.log ^ self.said.feed_epoch

    cdef stand(self, JournalCursor cursor):
        if self.cursor is not None:
            self.cursor.close()
        self.cursor = cursor
        self.use_arrays(cursor.headers, cursor.offsets, cursor.payloads)

    @property
    def readers(self) -> Path:
        return shared_directory(self.cursor.directory)

    cdef uint64_t bound(self) noexcept nogil:
        # Position up to which records may be read. Acquire: what copies had was stored before.
        if load_acquire(&self.said.gate) == 0:
            return UINT64_MAX
        return load_acquire(&self.said.released)

    cdef bint ready(self) noexcept nogil:
        return self.cursor.ready() and self.cursor.position < self.bound()

    cdef int64_t poll(self, int64_t limit) noexcept nogil:
        cdef int64_t now_ns
        self.missed = 0
        if not self.ready():
            now_ns = clock_monotonic_ns()
            if now_ns - self.looked_ns < LOOK_NS:
                return 0
            self.looked_ns = now_ns
        with gil:
            try:
                return self.look(limit)
            except BaseException as failure:
                self.failure = failure
                return -EBADMSG

    cdef int64_t look(self, int64_t limit) except -1:
        cdef JournalCursor cursor = self.cursor
        # Loaded before the records are read: once the feed has ended, all of them are there.
        cdef uint64_t end = load_acquire(&self.said.feed_end)
        cdef int64_t count
        if load_acquire(&self.said.cuts) != self.cuts:
            raise RegionError(
                f"{cursor.directory}: expected the records read so far, found them set aside: "
                "another host writes the store")
        cursor._end_position = self.bound()
        cursor._follow = True
        cursor.ended = False
        count = cursor.poll_all(min(limit, cursor._limit))
        if self.payloads != cursor._payloads:
            self.use_arrays(cursor.headers, cursor.offsets, cursor.payloads)
        self.missed = cursor.missed
        return -EPIPE if count == 0 and cursor.position >= end else count

    cdef uint64_t position(self) noexcept nogil:
        return self.cursor.position

    cdef uint64_t index(self) noexcept nogil:
        return self.cursor.index

    cdef uint64_t end(self) noexcept:
        cdef WrittenMark mark
        cdef uint64_t end = self.cursor.position
        if self.cursor._written(&mark):
            end = max(end, mark.position)
        return min(end, self.bound())

    cdef uint64_t end_index(self) noexcept:
        cdef WrittenMark mark
        if self.cursor._written(&mark):
            return max(self.cursor.index, mark.index)
        return self.cursor.index

    cdef uint64_t epoch(self) noexcept nogil:
        return self.said.feed_epoch

    cdef uint64_t began(self) noexcept nogil:
        return self.said.feed_began

    cdef uint64_t began_index(self) noexcept nogil:
        return self.said.feed_index

    cdef void report(self, ReaderEntry* entry) noexcept nogil:
        store_relaxed(&entry.position, self.cursor.position)
        store_relaxed(&entry.index, self.cursor.index)
        store_relaxed(&entry.lapped, self.cursor.missed_total)
        store_relaxed(<uint64_t*>&entry.polled_ns, clock_realtime_ns())

    cdef seek(self, uint64_t position, uint64_t index):
        cdef JournalCursor before = self.cursor
        self.stand(JournalCursorFace.attach(
            before.directory, ("position", position), limit=before._limit,
            room_bytes=before._room_bytes, layouts=LAYOUTS))
        if self.cursor.index > index:  # removed meanwhile
            self.cursor.missed = self.cursor.index - index
            self.cursor.missed_total += self.cursor.missed

    cdef bint ended(self) except -1:
        return load_acquire(&self.said.feed_end) != UINT64_MAX

    cdef bint failed(self) except -1:
        return self.said.feed_failed

    cdef bint stuck(self, int64_t now_ns, int64_t patience_ns) noexcept nogil:
        # Only its daemon reports progress, and a killed process is silent too.
        cdef int64_t alive_ns = <int64_t>load_acquire(<const uint64_t*>&self.said.alive_ns)
        return now_ns - alive_ns >= max(patience_ns, <int64_t>ALIVE_NS)

    cdef fail(self, int64_t code):
        if code == -EBADMSG and self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        raise RingClosedError(f"{self.cursor.directory}: its feed ended after "
                              f"{self.cursor.index} records")

    cdef int64_t names_number(self) noexcept:
        return 0 if self.cursor.segment is None else self.cursor.segment.header.names

    cdef names_file(self):
        return names_path(self.cursor.directory, self.names_number())

    cdef close(self):
        self.cursor.close()


def open_feed_cursor(
        instance: Path, start: Literal['writer', 'tail'], limit: int,
        room_bytes: int | None = None) -> FeedCursor:
    """Open a cursor over the records that a feed writes.

    Parameters
    ----------
    instance : pathlib.Path
        The feed's instance directory.
    start : {"writer", "tail"}
        "writer": with the first record of the present writer; "tail": with the next one written.
    limit : int
        Most records per poll.
    room_bytes : int, optional
        Room for the payloads of one poll.

    Raises
    ------
    FileNotFoundError, NotReadyError
        Nothing has been written yet.
    FormatError
        The writer's first record was overwritten or removed, or is too far back.
    """
    store = noted_store(instance)
    if store is not None:
        return StoreFeedCursor(store, start, limit, room_bytes)
    return RingFeedCursor(
        RingCursorFace.attach(instance, start, limit, room_bytes, payload_hash=PAYLOAD_HASH))
