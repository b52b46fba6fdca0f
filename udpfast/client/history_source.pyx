"""History, then live: the records of a ring from the journal that keeps them, then from the ring.

`history_seam` knows which of the two comes next and what is missing in between; this module reads
them. Each record is returned once, even if journal or ring are empty, closed, renamed or replaced.
"""

import contextlib

cimport cython
from libc.errno cimport EBADMSG, EPIPE
from libc.stdint cimport INT64_MIN, UINT64_MAX, int64_t, uint64_t
from libc.string cimport memcpy, memmove

from udpfast.client.history_seam cimport HistorySeam
from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport Source
from udpfast.core.atomics cimport load_relaxed
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.idle cimport Idle
from udpfast.core.layout cimport (
    KIND_CONNECTION, KIND_LAPPED, LAPPED_DAMAGE, LAPPED_READER, Lapped, RECORD_SIZE, Record)
from udpfast.log.cursor cimport RingCursor
from udpfast.log.doubt_records cimport doubt_record_lapped
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.recorded_runs cimport RecordedRuns, source_ended
from udpfast.log.ring cimport ring_ready
from udpfast.log.segment cimport IDENTITY_SIZE

from udpfast.archive.names import known_names
from udpfast.client.history_seam import UNREADABLE, HistorySeam
from udpfast.client.no_writer import warn_of_later_start
from udpfast.core.moment import moment_text
from udpfast.errors import ConfigError, RegionError, shown
from udpfast.log.journal_place import logs_of
from udpfast.log.journal_state import journal_state
from udpfast.log.recorded_runs import RecordedRuns

__all__ = ["HistorySource"]

_NO_LOG = bytes(IDENTITY_SIZE)


@cython.final
cdef class HistorySource(Source):
    """The source of a journal, and then of the ring whose records it keeps.

    Parameters
    ----------
    directory : pathlib.Path
        Directory of the journal.
    start : "begin", "tail", ("position", int) or ("time", int)
        Where to begin in the journal; "tail" begins in the ring. A time also applies to records
        that are in the ring already.
    live : RingSource
        The ring.
    addresses : tuple of str
        Addresses of the journal and of the ring.
    batch, buffer_bytes
        As for `Reader`.
    """

    def __init__(
            self, directory: Path, start: str | tuple[str, int], RingSource live not None,
            addresses: tuple[str, str], *, batch: int, buffer_bytes: int | None):
        cdef HistorySeam seam
        start_ns = start[1] if start[0] == "time" else INT64_MIN
        self.seam = seam = HistorySeam(directory, live, start_ns, (batch, buffer_bytes))
        self.history_address, self.live_address = addresses
        self.live = live
        self.live.steered = True
        self.directory = live.directory
        self.entry = live.entry
        self.start_until = live.cursor.tail_index
        if start_ns > live._last_ns():
            self._check_later(start_ns)
            self.start_until = UINT64_MAX
        if start == "tail":
            seam.begin_at_tail()
            self._use(live)
            self.names = live.names
            return
        at = start[1] if start[0] == "position" else 0
        if at > seam.state.position:
            raise ConfigError(
                f"start must be position {seam.state.position} or earlier, where the journal "
                f"{directory} ends, was {shown(at)}")
        self.whole = at <= seam.state.oldest_position
        seam.start_from = live.cursor.extent()[0]
        seam.open(start)
        seam.runs = RecordedRuns(seam.recorded.cursor)
        self._use_piece()
        self.names = seam.recorded.names

    @property
    def origin(self) -> str:
        """Address of the source whose records the last wait returned."""
        return self.live_address if self.seam.runs is None else self.history_address

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        cdef int64_t count, left
        # What is left out is passed over in one poll, but not what a fast feed adds meanwhile.
        cdef uint64_t there = load_relaxed(&self.live.cursor.reader.header.tail_index)
        self.sought = False
        while True:
            if self.seam.runs is not None:
                with gil:
                    count = self._look(limit)
                if count != 0:
                    return count
                continue
            count = self.live.wait(limit, until_ns, idle)
            if unlikely(self.payloads != self.live.payloads):  # a new file with larger payloads
                with gil:
                    self._use(self.live)
            if unlikely(count > 0 and self.headers[0].kind == KIND_CONNECTION
                        and self.headers[0].index == self.live.cursor.reader.index):
                self.missed = 0  # a CONNECTION about the writer, which is not in the ring
                return count
            if unlikely(count == -EPIPE or (
                    count > 0 and (self.seam.ahead or self.headers[0].index > self.seam.index))):
                with gil:
                    count = self._disturbed(count)
                if count == 0:
                    continue
            if count <= 0:
                return count
            left = self._leave_out(count)
            self.seam.index = max(self.seam.index, self.live.cursor.reader.index)
            if (left == 0 and self.live.cursor.reader.index >= there
                    and clock_monotonic_ns() >= until_ns):
                return 0
            if left > 0:
                if self.headers[left - 1].kind != KIND_LAPPED:
                    self.seam.last_ns = self.headers[left - 1].published_ns
                self._tell()
                return left

    def _check_later(self, start_ns):
        # All records are older: more come only if the ring has a writer, or another may follow.
        cdef int64_t last_ns = self.live._last_ns()
        if self.live.cursor.life == "finished":
            raise ConfigError(
                f"{self.live_address} has ended, and its last record was published at "
                f"{moment_text(last_ns)}: it has nothing from {moment_text(start_ns)} on")
        if self.live.written():
            warn_of_later_start(self.live_address, start_ns, last_ns)

    cdef void _tell(self) noexcept nogil:
        # Report the missing records with the next record.
        self.missed_reason = self.seam.between_reason
        self.missed = self.seam.tell()

    cdef int64_t _leave_out(self, int64_t count) noexcept nogil:
        # Leave out records of the ring that were handed out already, and those that are older than
        # this source and were published before start_ns. If all there was are, the first that was
        # published later begins: from there on the clock may be set back.
        cdef int64_t i, kept = 0
        cdef Record* header
        if self.headers[0].index >= max(self.start_until, self.seam.index):
            return count
        for i in range(count):
            header = self.headers + i
            if header.index < self.seam.index or (
                    header.index < self.start_until and header.published_ns < self.seam.start_ns):
                continue
            if unlikely(self.start_until == UINT64_MAX):
                self.start_until = header.index
            if kept != i:
                memmove(self.headers + kept, header, RECORD_SIZE)
                self.offsets[kept] = self.offsets[i]
            kept += 1
        return kept

    # --- the journal ----------------------------------------------------------------------------

    cdef int64_t _look(self, int64_t limit) noexcept:
        # Read records of the journal; 0: read the ring next, or call again.
        try:
            return self._read(limit)
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef int64_t _read(self, int64_t limit) except -1:
        cdef RecordedRuns runs = self.seam.runs
        cdef int64_t count
        try:
            count = runs.look(min(limit, runs.cursor._limit))
        except RegionError:
            # The journal was removed or begun anew: its records may be elsewhere.
            if not self._journal_gone():
                raise
            return 0
        if self.payloads != runs.cursor._payloads:
            self.seam.recorded.use_arrays(
                runs.cursor.headers, runs.cursor.offsets, runs.cursor.payloads)
            self._use(self.seam.recorded)
        if count == 0:
            self._journal_ended()
            return 0
        if not self._comes_next():
            return 0
        if runs.index < self.seam.index:  # read from another piece already
            runs.take(min(<uint64_t>count, self.seam.index - runs.index))
            return 0
        if runs.unknown:
            self.seam.doubt()
        count = runs.take(min(count, limit))
        runs.forget_missing()
        self.seam.index, self.seam.exact = runs.index, runs.exact
        self.seam.last_ns = self.headers[count - 1].published_ns
        self._tell()
        return count

    cdef bint _comes_next(self) except -1:
        # Return whether the journal's current record is the next one, or an earlier one.
        cdef HistorySeam seam = self.seam
        cdef RecordedRuns runs = seam.runs
        if runs.log == seam.log and runs.index == seam.index:
            return True
        if runs.skipped or not seam.log:
            self._begin_with()
        if runs.log == seam.log:
            if runs.exact and not seam.exact:
                seam.count_by_time(runs.index)
            elif not seam.exact:  # an inexact index cannot be compared with other pieces
                seam.miss(max(runs.index, seam.index) - seam.index, runs.reason)
                seam.index = runs.index
            if runs.index <= seam.index:
                return True
        self._go_on()
        return seam.runs is runs

    cdef _begin_with(self):
        # The journal's current record is the first one, or the first behind some that were
        # published before start_ns. Losses before those are not reported.
        cdef HistorySeam seam = self.seam
        cdef RecordedRuns runs = seam.runs
        if self.whole and not runs.skipped:
            return
        runs.skipped = False
        seam.missed_between = 0
        if runs.from_log == runs.log or seam.start_ns != INT64_MIN:
            seam.place(runs.from_log, runs.from_index)
            seam.exact = runs.from_exact
        else:
            seam.place(runs.log, runs.index)
            seam.exact = runs.exact
        with contextlib.suppress(*UNREADABLE):  # of a journal that is gone, what is mapped is read
            order = logs_of(seam.journal)
            seam.passed.update(order[:order.index(seam.log)] if seam.log in order else ())

    cdef bint _journal_ended(self) except -1:
        # The journal was read to its end as last seen. Go on with the ring if it continues there,
        # with the journal if it has grown, and else with whatever piece comes next.
        cdef HistorySeam seam = self.seam
        cdef RecordedRuns runs = seam.runs
        cdef JournalCursor cursor = runs.cursor
        cdef uint64_t position
        if self.whole and not seam.log and not runs.skipped and runs.reason == LAPPED_DAMAGE:
            # None of it is readable, so where it began is unknown: the ring may have the records.
            return self._read_elsewhere()
        before = seam.state
        position = self._place_behind_journal()
        if runs.log == seam.log and runs.index == seam.index and seam.stands_at(position):
            seam.leave_journal()
            self.live.cursor.seek(position, seam.index)
            seam.use_ring()
            self._use_piece()
            return True
        with contextlib.suppress(*UNREADABLE):
            seam.state = journal_state(seam.journal)
        if seam.state.identity == before.identity and seam.state.position > cursor.position:
            end = seam.state.resume_position
            cursor.extend(("position", end if end > cursor.position else seam.state.position))
            return False
        return self._read_elsewhere()

    cdef uint64_t _place_behind_journal(self) except? 0:
        # Set where the journal's records that were read end in the log of their source. Return the
        # position there; source_ended() if the journal does not state it.
        cdef HistorySeam seam = self.seam
        cdef RecordedRuns runs = seam.runs
        cdef uint64_t position = source_ended()
        before = seam.state
        if runs.cursor.position <= before.resume_position and before.source != _NO_LOG:
            runs.log, runs.index, runs.exact = before.source, before.source_index, True
            position = before.source_position
        elif not runs.known and not runs.skipped:
            runs.locate(runs.cursor.index, True)
        log, from_index = runs.log, runs.index
        if (runs.known or runs.skipped) and (runs.from_exact or seam.start_ns != INT64_MIN):
            log, from_index = runs.from_log, runs.from_index
        if self.whole and not runs.skipped and log == seam.start_log:
            from_index = min(from_index, seam.start_from)  # the ring may have earlier records
        if runs.skipped or not seam.log and (
                not self.whole or before.position > before.oldest_position
                or before.source != _NO_LOG):
            if seam.log and log != seam.log:
                seam.passed.add(seam.log)
            seam.missed_between = 0
            # Starting at a time, all records not skipped are wanted, even if no recorder had them.
            seam.place(log, from_index if runs.skipped or seam.start_ns == INT64_MIN else 0)
            seam.exact = runs.exact
            runs.forget_missing()
        elif runs.log == seam.log and runs.exact and not seam.exact:
            seam.count_by_time(runs.index)
        return position

    cdef bint _journal_gone(self) except -1:
        # The next record may be elsewhere. Return False if it is unknown which one that is.
        cdef HistorySeam seam = self.seam
        cdef RecordedRuns runs = seam.runs
        cdef bint lost = runs.cursor.segment is None
        if not seam.log:
            if runs.locate(runs.cursor.index, True):
                seam.place(runs.log, runs.index)
            elif not lost and not self.whole:
                return False  # otherwise reading starts with the oldest record, wherever it is
        elif not seam.exact and not seam.count_by_time():
            return False
        return self._read_elsewhere()

    cdef bint _read_elsewhere(self) except -1:
        self.seam.leave_journal()
        if not self._go_on():
            self.seam.use_ring()
            self._use_piece()
        return True

    # --- the ring -------------------------------------------------------------------------------

    cdef int64_t _disturbed(self, int64_t count) noexcept:
        # The ring lacks the next record, or was closed. Return 0 if another piece continues.
        cdef HistorySeam seam = self.seam
        cdef uint64_t first
        try:
            if count == -EPIPE:
                return 0 if self._go_on() else self._end(count)
            first = self.headers[0].index
            if seam.ahead or not self.sought:
                # A lapped cursor jumps to the newest record, and the ring has earlier ones. Go back
                # only once per wait: a writer that laps again and again cannot be caught up with.
                self.sought = True
                if self._go_on():
                    return 0
            else:
                piece, at = seam.recorded_piece()
                if piece is not None and piece.first < first:
                    seam.miss(piece.first - seam.index, LAPPED_READER)
                    seam.index = piece.first
                    seam.stand(piece, at)
                    self._use_piece()
                    return 0
            if first > seam.index:
                if not (first < self.start_until
                        and self.headers[0].published_ns < seam.start_ns):
                    seam.miss(first - seam.index, LAPPED_READER)
                seam.index = first
            return count
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef int64_t _end(self, int64_t code) except? -1:
        # The ring ended: no record follows that could report the missing ones, so make a LAPPED.
        cdef HistorySeam seam = self.seam
        cdef Lapped lapped
        cdef uint64_t end = max(
            self.live.cursor.reader.index,
            self.live.removed_index if self.live.removed else self.live.cursor.tail_index)
        if seam.ahead:
            whole = not seam.log and seam.start_ns == INT64_MIN
            seam.pass_log(False)
            seam.place(self.live.cursor.log, end if whole else 0)
            seam.ahead = False
        if self.live.cursor.log == seam.log and end > seam.index:
            seam.miss(end - seam.index, LAPPED_READER)
            seam.index = end
        if seam.missed_between == 0:
            return self.live.say_ended(code) if self.among else code
        doubt_record_lapped(
            self.headers, &lapped, seam.missed_between, seam.between_reason, clock_realtime_ns())
        self.headers.position = self.live.cursor.reader.cursor
        self.headers.index = seam.index
        memcpy(self.payloads, &lapped, sizeof(lapped))
        self.offsets[0] = 0
        seam.missed_said += seam.missed_between
        self.missed = seam.missed_between = 0
        return 1

    # --- from one to the other ------------------------------------------------------------------

    cdef bint _go_on(self) except -1:
        # Move to the next record. Return False if there is no other piece than the current one.
        cdef bint found = self.seam.go_on()
        self._use_piece()
        return found

    cdef _use_piece(self):
        # Use the arrays of the current piece, if it has changed.
        if not self.seam.entered:
            return
        self.seam.entered = False
        self._use(self.live if self.seam.runs is None else self.seam.recorded)
        if self.seam.runs is None:
            self.renew_names()

    cdef _use(self, Source source):
        self.use_arrays(source.headers_array, source.offsets_array, source.payloads_array)

    # --- as any source --------------------------------------------------------------------------

    cdef join_others(self):
        self.among = self.live.among = True

    cdef check(self):
        cdef RingCursor ring = self.live.cursor
        if self.seam.runs is not None or (
                ring.region.replaced() and not ring_ready(&ring.reader) and self._go_on()):
            return
        self.live.check()

    cdef fail(self, int64_t code):
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self.live.fail(code)

    cdef renew_names(self):
        cdef Source source = self.live if self.seam.runs is None else self.seam.recorded
        source.renew_names()
        self.names = source.names

    cdef bint names_missing(self):
        cdef Source source = self.live if self.seam.runs is None else self.seam.recorded
        return source.names_missing() or self.names is not source.names

    cdef names_published(self):
        kept, live = known_names(self.seam.journal), self.live.names_published()
        return kept[0] | live[0], kept[1] | live[1]

    cdef sleeper(self):
        return self.live.sleeper()

    cdef report(self, uint64_t read):
        if self.seam.runs is None:
            self.live.report(read)

    cdef uint64_t next_index(self):
        return self.seam.index

    cdef uint64_t missed_total(self):
        return self.seam.missed_said + self.seam.missed_between

    cdef uint64_t written(self):
        # For logs before the ring's, only the records in the journal can be counted.
        cdef HistorySeam seam = self.seam
        cdef uint64_t written = self.live.written()
        if self.live.cursor.log == seam.log:
            return max(written, seam.index)
        if seam.runs is not None:
            written += max(seam.runs.cursor.tail_index, seam.runs.cursor.index) - (
                seam.runs.cursor.index)
        return seam.index + written

    cdef object end(self):
        # The ring's, whatever piece is read now: a journal that is written is behind it.
        if self.live.cursor.region.replaced():
            return None
        return self.live.cursor.log, self.live.written()

    cdef bint passed(self, end) except -1:
        log, index = end
        return log in self.seam.passed or log == self.seam.log and self.seam.index > index

    cdef uint64_t writer_epoch(self):
        return self.live.writer_epoch()

    cdef bint writer_alive(self):
        return self.live.writer_alive()

    cdef bint begins_again(self):
        return self.live.begins_again()

    cdef bint writer_ended(self):
        return self.live.writer_ended()

    cdef bint writer_failed(self):
        return self.live.writer_failed()

    cdef bint writer_stuck(self):
        return self.live.writer_stuck()

    cdef bint detached(self):
        return self.live.detached()

    cdef detach(self):
        self.entry = NULL
        if self.seam.runs is not None:
            self.seam.recorded.detach()
        self.live.detach()
