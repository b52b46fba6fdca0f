"""The Source of "store:NAME": the records of a bus's store.

A store's directory is a journal and is read as one, by commit word, with two differences: records
that too few copies have are not shown yet (`gate`); and records may be taken back when a host
without them was promoted. A ROLLBACK then states how many of the records handed out are gone.
"""

cimport cython
from libc.errno cimport EACCES, EPIPE
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.archive.feed_cursor cimport StoreFeedCursor
from udpfast.archive.live cimport BusLive
from udpfast.bus.wire cimport EpochBegin
from udpfast.client.journal_source cimport recorded_feed
from udpfast.client.image_join cimport ImageJoin
from udpfast.client.record cimport NameCache
from udpfast.client.source cimport PolledSource
from udpfast.core.atomics cimport load_acquire, store_relaxed
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport (
    CONNECTION_DISCONNECTED, CONNECTION_WRITER, Connection, KIND_BUS, KIND_CONNECTION,
    KIND_RESTART, KIND_ROLLBACK, KIND_SENDER, KIND_SENDERS, LAPPED_READER, RECORD_SIZE, Rollback,
    SenderEntry)
from udpfast.log.doubt_records cimport doubt_record

from udpfast.log.marks cimport WrittenMark
from udpfast.log.readers cimport ReaderEntry

import contextlib
import sys
from pathlib import Path

from udpfast.archive.bus_files import (
    Live, named_store, noted_store, read_description, shared_directory)
from udpfast.archive.feed_cursor import StoreFeedCursor as StoreFeedCursorFace
from udpfast.archive.names import known_names
from udpfast.archive.store import StoreView, store_lineage
from udpfast.bus.lineage import divergence
from udpfast.client.appearing import deadline_of, time_left, when_there
from udpfast.client.image_join import ImageJoin
from udpfast.client.journal_source import segment_names
from udpfast.client.no_writer import warn_of_later_start, warn_of_no_writer
from udpfast.client.source import START_EXPECTED
from udpfast.core.moment import unix_ns
from udpfast.errors import (
    ConfigError, ImageError, NotReadyError, RegionError, RingClosedError, shown)
from udpfast.log.journal_cursor import JournalCursor as JournalCursorFace
from udpfast.log.journal_state import journal_state
from udpfast.log.readers import ReaderRegistration
from udpfast.market.updates import LAYOUTS
from udpfast.shm.instance import instance_directory
from udpfast.shm.wake import Sleeper

__all__ = ["StoreSource", "open_source"]

cdef enum:
    ALIVE_NS = 1_000_000_000

#: Least time to wait for an image, whatever `timeout` is: its keeper may have just been started.
_PATIENCE_S = 1.0

if sizeof(BusLive) != 4096:
    raise ImportError(f"BusLive has {sizeof(BusLive)} bytes")


@cython.final
cdef class StoreSource(PolledSource):
    """A cursor in a store.

    Parameters
    ----------
    directory : pathlib.Path
        Directory of the store.
    start : "begin", "tail", ("position", int) or ("time", int)
        Where to begin.
    end : int, optional
        Position before which reading ends.
    batch, buffer_bytes : int
        As for `Reader`.
    name : str
        Name of this reader in tools; empty: do not list it.
    join : ImageJoin, optional
        Records to hand out before those of the store.
    """

    def __init__(
            self, directory: Path, *, start: object, end: int | None = None, batch: int,
            buffer_bytes: int | None, name: str = "", ImageJoin join=None):
        cdef const uint8_t[::1] memory
        self.recorded = True
        self.directory = directory
        try:
            self.live = Live(directory)
        except FileNotFoundError:
            raise NotReadyError(
                f"{directory}: no bus daemon has run here: start `udpfast bus run`") from None
        except PermissionError:
            raise PermissionError(
                EACCES, "expected to be its owner, or a member of the group in access.group of "
                        "its settings", str(directory)) from None
        memory = self.live.memory
        self.said = <const BusLive*>&memory[0]
        self.until = UINT64_MAX if end is None else end
        self.cuts = load_acquire(&self.said.cuts)
        self.names = NameCache()
        self.names_number = -1
        try:
            self.cursor = JournalCursorFace.attach(
                directory, start, limit=batch, room_bytes=buffer_bytes, layouts=LAYOUTS)
        except FileNotFoundError:
            raise NotReadyError(f"{directory}: {_why_empty(directory)}") from None
        self.use_arrays(self.cursor.headers, self.cursor.offsets, self.cursor.payloads)
        self._note_next(UINT64_MAX if start == "tail" else self.cursor._start_position)
        if start == "tail":
            self.cursor._start_position = max(self.cursor._start_position, self.at_position)
        self.epochs = store_lineage(directory).before(self.at_position)
        self.join = join
        self.join_left = 0 if join is None else join.left
        self.old = self.join_left > 0 and not self.feed_at_work()
        if name:
            self._register(name)

    def _register(self, name):
        # A reader that may not write there (another user, no group) works without being listed.
        try:
            self.registration = ReaderRegistration.create(
                shared_directory(self.directory), name, self.cursor.index, clock_realtime_ns())
        except OSError:
            return
        self.entry = self.registration.entry

    cdef uint64_t bound(self) noexcept nogil:
        # Position before which records may be read. Acquire pairs with the daemon's release: what
        # it stated about copies before holds for these records.
        if load_acquire(&self.said.gate) == 0:
            return self.until
        return min(self.until, load_acquire(&self.said.released))

    cdef uint64_t said_end(self) noexcept:
        # Position behind the last record that is known to be written. A feed on this host updates
        # its mark at once; the daemon updates said.end only from time to time.
        cdef WrittenMark mark
        if load_acquire(&self.said.feed_end) == UINT64_MAX and self.cursor._written(&mark):
            return mark.position
        return self.said.end

    cdef bint ready(self) noexcept nogil:
        return self.join_left > 0 or (
            self.cursor.ready() and self.cursor.position < self.bound())

    cdef int64_t poll(self, int64_t limit) except -1:
        cdef uint64_t bound
        cdef int64_t count
        self.from_image = self.join_left > 0
        if self.from_image:
            if self.old:
                return self._hand_out_old()
            count = self.join.take(
                self.headers, self.offsets, self.payloads, self.cursor._room_bytes,
                min(limit, self.cursor._limit))
            self.join_left -= count
            self.join_taken += count
            self.missed = 0
            return count
        if load_acquire(&self.said.cuts) != self.cuts:
            count = self.go_back()
            if count:
                return count
        bound = self.bound()
        # Hidden records, or a restarting daemon, are not the end of the stream.
        self.cursor._end_position = bound
        self.cursor._follow = True
        self.cursor.ended = False
        count = self.cursor.poll_all(min(limit, self.cursor._limit))
        if self.payloads != self.cursor._payloads:
            self.use_arrays(self.cursor.headers, self.cursor.offsets, self.cursor.payloads)
        self.missed, self.missed_reason = self.cursor.missed, self.cursor.missed_reason
        if count:
            self._note(count)
        elif self.cursor.position >= self.until:
            return -EPIPE
        return count

    cdef int64_t _hand_out_old(self) except -1:
        # Hand out DISCONNECTED, as a ring's source does: the image is of a feed that has ended, and
        # its state is out of date until the next feed's RESTART.
        cdef Connection said
        cdef int64_t now_ns = clock_realtime_ns()
        memset(&said, 0, sizeof(said))
        said.status = CONNECTION_DISCONNECTED
        said.scope = CONNECTION_WRITER
        said.silent_ns = now_ns - self.last_ns()
        doubt_record(self.headers, KIND_CONNECTION, sizeof(said), now_ns)
        self.headers.position = self.at_position
        self.headers.index = self.at_index
        memcpy(self.payloads, &said, sizeof(said))
        self.offsets[0] = 0
        self.missed = 0
        self.from_image = self.old = False
        self.join_taken += 1
        return 1

    cdef renew_names(self):
        # Read the names of a feed's records again. Keep the senders: their names are independent.
        cdef int64_t number = self.cursor.names
        cdef dict senders = self.names.senders
        if number == self.names_number:
            return
        self.names_number = number
        self.names = segment_names(
            self.directory, number, self.cursor.names_mark, self.cursor.number)
        self.names.senders.update(senders)

    cdef bint names_missing(self):
        return <int64_t>self.cursor.names != self.names_number

    cdef _note(self, int64_t count):
        cdef int64_t i
        cdef const EpochBegin* begin
        self.at_position, self.at_index = self.cursor.position, self.cursor.index
        for i in range(count):
            if self.headers[i].kind == KIND_SENDER or self.headers[i].kind == KIND_SENDERS:
                self._take_senders(
                    (<const char*>self.payloads + self.offsets[i])[
                        :self.headers[i].length - RECORD_SIZE])
            elif self.headers[i].kind == KIND_BUS and (
                    <uint16_t>self.headers[i].object not in self.names.senders):
                self._learn_senders(self.headers[i].position)
            elif self.headers[i].kind == KIND_RESTART and self.headers[i].length >= <int>(
                    RECORD_SIZE + sizeof(EpochBegin)):
                begin = <const EpochBegin*>(self.payloads + self.offsets[i])
                if begin.epoch not in [epoch for epoch, _ in self.epochs]:
                    self.epochs.append((begin.epoch, begin.old_end))

    def _take_senders(self, bytes payload):
        cdef const SenderEntry* entries = <const SenderEntry*><const char*>payload
        for i in range(len(payload) // sizeof(SenderEntry)):
            self.names.senders[entries[i].sender] = (
                entries[i].name[:32].rstrip(b"\0").decode(errors="replace"))

    def _learn_senders(self, position):
        # A reader that starts inside a segment first reads its SENDERS record, then the SENDER
        # records up to its start.
        cdef uint64_t kinds = <uint64_t>1 << KIND_SENDER | <uint64_t>1 << KIND_SENDERS
        view = StoreView(self.directory)
        for record in view.records(view.segment_begin(position), position, kinds=kinds):
            self._take_senders(record[RECORD_SIZE:int.from_bytes(record[:4], "little")])

    cdef int64_t go_back(self, uint64_t most=UINT64_MAX, uint64_t known=0) except -1:
        # Records may have been set aside: continue behind the last one that is still there, or at
        # the position `most` if that is earlier. Epochs tell where that is, even for records that
        # were not read here. `known` is the index behind the last record that the caller has, if
        # it has more than were read here. Returns 1 if this hands out a ROLLBACK.
        cdef uint64_t position = self.at_position, index = self.at_index
        cdef uint64_t back = min(position, most)
        cdef Rollback rollback
        if load_acquire(&self.said.cuts) != self.cuts:
            self.cuts = load_acquire(&self.said.cuts)
            lineage = store_lineage(self.directory)
            back = min(back, divergence(lineage.pairs, self.said.end, self.epochs, position))
            epochs = lineage.pairs
        else:
            epochs = self.epochs
        self._stand(back)
        if back == position and known <= self.at_index:
            if self.at_index > index:  # segments have been removed meanwhile
                self.cursor.missed = self.at_index - index
                self.cursor.missed_reason = LAPPED_READER
                self.cursor.missed_total += self.cursor.missed
            return 0
        self.epochs = [pair for pair in epochs if pair[1] < self.at_position]
        self.names = NameCache()  # senders may have other numbers now
        self.names_number = -1
        rollback.records = max(index, known, self.at_index) - self.at_index
        rollback.position = self.at_position
        doubt_record(self.headers, KIND_ROLLBACK, sizeof(rollback), 0)
        self.headers.position = self.at_position
        self.headers.index = self.at_index
        memcpy(self.payloads, &rollback, sizeof(rollback))
        self.offsets[0] = 0
        self.missed = 0
        return 1

    cdef _note_next(self, uint64_t wanted):
        # Find the first record wanted. The cursor may stand a little before it, and skips the
        # records in between once they may be read. The commit word decides whether a record exists,
        # here as in reading: the stated end of the store lags a little.
        cdef uint64_t count
        self.at_position, self.at_index = self.cursor.position, self.cursor.index
        if wanted <= self.at_position:
            return
        view = StoreView(self.directory)
        while self.at_position < wanted:
            self.at_position, count = view.run(self.at_position, wanted, UINT64_MAX)
            if count == 0:
                break
            self.at_index += count

    cdef _stand(self, uint64_t position):
        cdef JournalCursor before = self.cursor
        self.cursor = JournalCursorFace.attach(
            self.directory, ("position", position), limit=before._limit,
            room_bytes=before._room_bytes, layouts=LAYOUTS)
        self.cursor._start_ns = before._start_ns
        self.cursor.missed_total = before.missed_total
        before.close()
        self.use_arrays(self.cursor.headers, self.cursor.offsets, self.cursor.payloads)
        self._note_next(position)

    cdef names_published(self):
        return known_names(self.directory)

    cdef tuple feeds(self):
        feed = recorded_feed(self.cursor, self.directory)
        return feed, feed

    cdef sleeper(self):
        # A user who may not write the wake file polls from time to time.
        try:
            return Sleeper.attach(shared_directory(self.directory))
        except (OSError, RegionError):
            return None

    cdef report(self, uint64_t read):
        cdef ReaderEntry* entry = self.entry
        if entry == NULL:
            return
        store_relaxed(&entry.position, self.cursor.position)
        store_relaxed(&entry.index, self.cursor.index)
        store_relaxed(&entry.lapped, self.cursor.missed_total)
        store_relaxed(&entry.read, max(read, self.join_taken) - self.join_taken)
        store_relaxed(<uint64_t*>&entry.polled_ns, clock_realtime_ns())

    cdef fail(self, int64_t code):
        if self.failure is not None:
            raise self.failure
        raise RingClosedError(
            f"store {self.directory}: all of it has been read, up to {self.until}")

    cdef uint64_t next_index(self):
        return max(self.at_index, self.cursor.index)

    cdef bint joining(self):
        return self.join_left > 0

    cdef uint64_t missed_total(self):
        return self.cursor.missed_total

    cdef object end(self):
        return self.written() if self.cursor.knows_end() else None

    cdef uint64_t written(self):
        return self.cursor.tail_index

    cdef uint64_t writer_epoch(self):
        return self.live.read().epoch

    cdef bint writer_alive(self):
        cdef int64_t silent_ns = clock_monotonic_ns() - self.said.alive_ns
        return 0 <= silent_ns < ALIVE_NS and not self.feed_over()  # below 0: before this boot

    cdef bint writer_ended(self):
        return self.feed_over() and not self.said.feed_failed

    cdef bint writer_failed(self):
        return self.feed_over() and self.said.feed_failed

    cdef bint feed_over(self):
        # Only a store that a feed writes can end; the others can always get another app's message.
        cdef uint64_t end = load_acquire(&self.said.feed_end)
        return self.said.by_feed and end != 0 and end != UINT64_MAX

    cdef int64_t last_ns(self):
        # Return when the feed last wrote, by its own mark.
        cdef WrittenMark mark
        return mark.written_ns if self.cursor._written(&mark) else 0

    cdef bint feed_at_work(self) except -1:
        # Unlike `writer_alive`, do not take a daemon that is held up for a dead one: a doubt raised
        # by mistake would never end, because no RESTART follows.
        return (load_acquire(&self.said.feed_end) == UINT64_MAX
                and journal_state(self.directory).alive)

    cdef str why_old(self):
        if not self.feed_over():
            return "its feed is dead"
        return f"its feed {'has failed' if self.said.feed_failed else 'has ended'}"

    cdef detach(self):
        self.done = True  # records in memory are still handed out
        self.entry = NULL
        self.join = None
        self.join_left = 0
        if self.registration is not None:
            self.registration.close()
        self.cursor.close()


def _why_empty(directory):
    try:
        said = read_description(directory)
    except FileNotFoundError:  # its daemon is starting
        return "it has no records yet"
    return f"{said['host']} has no records of {said['store']} yet: " + (
        said["waits"] or "`udpfast bus stat` shows which host its daemon copies from")


def open_source(
        target: str, *, start: Moment | tuple[str, int] | None, batch: int,
        buffer_bytes: int | None, timeout: float | None, name: str,
        end: tuple[str, int] | None = None, image: bool = False) -> StoreSource:
    """Open this host's copy of a store.

    Parameters
    ----------
    target : str
        The store's name, or its directory.
    start : "begin", "oldest", "tail", a time or ("position", int)
        Where to begin. Times are those of `Reader`.
    end : ("position", int), optional
        Position before which reading ends.
    batch, buffer_bytes, timeout, name, image
        As for `Reader`.

    Raises
    ------
    ImageError
        This host has no usable image of it.
    ConfigError
        `end` is not a position, or `start` is a position at which there is no record: it was
        removed, so that the number of missing records is unknown, or has not arrived.
    """
    cdef StoreSource source
    if end is not None and not (isinstance(end, tuple) and end[:1] == ("position",)):
        raise ConfigError(f"end must be ('position', int) for store:{target}, was {shown(end)}")
    if start in ("begin", "oldest"):
        start = "begin"
    elif start != "tail" and not (isinstance(start, tuple) and start[:1] == ("position",)):
        start = "time", unix_ns(start, "start", START_EXPECTED)
    deadline_s = deadline_of(timeout)

    def attach():
        at, join, room_bytes = start, None, buffer_bytes
        directory = named_store(target)
        if image:
            at, join = _join(directory, batch, max(_PATIENCE_S, time_left(deadline_s)))
            room_bytes = max(
                256 * batch if room_bytes is None else room_bytes, join.payload_max)
        return at, StoreSource(
            directory, start=at, end=None if end is None else end[1], batch=batch,
            buffer_bytes=room_bytes, name=name or Path(sys.argv[0]).name or "python", join=join)

    start, source = when_there(attach, deadline_s)
    if source.old:
        warn_of_no_writer(
            source.directory, source.why_old(), source.last_ns(), "image",
            "waits for the next feed")
    if start[0] == "time":
        warn_of_later_start(source.directory, start[1], source.last_ns())
    if start[0] == "position" and source.at_position != start[1]:
        source.detach()
        raise ConfigError(_why_not_there(source, target, start[1]))
    return source


cdef str _why_not_there(StoreSource source, target, position):
    oldest = source.cursor.position
    if oldest > position:
        return (
            f"start must be position {oldest} or later, the oldest that store:{target} has, was "
            f"{shown(position)}")
    if source.at_position < position:
        return (
            f"start must be position {source.at_position} or earlier, where this host's copy of "
            f"store:{target} ends, was {shown(position)}: the records up to there were taken "
            "back, or have not arrived yet")
    return (
        f"start must be the position of a record of store:{target}, was {shown(position)}: the "
        f"next one begins at {source.at_position}; the record that was there has been taken back")


def _join(directory, batch, patience_s):
    # Return the position at which the store continues behind its feed's image, and the image.
    cdef StoreFeedCursor cursor = StoreFeedCursorFace(directory, "tail", batch)
    try:
        instance = store = None
        with contextlib.suppress(FileNotFoundError):
            instance = instance_directory(read_description(directory)["store"])
            store = noted_store(instance)
        if store is None or store.resolve() != directory.resolve():
            raise ImageError(
                f"{directory}: expected an image beside its feed, but its feed does not run on "
                "this host")
        join = ImageJoin(instance, cursor, patience_s)
        return ("position", cursor.position()), join
    finally:
        cursor.close()
