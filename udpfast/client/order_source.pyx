"""Records of a composite: what `Reader("composite:NAME")` reads from.

The order log says which records of which store come next, so that every host, and every replay, has
the same records in the same order. A copy of an input that is behind the order is waited for.

When the order log loses its end, because a host without it was promoted, each input goes back to
where the entries that are left take it: a ROLLBACK for each input that had been read further.
"""

cimport cython
from libc.errno cimport EBADMSG
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.client.source cimport PolledSource
from udpfast.client.store_source cimport StoreSource
from udpfast.core.atomics cimport load_acquire
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.layout cimport (
    FLIGHT_UNKNOWN, KIND_ORDER, KIND_ROLLBACK, LAPPED_DAMAGE, ORDER_BACK, RECORD_SIZE,
    STREAM_NONE, OrderEntry)
from udpfast.log.journal_cursor cimport JournalCursor

from udpfast.archive.bus_files import read_composite
from udpfast.archive.store import StoreView
from udpfast.client.store_source import StoreSource as StoreSourceFace
from udpfast.client.store_source import open_source as open_store
from udpfast.core.layout import RECORD
from udpfast.errors import ConfigError
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.market.updates import LAYOUTS

import numpy as np

__all__ = ["OrderSource", "open_source"]

cdef enum:
    UNDONE = 1 << 16             # beside OrderFlag: the order log lost the entry that took them


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
        is its position in the order log. Where that lost its end stands an entry with ORDER_BACK
        for each input that goes back; its `number` is where the log goes on.
    had : list of int, optional
        By input, the index behind the last record that whoever reads has; if it is more than the
        order log says before the start, a ROLLBACK comes first.
    """

    def __init__(
            self, StoreSource order not None, paths, *, batch, buffer_bytes, marks=False, had=None):
        self.order = self.current = order
        self.directory = order.directory
        self.paths = paths
        self.members = [None] * len(paths)
        self.entries = []
        self.cuts = [0] * len(paths)
        self.followed = [None] * len(paths)
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
        self.had = had or [index for _, index in self._taken_before(order.at_position)]
        if had:
            self._go_back(order.at_position)
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
                if scout.headers[i].kind == KIND_ROLLBACK:
                    found = True
                    self.lost = [[each for each in lost if each[0] < scout.headers[i].position]
                                 for lost in self.lost]
                elif scout.headers[i].kind == KIND_ORDER:
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
        if load_acquire(&self.order.said.cuts) != self.order.cuts:
            self._read_order()  # what is in hand may have been taken back
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
        return self._show(member, count)

    cdef int64_t _show(self, StoreSource member, int64_t count) except -1:
        # Hand out what one input has in memory.
        if member.names_missing():
            member.renew_names()
        self.current = member
        if self.payloads_array is not member.payloads_array:
            self.use_arrays(member.headers_array, member.offsets_array, member.payloads_array)
        self.names = member.names
        at = self.members.index(member)
        if member.headers.kind == KIND_ROLLBACK:
            self.had[at] = 0
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
        read = []
        for i in range(count):
            if order.headers[i].kind == KIND_ROLLBACK:
                self._go_back(order.headers[i].position)
            elif order.headers[i].kind == KIND_ORDER:
                memcpy(&entry, order.payloads + order.offsets[i], sizeof(entry))
                read.append((order.headers[i].position, entry.input, entry.flags,
                             entry.first, entry.end, entry.first_index, entry.count,
                             order.headers[i].published_ns))
        self.entries[:0] = reversed(read)
        return count if self.entries else self._read_order()

    cdef _go_back(self, uint64_t place):
        # Forget the entries of the order log from a position on; have inputs go back that were read
        # further than the others take them.
        cdef uint64_t known
        self._look_ahead()  # no loss is believed that only a lost entry tells of
        if self.entries and self.entries[len(self.entries) - 1][0] >= place:
            self.marked = False
        self.entries = [entry for entry in self.entries if entry[0] < place]
        for at, (position, index) in enumerate(self._taken_before(place)):
            self.followed[at] = None
            known = self._known(at)
            if known > <uint64_t>index:
                self.entries.append((
                    place, at, ORDER_BACK | UNDONE, position, position, index, known - index,
                    clock_realtime_ns()))
                self.marked = False
        if self.at >= 0 and self.place < place:
            self.entries.append(self.hand)  # it may end elsewhere now
            self.marked = True
        self.at = -1

    cdef list _taken_before(self, uint64_t place):
        # By input: position and index behind the last record that the order log takes before a
        # position in it. Looked for from there backwards, a segment at a time.
        cdef JournalCursor cursor
        cdef OrderEntry entry
        cdef int64_t i, count
        cdef list found = [None] * len(self.paths)
        cdef dict latest, rows
        view = StoreView(self.order.directory)
        while place > view.first()[0] and None in found:
            begin = view.segment_begin(place - 1)
            latest = {}
            cursor = JournalCursorFace.attach(
                self.order.directory, ("position", begin), ("position", place), follow=False,
                limit=4096, layouts=LAYOUTS)
            with cursor:
                while count := cursor.poll_all(4096):
                    rows = {}
                    for i in range(count):
                        if cursor._headers[i].kind == KIND_ORDER:
                            memcpy(&entry, cursor._payloads + cursor._offsets[i], sizeof(entry))
                            rows[entry.input] = i
                    for at, i in rows.items():
                        memcpy(&entry, cursor._payloads + cursor._offsets[i], sizeof(entry))
                        latest[at] = (
                            (entry.first, entry.first_index) if entry.flags & ORDER_BACK
                            else (entry.end, entry.first_index + entry.count))
            found = [each or latest.get(at) for at, each in enumerate(found)]
            place = begin
        return [each or (0, 0) for each in found]

    cdef uint64_t _known(self, int64_t at):
        # Index behind the last record of an input that whoever reads has.
        cdef StoreSource member = self.members[at]
        return max(<uint64_t>self.had[at], 0 if member is None else member.at_index)

    cdef int64_t _begin(self, tuple entry) except -1:
        # Take an entry in hand; returns a count if that brought something.
        if self.marks and not self.marked:
            self.entries.append(entry)
            self.marked = True
            return self._mark(entry)
        self.marked = False
        place, at, flags, first, end, index, _, _ = entry
        if flags & ORDER_BACK:
            return self._take_back(at, first, index, flags & UNDONE)
        self._member(at, first, index)
        if self.scout.cursor.position <= <uint64_t>place:
            self._look_ahead()
        end = self._end(place, at, end)
        if end > first:
            self.place, self.at, self.until, self.hand = place, at, end, entry
        return 0

    cdef int64_t _take_back(
            self, int64_t at, uint64_t position, uint64_t index, bint undone) except -1:
        # Go back in one input; a ROLLBACK, if whoever reads has more of it.
        cdef uint64_t known = self._known(at)
        cdef bint opened = self.members[at] is not None
        cdef StoreSource member = self._member(at, position, max(known, index))
        if opened and not undone and self.followed[at] == load_acquire(&member.said.cuts):
            # This host's copy lost nothing yet. What it will lose is not to be read a second time.
            self.until = position
            return self._read(member, 1)
        self.followed[at] = None if undone else load_acquire(&member.said.cuts)
        if not member.go_back(position, known):
            return 0
        count = self._show(member, 1)
        if undone and position == 0:
            self.missed_before += member.missed_total()
            self.members[at] = None  # the next entry says where it begins
        return count

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
        mark.flags &= ~<uint32_t>UNDONE
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
        cdef StoreSource member = self.members[at]
        return member is not None and self.cuts[at] == member.cuts

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
            self.cuts[at] = self.followed[at] = member.cuts
            if member.cursor.position > position and member.cursor.index > index:
                # What it would begin with was removed.
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
        return self.missed_before + sum(
            (<StoreSource>each).missed_total() for each in self.members if each is not None)

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
