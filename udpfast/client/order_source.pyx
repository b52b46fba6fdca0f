"""Records of a composite: what `Reader("composite:NAME")` reads from.

The order log says which records of which store come next, so that every host, and every replay, has
the same records in the same order. A copy of an input that is behind the order is waited for.
"""

cimport cython
from libc.errno cimport EBADMSG
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from udpfast.client.source cimport PolledSource
from udpfast.client.store_source cimport StoreSource
from udpfast.core.layout cimport (
    KIND_ORDER, KIND_ROLLBACK, LAPPED_DAMAGE, ORDER_BACK, OrderEntry)

from udpfast.archive.bus_files import read_composite
from udpfast.archive.store import StoreView
from udpfast.client.store_source import StoreSource as StoreSourceFace
from udpfast.client.store_source import open_source as open_store
from udpfast.core.layout import ORDER_ENTRY, Kind
from udpfast.errors import RegionError

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
    """

    def __init__(self, StoreSource order not None, paths, *, batch, buffer_bytes):
        self.order = self.current = order
        self.directory = order.directory
        self.paths = paths
        self.members = [None] * len(paths)
        self.entries = []
        self.batch, self.room = batch, buffer_bytes
        self.at = -1
        self.missed_reason = LAPPED_DAMAGE
        self.names = order.names
        self.use_arrays(order.headers_array, order.offsets_array, order.payloads_array)
        self._find_lost()

    def _find_lost(self):
        # What inputs lost after it was taken, nobody can read any more.
        self.lost = [[] for _ in self.paths]
        view = StoreView(self.order.directory)
        first = view.first()[0]
        for record in view.records(first, 1 << 63, kinds=1 << Kind.ORDER):
            entry = np.frombuffer(record, ORDER_ENTRY, 1, 64)[0]
            if entry["flags"] & ORDER_BACK:
                self.lost[entry["input"]].append(
                    (int.from_bytes(record[8:16], "little"), int(entry["first"])))

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
                    return self._read(member, limit)
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
        self.current = member
        if self.payloads_array is not member.payloads_array:
            self.use_arrays(member.headers_array, member.offsets_array, member.payloads_array)
        self.names = member.names
        self.names.source = self.members.index(member) + 1
        self.names.address = str(member.directory)
        self.missed = member.missed
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
                raise RegionError(f"{order.directory}: the order that was read was taken back: "
                                  "read the composite again")
            if order.headers[i].kind == KIND_ORDER:
                memcpy(&entry, order.payloads + order.offsets[i], sizeof(entry))
                self.entries.append((order.headers[i].position, entry.input, entry.flags,
                                     entry.first, entry.end))
        self.entries.reverse()
        return count if self.entries else self._read_order()

    cdef int64_t _begin(self, tuple entry) except -1:
        # Take an entry in hand; returns a count if that brought something.
        cdef StoreSource member
        place, at, flags, first, end = entry
        member = self._member(at, first)
        if flags & ORDER_BACK:
            self.until = first
            return self._read(member, 1)  # a ROLLBACK, if any of it was read
        for later, lost in self.lost[at]:
            if later > place:
                end = min(end, lost)
        if end > first:
            self.at, self.until = at, end
        return 0

    cdef StoreSource _member(self, int64_t at, uint64_t position):
        if self.members[at] is None:
            self.members[at] = StoreSourceFace(
                self.paths[at], start=("position", position), end=position, batch=self.batch,
                buffer_bytes=self.room)
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

    cdef detach(self):
        self.done = True
        self.order.detach()
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
    order = open_store(target, start=start, batch=batch, buffer_bytes=None, timeout=timeout,
                       name=name, end=end, image=image)
    return OrderSource(order, read_composite(order.directory), batch=batch,
                       buffer_bytes=buffer_bytes)
