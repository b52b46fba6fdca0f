"""Conflation: only the newest record of each object, for a strategy slower than its feed."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from udpfast.client.batch cimport BatchMemory
from udpfast.client.filter cimport FILTER_KINDS
from udpfast.client.reader cimport (
    READER_CLOSED, READER_FOREVER, Reader, reader_deadline, reader_names)
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

#: Kinds whose updates are events or changes: a newer one does not contain the older ones.
_CHANGES = (Kind.ORDERS, Kind.TRADES, Kind.STATISTICS, Kind.CUSTOM_METRICS)


@cython.final
cdef class Latest:
    """Latest(reader, *, keep=("ORDERS", "TRADES", "STATISTICS", "CUSTOM_METRICS"))\n--\n
    Read all available records, and return only the newest of each kind for each object.

    A BOOK is a change to a book: every one is applied to `books`, and the newest one says that the
    book changed. Every doubt (GAP, STALE, LAPPED, ...), every record of a kind in `keep`, and every
    update without an exchange or symbol is returned, in ring order. Two objects with the same
    symbol are conflated separately.

    Parameters
    ----------
    reader : Reader
        The reader to poll. Its filters apply; `books` needs a reader that passes BOOK.
    keep : iterable of Kind, or of their names
        Kinds of which every record is returned. By default those whose newer records do not
        contain the older ones: ORDERS, TRADES, STATISTICS, CUSTOM_METRICS.

    Attributes
    ----------
    reader : Reader
    books : Books
        Books as of the newest record read.
    superseded : int
        Number of records left out because a newer one had been read.
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
        self._poll = 1  # LatestObject.poll is 0 before its first record
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
            Seconds to wait for the first record; 0: do not wait; None: no limit.

        Returns
        -------
        list of ReadRecord
            Records in ring order; empty on timeout. All records that the ring had when the first
            one was seen are read, so a slow strategy gets fewer records, and not older ones.

        Raises
        ------
        RingClosedError
            The writer closed the ring and all of it was read, or another file replaced the ring's.
        """
        cdef int64_t ahead
        cdef list end = []
        if self._failure is not None and not self._found:
            failure, self._failure = self._failure, None
            raise failure
        # `_found` may have records of a poll that a signal handler interrupted: return them now.
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
            self._take_run()
            try:
                while self.reader.more(end):
                    self._take_run()
                    PyErr_CheckSignals()
            except UdpfastError as failure:  # the records before it are returned first
                self._failure = failure
        found, self._found = self._found, []
        self._poll += 1
        return [record for record in found if record is not None]

    def __iter__(self):
        """Iterate over the records that `poll` returns; see `__next__`."""
        return self

    def __next__(self):
        """Return the next record; poll again once all records of the last poll were returned.

        Blocks while there are none. The iteration ends when the writer has closed the ring, or the
        reader was closed.
        """
        while not self._pending:
            if not self._found and self._failure is None and (
                    self.reader.ahead(self.reader._batch, READER_FOREVER) == READER_CLOSED):
                raise StopIteration
            self._pending = self.poll()[::-1]
        return self._pending.pop()

    cdef _take_run(self):
        # Take a run of records: find the newest of each object first, then copy only those.
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
        reader.take_batch(reader._batch)  # first: it renews the names that the records' ids need
        end = reader._next
        failure = self.books._of(reader_names(reader))._accept_run(
            memory, first, end, reader._source.names, &applied)
        self._failure = self._failure or failure  # raised after these records; that book is stale
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
        # Note record i as the newest of its object; return the object's index, -1: not conflated.
        cdef uint64_t tag
        cdef uint32_t place, kind = header.kind | source << 16
        cdef uint32_t number
        cdef LatestObject* item
        if header.kind == KIND_RESTART:  # always the first record of a run
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
        # Double the number of slots, and allocate objects for half of them.
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
