"""Copy a composite's records into one journal, which every reader of journals can read.

The records that an entry of the order log takes follow that entry (ORDER, whose `number` is its
position in the order log). So the copy states where each record is from, and continues exactly
where it ended, whatever ended it. The `session` of a record encodes its input and the session there
(`session_of`); its names are in one table (`CopiedNames`). `received_ns` of a record that the bus
stamped is the time at which its entry was decided; of a feed's record, when the feed received it.
`published_ns` is unchanged.
"""

cimport cython
from libc.errno cimport EBADMSG
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from udpfast.archive.copied_sessions cimport INPUTS_MAX, session_of
from udpfast.client.copied_names cimport CopiedNames
from udpfast.client.composite_source cimport CompositeSource
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport (
    KIND_ORDER, KIND_ROLLBACK, LAPPED_DAMAGE, STREAM_NONE, Lapped, OrderEntry, Record, Rollback)
from udpfast.log.doubt_records cimport doubt_record_lapped
from udpfast.log.journal cimport Journal, journal_flush
from udpfast.log.segment cimport segment_append

import numpy as np

from udpfast.archive.bus_files import copy_directory, describe_composite, read_composite
from udpfast.archive.store import StoreView
from udpfast.client.copied_names import CopiedNames as CopiedNamesFace
from udpfast.client.copied_order import CopiedEntry, CopiedOrder, has_entry
from udpfast.client.composite_source import CompositeSource as CompositeSourceFace
from udpfast.client.store_source import StoreSource
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, FormatError, NotReadyError
from udpfast.log.journal import Journal as JournalFace
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_state import journal_identity
from udpfast.log.segment import Segment, list_segments, segment_path
from udpfast.market.updates import LAYOUTS
from udpfast.shm.instance import journal_directory

__all__ = ["CompositeCopy"]

cdef enum:
    BATCH = 4096


@cython.final
cdef class CompositeCopy:
    """Copies a composite into a journal, from where the journal ends. For use by one thread.

    Parameters
    ----------
    target : str
        The composite's name, or the directory of its order log.
    directory : str or path, optional
        Name or path of the journal, which is created if it does not exist. By default `composite`
        in the directory of the order log.
    segment_bytes : int
        Size of each segment.
    durable : bool
        Whether `sync` will be called.

    Attributes
    ----------
    journal : Journal
        The journal that is written.
    lapped : int
        Records that an input no longer has, or has damaged; LAPPED in the copy reports each.

    Raises
    ------
    FileNotFoundError, NotReadyError
        There is no such composite, or no daemon has run on this host.
    ConfigError
        `target` is a store, not a composite.
    FormatError
        The directory contains another journal, or the order log has changed.
    WriterExistsError
        Another process is copying into it now.
    """

    cdef readonly Journal journal
    cdef readonly uint64_t lapped
    cdef CompositeSource _source
    cdef CopiedNames _names
    cdef object _directory           # directory of the order log
    cdef int64_t _input              # input of the current entry
    cdef uint64_t[INPUTS_MAX] _next_index  # by input: index of its next record
    cdef OrderEntry _entry           # the current entry
    cdef int64_t _count, _at         # size of the batch in the source's arrays; its next record
    cdef bint _adopted               # the batch has the copy's name ids and sessions
    cdef uint64_t _skip_index        # the copy already has the current entry's records below this
    cdef int64_t _taken_ns           # when the current entry was decided, UNIX ns
    cdef bint _resuming              # the copy already has the first entry that comes
    cdef object _last                # CopiedEntry at which the copy continues; None: it is new
    cdef bint _counted               # `_next_index` is known for every input
    cdef uint64_t _place             # position of the current entry in the order log

    def __init__(
            self, target: str, directory: str | os.PathLike[str] | None = None, *,
            segment_bytes: int = 1 << 26, durable: bool = True):
        self._directory = journal_directory(target)
        try:
            inputs = read_composite(self._directory)
        except FileNotFoundError:
            if (self._directory / "bus.json").exists():
                raise ConfigError(
                    f"{self._directory}: expected a composite, found a store, which is a journal "
                    "already") from None
            raise FileNotFoundError(
                f"{self._directory}: expected composite.json, which the bus's daemon writes beside "
                "the log of a composite's order, found none") from None
        self.journal = JournalFace.open(
            copy_directory(self._directory) if directory is None else directory, LAYOUTS,
            name=self._directory.name, segment_bytes=segment_bytes, durable=durable)
        try:
            self._check_source(journal_identity(self._directory))
            describe_composite(self.journal.directory, inputs)
            start, had = self._find_end(len(inputs))
            self._names = CopiedNamesFace(
                self.journal.directory, self.journal.names, durable=durable)
            order = StoreSource(self._directory, start=start, batch=BATCH, buffer_bytes=None)
            self._source = CompositeSourceFace(
                order, inputs, batch=BATCH, buffer_bytes=None, marks=True, had=had)
            if self._resuming:
                self._source.had[self._input] = self._skip_index
        except BaseException:
            self.close()
            raise

    def _check_source(self, identity):
        # A journal holds the records of one composite and nothing else.
        if self.journal.index and self.journal.resume(identity) is None:
            raise FormatError(
                f"{self.journal.directory}: expected a copy of {self._directory}, found records "
                "of something else: choose another directory")
        self.journal.note_source(identity)

    def _find_end(self, inputs):
        # Return where to start in the order log, and by input how far the copy is (None: no need).
        # The copy continues at its last entry. If the order log has lost that one, it continues
        # behind the last entry that the log still has, and takes back the records beyond.
        for number in reversed(list_segments(self.journal.directory)):
            segment = Segment.open(segment_path(self.journal.directory, number))
            position = segment.info().position
            segment.close()
            if self._find_entry(position):
                break
        if self._last is not None:
            self._place = self._last.place
            self._resuming = not self._last.back and has_entry(
                StoreView(self._directory), self._last) > 0
            if self._resuming:
                return ("position", self._place), None
            self._skip_index = 0
            copied = self._count_copied(inputs)
            end = copied.common_end(self._directory)
            return "begin" if end is None else ("position", end), copied.next_index
        self._counted = True
        if self.journal.index:
            raise FormatError(
                f"{self.journal.directory}: expected a copy of a composite, which begins with "
                "ORDER, found none")
        return "begin", None

    def _count_copied(self, inputs):
        # Count the records of each input in the copy. Needed only when records are taken back.
        copied = CopiedOrder(self.journal.directory, inputs)
        for at, index in enumerate(copied.next_index):
            self._next_index[at] = index
        self._counted = True
        return copied

    def _find_entry(self, position):
        cdef OrderEntry entry
        cdef Lapped lapped
        cdef Rollback rollback
        cdef bytes payload
        with JournalCursor.attach(
                self.journal.directory, ("position", position), follow=False,
                layouts=LAYOUTS) as cursor:
            while count := cursor.poll():
                kinds = cursor.headers["kind"][:count]
                known = np.flatnonzero(kinds == Kind.ORDER)
                if len(known):
                    at = int(known.max())
                    payload = bytes(cursor.payload(at))
                    memcpy(&entry, <const char*>payload, sizeof(entry))
                    self._last = CopiedEntry(
                        int(cursor.headers["number"][at]),
                        int(cursor.headers["published_ns"][at]), payload)
                    self._input, self._skip_index = entry.input, entry.first_index
                    kinds = kinds[at + 1:]
                elif self._last is None:
                    continue  # the entry of these records is in an earlier segment
                else:
                    at = -1
                for i in range(len(kinds)):
                    payload = bytes(cursor.payload(at + 1 + i))
                    if kinds[i] == Kind.LAPPED:
                        memcpy(&lapped, <const char*>payload, sizeof(lapped))
                        self._skip_index += lapped.missed
                    elif kinds[i] == Kind.ROLLBACK:
                        memcpy(&rollback, <const char*>payload, sizeof(rollback))
                        self._skip_index -= rollback.records
                    else:
                        self._skip_index += 1
        return self._last is not None

    # --- copying --------------------------------------------------------------------------------

    def turn(self) -> int:
        """Copy at most one batch; return how many records were written or passed over.

        Does not wait for records.

        Raises
        ------
        FormatError
            The order log or an input has changed.
        OSError
            The disk is full or failed. Nothing is lost: the next turn continues at the same record.
        """
        cdef int64_t done = 0
        if self._at == self._count:
            self._look()
        if not self._adopted:
            self._adopt()
        while self._at < self._count:
            if self._source.headers[self._at].kind == KIND_ORDER:
                if not self._take_entry(self._source.headers, self._source.payloads):
                    break
            elif not self._take(self._source.headers + self._at,
                                self._source.payloads + self._source.offsets[self._at]):
                break
            self._at += 1
            done += 1
        journal_flush(self.journal, clock_realtime_ns())
        if self._at < self._count:
            self.journal.prepare()
            self.journal.roll(
                clock_monotonic_ns(), self._names.number, clock_realtime_ns(),
                names_mark=self._names.mark)
            done += 1
        return done

    def _look(self):
        # Get the next batch: an entry, or records of the current input.
        cdef int64_t count
        self._at = self._count = 0
        count = self._source.look(BATCH)
        if count == -EBADMSG:
            raise self._source.failure
        self._count = max(count, <int64_t>0)
        self._adopted = count <= 0 or self._source.headers.kind == KIND_ORDER

    def _adopt(self):
        # Give the batch the copy's name ids and sessions.
        cdef CompositeSource source = self._source
        cdef Record* header
        cdef int64_t i
        self._names.take(self._input, source.names, source.headers, source.offsets,
                         source.payloads, self._count)
        for i in range(self._count):
            header = source.headers + i
            header.session = session_of(header.session, self._input)
            if header.stream == STREAM_NONE:
                header.received_ns = self._taken_ns
        self._adopted = True
        if self.journal.names != self._names.number:
            self.journal.writer.limit = 0  # begin a new segment: each has one table of names

    cdef bint _take_entry(self, Record* header, const unsigned char* payload) except -1:
        # Append the next entry of the order log. Return False if the segment has no room.
        cdef OrderEntry entry
        cdef uint64_t until
        memcpy(&entry, payload, sizeof(entry))
        if self._resuming and header.number == self._place:
            if (<const char*>payload)[:sizeof(entry)] != self._last.content:
                raise FormatError(
                    f"{self._directory}: expected the entry at {self._place} that was copied, "
                    "found another one, because the order was just taken back: copy again")
        else:
            # Records of the previous entry that did not arrive are gone, unless the order log has
            # lost that entry itself.
            until = self._source.end_of(self._place, &self._entry)
            if (self._source.goes_on and until > self._entry.first_index
                    and not self._say_missing(until, header.published_ns)):
                return False
            header.session = session_of(0, entry.input)
            if not segment_append(&self.journal.writer, header, payload):
                return False
            self._skip_index = 0
        self._resuming = False
        self._input, self._place = entry.input, header.number
        self._taken_ns = header.published_ns
        self._entry = entry
        if self._source.end_of(header.number, &entry) > entry.first_index:
            self._next_index[self._input] = max(
                self._next_index[self._input], entry.first_index)
        return True

    cdef bint _take(self, Record* header, const unsigned char* payload) except -1:
        # Append a record of an input. Return False if the segment has no room.
        if header.kind == KIND_ROLLBACK:
            return self._take_back(header)
        if header.index < self._skip_index:
            return True
        if not self._say_missing(header.index, header.published_ns):
            return False
        if not segment_append(&self.journal.writer, header, payload):
            return False
        self._next_index[self._input] = header.index + 1
        return True

    cdef bint _take_back(self, Record* header) except -1:
        # The input lost records. The copy may contain more of them than this run has read.
        cdef Rollback rollback
        cdef uint64_t known
        if not self._counted:
            journal_flush(self.journal, clock_realtime_ns())
            self._count_copied(len(self._source.paths))
        known = max(self._next_index[self._input], self._skip_index)
        rollback.records = known - header.index
        rollback.position = header.position
        if known > header.index and not segment_append(
                &self.journal.writer, header, <const unsigned char*>&rollback):
            return False
        self._next_index[self._input] = header.index
        self._skip_index = 0
        return True

    cdef bint _say_missing(self, uint64_t index, int64_t at_ns) except -1:
        # Append LAPPED for records of the current input that are missing before `index`.
        cdef Record header
        cdef Lapped lapped
        cdef uint64_t known = max(self._next_index[self._input], self._skip_index)
        if index <= known:
            return True
        doubt_record_lapped(&header, &lapped, index - known, LAPPED_DAMAGE, at_ns)
        header.session = session_of(0, self._input)
        if not segment_append(&self.journal.writer, &header, <const unsigned char*>&lapped):
            return False
        self.lapped += lapped.missed
        self._next_index[self._input] = index
        return True

    # --- what is left ---------------------------------------------------------------------------

    def end(self) -> int:
        """Return the position up to which the order log may be read now, for `reached`."""
        state = self._source.order.live.read()
        return min(state.end, state.released) if state.gate else state.end

    def reached(self, uint64_t end) -> bool:
        """Return whether everything before a position of the order log has been copied.

        Raises
        ------
        NotReadyError
            This host's copy of an input is behind, and no daemon runs that could fetch the rest.
        """
        if self._at < self._count:
            return False
        if self._source.through(end):
            return True
        if not self._source.writer_alive():
            raise NotReadyError(
                f"{self._directory}: expected all records of its order, found copies that lack "
                "some, and no running bus daemon that could fetch them")
        return False

    def sync(self) -> None:
        """Write what was copied to the disk; return once it is durable."""
        self.journal.sync(clock_realtime_ns())

    def close(self) -> None:
        """Close the copy; everything copied is then on the disk. Idempotent."""
        if self._source is not None:
            self._source.detach()
        self.journal.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()
