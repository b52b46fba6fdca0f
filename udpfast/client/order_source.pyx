"""Records of a composite: what `Reader("composite:NAME")` reads from.

The order log says which records of which store come next, so that every host, and every replay, has
the same records in the same order. A copy of an input that is behind the order is waited for.
"""

cimport cython
from libc.errno cimport EBADMSG
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.client.source cimport PolledSource
from udpfast.client.store_source cimport StoreSource
from udpfast.core.layout cimport (
    FLIGHT_UNKNOWN, KIND_ORDER, KIND_ROLLBACK, LAPPED_DAMAGE, ORDER_BACK, RECORD_SIZE,
    STREAM_NONE, OrderEntry)

from udpfast.archive.bus_files import read_composite
from udpfast.client.store_source import StoreSource as StoreSourceFace
from udpfast.client.store_source import open_source as open_store
from udpfast.core.layout import RECORD
from udpfast.errors import ConfigError, RegionError

import numpy as np

__all__ = ["OrderSource", "open_source"]


@cython.final
cdef class OrderSource(PolledSource):
    """Several stores, read in the order of an order log.

    Parameters
    ----------
    order : StoreSource
        Of the order log.
    paths : list of pathlib.Path
        Directories of the inputs.
    batch, buffer_bytes : int
    marks : bool
        Hand out the entries of the order log, too, each before its records: ORDER, whose `number`
        is its position in the order log.
    """

    def __init__(
            self, StoreSource order not None, paths, *, batch, buffer_bytes, marks=False):
        self.order = self.current = order
        self.directory = order.directory
        self.paths = paths
        self.members = [None] * len(paths)
        self.entries = []
        self.cuts = [0] * len(paths)
        self.skipped = [0] * len(paths)
        self.marks = marks
        self.mark_arrays = (np.zeros(1, RECORD), np.zeros(1, np.uint64),
                            np.zeros(sizeof(OrderEntry), np.uint8))
        self.batch, self.room = batch, buffer_bytes
        self.at = -1
        self.missed_reason = LAPPED_DAMAGE
        self.names = order.names
        self.use_arrays(order.headers_array, order.offsets_array, order.payloads_array)
        self.lost = [[] for _ in paths]
        self.scout = StoreSourceFace(
            order.directory, start=("position", order.cursor.position), batch=batch,
            buffer_bytes=None)
        self._look_ahead()

    cdef bint _look_ahead(self) except -1:
        # What inputs lost after it was taken, nobody can read any more, and nobody waits for it.
        cdef StoreSource scout = self.scout
        cdef OrderEntry entry
        cdef int64_t i, count
        cdef bint found = False
        while True:
            count = scout.look(self.batch)
            if count == -EBADMSG:
                raise scout.failure
            if count <= 0:
                return found
            for i in range(count):
                if scout.headers[i].kind == KIND_ORDER:
                    memcpy(&entry, scout.payloads + scout.offsets[i], sizeof(entry))
                    if entry.flags & ORDER_BACK:
                        found = True
                        self.lost[entry.input].append(
                            (scout.headers[i].position, entry.first, entry.first_index))

    @property
    def origin(self) -> str:
        """The address whose records the last wait brought."""
        return f"store:{self.current.directory}"

    cdef int64_t poll(self, int64_t limit) except -1:
        cdef StoreSource member
        cdef int64_t count
        while True:
            if self.at >= 0:
                member = self.members[self.at]
                if member.cursor.position < self.until:
                    count = self._read(member, limit)
                    if count:
                        return count
                    if member.cursor.position < self.until and self._look_ahead():
                        self.until = self._end(self.place, self.at, self.until)
                    if member.cursor.position < self.until:
                        return 0
                self.at = -1
            if not self.entries:
                count = self._read_order()
                if count <= 0:
                    return count
            count = self._begin(self.entries.pop())
            if count:
                return count

    cdef int64_t _read(self, StoreSource member, int64_t limit) except -1:
        # Records of one input up to `until`; 0: this host's copy has none of them yet.
        cdef int64_t count
        member.end = self.until
        count = member.look(limit)
        if count == -EBADMSG:
            raise member.failure
        if count <= 0:
            return 0
        if member.names_missing():
            member.renew_names()
        self.current = member
        if self.payloads_array is not member.payloads_array:
            self.use_arrays(member.headers_array, member.offsets_array, member.payloads_array)
        self.names = member.names
        at = self.members.index(member)
        self.names.source = at + 1
        self.names.address = str(member.directory)
        self.missed = member.missed + <uint64_t>self.skipped[at]
        self.skipped[at] = 0
        return count

    cdef int64_t _read_order(self) except -1:
        cdef StoreSource order = self.order
        cdef OrderEntry entry
        cdef int64_t i, count = order.look(self.batch)
        if count == -EBADMSG:
            raise order.failure
        if count <= 0:
            return count
        for i in range(count):
            if order.headers[i].kind == KIND_ROLLBACK:
                raise RegionError(
                    f"{order.directory}: the order that was read has been taken back: open the "
                    "composite again")
            if order.headers[i].kind == KIND_ORDER:
                memcpy(&entry, order.payloads + order.offsets[i], sizeof(entry))
                self.entries.append((order.headers[i].position, entry.input, entry.flags,
                                     entry.first, entry.end, entry.first_index, entry.count,
                                     order.headers[i].published_ns))
        self.entries.reverse()
        return count if self.entries else self._read_order()

    cdef int64_t _begin(self, tuple entry) except -1:
        # Take an entry in hand; returns a count if that brought something.
        cdef StoreSource member
        if self.marks and not self.marked:
            self.entries.append(entry)
            self.marked = True
            return self._mark(entry)
        self.marked = False
        place, at, flags, first, end, index, _, _ = entry
        member = self._member(at, first, index)
        if flags & ORDER_BACK:
            self.until = first
            return self._read(member, 1)  # a ROLLBACK, if any of it was read
        if self.scout.cursor.position <= <uint64_t>place:
            self._look_ahead()
        end = self._end(place, at, end)
        if end > first:
            self.place, self.at, self.until = place, at, end
        return 0

    cdef uint64_t _end(self, uint64_t place, int64_t at, uint64_t end) except? 0:
        # Where an entry ends, but for what the input lost since.
        for later, lost, _ in self.lost[at]:
            if later > place:
                end = min(end, <uint64_t>lost)
        return end

    cdef int64_t _mark(self, tuple entry) except -1:
        # An entry as a record of its own.
        cdef OrderEntry mark
        place, mark.input, mark.flags, mark.first, mark.end, mark.first_index, mark.count, at_ns = (
            entry)
        headers, offsets, payloads = self.mark_arrays
        self.use_arrays(headers, offsets, payloads)
        memset(self.headers, 0, RECORD_SIZE)
        self.headers.length = RECORD_SIZE + sizeof(mark)
        self.headers.kind = KIND_ORDER
        self.headers.number = place
        self.headers.received_ns = self.headers.published_ns = at_ns
        self.headers.stream = STREAM_NONE
        self.headers.flight_ns = FLIGHT_UNKNOWN
        memcpy(self.payloads, &mark, sizeof(mark))
        self.current, self.names = self.order, self.order.names
        self.missed = 0
        return 1

    cdef bint steady(self, int64_t at):
        # Whether nothing was set aside in an input since it was opened.
        return self.cuts[at] == (<StoreSource>self.members[at]).cuts

    cdef uint64_t end_of(self, uint64_t place, const OrderEntry* entry) except? 0:
        # Index behind the last record that an entry brings, when it is the next one.
        cdef uint64_t end = entry.first_index + entry.count
        if entry.flags & ORDER_BACK:
            return 0
        for later, _, lost_index in self.lost[entry.input]:
            if later > place:
                end = min(end, <uint64_t>lost_index)
        return end

    cdef bint through(self, uint64_t end):
        # Whether all was handed out that the order log has before a position.
        return self.at < 0 and not self.entries and self.order.cursor.position >= end

    cdef StoreSource _member(self, int64_t at, uint64_t position, uint64_t index):
        cdef StoreSource member
        if self.members[at] is None:
            self.members[at] = StoreSourceFace(
                self.paths[at], start=("position", position), end=position, batch=self.batch,
                buffer_bytes=self.room)
            member = self.members[at]
            self.cuts[at] = member.cuts
            if member.cursor.position > position:  # what it would begin with was removed
                self.skipped[at] = member.cursor.index - index
                member.cursor.missed_total += self.skipped[at]
        return self.members[at]

    cdef fail(self, int64_t code):
        if self.failure is not None:
            raise self.failure
        self.order.fail(code)

    cdef uint64_t next_index(self):
        return self.current.next_index()

    cdef uint64_t missed_total(self):
        return sum((<StoreSource>each).missed_total() for each in self.members if each is not None)

    cdef uint64_t written(self):
        return self.current.written()

    cdef uint64_t writer_epoch(self):
        return self.order.writer_epoch()

    cdef bint writer_alive(self):
        return self.order.writer_alive()

    cdef names_published(self):
        return []  # each input has its own

    cdef detach(self):
        self.done = True
        self.order.detach()
        self.scout.detach()
        for each in self.members:
            if each is not None:
                (<StoreSource>each).detach()


def open_source(
        target, *, start, batch, buffer_bytes, timeout, name, end=None, image=False
) -> OrderSource:
    """Open a composite; the parameters are those of a store's, places are in its order log.

    Parameters
    ----------
    target : str
        The composite's name, or the directory of its order log.
    start, batch, buffer_bytes, timeout, name, end, image
        As `store_source.open_source` has them.
    """
    if image:
        raise ConfigError(
            f"image must be False for composite:{target}: reading starts without an earlier state")
    order = open_store(target, start=start, batch=batch, buffer_bytes=None, timeout=timeout,
                       name=name, end=end)
    return OrderSource(order, read_composite(order.directory), batch=batch,
                       buffer_bytes=buffer_bytes)
