"""The one way to read records: `Reader("ring:NAME")`, one by one or in numpy batches."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.number cimport PyIndex_Check
from libc.errno cimport EPIPE
from libc.stdint cimport int64_t, uint16_t, uint64_t

from udpfast.client.batch cimport Batch, batch_of
from udpfast.client.filter cimport Filter
from udpfast.client.record cimport Reading, ReadRecord, record_copy, record_lapped
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.idle cimport IDLE_SLEEP_MAX_NS, idle_reset
from udpfast.core.layout cimport KIND_LAPPED, KIND_RESTART
from udpfast.log.readers cimport reader_time, reader_time_all

import warnings

from udpfast.client.source import open_source
from udpfast.core.idle import idle_strategy
from udpfast.errors import ConfigError, UdpfastError, shown, unexpected_keyword

__all__ = ["Reader"]

cdef enum:
    SLICE_NS = 20_000_000        # a wait checks for signals this often; users do not notice 20 ms
    BUSY_LOOK_NS = 200_000_000   # period of the check of a source that is never without records
    BUFFER_BYTES_MAX = 1 << 30   # several thousand of the largest records


@cython.final
cdef class Reader:
    """Reader(address, *, idle="backoff", start=None, end=None, batch=4096, buffer_bytes=None, \
timeout=0.0, name="", kinds=None, exchanges=None, symbols=None, image=False)\n--\n
    Read a ring from this process, at your own pace: the writer never waits for you.

    A reader that falls behind by more than the ring's capacity is lapped. It learns how many
    records it missed from a record of `Kind.LAPPED` (iteration) or from `batch.lapped` (poll).
    When the writer dies, the reader gets a record of `Kind.CONNECTION`, and `Kind.RESTART` when
    another writer takes over; if that writer begins another file, the reader continues there.

    A reader belongs to one thread; `close` may be called from any.

    Parameters
    ----------
    address : str, or list or tuple of str
        "ring:NAME", the name of a running instance, or "ring:/path/to/instance/directory";
        "journal:NAME" or "journal:/path/to/journal" for a recording; "zmq:..." (docs/zmq.md);
        "store:NAME" and "composite:NAME" of a bus, or their paths (docs/bus.md);
        "group:NAME" for all feeds that one `udpfast run DIRECTORY` supervises.
        ["journal:NAME", "ring:NAME"], a journal and the ring that it is of, is one feed, each
        record once. Several feeds are read as one stream in the order of `published_ns` (equal
        times in the order of the list); records of one address keep their own order. A live
        address with nothing new does not delay the others. All records of a batch are of one
        address: `reader.origin`.
    idle : {"spin", "yield", "backoff", "sleep"}
        How to wait: "spin" reacts fastest and takes a whole core; "backoff" spins, then yields,
        then sleeps for up to 1 ms.
    start : "tail", "begin", "oldest", a time or ("position", int), optional
        Where to begin. Ring: "tail", the next record to be written (the default); "begin", the
        very first (refused if it was overwritten); "oldest", the oldest that the ring still has;
        or a time (ISO 8601 with its zone, an aware datetime, a `numpy.datetime64`, which is UTC,
        or UNIX ns): the records published from then on, first from the journal, then from the
        ring. A time later than the last record is waited for, with a RuntimeWarning if it is more
        than a minute later; it is refused if the writer has ended. Journal: the oldest (the
        default), "tail", a time, or the first record at or after a position. Store: as for a
        journal, but a record must begin, or the last one end, at the position.
    end : a time or ("position", int) or "never", optional
        Journal only: leave out records published at or after this time, or records at or after
        this position. Reading ends there, also while the journal is written and nothing later
        comes: a moment after that time, or once a record ends at that position. By default reading
        ends with the journal, but continues as long as the journal has a writer. "never": it
        waits for the next writer, too, as the recorder of the feed's next run is one. From a
        record of `Kind.CONNECTION` (FANOUT, DISCONNECTED) on, books are stale: until READY, which
        comes behind what the next writer lacks or begins anew. It ends with `close`.
    batch : int
        Records that one poll returns, at most; by default 4,096.
    buffer_bytes : int, optional
        Payload bytes that one poll returns, at most; by default 256 for each record. Never less
        than the ring's largest payload.
    timeout : float or None
        Seconds to wait until what the address names exists: a ring, a journal, all of a list; by
        default 0. It bounds the opening and no read: see `end`, and `poll`.
        A reader that begins at a ring's tail, or with the image, also waits for the next writer
        of a ring whose writer has ended, failed or died (the last run's), and reads that ring if
        none comes. 0: do not wait; None: forever.
    name : str
        Name of this reader in `udpfast stat`; by default the program's name.
    kinds : Kind or its name, or iterable of these, optional
        Updates and messages of these kinds only: `kinds=["book", "trades"]`. GAP, SESSION,
        RESTART, LAPPED, ROLLBACK, CONNECTION and DISAGREEMENT always come; STALE and RECOVERED
        of the names that you asked for: see `client.filter.Filter`.
    exchanges, symbols : str, or iterable of str, optional
        Updates of these names only, and doubts as for `kinds`. A record that is left out costs no
        Python object. A name that has not been published so far raises a warning, which lists
        those that have.
    image : bool
        Begin with the complete state, whatever `start` is: first each object's last values, as
        records flagged `SNAPSHOT`, then the ring (or the feed's store) from exactly that point.
        Needs `[image]` in the feed's file. A reader of a ring that is lapped begins so again,
        after LAPPED, which counts what lies in between. If there is no usable image within a
        second, it warns (RuntimeWarning), and goes on with the newest record.

    Raises
    ------
    ConfigError
        The address or an option is wrong.
    FileNotFoundError
        No such ring or journal appeared within `timeout` seconds.
    RegionError
        The ring is not safe to read, or of another version.
    FormatError
        `start` is "begin", and the beginning has been overwritten.
    ImageError
        There is no usable image; the message says why.
    """

    def __init__(
            self, address, *, idle="backoff", start=None, end=None, batch=4096,
            buffer_bytes=None, timeout=0.0, name="", kinds=None, exchanges=None, symbols=None,
            image=False, **unknown):
        if unknown:
            raise unexpected_keyword(Reader, unknown)
        if not 1 <= batch <= 1 << 20:
            raise ConfigError(f"batch must be 1 to {1 << 20} records, was {shown(batch)}")
        if buffer_bytes is not None and not 0 <= buffer_bytes <= BUFFER_BYTES_MAX:
            raise ConfigError(f"buffer_bytes must be 0 to {BUFFER_BYTES_MAX}, or None, was "
                              f"{shown(buffer_bytes)}")
        if kinds is not None or exchanges is not None or symbols is not None:
            self._filter = Filter(kinds=kinds, exchanges=exchanges, symbols=symbols)
        idle_reset(&self._idle, idle_strategy(idle), IDLE_SLEEP_MAX_NS)
        reader_deadline(timeout)  # raises ValueError for an invalid timeout
        if isinstance(address, Source):  # opened by the caller; internal use
            self._source = address
            self.address = name
        else:
            self._source = open_source(
                address, start=start, batch=batch, buffer_bytes=buffer_bytes, timeout=timeout,
                name=name, image=image, end=end)
            self.address = address if isinstance(address, str) else " + ".join(address)
        self._reading = Reading(self.address)
        self._batch = batch
        self._looked_ns = clock_monotonic_ns() - SLICE_NS
        self._renew_memory()
        if exchanges is not None or symbols is not None:
            _note_unknown(self)

    def __iter__(self):
        """Iterate over the records; see `__next__`.

        Raises
        ------
        ValueError
            The reader is closed already, and has no record in memory.
        """
        if not reader_in_memory(self):
            self._check_open()
        return self

    def __next__(self):
        """Return the next record as a `ReadRecord`; wait for it as `idle` says.

        The iteration ends when the writer has closed the ring, or `close` was called, and all
        records have been read.

        Raises
        ------
        RingClosedError
            The ring was removed: open a new reader.
        """
        if self.ahead(self._batch, READER_FOREVER) == READER_CLOSED:
            raise StopIteration
        return self.take()

    def __aiter__(self):
        """Iterate over the records in an event loop: `async for record in reader`.

        While there are no records, the task sleeps without a thread until the writer wakes it;
        with `idle="spin"` it looks at every turn of the loop instead. Between two runs of records
        the loop's other tasks have their turn. It ends and raises like an ordinary iteration.

        Raises
        ------
        ValueError
            The reader is closed already.
        """
        self._check_open()
        from udpfast.client.aio import Records

        return Records(self)

    async def arrival(self, timeout=None) -> bool:
        """Wait in an event loop until there is something to read; consume nothing.

        For batches: `while await reader.arrival(): batch = reader.poll(timeout=0)`.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None: forever.

        Returns
        -------
        bool
            As in `wait`.
        """
        from udpfast.client.aio import Arrivals

        if self._arrivals is None:
            self._arrivals = Arrivals()
        return await self._arrivals.wait(self, timeout)

    def wait(self, timeout=None) -> bool:
        """Wait until there is something to read, as `idle` says; consume nothing.

        Parameters
        ----------
        timeout : float, optional
            Seconds; 0: do not wait. None: forever.

        Returns
        -------
        bool
            False if the time is over, or if nothing more can come because the ring or the reader
            is closed.

        Raises
        ------
        RingClosedError
            The ring was removed: open a new reader.
        """
        return self.ahead(self._batch, reader_deadline(timeout)) > 0

    def poll(self, limit=None, timeout=None) -> Batch:
        """Return available records as a batch, at most 4,096; wait for the first as `idle` says.

        Parameters
        ----------
        limit : int, optional
            Records to return at most; the reader's `batch` (4,096 by default) is a limit as well.
            The rest comes with the next polls: `lag` says how many are left.
        timeout : float, optional
            Seconds to wait; 0: do not wait. None: until a record comes.

        Returns
        -------
        Batch
            Empty if nothing came in time. Valid until the next poll. One that holds a RESTART
            begins with it.

        Raises
        ------
        RingClosedError
            All was read, and the writer closed the ring; or it was removed.
        """
        cdef int64_t most = self._batch
        if limit is not None:
            if not PyIndex_Check(limit):
                raise TypeError(_expected_limit(limit))
            most = min(limit, self._batch)
        if most < 1:
            raise ValueError(f"limit must be at least 1 record, was {shown(limit)}")
        self._check_open()
        batch = self.next_batch(most, reader_deadline(timeout))
        if batch is None:
            self._check_open()
            self._source.fail(-EPIPE)
        return batch

    @property
    def directory(self):
        """The instance's directory, a `Path`; None if it is not on this host."""
        return self._source.directory

    @property
    def origin(self) -> str:
        """The address that the records handed out last came from."""
        return self._source.origin or self.address

    @property
    def names(self) -> NameCache:
        """Names by id, as updates carry them: `reader.names[update.header["symbol_id"]]`."""
        if self._source.names.table is None:
            self._source.renew_names()
        return self._source.names

    @property
    def lag(self) -> int:
        """Records written (as of the writer's last flush) and not handed out yet.

        Over ZeroMQ it is as of the last message taken. Of a composite it is at least so many: an
        entry of its order log that was not read yet counts as one record.
        """
        return max(0, self._source.written() - self.index)

    @property
    def lapped(self) -> int:
        """Records missed since this reader was opened."""
        return self._source.missed_total()

    @property
    def index(self) -> int:
        """Index of the next record to be handed out; records of an image do not count."""
        if self._source.from_image:
            return self._source.next_index()
        if self._next < self._count:
            return self._memory.headers[self._next].index
        if self._rest < self._end:
            return self._memory.headers[self._rest].index
        return self._source.next_index()

    @property
    def joining(self) -> bool:
        """Whether records of the image are still to come, so that the state is not complete yet."""
        return self._source.joining() or self._source.from_image and (
            self._next < self._count or self._rest < self._end)

    @property
    def epoch(self) -> int:
        """Number of the ring's writer; it grows by 1 each time that another writer takes over."""
        self._check_open()
        return self._source.writer_epoch()

    @property
    def alive(self) -> bool:
        """Whether the writer (the feed's process or the fan-out) works; of several, any of them.

        If not, `state` says why. When the writer of a ring or a fan-out has failed or died, a
        record of `Kind.CONNECTION` (stream NONE, DISCONNECTED) reports it, too, within a second;
        when it closed the ring normally, the reader ends. For a store or composite the writer is
        this host's daemon. Only this property reports that it has been silent for a second, because
        the stream is the same on all hosts and continues when the daemon is back.
        """
        return self.state == "alive"

    @property
    def state(self) -> str:
        """State of the writer in one word. In any state there may be records left to read.

        "alive": it works. "ended": it was stopped normally, and nothing more will come. "stuck":
        its process exists, but its loop has not run for a second (it was stopped by a signal or a
        debugger, gets no CPU time, or waits for its network) and may continue. "failed": it
        reported that an error ended it. "dead": it was killed, or is silent. After "failed" and
        "dead" another writer may continue. "closed": this reader is closed.
        """
        if self._closed():
            return "closed"
        if self._source.writer_alive():
            return "alive"
        if self._source.writer_ended():
            return "ended"
        if self._source.writer_stuck():
            return "stuck"
        return "failed" if self._source.writer_failed() else "dead"

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed()

    def close(self) -> None:
        """Detach from the ring, and remove this reader from its list of readers. Idempotent.

        If another thread is waiting in this reader, its wait or iteration ends within 20 ms.
        """
        self._source.closing = True
        if not self._filling:  # otherwise the thread in _fill uses the mapping, and detaches later
            self._source.detach()
        if self._arrivals is not None:
            self._arrivals.release()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def __del__(self):
        # Otherwise the event loop would keep watching the descriptor of a dropped reader.
        if self._arrivals is not None:
            self._arrivals.release()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"index={self.index} lapped={self.lapped}"
        return f"<Reader {self.address} {state}>"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: address, position, lag and missed records."""
        from udpfast.client.notebook import reader_html

        return reader_html(self)

    cdef int64_t ahead(self, int64_t limit, int64_t deadline_ns) except -2:
        if reader_in_memory(self):
            return 1
        return self._fill(limit, deadline_ns, False)

    cdef uint16_t kind_ahead(self) noexcept:
        return KIND_LAPPED if self._missed else self._memory.headers[self._next].kind

    cdef ReadRecord take(self):
        cdef int64_t i = self._next
        cdef uint64_t missed = self._missed
        if missed:
            self._missed = 0
            return record_lapped(
                self._missed_index - missed, self._missed_position, missed,
                self._source.missed_reason, reader_names(self))
        self._next += 1
        self._read += 1
        if self._source.entry != NULL:
            reader_time(self._source.entry, self._memory.headers + i, clock_realtime_ns())
        if self._memory.headers[i].kind == KIND_RESTART:
            self._source.renew_names()
        return record_copy(self._memory.headers + i,
                           self._memory.payloads + self._memory.offsets[i], reader_names(self))

    cdef int skip(self) except -1:
        if self._missed:
            self._missed = 0
            return 0
        if self._memory.headers[self._next].kind == KIND_RESTART:
            self._source.renew_names()
        self._next += 1
        self._read += 1
        return 0

    cdef Batch next_batch(self, int64_t most, int64_t deadline_ns):
        if self.ahead(most, deadline_ns) == READER_CLOSED:
            return None
        self._memory.polls += 1  # invalidates earlier batches, also those of this run
        return self.take_batch(most)

    cdef Batch take_batch(self, int64_t most):
        cdef int64_t first = self._next
        cdef int64_t count = _run_before_restart(self, min(most, self._count - first))
        cdef uint64_t missed = self._missed
        self._missed = 0
        self._next += count
        self._read += count
        if count and self._source.entry != NULL:
            reader_time_all(
                self._source.entry, self._memory.headers + first, count, clock_realtime_ns())
        return batch_of(self._memory, first, count, missed, reader_names(self), self._source)

    cdef bint more(self, list end) except -1:
        if not end or end[0] is None:
            end[:] = [self._source.end()]
        elif (not reader_in_memory(self) and self._rest >= self._end
              and self._source.passed(end[0])):
            return False
        if self.ahead(self._batch, 0) <= 0:
            return False
        if self._next < self._count and self._memory.headers[self._next].kind == KIND_RESTART:
            end.clear()  # another log may have replaced the one that ended there
        return True

    cdef int64_t _fill(self, int64_t limit, int64_t deadline_ns, bint brief) except -2:
        cdef int64_t found
        self._filling = True
        try:
            found = self._wait(limit, deadline_ns, brief)
            # Books of what was recorded are what it left.
            if found == READER_CLOSED and not (self._source.closing or self._source.recorded):
                self._lose_feed()
            return found
        except UdpfastError:
            self._lose_feed()
            raise
        finally:
            self._filling = False
            if self._source.closing:
                self._source.detach()  # records in memory stay valid

    cdef int64_t _wait(self, int64_t limit, int64_t deadline_ns, bint brief) except -2:
        cdef int64_t count, now_ns
        end = None  # where ended what there was, once all of a run was filtered
        self._memory.polls += 1
        self._next = self._count = 0
        while self._rest < self._end:
            if self._select():
                return 1
        while not self._closed():
            self._source.report(self._read)  # by now all records before the cursor were handed out
            # Records come all the time: they do not tell that their ring was removed.
            now_ns = clock_monotonic_ns()
            if now_ns - self._looked_ns >= BUSY_LOOK_NS and not self._source.joining():
                self._looked_ns = now_ns
                self._source.check()
            with nogil:
                count = self._source.wait(
                    limit, min(deadline_ns, now_ns + SLICE_NS), &self._idle)
            if self._memory.payloads != self._source.payloads:
                self._renew_memory()  # the source has larger arrays now
            if count > 0 and self._brought(count):
                return 1
            if count == -EPIPE:
                return READER_CLOSED
            if count < 0:
                self._source.fail(count)
            PyErr_CheckSignals()
            now_ns = clock_monotonic_ns()
            # Check soon when no record is left, but not in every poll: it is expensive.
            if count == 0 and now_ns - self._looked_ns >= SLICE_NS:
                self._looked_ns = now_ns
                self._source.check()
            if now_ns < deadline_ns:
                brief = True  # once a wait times out, filtering must not prolong it
            elif brief or count == 0:
                return 0
            else:
                end = self._source.end() if end is None else end
                if end is not None and self._source.passed(end):
                    return 0
        return READER_CLOSED

    cdef _lose_feed(self):
        # No record says that books get older from here on, whichever way the feed ended.
        for books in list(self._reading.books):
            books._lose_feed()

    def _take_for_recorded(self):
        # Leave books as the feed left them, for programs of ours that judge these: a replay's.
        self._source.recorded = True

    def _look(self):
        # Check that the source still exists, as `_wait` does by the clock; for tests.
        self._source.check()

    cdef _renew_memory(self):
        cdef uint64_t polls = 0 if self._memory is None else self._memory.polls
        self._memory = BatchMemory(
            self._source.headers_array, self._source.offsets_array, self._source.payloads_array)
        self._memory.polls = polls + 1

    cdef bint _brought(self, int64_t count) except -1:
        # Take over a run that the source put in memory; return whether it has records to hand out.
        self._count = count
        self._missed = self._source.missed
        if self._missed:
            self._missed_index = self._memory.headers[0].index
            self._missed_position = self._memory.headers[0].position
            if self._source.from_image and self._source.next_position():
                self._missed_index = self._source.next_index()
                self._missed_position = self._source.next_position()
        if self._filter is not None:  # set first: no record may pass unfiltered if this raises
            self._rest = 0
            self._end = count
            self._next = self._count = 0
        # The missed records may include a RESTART, which begins a new table of names.
        if self._source.names_missing() or self._missed and not _restart_ahead(self, count):
            self._source.renew_names()
        if self._filter is None:
            return True
        while self._rest < self._end:
            if self._select():
                return True
        return self._missed != 0

    cdef bint _select(self) except -1:
        # Filter the records of the run up to its next RESTART.
        cdef int64_t first = self._rest, end = first + 1
        if self._memory.headers[first].kind == KIND_RESTART:
            self._source.renew_names()
        while end < self._end and self._memory.headers[end].kind != KIND_RESTART:
            end += 1
        self._rest = end
        self._next = first
        self._count = first + self._filter.select(
            self._memory.headers, self._memory.offsets, self._memory.payloads, first, end,
            self._source.names)
        self._read += end - self._count
        return self._next < self._count

    cdef bint _closed(self):
        return self._source.closing or self._source.detached()

    cdef _check_open(self):
        if self._closed():
            raise ValueError(f"reader of {self.address} is closed")


def _expected_limit(limit):
    hint = f"; a time is poll(timeout={shown(limit)})" if isinstance(limit, float) else ""
    return f"limit must be a whole number of records, was {shown(limit)}{hint}"


cdef _note_unknown(Reader self):
    # Warn about names that were not published: a misspelt one would be waited for in silence.
    exchanges, symbols = self._source.names_published()
    said = self._filter.describe_unknown(exchanges - {"", None}, symbols - {"", None})
    if said is not None:
        warnings.warn(f"{self.address}: {said}")


cdef int64_t _run_before_restart(Reader self, int64_t count):
    # Names may change with a RESTART, and the ids in a batch must refer to one table.
    cdef int64_t i
    if count and self._memory.headers[self._next].kind == KIND_RESTART:
        self._source.renew_names()
    for i in range(1, count):
        if self._memory.headers[self._next + i].kind == KIND_RESTART:
            return i
    return count


cdef bint _restart_ahead(Reader self, int64_t count):
    # Whether the run has a RESTART: the records before it use the ids of the old table.
    cdef int64_t i
    for i in range(count):
        if self._memory.headers[i].kind == KIND_RESTART:
            return True
    return False


cdef int64_t reader_deadline(timeout) except -1:
    if timeout is None or timeout == float("inf"):
        return READER_FOREVER
    if isinstance(timeout, (str, bytes)) or not timeout >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, or None, was {shown(timeout)}")
    if timeout >= READER_FOREVER // 2_000_000_000:  # beyond: its sum with the clock overflows
        return READER_FOREVER
    return clock_monotonic_ns() + <int64_t>int(timeout * 1e9)
