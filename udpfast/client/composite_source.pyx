"""The Source of "composite:NAME": the records of several stores in one order.

The order log alone says which records of which store come next, so that every host, and every
replay, has the same records in the same order. Records of an input are read only when, and as far
as, an entry says so, whatever its local copy loses or gets again. An entry names its last record by
position and epoch; if the copy does not have that record yet, the source waits for it.

The order log also states what an input has lost for good: a ROLLBACK follows if that had been read.
When the order log loses its own end, because a host without it was promoted, each input returns to
where the remaining entries leave it, with a ROLLBACK if it had been read further.
"""

cimport cython
from libc.errno cimport EBADMSG
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.client.record cimport NameCache
from udpfast.client.source cimport PolledSource
from udpfast.client.store_source cimport StoreSource
from udpfast.core.atomics cimport load_acquire
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.layout cimport (
    FLIGHT_UNKNOWN, KIND_ORDER, KIND_ROLLBACK, LAPPED_READER, ORDER_BACK, RECORD_SIZE,
    STREAM_NONE, OrderEntry, Rollback)
from udpfast.log.doubt_records cimport doubt_record
from udpfast.log.journal_cursor cimport JournalCursor

from udpfast.archive.bus_files import read_composite
from udpfast.archive.store import StoreView, store_lineage
from udpfast.client.store_source import StoreSource as StoreSourceFace
from udpfast.client.store_source import open_source as open_store
from udpfast.core.layout import RECORD
from udpfast.errors import ConfigError
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.market.updates import LAYOUTS

import numpy as np

__all__ = ["CompositeSource", "open_source"]

cdef enum:
    UNDONE = 1 << 16             # added to OrderFlag: the order log lost the entry that took them


@cython.final
cdef class CompositeSource(PolledSource):
    """Several stores, read in the order of an order log.

    Parameters
    ----------
    order : StoreSource
        The source of the order log.
    paths : list of pathlib.Path
        Directories of the inputs.
    batch, buffer_bytes : int
        As for `Reader`.
    marks : bool
        Hand out the entries of the order log, too, each before its records: ORDER, whose `number`
        is its position in the order log. Where the order log lost its end, there is an entry with
        ORDER_BACK for each input that goes back; its `number` is where the log continues.
    had : list of int, optional
        By input, the index behind the last record that the caller has. If that is beyond what the
        order log takes before the start, a ROLLBACK comes first.
    """

    def __init__(
            self, StoreSource order not None, paths: list[Path], *, batch: int,
            buffer_bytes: int | None, marks: bool = False, had: list[int] | None = None):
        self.order = self.current = order
        self.recorded = True
        self.directory = order.directory
        self.paths = paths
        self.members = [None] * len(paths)
        self.entries = []
        self.sure = [None] * len(paths)
        self.next = [None] * len(paths)
        self.skipped = [0] * len(paths)
        self.marks = marks
        self.mark_arrays = (np.zeros(1, RECORD), np.zeros(1, np.uint64),
                            np.zeros(max(sizeof(OrderEntry), sizeof(Rollback)), np.uint8))
        self.batch, self.room = batch, buffer_bytes
        self.at = -1
        self.goes_on = True
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
        # Learn which records inputs have lost after an entry took them: do not wait for those.
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
                            (scout.headers[i].position, entry.first, entry.first_index,
                             scout.headers[i].number))

    cdef tuple feeds(self):
        name = self.directory.name
        return name if self.current is self.order else f"{name}/{self.current.directory.name}", name

    @property
    def origin(self) -> str:
        """Address of the source whose records the last wait returned."""
        return f"store:{self.current.directory}"

    cdef int64_t poll(self, int64_t limit) except -1:
        cdef int64_t count
        if load_acquire(&self.order.said.cuts) != self.order.cuts:
            self._read_order()  # the current entry may have been taken back
        while True:
            if self.at >= 0:
                if <uint64_t>self.next[self.at] < self.until:
                    count = self._read(limit)
                    if count:
                        return count
                    if <uint64_t>self.next[self.at] < self.until and self._look_ahead():
                        self._bound_hand()
                    if <uint64_t>self.next[self.at] < self.until:
                        return 0
                self.at = -1
            if not self.entries:
                count = self._read_order()
                if count <= 0:
                    return count
            count = self._begin(self.entries.pop())
            if count:
                return count

    cdef int64_t _read(self, int64_t limit) except -1:
        # Read records of the current entry. Return 0 if this host's copy does not have them yet.
        cdef StoreSource member = self._member(self.at)
        cdef int64_t count
        if not self._stand(member):
            return 0
        member.until = self.until
        count = member.look(limit)
        if count == -EBADMSG:
            raise member.failure
        if count <= 0:  # it may have skipped damage, or records that were removed
            self.next[self.at] = max(<uint64_t>self.next[self.at], member.cursor.position)
            return 0
        if member.cuts != <uint64_t>self.sure[self.at][0] or (
                self.epoch and member.epochs and member.epochs[len(member.epochs) - 1][0]
                > self.epoch):
            self.sure[self.at] = None  # records were just set aside: these may be other ones
            return 0
        self.had[self.at] = max(<uint64_t>self.had[self.at], member.headers[count - 1].index + 1)
        self.next[self.at] = member.at_position
        return self._show(member, count)

    cdef bint _stand(self, StoreSource member) except -1:
        # Position the input behind its last entry, if this host's copy has the current entry as it
        # was taken: its last record, by position and epoch. False: it does not, or not yet.
        cdef uint64_t cuts = load_acquire(&member.said.cuts)
        cdef int64_t at = self.at
        if self.sure[at] == (cuts, self.epoch):
            return True
        if member.said_end() < self.until:
            return False
        lineage = store_lineage(member.directory)
        found, _ = lineage.at(self.until - 1)
        if found and self.epoch and found != self.epoch:
            return False
        if self.sure[at] is None or self.sure[at][0] != cuts:
            member.cuts = cuts
            member._stand(self.next[at])
            member.epochs = lineage.before(member.at_position)
            member.names = NameCache()  # senders may have other numbers now
            member.names_number = -1
            if member.at_position > <uint64_t>self.next[at]:  # the next records were removed
                self._skip(at, member.at_index)
                self.next[at] = member.at_position
        self.sure[at] = (cuts, self.epoch)
        return True

    cdef _skip(self, int64_t at, uint64_t index):
        # Count records below an index as missed: they were removed and cannot be read any more.
        if index > <uint64_t>self.had[at]:
            self.skipped[at] += index - self.had[at]
            self.missed_before += index - <uint64_t>self.had[at]
            self.had[at] = index

    cdef int64_t _show(self, StoreSource member, int64_t count) except -1:
        # Hand out the records that an input has in memory.
        if member.names_missing():
            member.renew_names()
        if self.payloads_array is not member.payloads_array:
            self.use_arrays(member.headers_array, member.offsets_array, member.payloads_array)
        return self._show_of(member, member.missed, count)

    cdef int64_t _show_of(self, StoreSource member, uint64_t missed, int64_t count) except -1:
        # Hand out the records in the arrays as those of an input.
        self.current = member
        self.names = member.names
        at = self.members.index(member)
        self.names.source = at + 1
        self.names.address = str(member.directory)
        self.missed = missed + <uint64_t>self.skipped[at]
        self.missed_reason = member.missed_reason if missed else LAPPED_READER
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
                            order.headers[i].published_ns, order.headers[i].number))
        self.entries[:0] = reversed(read)
        return count if self.entries else self._read_order()

    cdef _go_back(self, uint64_t place):
        # Forget the entries of the order log from a position on, and move inputs back that were
        # read further than the remaining entries take them.
        cdef uint64_t known
        self._look_ahead()  # forget losses that only a lost entry stated
        self.goes_on = self.goes_on and self.mark_place < place
        if self.entries and self.entries[len(self.entries) - 1][0] >= place:
            self.marked = False
        self.entries = [entry for entry in self.entries if entry[0] < place]
        for at, (position, index) in enumerate(self._taken_before(place)):
            known = self.had[at]
            if known > <uint64_t>index:
                self.entries.append((
                    place, at, ORDER_BACK | UNDONE, position, position, index, known - index,
                    clock_realtime_ns(), 0))
                self.marked = False
        if self.at >= 0 and self.place < place:
            self.entries.append(self.hand)  # begin it again: it may end elsewhere now
            self.marked = True
        self.at = -1

    cdef list _taken_before(self, uint64_t place):
        # Return, by input, the position and index behind the last record that the order log takes
        # before `place`. Searches backwards, one segment at a time.
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

    cdef int64_t _begin(self, tuple entry) except -1:
        # Make an entry the current one. Return the count of records that this hands out.
        if self.marks and not self.marked:
            self.entries.append(entry)
            return self._mark(entry)
        self.marked, self.goes_on = False, True
        place, at, flags, first, _, index, _, _, _ = entry
        if flags & ORDER_BACK:
            return self._take_back(at, first, index)
        if self.scout.cursor.position <= <uint64_t>place:
            self._look_ahead()
        self.place, self.hand = place, entry
        self._bound_hand()
        if self.next[at] is None:
            self.next[at], self.had[at] = first, max(self.had[at], index)
        elif first > self.next[at] and self.until > <uint64_t>first:  # records were removed between
            self._skip(at, index)
            self.next[at], self.sure[at] = first, None
        if self.until > <uint64_t>first:
            self.at = at
        return 0

    cdef _bound_hand(self):
        # Set where the current entry ends, and the epoch of its last record: before the records
        # that the input has lost since.
        _, at, _, _, self.until, _, _, _, self.epoch = self.hand
        for later, lost, _, epoch in self.lost[at]:
            if later > self.place and lost < self.until:
                self.until, self.epoch = lost, epoch

    cdef int64_t _take_back(self, int64_t at, uint64_t position, uint64_t index) except -1:
        # Go back in one input; hand out a ROLLBACK if the reader has had more of it.
        cdef uint64_t known = self.had[at]
        cdef Rollback rollback
        cdef StoreSource member
        if known <= index:
            return 0
        self.next[at], self.sure[at], self.had[at] = position, None, index
        member = self._member(at)
        member.names = NameCache()  # senders may have other numbers now
        member.names_number = -1
        headers, offsets, payloads = self.mark_arrays
        self.use_arrays(headers, offsets, payloads)
        rollback.records, rollback.position = known - index, position
        doubt_record(self.headers, KIND_ROLLBACK, sizeof(rollback), 0)
        self.headers.position, self.headers.index = position, index
        memcpy(self.payloads, &rollback, sizeof(rollback))
        return self._show_of(member, 0, 1)

    cdef int64_t _mark(self, tuple entry) except -1:
        # Hand out an entry as a record of its own.
        cdef OrderEntry mark
        (place, mark.input, mark.flags, mark.first, mark.end, mark.first_index, mark.count, at_ns,
         _) = entry
        self.marked, self.mark_place = True, place
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

    cdef uint64_t end_of(self, uint64_t place, const OrderEntry* entry) except? 0:
        # Return the index behind the last record that can still be read of an entry.
        cdef uint64_t end = entry.first_index + entry.count
        if entry.flags & ORDER_BACK:
            return 0
        for later, _, lost_index, _ in self.lost[entry.input]:
            if later > place:
                end = min(end, <uint64_t>lost_index)
        return end

    cdef bint through(self, uint64_t end):
        # Return whether everything before a position of the order log was handed out.
        return self.at < 0 and not self.entries and self.order.cursor.position >= end

    cdef StoreSource _member(self, int64_t at):
        # Return the source of an input, opened if necessary; `_stand` sets its position.
        if self.members[at] is None:
            self.members[at] = StoreSourceFace(
                self.paths[at], start=("position", self.next[at]), batch=self.batch,
                buffer_bytes=self.room)
        return self.members[at]

    cdef fail(self, int64_t code):
        if self.failure is not None:
            raise self.failure
        self.order.fail(code)

    cdef uint64_t next_index(self):
        return (self.current.next_index() if self.current is self.order
                else self.had[self.members.index(self.current)])

    cdef uint64_t missed_total(self):
        return self.missed_before + sum(
            (<StoreSource>each).missed_total() for each in self.members if each is not None)

    cdef uint64_t written(self):
        # As if all that is left were of one input. An entry that was not read yet takes at least
        # one record.
        cdef uint64_t left = self.order.written() - self.order.next_index()
        if self.at >= 0 and <uint64_t>self.next[self.at] < self.until:
            left += max(0, self.hand[5] + self.hand[6] - self.had[self.at])
        for _, _, flags, _, _, _, count, _, _ in self.entries:
            left += 1 if flags & ORDER_BACK else count
        return self.next_index() + left

    cdef object end(self):
        return self.order.said_end()

    cdef bint passed(self, end) except -1:
        # No entry before that end is left.
        return self.order.cursor.position >= end and not (
            self.entries and self.entries[len(self.entries) - 1][0] < end) and (
            self.at < 0 or self.place >= end or self.next[self.at] >= self.until)

    cdef uint64_t writer_epoch(self):
        return self.order.writer_epoch()

    cdef bint writer_alive(self):
        return self.order.writer_alive()

    cdef names_published(self):
        return set(), set()  # each input has its own

    cdef detach(self):
        self.done = True
        self.order.detach()
        self.scout.detach()
        for each in self.members:
            if each is not None:
                (<StoreSource>each).detach()


def open_source(
        target: str, *, start: Moment | tuple[str, int] | None, batch: int,
        buffer_bytes: int | None, timeout: float | None, name: str,
        end: tuple[str, int] | None = None, image: bool = False) -> CompositeSource:
    """Open a composite. Positions and times refer to its order log.

    Parameters
    ----------
    target : str
        The composite's name, or the directory of its order log.
    start, batch, buffer_bytes, timeout, name, end, image
        As for `store_source.open_source`.
    """
    if image:
        raise ConfigError(
            f"image must be False for composite:{target}: reading starts without an earlier state")
    order = open_store(target, start=start, batch=batch, buffer_bytes=None, timeout=timeout,
                       name=name, end=end)
    return CompositeSource(order, read_composite(order.directory), batch=batch,
                           buffer_bytes=buffer_bytes)
