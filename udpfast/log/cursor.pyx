"""The reading end of a ring, as Python sees it. The protocol is in `ring.pxd`."""

import numpy as np

from libc.errno cimport EBADMSG, EOVERFLOW, EPIPE
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t, uint8_t

from udpfast.core.atomics cimport fence_acquire, load_acquire, load_relaxed
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_PAD, RECORD_SIZE, Record
from udpfast.core.layout import RECORD
from udpfast.errors import FormatError, RegionError, RingClosedError
from udpfast.log.ring cimport (
    RING_ATTEMPTS,
    RING_CAPACITY_MIN,
    RING_CLOSED,
    RING_DATA,
    RING_FAILED,
    RING_LEFT,
    RING_OPEN,
    RING_STUCK_NS,
    RingHeader,
    RingReader,
    ring_aligned,
    ring_jump,
    ring_pad_fits,
    ring_poll,
    ring_reader_init,
    ring_ready,
    ring_stuck,
    ring_walk,
)
from udpfast.log.ring import RING_KIND, RING_LAYOUT, ring_path

__all__ = ["RingCursor"]

_STARTS = ("tail", "latest", "begin", "writer", "oldest")

cdef enum:
    # If the newest flushed record is overwritten during this many attempts in a row, the cause is
    # not a fast writer but a broken one.
    SEEK_ATTEMPTS = 1000
    CHAIN = 64
    # Who continues at the oldest record leaves this part of the ring to the writer, or it would be
    # lapped again at once.
    AHEAD_PART = 8


cdef class RingCursor:
    """The reading end of a ring. A ring has any number of them; the writer knows none.

    Attributes
    ----------
    region : Region
    headers : NDArray[Any]
        Array of dtype `RECORD`. After a `poll` that returned n, the first n are valid until the
        next `poll`.
    offsets : NDArray[np.uint64]
        Offset of each payload in `payloads`; a payload has `length - 64` bytes.
    payloads : NDArray[np.uint8]
        The payloads, each at a multiple of 8.
    lapped : int
        Number of records missed immediately before the first record of the last `poll`.
    """

    @staticmethod
    def attach(
            path: str | os.PathLike[str],
            start: Literal['tail', 'latest', 'begin', 'writer', 'oldest'] = "tail",
            limit: int = 1024, room_bytes: int | None = None, payload_hash: int = 0,
            populate: bool = True) -> RingCursor:
        """Attach to a ring, read-only.

        Parameters
        ----------
        path : str or path
            The ring's file, or an instance's directory (then its file `ring`).
        start : {"tail", "latest", "begin", "writer", "oldest"}
            Where to begin: "tail": with the next record to be written; "latest": with the newest
            flushed one; "begin": with the file's first one, which must not be overwritten yet;
            "writer": with the current writer's first one, likewise; "oldest": with the oldest one
            that is still there.
        limit : int
            Most records per `poll`.
        room_bytes : int, optional
            Room for the payloads of one `poll` in bytes; by default 256 per record. It is at least
            the ring's largest payload.
        payload_hash : int
            The same value as given to `Ring.create`.
        populate : bool
            Touch all of the ring's memory now, which takes 3 ms for 64 MiB. False: touch each page
            when it is read, which suits readers that only need the end of the ring.

        Raises
        ------
        RegionError
            The file is no ring, or not of this layout.
        FormatError
            `start` is "begin" or "writer", and that record has been overwritten.
        """
        if start not in _STARTS:
            raise ValueError(f"start must be one of {', '.join(_STARTS)}, was {start!r}")
        if limit < 1:
            raise ValueError(f"limit must be >= 1, was {limit}")
        layout = RING_LAYOUT ^ payload_hash
        cdef Region region = Region.attach(ring_path(path), RING_KIND, layout, populate=populate)
        cdef RingCursor cursor = RingCursor.__new__(RingCursor)
        cursor.region = region
        cursor._layout = layout
        _check_capacity(region)
        ring_reader_init(&cursor.reader, region.pointer, region.size_bytes)
        cursor._allocate(limit, room_bytes)
        _seek(cursor, start)
        return cursor

    def poll(self, limit: int | None = None) -> int:
        """Copy the new records into `headers`, `offsets` and `payloads`. Never waits.

        Returns
        -------
        int
            Number of records copied, which are consecutive. 0: nothing new.

        Raises
        ------
        RingClosedError
            The writer closed the ring, and every record has been read.
        FormatError
            There is no valid record where one must be: the writer's memory is damaged.
        """
        cdef int64_t count
        cdef int64_t wanted = self._limit if limit is None else min(<int64_t>limit, self._limit)
        cdef uint64_t lapped = 0
        self._check_open()
        self.reader.waiting = False  # return everything there is
        if ring_ready(&self.reader):
            with nogil:
                count = ring_poll(&self.reader, self._headers, self._offsets, self._payloads,
                                  self._room, wanted, &lapped)
        else:  # most calls of a spinning reader: too short to release the GIL
            count = ring_poll(&self.reader, self._headers, self._offsets, self._payloads,
                              self._room, wanted, &lapped)
        self.lapped = lapped
        if count < 0:
            self._raise(count)
        return count

    def seek(self, position: int, index: int) -> None:
        """Continue with the record at a position that another reader has read up to.

        If it was overwritten or is not a record, the next `poll` finds that out.

        Parameters
        ----------
        position, index : int
            Position and index of that record.
        """
        if position & 7:
            raise ValueError(f"position must be a multiple of 8, was {position}")
        self._check_open()
        ring_reader_init(&self.reader, self.region.pointer, self.region.size_bytes)
        self.reader.cursor = position
        self.reader.index = index

    def holds(self, position: int) -> bool:
        """Return whether the ring still has the record at a position and all those behind it."""
        self._check_open()
        return load_acquire(&self.reader.header.intent) <= <uint64_t>position + self.reader.capacity

    cdef _use(self, headers, offsets, payloads):
        self.headers, self.offsets, self.payloads = headers, offsets, payloads
        self._limit = len(headers)
        self._room = len(payloads)
        self._headers = <Record*><size_t>headers.ctypes.data
        self._offsets = <uint64_t*><size_t>offsets.ctypes.data
        self._payloads = <uint8_t*><size_t>payloads.ctypes.data

    def payload(self, i: int) -> memoryview:
        """Return payload i of the last `poll`, read-only, valid until the next `poll`."""
        cdef size_t begin = self._offsets[<int64_t>i]
        return memoryview(self.payloads)[begin:begin + self.headers[i]["length"] - RECORD_SIZE]

    @property
    def capacity_bytes(self) -> int:
        """Bytes of records that the ring holds."""
        return self.reader.capacity

    @property
    def position(self) -> int:
        """Position of the next record to read."""
        return self.reader.cursor

    @property
    def index(self) -> int:
        """Index of the next record to read, unless it gets lapped."""
        return self.reader.index

    @property
    def lapped_total(self) -> int:
        """Number of records missed since `attach`."""
        return self.reader.lapped

    @property
    def tail_index(self) -> int:
        """Number of records ever written to the log, as of the writer's last flush."""
        self._check_open()
        return load_relaxed(&self.reader.header.tail_index)

    @property
    def tail_position(self) -> int:
        """Position behind the last record, as of the writer's last flush."""
        self._check_open()
        return load_relaxed(&self.reader.header.tail)

    @property
    def epoch(self) -> int:
        """Number of the ring's writer, from 1."""
        self._check_open()
        return load_relaxed(&self.reader.header.epoch)

    @property
    def closed_by_writer(self) -> bool:
        """Whether the writer closed the ring in good order; unread records may remain."""
        self._check_open()
        return load_acquire(&self.reader.header.state) == RING_CLOSED

    @property
    def life(self) -> str:
        """State of the writer in one word; unread records may remain.

        "running"; "stuck": its process lives, but its loop stands still or is still catching up;
        "finished": it closed the ring, and nothing more will come; "failed": an error ended it;
        "left": it was stopped to be started again; "gone": it was killed. After these three another
        writer may continue the log.
        """
        cdef bint alive
        cdef uint64_t state
        self._check_open()
        alive = self.region.writer_alive()  # first: who ends in between is not dead
        state = load_acquire(&self.reader.header.state)
        if state == RING_CLOSED:
            return "finished"
        if state == RING_FAILED:
            return "failed"
        if state == RING_LEFT:
            return "left"
        if state != RING_OPEN or not alive:
            return "gone"
        stuck = ring_stuck(self.reader.header, clock_monotonic_ns(), RING_STUCK_NS)
        return "stuck" if stuck else "running"

    @property
    def current_ns(self) -> int:
        """When the writer last reported that it had read everything, monotonic ns; 0: never."""
        self._check_open()
        return load_relaxed(<const uint64_t*>&self.reader.header.current_ns)

    @property
    def log(self) -> bytes:
        """Identity of the log: 16 random bytes. Together with an index it identifies a record."""
        self._check_open()
        return bytes((<const uint8_t*>self.reader.header.log)[:16])

    def follow(self, closed: bool = False, unread: bool = False) -> bool | None:
        """Continue in the file that replaced this one, if its writer said no end.

        Call it when a poll found nothing or raised `RingClosedError`. The next poll reports how
        many records were missed, exactly if the new file continues the same log.

        Parameters
        ----------
        closed : bool
            Also behind a writer that closed its file.
        unread : bool
            Also if the file has an unread record: it is missed.

        Returns
        -------
        bool or None
            True: the cursor is now in a file of the same log. False: it is in another log, and the
            number of records missed in between is unknown. None: nothing replaced the file, its
            writer closed it, or it has an unread record; the cursor stays.
        """
        self._check_open()
        if self.closed_by_writer and not closed or not self.region.replaced():
            return None
        # Its writer is dead: a record that is not there by now never comes.
        if ring_ready(&self.reader) and not unread:
            return None
        cdef RingReader* r = &self.reader
        cdef uint64_t index = r.index
        log = self.log
        try:
            self.renew()
        except FileNotFoundError:
            return None  # the instance was removed
        if self.log != log:
            return False
        if index <= r.index:
            r.index = index
            r.jumped = True
        return True

    def successor(self) -> RingCursor | None:
        """Return a cursor at the oldest record of the file that replaced this one.

        Returns
        -------
        RingCursor or None
            None: nothing replaced it, or the new file is unreadable.
        """
        self._check_open()
        if not self.region.replaced():
            return None
        try:
            return RingCursor.attach(
                self.region.path, "oldest", 1, 0, self._layout ^ RING_LAYOUT, False)
        except (FileNotFoundError, RegionError):
            return None

    def extent(self) -> tuple[int, int, int]:
        """Return the range of records that the ring has. The cursor stays where it is.

        Returns
        -------
        tuple of int
            Index of the oldest record, index behind the newest one, and when the oldest was
            published in UNIX ns (the largest int64 if the ring has no record).
        """
        cdef RingReader before = self.reader
        cdef const RingReader* r = &self.reader
        cdef int64_t first_ns = INT64_MAX
        cdef uint64_t first = 0
        self._check_open()
        try:
            for _ in range(SEEK_ATTEMPTS):
                _seek(self, "oldest")
                first = r.index
                first_ns = _published_ns(r)
                fence_acquire()
                if load_relaxed(&r.header.intent) <= r.cursor + r.capacity:
                    break
            _seek(self, "tail")
            return first, max(first, r.index), first_ns
        finally:
            self.reader = before

    def renew(self) -> None:
        """Continue at the beginning of the file that is at the ring's path now.

        Raises
        ------
        FileNotFoundError
            There is no file.
        """
        cdef Region before = self.region
        cdef RingReader* r = &self.reader
        cdef uint64_t lapped = r.lapped
        cdef Region region = Region.attach(before.path, RING_KIND, self._layout)
        _check_capacity(region)
        self.region = region
        ring_reader_init(r, region.pointer, region.size_bytes)
        r.lapped = lapped
        before.close()
        if r.record_max - RECORD_SIZE > self._room:
            self._allocate(self._limit, r.record_max - RECORD_SIZE)

    def seek_index(self, index: int = 0) -> None:
        """Continue with the record of a given index.

        Parameters
        ----------
        index : int
            Index of that record. If it was overwritten, continue with the oldest one that was not;
            if it is not written yet, with the next one to be written.
        """
        cdef uint64_t lapped = self.reader.lapped
        self._check_open()
        ring_reader_init(&self.reader, self.region.pointer, self.region.size_bytes)
        _seek(self, "oldest")
        if not _walk_to(&self.reader, index):  # overwritten meanwhile
            _seek(self, "oldest")
        self.reader.lapped = lapped

    def close(self) -> None:
        """Detach from the ring. Idempotent; the arrays stay valid."""
        self.region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    cdef bint skip_lap(self) noexcept nogil:
        # If the record at the cursor was overwritten, continue at the oldest ones that will be
        # there for a while. False: none was found.
        cdef RingReader* r = &self.reader
        # Acquire: the records below are read after it.
        if load_acquire(&r.header.intent) <= r.cursor + r.capacity:
            return True
        r.jumped = False
        return _seek_oldest(r, r.capacity // AHEAD_PART)

    cdef int64_t poll_oldest(self) noexcept nogil:
        # Poll as one who wants all there is: once lapped, it continues not at the newest record,
        # but where `skip_lap` says. What was missed is told by the records' indices.
        cdef RingReader* r = &self.reader
        cdef uint64_t lapped = 0, index
        cdef int64_t count
        cdef int _attempt
        r.waiting = False  # all that is there
        r.stays = True
        for _attempt in range(RING_ATTEMPTS):
            count = ring_poll(r, self._headers, self._offsets, self._payloads, self._room,
                              self._limit, &lapped)
            if count != -EOVERFLOW:
                return count
            index = r.index
            if self.skip_lap():
                r.lapped += r.index - index
            elif not ring_jump(r):
                return -EBADMSG
        return 0

    cdef _allocate(self, limit, room_bytes):
        largest = self.reader.record_max - RECORD_SIZE
        room = max(largest, 256 * limit if room_bytes is None else room_bytes)
        self._use(np.zeros(limit, RECORD), np.zeros(limit, np.uint64), np.zeros(room, np.uint8))

    cdef _check_open(self):
        if self.region.pointer == NULL:
            raise ValueError(f"cursor of {self.region.path} is closed")

    cdef _raise(self, int64_t code):
        if code == -EPIPE:
            said = "the writer closed it" if self.closed_by_writer else (
                "another file has taken its place")
            raise RingClosedError(f"{self.region.path}: {said} after {self.reader.index} records")
        # EMSGSIZE cannot happen: there is room for the largest payload.
        raise FormatError(
            f"{self.region.path}: expected record {self.reader.index} at position "
            f"{self.reader.cursor}, found no valid record")


cdef _check_capacity(Region region):
    capacity = region.size_bytes - RING_DATA
    if capacity < RING_CAPACITY_MIN or capacity & (capacity - 1):
        raise RegionError(
            f"{region.path}: expected a capacity that is a power of two and at least "
            f"{RING_CAPACITY_MIN}, found {capacity}")


cdef _seek(RingCursor cursor, start):
    cdef uint64_t last = 0
    cdef const RingHeader* header = cursor.reader.header
    if start in ("begin", "writer"):
        # Acquire: `began` belongs to the writer of this epoch, or of a later one, which serves as
        # well.
        if start == "writer" and load_acquire(&header.epoch):
            cursor.reader.index = load_relaxed(&header.began_index)
            cursor.reader.cursor = load_relaxed(&header.began) & ~<uint64_t>7
        if load_acquire(&header.intent) > cursor.reader.cursor + cursor.reader.capacity:
            raise FormatError(
                f"{cursor.region.path}: record {cursor.reader.index} at position "
                f"{cursor.reader.cursor}, the first, has been overwritten; {cursor.tail_index} "
                f"records were written, capacity {cursor.capacity_bytes} bytes")
        return
    if start == "oldest" and _seek_oldest(&cursor.reader, 0):
        return
    for _ in range(SEEK_ATTEMPTS):
        if ring_walk(&cursor.reader, start != "latest", &last):
            return
    raise FormatError(
        f"{cursor.region.path}: expected a valid record at position {last}, found none")


cdef bint _walk_to(RingReader* r, uint64_t index) noexcept:
    # Advance the cursor to the record of this index, or behind the last one. False: a record is
    # invalid, or was overwritten meanwhile.
    cdef uint64_t start = r.cursor, length, offset, word
    cdef const Record* record
    while r.index < index:
        offset = r.cursor & r.mask
        # Acquire: the record is read after its commit word.
        word = load_acquire(<const uint64_t*>(r.data + offset))
        length = <uint32_t>word
        if length == 0:
            break
        if <uint8_t>(word >> 32) == KIND_PAD:
            if not ring_pad_fits(r, offset, length):
                return False
            r.cursor += length
            continue
        record = <const Record*>(r.data + offset)
        if (length < RECORD_SIZE or ring_aligned(length) > r.record_max
                or offset + ring_aligned(length) > r.capacity
                or record.position != r.cursor or record.index != r.index):
            return False
        r.cursor += ring_aligned(length)
        r.index += 1
    # As in ring_run: what was read is valid only if the writer has not lapped it meanwhile.
    fence_acquire()
    return load_relaxed(&r.header.intent) <= start + r.capacity


cdef int64_t _published_ns(const RingReader* r) noexcept:
    # Return when the record at the cursor was published; INT64_MAX if there is none.
    cdef uint64_t offset = r.cursor & r.mask
    # Acquire: the record is read after its commit word.
    cdef uint64_t word = load_acquire(<const uint64_t*>(r.data + offset))
    if <uint8_t>(word >> 32) == KIND_PAD:  # fills the rest of the lap
        offset = 0
        word = load_acquire(<const uint64_t*>r.data)
    if <uint32_t>word == 0 or offset + RECORD_SIZE > r.capacity:
        return INT64_MAX
    return (<const Record*>(r.data + offset)).published_ns


cdef bint _seek_oldest(RingReader* r, uint64_t ahead) noexcept nogil:
    # Find the first record behind what may be overwritten and `ahead` bytes more: each record knows
    # its own position. A payload may look like one record, but not like a chain of CHAIN. False:
    # there is none, or the writer overtook the search.
    cdef uint64_t position = load_acquire(&r.header.intent)
    cdef uint64_t tail
    cdef int attempt
    for attempt in range(SEEK_ATTEMPTS):
        position = load_acquire(&r.header.intent)
        if position <= r.header.first + r.capacity:  # nothing of this file was overwritten yet
            r.cursor, r.index = r.header.first, r.header.first_index
            return True
        # A running writer moves intent a chunk at a time: begin behind the next chunk.
        position += ahead + attempt * r.chunk - r.capacity
        tail = min(load_acquire(&r.header.tail), position + r.capacity)
        while position < tail and not _chain_at(r, position, tail):
            position += 8
        if position >= tail:
            return False
        r.cursor = position
        r.index = (<const Record*>(r.data + (position & r.mask))).index
        fence_acquire()
        if load_relaxed(&r.header.intent) <= position + r.capacity:
            return True
    return False


cdef bint _chain_at(const RingReader* r, uint64_t position, uint64_t tail) noexcept nogil:
    # Return whether a record lies there, followed by valid ones: CHAIN of them, or all up to the
    # tail.
    cdef uint64_t word, length, offset, index = 0
    cdef const Record* record
    cdef int count = 0
    while count < CHAIN and position < tail:
        offset = position & r.mask
        word = load_relaxed(<const uint64_t*>(r.data + offset))
        length = <uint32_t>word
        if <uint8_t>(word >> 32) == KIND_PAD:
            if count == 0 or not ring_pad_fits(r, offset, length):
                return False
            position += length
            continue
        record = <const Record*>(r.data + offset)
        if (length < RECORD_SIZE or ring_aligned(length) > r.record_max
                or offset + ring_aligned(length) > r.capacity
                or record.position != position or (count > 0 and record.index != index)):
            return False
        index = record.index + 1
        position += ring_aligned(length)
        count += 1
    return position <= tail
