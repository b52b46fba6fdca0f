"""A store in memory, for the simulation of a bus: its disk can be full, and can lose its power."""

from libc.stdint cimport INT64_MAX, INT64_MIN, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from udpfast.bus.log cimport Log, Place, log_note, place_look, place_record
from udpfast.log.segment cimport SEGMENT_END_SIZE, SegmentHeader, checksum_of, segment_end

__all__ = ["MemoryLog"]


cdef class MemorySegment:
    cdef uint8_t* memory
    cdef readonly uint64_t number, position, index, capacity
    cdef readonly bytes header

    def __dealloc__(self):
        free(self.memory)


cdef class MemoryLog(Log):
    """The log of a store, with its records in memory.

    Parameters
    ----------
    capacity : int
        Bytes of the segments that this log begins itself.
    layout_hash : int
    identity : bytes, optional
        Identity of the store; None: the log has no store yet.
    fresh : bytes, optional
        Identity of the store that `create` makes.

    Attributes
    ----------
    aside : list[tuple[int, bytes]]
    on_death : Callable[[], None] or None
    segments : list[MemorySegment]
    """

    cdef readonly list segments
    cdef public uint64_t capacity    # bytes of segments that this log begins
    cdef public bint disk_full
    cdef public int kill_in          # number of changes to the disk until the process ends
    cdef readonly bint dead          # the process has ended so: nothing is written any more
    cdef public object on_death      # called at that moment
    cdef bint sealed                 # closed cleanly, and nothing was appended since
    cdef public list aside           # (position, bytes) of each record that was set aside
    cdef uint64_t _synced
    cdef bytes _state, _fresh
    cdef MemorySegment _spare    # next segment, with all its pages touched
    cdef uint64_t _first, _first_index

    def __init__(
            self, capacity: int, layout_hash: int, identity: bytes | None = None,
            fresh: bytes = b""):
        self._fresh = fresh
        self.capacity = capacity
        self.layout_hash = layout_hash
        self.identity = bytes(16) if identity is None else identity
        self.segments = []
        self.aside = []
        self._state = b""
        self.last_ns = INT64_MIN

    def first(self):
        """See `Log`."""
        if not self.segments:
            return self._first, self._first_index
        return self.segments[0].position, self.segments[0].index

    def synced(self):
        """See `Log`."""
        return self._synced

    def sync(self) -> None:
        """Sync everything to the disk."""
        self._synced = self.writer.position

    def create(self):
        """See `Log`."""
        if not self._dies() and self.identity == bytes(16):
            self.identity = self._fresh

    def adopt(self, bytes identity, uint64_t position, uint64_t index):
        """See `Log`."""
        if self._dies():
            return
        self.identity = identity
        self._first = self._synced = self.writer.position = position
        self._first_index = self.writer.index = index

    cdef bint _dies(self):
        # Whether the process of the daemon ends here, before its next change. Whatever it does in
        # the rest of this turn reaches neither the disk, nor another host, nor the memory that apps
        # share.
        if self.kill_in > 0:
            self.kill_in -= 1
            if self.kill_in == 0:
                self.dead = True
                self.writer.limit = 0
                if self.on_death is not None:
                    self.on_death()
        return self.dead

    def close(self) -> None:
        """Close the log cleanly: sync everything, and write the end of the last segment."""
        self._synced = self.writer.position
        if self.segments and self.writer.limit:
            segment_end(&self.writer)
            self.sealed = True
        self.writer.limit = 0

    def revive(self) -> None:
        """Let another process write after this one ended."""
        self.kill_in = 0
        if self.dead:
            self.dead = False
            self.writer.limit = 0
            if self.segments and not self.sealed:
                self._open(self._latest())

    def prepare(self, uint64_t capacity) -> None:
        """Prepare and touch the memory of the next segment, for use if it has this capacity."""
        cdef MemorySegment segment = MemorySegment()
        segment.memory = <uint8_t*>malloc(capacity)
        segment.capacity = capacity
        if segment.memory == NULL:
            raise MemoryError
        memset(segment.memory, 0, capacity)
        self._spare = segment

    def roll(self, header=None):
        """See `Log`."""
        cdef SegmentHeader made
        cdef MemorySegment segment
        if self.disk_full or self._dies():
            return False
        if header is not None:
            memcpy(&made, <const char*><bytes>header, sizeof(made))
            if made.checksum != checksum_of(&made, sizeof(made)):
                raise ValueError("the header of a segment is damaged")
            if made.number <= (self._latest().number if self.segments else 0):
                raise ValueError(
                    f"the header of segment {made.number} does not fit a copy of "
                    f"{len(self.segments)} segments")
        else:
            memset(&made, 0, sizeof(made))
            made.number = self._latest().number + 1 if self.segments else 1
            made.position = self.writer.position
            made.index = self.writer.index
            made.capacity = self.capacity
            made.layout_hash = self.layout_hash
            made.checksum = checksum_of(&made, sizeof(made))
        segment, self._spare = self._spare, None
        if segment is None or segment.capacity != made.capacity:
            segment = MemorySegment()
            segment.memory = <uint8_t*>calloc(made.capacity, 1)
        segment.number, segment.capacity = made.number, made.capacity
        segment.position, segment.index = made.position, made.index
        segment.header = (<char*>&made)[:sizeof(made)]
        if self.segments and not self.sealed:
            segment_end(&self.writer)
        self.sealed = False
        self.segments.append(segment)
        self._open(segment)
        return True

    cdef _open(self, MemorySegment segment):
        # Append to this segment from the position of the writer on.
        self.writer.base = <uint64_t><size_t>segment.memory - segment.position
        self.writer.limit = segment.position + segment.capacity - SEGMENT_END_SIZE
        self.writer.entry = self.writer.entries_end = NULL
        self.writer.entry_due = 0
        self.writer.first_ns, self.writer.last_ns = INT64_MAX, INT64_MIN

    cdef MemorySegment _latest(self):
        return self.segments[len(self.segments) - 1]

    cdef MemorySegment _segment(self, uint64_t position):
        cdef MemorySegment segment
        for segment in reversed(self.segments):
            if segment.position <= position:
                return segment
        raise AssertionError(f"nothing is kept at {position}")

    def segment_header(self, uint64_t position):
        """See `Log`."""
        return self._segment(position).header if self.segments else b""

    cdef object place_at(self, uint64_t position, Place* place):
        cdef MemorySegment segment
        place.position = place.limit = position
        place.base = place.index = 0
        if not self.segments:
            return None
        segment = self._segment(position)
        place.base = <uint64_t><size_t>segment.memory - segment.position
        place.limit = segment.position + segment.capacity
        return segment

    def cut(self, uint64_t position):
        """See `Log`."""
        cdef MemorySegment segment
        cdef uint64_t index = 0
        cdef Place place
        if self._dies():
            return 0
        self.aside += [
            (int.from_bytes(record[8:16], "little"), record)
            for record in self.records(position, self.writer.position)]
        removed = len(list(self.records(position, self.writer.position)))
        while self.segments and self._latest().position >= position:
            segment = self.segments.pop()
            self._first, self._first_index = segment.position, segment.index
            memset(segment.memory, 0, segment.capacity)
        self.last_ns = INT64_MIN
        self._synced = min(self._synced, position)
        self.writer.position, self.writer.index, self.writer.limit = (
            position, self._first_index, 0)
        if not self.segments:
            return removed
        segment = self._latest()
        self.sealed = False
        index = segment.index
        self.place_at(segment.position, &place)
        while place.position < position and place_look(&place) > 0:
            log_note(self, place_record(&place))
            place.position += place_look(&place)
            index += 1
        self.writer.index = index
        self._open(segment)
        memset(segment.memory + (position - segment.position), 0,
               segment.capacity - (position - segment.position))
        return removed

    def unroll(self):
        """See `Log`."""
        if not self.segments or self._latest().position != self.writer.position:
            if self.segments and not self.dead:
                self._go_on()
            return False
        if self._dies():
            return False
        self.segments.pop()
        if not self.segments:
            self._first, self._first_index = self.writer.position, self.writer.index
            self.writer.limit = 0
            return True
        self._go_on()
        return True

    cdef _go_on(self):
        # Append to the last segment again, in place of its end.
        self._open(self._latest())
        self.sealed = False
        memset(<uint8_t*><size_t>(self.writer.base + self.writer.position), 0, SEGMENT_END_SIZE)

    def remove_oldest(self) -> bool:
        """Remove the oldest segment, unless it is the last one."""
        if len(self.segments) < 2:
            return False
        self.segments.pop(0)
        return True

    def lose_power(self, uint64_t position) -> None:
        """Lose all records from the position of a record on, as if they were not synced."""
        aside = self.aside
        self.aside = []
        self.cut(position)
        self.aside = aside

    def load(self):
        """See `Log`."""
        return self._state

    def save(self, bytes state):
        """See `Log`."""
        if not self._dies():
            self._state = state
