"""History, then live: the records of a ring from the journal that has them, then from the ring.

The journal says which record of the ring comes behind its last one; the ring's log says that it is
that ring. So each record comes once, whatever either is called.
"""

import contextlib
from pathlib import Path

cimport cython
from libc.errno cimport EBADMSG, EPIPE
from libc.stdint cimport INT64_MIN, int64_t, uint64_t
from libc.string cimport memmove

from udpfast.client.journal_source cimport JournalSource
from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport Source
from udpfast.core.check cimport unlikely
from udpfast.core.idle cimport Idle
from udpfast.core.layout cimport RECORD_SIZE, Record
from udpfast.log.cursor cimport RingCursor
from udpfast.log.journal_cursor cimport JournalCursor

from udpfast.client.journal_source import JournalSource
from udpfast.errors import ConfigError, FormatError, UdpfastError
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.log.journal_state import journal_state
from udpfast.market.updates import LAYOUTS
from udpfast.shm.instance import journal_directory

__all__ = ["HistorySource", "open_history"]

# In place of a position: the ring's writer closed it, and the journal has all (agents.recording).
cdef uint64_t SOURCE_ENDED = <uint64_t>-1


@cython.final
cdef class HistorySource(Source):
    """A journal, and the ring whose records it has.

    Parameters
    ----------
    history : JournalSource
        Of a cursor that does not follow, and has room for what the ring's may bring.
    live : RingSource
    history_address, live_address : str
    start_ns : int, optional
        Records published before are left out, as far as they are written already.
    """

    def __init__(
            self, JournalSource history not None, RingSource live not None, history_address,
            live_address, start_ns=None):
        self.history = history
        self.live = live
        self.state = journal_state(history.directory)
        history.cursor.extend(("position", self.state.resume_position))
        self.history_address = history_address
        self.live_address = live_address
        self.directory = live.directory
        self.start_ns = INT64_MIN if start_ns is None else start_ns
        self.start_until = live.cursor.tail_index
        self.use_arrays(history.headers_array, history.offsets_array, history.payloads_array)
        live.cursor.use(self.headers_array, self.offsets_array, self.payloads_array)
        live.use_arrays(self.headers_array, self.offsets_array, self.payloads_array)
        self.names = history.names
        self.entry = live.entry
        self.missed_reason = history.missed_reason

    @property
    def origin(self) -> str:
        """The address whose records the last wait brought."""
        return self.live_address if self.history is None else self.history_address

    @property
    def log(self) -> bytes:
        """Of the ring."""
        return self.live.log

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        cdef int64_t count, left
        while self.history is not None:
            with gil:
                count = self.look(limit)
            if count != 0:
                return count
        self.missed = self.missed_between
        while True:
            count = self.live.wait(limit, until_ns, idle)
            if unlikely(self.payloads != self.live.payloads):  # of another file, with larger ones
                with gil:
                    self._use_live()
            left = self._leave_out(count)
            self.missed += self.live.missed
            if left != 0 or count <= 0:
                # Told with the record that comes next.
                self.missed_between = 0 if left > 0 else self.missed
                return left

    cdef int64_t look(self, int64_t limit) noexcept:
        # Records of the journal; 0: it went over to the ring, or there is more of the journal.
        cdef int64_t count
        try:
            count = self.history.look(limit)
            self.missed = self.history.missed
            if count == -EPIPE:
                self._go_over()
                return 0
            if count < 0:
                self.failure = self.history.failure
            return count
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef void _use_live(self) noexcept:
        self.use_arrays(
            self.live.headers_array, self.live.offsets_array, self.live.payloads_array)

    cdef bint _go_over(self) except *:
        # The journal was read up to where it was when that was looked at last. The ring comes next
        # if it still has the next record, or the journal has no more; else there is more of that.
        cdef RingCursor ring = self.live.cursor
        cdef JournalCursor journal = self.history.cursor
        before = self.state
        self.state = journal_state(journal.directory)
        if before.source_position != SOURCE_ENDED and not ring.holds(before.source_position):
            if self.state.source == before.source and (
                    self.state.resume_position > before.resume_position):
                journal.extend(("position", self.state.resume_position))
                return False
        if before.source_position < ring.reader.header.first or (
                before.source_position == SOURCE_ENDED):
            # The ring's log went on in another file: from its first record, behind what no file
            # has any more.
            ring.seek(ring.reader.header.first, ring.reader.header.first_index)
            self.missed_between = ring.reader.header.first_index - min(
                <uint64_t>ring.reader.header.first_index, <uint64_t>before.source_index)
        else:
            ring.seek(before.source_position, before.source_index)
        self.missed_before = journal.missed_total + self.missed_between
        self.missed_reason = self.live.missed_reason
        self.history.detach()
        self.history = None
        self.renew_names()
        return True

    cdef int64_t _leave_out(self, int64_t count) noexcept nogil:
        # Of the ring's records that were written before it was opened, those published too early.
        cdef int64_t i, kept = 0
        cdef Record* header
        if count <= 0 or self.headers[0].index >= self.start_until:
            return count
        for i in range(count):
            header = self.headers + i
            if header.index < self.start_until and header.published_ns < self.start_ns:
                continue
            if kept != i:
                memmove(self.headers + kept, header, RECORD_SIZE)
                self.offsets[kept] = self.offsets[i]
            kept += 1
        return kept

    cdef check(self):
        self.live.check()

    cdef fail(self, int64_t code):
        if self.failure is not None:
            raise self.failure
        self.live.fail(code)

    cdef renew_names(self):
        cdef Source source = self.live if self.history is None else self.history
        source.renew_names()
        self.names = source.names

    cdef bint names_missing(self):
        cdef Source source = self.live if self.history is None else self.history
        return source.names_missing() or self.names is not source.names

    cdef sleeper(self):
        return self.live.sleeper()

    cdef report(self, uint64_t read):
        if self.history is None:
            self.live.report(read)

    cdef uint64_t next_index(self):
        return self.live.next_index() if self.history is None else self._as_of_ring()

    cdef uint64_t missed_total(self):
        if self.history is not None:
            return self.history.missed_total()
        return self.missed_before + self.live.missed_total()

    cdef uint64_t written(self):
        return self.live.written()

    cdef uint64_t writer_epoch(self):
        return self.live.writer_epoch()

    cdef bint detached(self):
        return self.live.detached()

    cdef detach(self):
        self.entry = NULL
        if self.history is not None:
            self.history.detach()
        self.live.detach()

    cdef uint64_t _as_of_ring(self):
        # What the journal's next record is in the ring, about: records that its recorder missed
        # are counted there and not here.
        cdef uint64_t behind = self.state.resume_index - min(
            <uint64_t>self.state.resume_index, self.history.cursor.index)
        return self.state.source_index - min(<uint64_t>self.state.source_index, behind)


def open_history(RingSource live not None, start_ns, batch, buffer_bytes, address):
    """Return the source that begins with the journal of a ring's records.

    Parameters
    ----------
    live : RingSource
    start_ns : int
        Begin with what was published then or later, UNIX ns.
    batch, buffer_bytes
        As `Reader` has them.
    address : str
        Of the ring.

    Raises
    ------
    ConfigError
        No journal has its records.
    """
    log = live.log
    looked = []
    for directory in _journals_of(live.directory):
        looked.append(str(directory))
        try:
            if journal_state(directory).source == log:
                break
        except (FileNotFoundError, FormatError):
            continue
    else:
        raise ConfigError(
            f"start must be 'tail', 'begin' or 'oldest' for {address}, because no journal has "
            f"its records (looked at {', '.join(looked) or 'none'})")
    cursor = JournalCursorFace.attach(
        directory, ("time", start_ns), follow=False, limit=batch, layouts=LAYOUTS,
        room_bytes=max(buffer_bytes or 256 * batch, len(live.payloads_array)))
    return HistorySource(JournalSource(cursor), live, f"journal:{directory}", address, start_ns)


def _journals_of(instance):
    # Where its recorder said that it records to; else the journal of its name.
    with contextlib.suppress(OSError, ValueError):
        yield Path((Path(instance) / "journal").read_text())
    with contextlib.suppress(OSError, UdpfastError):
        yield journal_directory(Path(instance).name)
