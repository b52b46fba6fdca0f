"""Races between lines in a raw capture: which line delivered each datagram first, by how much."""

cimport cython
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from udpfast.core.counter cimport VERDICT_DELIVERED
from udpfast.core.layout cimport (
    CHANNEL_COUNT, Capture, DATAGRAM_NO_TIMESTAMP, DATAGRAM_SENDER_REFUSED, Frame, KIND_CLOCK,
    KIND_DATAGRAM, KIND_RESTART, KIND_SESSION, LINES_MAX, RECORD_SIZE, Record)
from udpfast.market.block cimport Block
from udpfast.wire.frame cimport REVISION_CURRENT, FrameReader, frame_read, frame_reader_init

import numpy as np

__all__ = ["RACE", "WAIT_NS", "Elapsed", "Races"]

cdef enum:
    NOBODY = 0xFF
    TABLE_MIN = 1 << 12
    RACE_WAIT_NS = 1_000_000_000

#: Longest time after the first copy of a datagram in which another copy belongs to the same race:
#: more than the skew of any line. A later datagram with the same numbers begins another race.
WAIT_NS: int = RACE_WAIT_NS

cdef packed struct Race:         # 144 bytes
    uint64_t key
    uint64_t position            # position of the first copy in the capture
    int64_t received_ns          # when the first copy arrived
    int64_t published_ns
    int64_t delays_ns[LINES_MAX]  # delay after the first copy; INT64_MIN: not on that line
    int64_t elapsed_ns           # TimePassed.ns at the first copy
    int64_t copied_ns            # TimePassed.ns at the latest copy
    uint64_t number
    uint32_t arrived             # in the entry of a message: fragments that arrived
    uint16_t stream
    uint16_t session             # ordinal of the feed's session at the first copy
    uint8_t fragment
    uint8_t fragment_max
    uint8_t completed
    uint8_t winner
    uint8_t second               # NOBODY: no other line delivered it
    uint8_t lines                # bit mask of the lines that delivered it
    uint8_t wanted               # its first copy lies between the wanted positions
    uint8_t stamped              # all copies have stamps of the kernel or the card
    uint8_t unsure               # earlier records may have a copy before its first one here
    uint8_t reserved[7]

#: A race as `Races.take` returns it.
RACE: np.dtype[np.void] = np.dtype([
    ("key", "<u8"), ("position", "<u8"), ("received_ns", "<i8"), ("published_ns", "<i8"),
    ("delays_ns", "<i8", (LINES_MAX,)), ("elapsed_ns", "<i8"), ("copied_ns", "<i8"),
    ("number", "<u8"), ("arrived", "<u4"), ("stream", "<u2"), ("session", "<u2"),
    ("fragment", "u1"), ("fragment_max", "u1"), ("completed", "u1"), ("winner", "u1"),
    ("second", "u1"), ("lines", "u1"), ("wanted", "u1"), ("stamped", "u1"), ("unsure", "u1"),
    ("reserved", "u1", (7,)),
])
if sizeof(Race) != RACE.itemsize:
    raise ImportError(f"Race has {sizeof(Race)} bytes, its dtype {RACE.itemsize}")


cdef struct TimePassed:
    int64_t ns                   # time passed by the loop's monotonic clock, which is never set
    int64_t now_ns               # the last reading of that clock
    bint begun


cdef inline void time_pass(
        TimePassed* passed, const Record* record, const uint8_t* payload) noexcept nogil:
    # Advance to the next record of a capture.
    cdef int64_t now_ns
    if record.kind == KIND_RESTART or record.kind == KIND_SESSION:
        passed.ns += RACE_WAIT_NS + 1  # no datagram behind it is a copy of one before it
        return
    if record.kind != KIND_DATAGRAM and record.kind != KIND_CLOCK:
        return
    if record.length < RECORD_SIZE + <int32_t> sizeof(now_ns):
        return
    memcpy(&now_ns, payload, sizeof(now_ns))
    if passed.begun and now_ns > passed.now_ns:
        passed.ns += now_ns - passed.now_ns
    passed.now_ns = now_ns
    passed.begun = True


@cython.final
cdef class Elapsed:
    """The time that passed in a part of a raw capture, independent of the wall clock.

    Attributes
    ----------
    ns : int
        Time from the first record to the last one; more than `WAIT_NS` if the feed began anew.
    """

    cdef TimePassed _passed

    @property
    def ns(self) -> int:
        return self._passed.ns

    def add(self, Block block not None) -> None:
        """Add the next block of the capture."""
        cdef int64_t i
        for i in range(block.count):
            time_pass(&self._passed, block.records + i, block.payloads + block.offsets[i])


@cython.final
cdef class Races:
    """The races whose first copy lies between two positions of a raw capture.

    Records around them must be added, too: `WAIT_NS` behind, for late copies; and at least as much
    before, because a copy in between may have its first copy there. If a line repeats a datagram
    for longer than that, even earlier records are needed to decide which copy is the first:
    `unsure`. Time is by the loop's monotonic clock, which was captured, too.

    Parameters
    ----------
    position, end_position : int
        Position of the first record that may be a first copy, and behind the last one.
    big_endian : bool
        Byte order of the captured frames (`wire.byteorder`).
    whole : bool
        True: the first record added is the first of the capture.

    Attributes
    ----------
    lines : list of int
        By stream: bit mask of the lines that were heard from the first position on.
    unsure : bool
        Which copies are first depends on records before those that were added.
    behind_ns : int
        Time that passed behind the last position in the records that were added.
    """

    cdef readonly int64_t behind_ns
    cdef readonly bint unsure
    cdef bint _whole
    cdef uint64_t _position
    cdef uint64_t _end_position
    cdef Race* _races
    cdef uint64_t _count
    cdef uint64_t _room
    cdef uint32_t* _table            # hash table: index in _races + 1; 0: free
    cdef uint64_t _slots             # a power of two, at least twice the entries
    cdef uint8_t _lines[CHANNEL_COUNT]
    cdef FrameReader _reader
    cdef TimePassed _passed
    cdef int64_t _end_ns             # TimePassed.ns at the end position; -1: not reached yet

    def __cinit__(self, uint64_t position, uint64_t end_position, bint big_endian=False,
                  bint whole=True):
        self._whole = whole
        self._position = position
        self._end_position = end_position
        self._end_ns = -1
        self._slots = TABLE_MIN
        self._table = <uint32_t*> calloc(self._slots, sizeof(uint32_t))
        if self._table == NULL:
            raise MemoryError(f"{self._slots} slots")
        # Accept all encodings: the capture does not state which ones the feed allowed.
        frame_reader_init(&self._reader, REVISION_CURRENT, big_endian, <uint64_t> -1)

    def __dealloc__(self):
        free(self._races)
        free(self._table)

    @property
    def lines(self) -> list[int]:
        return [self._lines[channel] for channel in range(CHANNEL_COUNT)]

    def add(self, Block block not None) -> None:
        """Add the datagrams of the next block of the capture."""
        cdef int64_t i
        cdef const Record* record
        for i in range(block.count):
            # A record adds at most two entries; at most half of the slots may be used.
            if 2 * (self._count + 2) > self._slots:
                self._grow()
            record = block.records + i
            if self._end_ns < 0 and record.position >= self._end_position:
                self._end_ns = self._passed.ns
            time_pass(&self._passed, record, block.payloads + block.offsets[i])
            if self._end_ns >= 0:
                self.behind_ns = self._passed.ns - self._end_ns
            if self.behind_ns > RACE_WAIT_NS:
                return  # later records are no copies of earlier ones
            if record.kind == KIND_DATAGRAM:
                self._take(record, block.payloads + block.offsets[i])

    cdef int _grow(self) except -1:
        cdef uint64_t slots = 2 * self._slots, i
        cdef uint32_t* table
        if slots >> 31:
            raise MemoryError("more than 2 ** 30 datagrams between two segments")
        table = <uint32_t*> calloc(slots, sizeof(uint32_t))
        if table == NULL:
            raise MemoryError(f"{slots} slots")
        free(self._table)
        self._table = table
        self._slots = slots
        for i in range(self._count):  # of two entries with one key, keep the later one
            self._slot(self._races[i].key)[0] = <uint32_t> (i + 1)
        return 0

    cdef uint32_t* _slot(self, uint64_t key) noexcept nogil:
        # Return the slot of this key, or a free one. Terminates: at most half of them are used.
        cdef uint64_t mask = self._slots - 1
        cdef uint64_t at = ((key * <uint64_t> 0x9E3779B97F4A7C15) >> 20) & mask
        while self._table[at] and self._races[self._table[at] - 1].key != key:
            at = (at + 1) & mask
        return self._table + at

    cdef bint _continues(self, const Race* race) noexcept nogil:
        # Whether a datagram with the same numbers now belongs to this race.
        return self._passed.ns - race.elapsed_ns <= RACE_WAIT_NS

    cdef bint _is_unsure(self, uint32_t entry) noexcept nogil:
        # Whether a race that begins now might have begun earlier, if more of the capture had been
        # added. `entry` is the index + 1 of the race with the same key before it; 0: none.
        cdef const Race* before
        if entry == 0:
            return not self._whole and self._passed.ns <= RACE_WAIT_NS
        before = self._races + (entry - 1)
        return before.unsure and self._passed.ns - before.copied_ns <= RACE_WAIT_NS

    cdef Race* _enter(self, uint64_t key, uint32_t* slot) except NULL:
        cdef Race* race
        cdef int line
        cdef void* moved
        cdef bint unsure = self._is_unsure(slot[0])
        if self._count == self._room:
            moved = realloc(self._races, (2 * self._room + TABLE_MIN) * sizeof(Race))
            if moved == NULL:
                raise MemoryError(f"{self._count} races")
            self._races = <Race*> moved
            self._room = 2 * self._room + TABLE_MIN
        race = self._races + self._count
        race.key = key
        race.arrived = 0
        race.lines = 0
        race.wanted = False
        race.stamped = True
        race.unsure = unsure
        memset(race.reserved, 0, sizeof(race.reserved))
        race.second = NOBODY
        race.elapsed_ns = self._passed.ns
        race.copied_ns = self._passed.ns
        for line in range(LINES_MAX):
            race.delays_ns[line] = INT64_MIN
        self._count += 1
        slot[0] = <uint32_t> self._count
        return race

    cdef int _take(self, const Record* record, const uint8_t* payload) except -1:
        cdef Frame frame
        cdef Capture capture
        cdef Race* race
        cdef uint32_t* slot
        cdef uint64_t key
        cdef int64_t size = record.length - RECORD_SIZE - <int64_t> sizeof(Capture)
        if size < 0 or record.stream >= CHANNEL_COUNT or record.line >= LINES_MAX:
            return 0
        memcpy(&capture, payload, sizeof(Capture))
        if capture.flags & DATAGRAM_SENDER_REFUSED:
            return 0
        if frame_read(&self._reader, payload + sizeof(Capture), <uint32_t> size, capture.flags,
                      &frame) != VERDICT_DELIVERED:
            return 0
        key = ((<uint64_t> frame.session_id << 48) | (<uint64_t> frame.seqno << 16)
               | (<uint64_t> frame.fragment << 8) | (record.stream << 1))
        if record.position >= self._position:
            self._lines[record.stream] |= <uint8_t> (1 << record.line)
        slot = self._slot(key)
        if slot[0]:
            race = self._races + slot[0] - 1
            if self._continues(race):
                self._copy(race, record, capture.flags)
                return 0
        if record.position >= self._end_position:
            return 0  # a race of a later part
        race = self._enter(key, slot)
        race.position = record.position
        race.received_ns = record.received_ns
        race.published_ns = record.published_ns
        race.number = frame.seqno
        race.stream = record.stream
        race.session = record.session
        race.fragment = frame.fragment
        race.fragment_max = frame.fragment_max
        race.winner = record.line
        race.lines = <uint8_t> (1 << record.line)
        race.delays_ns[record.line] = 0
        race.wanted = record.position >= self._position
        race.stamped = not capture.flags & DATAGRAM_NO_TIMESTAMP
        if race.unsure and race.wanted:
            self.unsure = True
        race.completed = frame.fragment_max == 0
        if frame.fragment_max:
            self._complete(self._count - 1, frame.fragment_max)
        return 0

    cdef void _copy(self, Race* race, const Record* record, uint32_t flags) noexcept nogil:
        # Note a further copy; one that its line repeats does not count.
        cdef uint8_t bit = <uint8_t> (1 << record.line)
        cdef int64_t delay_ns = record.received_ns - race.received_ns
        race.copied_ns = self._passed.ns
        if race.unsure and self._position <= record.position < self._end_position:
            self.unsure = True
        if not _is_near(delay_ns):  # the wall clock has been set in between
            delay_ns = self._passed.ns - race.elapsed_ns
        if race.lines & bit:
            return
        race.stamped = race.stamped and not flags & DATAGRAM_NO_TIMESTAMP
        if race.second == NOBODY:
            race.second = record.line
        race.lines |= bit
        race.delays_ns[record.line] = delay_ns

    cdef int _complete(self, uint64_t entry, uint8_t fragment_max) except -1:
        # Note in an entry for the message that this fragment arrived, and whether it was the last.
        cdef uint64_t key = (self._races[entry].key & ~(<uint64_t> 0xFF00)) | 1
        cdef uint32_t* slot = self._slot(key)
        cdef Race* message = self._races + slot[0] - 1
        if slot[0] == 0 or not self._continues(message):
            message = self._enter(key, slot)
        message.copied_ns = self._passed.ns
        message.arrived += 1
        # Use the index: _enter may have moved the array.
        self._races[entry].completed = message.arrived == <uint32_t> fragment_max + 1
        return 0

    def take(self) -> NDArray[Any]:
        """Return the races, an array of dtype `RACE`, in the order of the capture."""
        cdef uint64_t i, n = 0
        cdef uint8_t[::1] target
        for i in range(self._count):
            n += self._races[i].wanted
        found = np.empty(n, RACE)
        if n == 0:
            return found
        target = found.view(np.uint8)
        n = 0
        for i in range(self._count):
            if self._races[i].wanted:
                memcpy(&target[n * sizeof(Race)], self._races + i, sizeof(Race))
                n += 1
        return found


cdef inline bint _is_near(int64_t time_ns) noexcept nogil:
    return -RACE_WAIT_NS <= time_ns <= RACE_WAIT_NS
