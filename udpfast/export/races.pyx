"""Races between lines, out of a raw capture: which brought each datagram first, and by how much."""

cimport cython
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from udpfast.core.counter cimport VERDICT_DELIVERED
from udpfast.core.layout cimport (
    CHANNEL_COUNT, Capture, DATAGRAM_SENDER_REFUSED, Frame, KIND_DATAGRAM, LINES_MAX, RECORD_SIZE,
    Record)
from udpfast.export.block cimport Block
from udpfast.feed.frame cimport REVISION_CURRENT, FrameReader, frame_read, frame_reader_init

import numpy as np

__all__ = ["RACE", "Races"]

cdef enum:
    NOBODY = 0xFF
    TABLE_MIN = 1 << 12

cdef packed struct Race:         # 112 bytes
    uint64_t key
    uint64_t position            # of the first copy, in the capture
    int64_t received_ns          # of the first copy
    int64_t published_ns
    int64_t delays_ns[LINES_MAX]  # behind the first copy; INT64_MIN: that line did not bring it
    uint32_t seqno
    uint32_t arrived             # of a message: fragments that came
    uint8_t channel
    uint8_t fragment
    uint8_t fragment_max
    uint8_t completed
    uint8_t winner
    uint8_t second               # NOBODY: there is none
    uint8_t lines                # a bit each
    uint8_t wanted               # its first copy is where races are wanted of

#: A race as `Races.take` returns it.
RACE = np.dtype([
    ("key", "<u8"), ("position", "<u8"), ("received_ns", "<i8"), ("published_ns", "<i8"),
    ("delays_ns", "<i8", (LINES_MAX,)), ("seqno", "<u4"), ("arrived", "<u4"), ("channel", "u1"),
    ("fragment", "u1"), ("fragment_max", "u1"), ("completed", "u1"), ("winner", "u1"),
    ("second", "u1"), ("lines", "u1"), ("wanted", "u1"),
])
if sizeof(Race) != RACE.itemsize:
    raise ImportError(f"Race has {sizeof(Race)} bytes, its dtype {RACE.itemsize}")


@cython.final
cdef class Races:
    """The races whose first copy lies between two positions of a raw capture.

    What was captured some time before and behind must be added too: a copy that comes first there
    makes the one between a late one, and late ones behind belong to a first one between.

    Parameters
    ----------
    position, end_position : int
        Of the first record that may be a first copy; behind the last one.
    big_endian : bool
        Of the captured frames (`wire.byteorder`).

    Attributes
    ----------
    lines : list of int
        By channel: lines that were heard, a bit each.
    """

    cdef uint64_t _position
    cdef uint64_t _end_position
    cdef Race* _races
    cdef uint64_t _count
    cdef uint64_t _room
    cdef uint32_t* _table            # of entries in _races, plus 1; 0: free
    cdef uint64_t _slots             # a power of two, at least twice the entries
    cdef uint8_t _lines[CHANNEL_COUNT]
    cdef FrameReader _reader

    def __cinit__(self, uint64_t position, uint64_t end_position, bint big_endian=False):
        self._position = position
        self._end_position = end_position
        self._slots = TABLE_MIN
        self._table = <uint32_t*> calloc(self._slots, sizeof(uint32_t))
        if self._table == NULL:
            raise MemoryError(f"{self._slots} slots")
        # Whatever its encoding: the capture does not say which ones the feed allowed.
        frame_reader_init(&self._reader, REVISION_CURRENT, big_endian, <uint64_t> -1)

    def __dealloc__(self):
        free(self._races)
        free(self._table)

    @property
    def lines(self):
        return [self._lines[channel] for channel in range(CHANNEL_COUNT)]

    def add(self, Block block not None) -> None:
        """Take the datagrams of a block, the next one of the capture."""
        cdef int64_t i
        for i in range(block.count):
            # At most two entries each, and never more than half of the slots.
            if 2 * (self._count + 2) > self._slots:
                self._grow()
            if block.records[i].kind == KIND_DATAGRAM:
                self._take(block.records + i, block.payloads + block.offsets[i])

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
        for i in range(self._count):
            self._slot(self._races[i].key)[0] = <uint32_t> (i + 1)
        return 0

    cdef uint32_t* _slot(self, uint64_t key) noexcept nogil:
        # Of the entry that has this key, or a free one. Ends: at most half of them are used.
        cdef uint64_t mask = self._slots - 1
        cdef uint64_t at = ((key * <uint64_t> 0x9E3779B97F4A7C15) >> 20) & mask
        while self._table[at] and self._races[self._table[at] - 1].key != key:
            at = (at + 1) & mask
        return self._table + at

    cdef Race* _enter(self, uint64_t key, uint32_t* slot) except NULL:
        cdef Race* race
        cdef int line
        cdef void* moved
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
        race.second = NOBODY
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
        if size < 0 or record.channel >= CHANNEL_COUNT or record.line >= LINES_MAX:
            return 0
        memcpy(&capture, payload, sizeof(Capture))
        if capture.flags & DATAGRAM_SENDER_REFUSED:
            return 0
        if frame_read(&self._reader, payload + sizeof(Capture), <uint32_t> size, capture.flags,
                      &frame) != VERDICT_DELIVERED:
            return 0
        key = ((<uint64_t> frame.session_id << 48) | (<uint64_t> frame.seqno << 16)
               | (<uint64_t> frame.fragment << 8) | (record.channel << 1))
        self._lines[record.channel] |= <uint8_t> (1 << record.line)
        slot = self._slot(key)
        if slot[0]:
            _copy(self._races + slot[0] - 1, record)
            return 0
        if record.position >= self._end_position:
            return 0  # the business of who comes behind
        race = self._enter(key, slot)
        race.position = record.position
        race.received_ns = record.received_ns
        race.published_ns = record.published_ns
        race.seqno = frame.seqno
        race.channel = record.channel
        race.fragment = frame.fragment
        race.fragment_max = frame.fragment_max
        race.winner = record.line
        race.lines = <uint8_t> (1 << record.line)
        race.delays_ns[record.line] = 0
        race.wanted = record.position >= self._position
        race.completed = frame.fragment_max == 0
        if frame.fragment_max:
            self._complete(self._count - 1, frame.fragment_max)
        return 0

    cdef int _complete(self, uint64_t entry, uint8_t fragment_max) except -1:
        # Whether this was the last fragment of its message that was missing.
        cdef uint64_t key = (self._races[entry].key & ~(<uint64_t> 0xFF00)) | 1
        cdef uint32_t* slot = self._slot(key)
        cdef Race* message = self._races + slot[0] - 1 if slot[0] else self._enter(key, slot)
        message.arrived += 1
        # By its number: the array may have moved.
        self._races[entry].completed = message.arrived == <uint32_t> fragment_max + 1
        return 0

    def take(self):
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


cdef inline void _copy(Race* race, const Record* record) noexcept nogil:
    # A further copy; what a line repeats proves nothing.
    cdef uint8_t bit = <uint8_t> (1 << record.line)
    if race.lines & bit:
        return
    if race.second == NOBODY:
        race.second = record.line
    race.lines |= bit
    race.delays_ns[record.line] = record.received_ns - race.received_ns
