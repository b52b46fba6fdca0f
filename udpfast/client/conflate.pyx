"""Conflation: of each object the newest record only, for a strategy that is slower than a feed."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from udpfast.client.batch cimport BatchMemory
from udpfast.client.filter cimport FILTER_KINDS
from udpfast.client.reader cimport READER_CLOSED, READER_FOREVER, Reader, reader_deadline
from udpfast.client.record cimport record_copy
from udpfast.core.keyed cimport Key, keyed_draw, keyed_word
from udpfast.core.layout cimport KIND_RESTART, KIND_SESSION, KIND_UPDATES, RECORD_SIZE
from udpfast.market.update_header cimport UpdateHeader

from udpfast.client.books import Books
from udpfast.client.kinds import kinds_of
from udpfast.core.layout import Kind
from udpfast.errors import (
    ConfigError, RingClosedError, UdpfastError, shown, unexpected_keyword)

__all__ = ["Latest"]

cdef enum:
    SLOTS_MIN = 256

#: Kinds whose updates say what happened or what changed: an older one is not in a newer one.
_CHANGES = (Kind.ORDERS, Kind.TRADES, Kind.STATISTICS, Kind.CUSTOM_METRICS)


@cython.final
cdef class Latest:
    """Latest(reader, *, keep=("ORDERS", "TRADES", "STATISTICS", "CUSTOM_METRICS"))\n--\n
    Read everything that is there, hand out of each object the newest record of each kind.

    A BOOK is a change to a book: all of them are applied to `books`, and the newest stands for a
    book that changed. Doubts (GAP, STALE, LAPPED, ...) and the kinds in `keep` are all handed
    out, in their place in the order, and so are updates that name no exchange or no symbol. Two
    objects of one symbol are two objects.

    Parameters
    ----------
    reader : Reader
        Its filters say what is handed out; for `books` let it pass BOOK.
    keep : iterable of Kind, or of their names
        Kinds of which no record is left out; by default those of which a newer record does not
        contain what an older one said: ORDERS, TRADES, STATISTICS, CUSTOM_METRICS.

    Attributes
    ----------
    reader : Reader
    books : Books
        As of the newest record read.
    superseded : int
        Records left out because a newer one was there.
    """

    def __init__(self, Reader reader not None, *, keep=_CHANGES, **unknown):
        if unknown:
            raise unexpected_keyword(Latest, unknown)
        self.reader = reader
        self.books = Books()
        memset(self._kept, 0, sizeof(self._kept))
        for kind in kinds_of(keep):
            if kind not in list(Kind) or kind < KIND_UPDATES:
                raise ConfigError(f"keep must have kinds of updates only, had {shown(kind)}")
            self._kept[<int> int(kind)] = True
        self._found = []
        self._pending = []
        self._poll = 1  # an object's 0 means none yet
        keyed_draw(&self._key)
        self._object_of = <int64_t*> calloc(reader._batch, sizeof(int64_t))
        if self._object_of == NULL:
            raise MemoryError(f"not enough memory for {reader._batch} records")
        self._grow()

    def __dealloc__(self):
        free(self._slots)
        free(self._objects)
        free(self._object_of)

    def poll(self, timeout=None) -> list:
        """Return the newest record of each object that has a new one.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the first; 0: not at all. None: until something comes.

        Returns
        -------
        list of ReadRecord
            In ring order; empty if nothing came in time. Everything that the ring held when the
            first record was there is read: a slow strategy gets few records, not old ones.

        Raises
        ------
        RingClosedError
            All was read, and the writer closed the ring; or another file took its place.
        """
        cdef int64_t ahead
        cdef uint64_t goal
        if self._failure is not None and not self._found:
            failure, self._failure = self._failure, None
            raise failure
        # What a poll found that a signal's handler ended is handed out by this one.
        ahead = self.reader.ahead(
            self.reader._batch, 0 if self._found else reader_deadline(timeout))
        if ahead == READER_CLOSED and not self._found:
            self.reader._check_open()
            raise RingClosedError(
                f"{self.reader.address}: everything has been read, and the writer has closed it")
        if self._renumbered and not self._found:
            memset(self._slots, 0, (self._slots_mask + 1) * sizeof(uint32_t))
            self._count = 0
            self._renumbered = False
        if ahead > 0:
            goal = self.reader.index + self.reader.lag
            self._take_run()
            # A feed that is faster than this loop must not keep it.
            try:
                while self.reader.index < goal and self.reader.ahead(self.reader._batch, 0) > 0:
                    self._take_run()
                    PyErr_CheckSignals()
            except UdpfastError as failure:  # what came before it is handed out first
                self._failure = failure
        found, self._found = self._found, []
        self._poll += 1
        return [record for record in found if record is not None]

    def __iter__(self):
        """Iterate over what `poll` returns, for ever; see `__next__`."""
        return self

    def __next__(self):
        """Return the next record; read what is there when all of it is handed out.

        The iteration ends when the writer closed the ring, or the reader was closed.
        """
        while not self._pending:
            if not self._found and self._failure is None and (
                    self.reader.ahead(self.reader._batch, READER_FOREVER) == READER_CLOSED):
                raise StopIteration
            self._pending = self.poll()[::-1]
        return self._pending.pop()

    cdef _take_run(self):
        # All records ahead: first find the newest of each object, then copy out those alone.
        cdef Reader reader = self.reader
        cdef BatchMemory memory = reader._memory
        cdef LatestObject* item
        cdef int64_t i, first, end
        cdef int64_t applied = 0
        if reader._missed:
            record = reader.take()
            self._found.append(record)
            self.books.apply(record)
        if reader._next == reader._count:
            return
        first = reader._next
        reader.take_batch(reader._batch)  # from here on its records' ids are those of the names
        end = reader._next
        failure = self.books._of(reader._source.names)._accept_run(
            memory, first, end, reader._source.names, &applied)
        self._failure = self._failure or failure  # said behind what there is; that book is stale
        for i in range(first, end):
            self._object_of[i] = self._note(
                memory.headers + i, memory.payloads + memory.offsets[i],
                reader._source.names.source, i)
        for i in range(first, end):
            if self._object_of[i] >= 0:
                item = self._objects + self._object_of[i]
                if item.record != i:
                    self.superseded += 1
                    continue
                if item.poll == self._poll:
                    self._found[item.place] = None
                    self.superseded += 1
                item.poll = self._poll
                item.place = len(self._found)
            self._found.append(record_copy(
                memory.headers + i, memory.payloads + memory.offsets[i], reader._source.names))

    cdef int64_t _note(
            self, const Record* header, const uint8_t* payload, uint32_t source,
            int64_t i) except -2:
        # Index of the object whose newest record this is so far; -1: it is not conflated.
        cdef uint64_t tag
        cdef uint32_t place, kind = header.kind | source << 16
        cdef uint32_t number
        cdef LatestObject* item
        if header.kind == KIND_RESTART:  # the first of its run
            memset(self._slots, 0, (self._slots_mask + 1) * sizeof(uint32_t))
            self._count = 0
        self._renumbered = self._renumbered or header.kind == KIND_SESSION
        if header.kind < KIND_UPDATES or header.kind >= FILTER_KINDS or self._kept[header.kind]:
            return -1
        if header.length < <int64_t> (RECORD_SIZE + sizeof(UpdateHeader)):
            return -1
        tag = ((<uint64_t> (<const UpdateHeader*> payload).exchange_id << 32)
               | (<const UpdateHeader*> payload).symbol_id)
        if tag >> 32 == 0 or <uint32_t> tag == 0:
            return -1
        number = header.object
        place = _place(&self._key, tag, kind, number)
        while True:
            place &= self._slots_mask
            if self._slots[place] == 0:
                break
            item = self._objects + self._slots[place] - 1
            if item.tag == tag and item.kind == kind and item.number == number:
                item.record = i
                return self._slots[place] - 1
            place += 1
        item = self._objects + self._count
        memset(item, 0, sizeof(LatestObject))
        item.tag = tag
        item.kind = kind
        item.number = number
        item.record = i
        self._count += 1
        self._slots[place] = self._count
        if 2 * self._count > self._slots_mask:
            self._grow()
        return self._count - 1

    cdef int _grow(self) except -1:
        # To twice as many slots, and objects for half of them.
        cdef uint32_t slots = 2 * (self._slots_mask + 1) if self._slots != NULL else SLOTS_MIN
        cdef uint32_t* places = <uint32_t*> calloc(slots, sizeof(uint32_t))
        cdef LatestObject* objects = <LatestObject*> realloc(
            self._objects, (slots // 2 + 1) * sizeof(LatestObject))
        cdef uint32_t index, place
        if objects != NULL:
            self._objects = objects
        if objects == NULL or places == NULL:
            free(places)
            raise MemoryError(f"not enough memory for {slots} objects")
        free(self._slots)
        self._slots = places
        self._slots_mask = slots - 1
        for index in range(self._count):
            place = _place(
                &self._key, objects[index].tag, objects[index].kind, objects[index].number)
            while places[place & self._slots_mask]:
                place += 1
            places[place & self._slots_mask] = index + 1
        return 0


cdef inline uint32_t _place(
        const Key* key, uint64_t tag, uint32_t kind, uint32_t number) noexcept nogil:
    return <uint32_t> keyed_word(
        key, keyed_word(key, tag) ^ (<uint64_t> kind << 32 | number))
