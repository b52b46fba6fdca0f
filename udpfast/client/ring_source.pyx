"""The Source of "ring:NAME": the records of a ring on this host."""

cimport cython
from libc.errno cimport EBADMSG, EPIPE
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.client.image_join cimport ImageJoin
from udpfast.client.record cimport NameCache
from udpfast.client.source cimport Source
from udpfast.core.atomics cimport load_acquire, load_relaxed, store_relaxed
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.idle cimport Idle, idle_step
from udpfast.core.layout cimport (
    CONNECTION_DISCONNECTED, CONNECTION_LOOP, CONNECTION_READY, CONNECTION_WRITER, Connection,
    KIND_CONNECTION, LAPPED_READER, LAPPED_UNKNOWN, Lapped, RECORD_SIZE, Record)
from udpfast.log.cursor cimport RingCursor
from udpfast.log.doubt_records cimport doubt_record, doubt_record_lapped
from udpfast.log.readers cimport ReaderRegistration, reader_report
from udpfast.log.ring cimport RING_STUCK_NS, RingReader, ring_poll, ring_ready, ring_stuck

import contextlib
import errno
import sys
import time
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path

from udpfast.archive.feed_cursor import RingFeedCursor
from udpfast.client.appearing import PAUSE_S, deadline_of, time_left, when_there
from udpfast.client.image_join import ImageJoin
from udpfast.client.source import START_EXPECTED
from udpfast.errors import (
    ImageError, NotReadyError, RegionError, RingClosedError, UdpfastError)
from udpfast.log.cursor import RingCursor
from udpfast.log.readers import ReaderRegistration
from udpfast.market.names import NameTable
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.instance import instance_directory, instance_hint
from udpfast.shm.names import attach_names, names_table
from udpfast.shm.wake import Sleeper

__all__ = ["RingSource", "open_source"]

cdef enum:
    LOOK_TURNS = 64              # a spinning wait reads the clock and polls every so many turns
    NAMES_PAUSE_NS = 20_000_000  # least time between two attempts to open missing names
    WRITER_LOOK_NS = 200_000_000  # period of the check of the writer, which takes 20 us

# Least time to wait for an image, whatever `timeout` is: its keeper may have just been started.
_PATIENCE_S = 1.0
# A poll of a reader that was lapped sleeps for so long if there is no image for it yet.
_AGAIN_S = 0.001


@cython.final
cdef class RingSource(Source):
    """A cursor in a ring, the names beside it, and an entry in its list of readers.

    Parameters
    ----------
    directory : Path
        Directory of the instance.
    cursor : RingCursor
        The cursor; closed by `detach`.
    name : str
        Name of this reader in tools.
    join : ImageJoin, optional
        Records to hand out before those of the ring. After a lap the source joins again in the same
        way: instead of the records that were missed, it hands out what they led to.
    """

    def __init__(self, directory: Path, RingCursor cursor not None, name: str, ImageJoin join=None):
        self.directory = directory
        self.cursor = cursor
        self.use_arrays(cursor.headers, cursor.offsets, cursor.payloads)
        self.names = NameCache()
        with contextlib.suppress(RegionError):  # perhaps being created; a later attempt reports it
            self.renew_names()
        self.registration = ReaderRegistration.create(
            directory, name, cursor.index, clock_realtime_ns())
        self.entry = self.registration.entry
        self.join = join
        self.joins = join is not None
        self.removed_index = INT64_MAX
        self.join_left = 0 if join is None else join.left
        if self.join_left:
            self._look_at_writer(True, True)  # if the writer has ended, the image is out of date

    @property
    def log(self) -> bytes:
        """Identity of the ring's log."""
        return self.cursor.log

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        cdef RingReader* ring = &self.cursor.reader
        cdef uint64_t turns = 0
        cdef bint look = True
        cdef int64_t count
        self.from_image = False
        if unlikely(self.removed):
            with gil:
                if self._is_removed():
                    return self._end_removed()
        if unlikely(self.turned != 0):
            with gil:
                return self._hand_out_connection()
        self.from_image = self.join_left > 0
        if unlikely(self.from_image):
            self.missed = 0
            return self._take_image(limit)
        if unlikely(self.gone and self._is_back()):
            with gil:
                return self._hand_out_connection()
        ring.waiting = False  # not yet: a poll returns what is there
        while True:
            # A look at the commit word alone (ring_ready) sees neither laps nor the end.
            if look or ring_ready(ring):
                count = ring_poll(ring, self.headers, self.offsets, self.payloads,
                                  self.cursor._room, limit, &self.missed)
                if unlikely(count == -EPIPE):
                    with gil:
                        return self._end(count)
                if count != 0:
                    idle_step(idle, 1)
                    self.missed_reason = LAPPED_READER
                    # What precedes a file's first record was not overwritten in this file.
                    if unlikely(self.missed and self.joins) and (
                            self.headers.position != ring.header.first):
                        with gil:
                            count = self._meet_lap(count, limit)
                    if unlikely(self.unknown and count > 0):
                        self._note_unknown()
                    return count
                if unlikely(self.followed):
                    with gil:
                        count = self._hand_out_lapped()
                    if count != 0:
                        return count
            if look and (self.closing or clock_monotonic_ns() >= until_ns):
                return 0
            idle_step(idle, 0)
            turns += 1
            look = idle.parked or turns % LOOK_TURNS == 0

    cdef int64_t _take_image(self, int64_t limit) noexcept nogil:
        cdef int64_t count = self.join.take(
            self.headers, self.offsets, self.payloads, self.cursor._room, limit)
        self.join_left -= count
        self.join_taken += count
        return count

    cdef int64_t _meet_lap(self, int64_t count, int64_t limit) noexcept:
        # A run of `count` records from behind the missed ones is in memory. Hand out the image's
        # records instead. Return 0 if there is no usable image yet: the next poll meets the lap
        # again. Once that was tried for long enough, the run is handed out.
        if self.joins_until_ns < 0:
            self.joins_until_ns = 0
            return count
        try:
            return self._join_again(limit)
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef int64_t _join_again(self, int64_t limit) except -1:
        cdef RingReader* ring = &self.cursor.reader
        cdef uint64_t position = self.headers.position
        cdef uint64_t index = self.headers.index - self.missed
        cdef uint64_t lapped = ring.lapped - self.missed
        cdef ImageJoin join = None
        cdef int64_t now_ns = clock_monotonic_ns()
        reason = None
        try:
            join = ImageJoin(self.directory, RingFeedCursor(self.cursor), 0.0)
        except ImageError as error:
            reason = error
        if join is None or join.left == 0:
            # Stand before the missed records again.
            self.cursor.seek(position, index)
            ring.jumped, ring.lapped = True, lapped
            if self.joins_until_ns == 0:
                self.joins_until_ns = now_ns + <int64_t>(_PATIENCE_S * 1e9)
            if reason is None or self.cursor.region.replaced():
                self.joins_until_ns = -1  # nothing was known there, or another writer knows nothing
            elif now_ns < self.joins_until_ns:
                time.sleep(_AGAIN_S)
            else:
                self.joins_until_ns = -1
                warnings.warn(
                    f"this reader was lapped; its books are in doubt: {reason}", RuntimeWarning)
            return 0
        self.joins_until_ns = 0
        self.missed = ring.index - index
        ring.lapped = lapped + self.missed
        if join.payload_max > self.cursor._room:
            self.cursor._allocate(self.cursor._limit, join.payload_max)
            self.use_arrays(self.cursor.headers, self.cursor.offsets, self.cursor.payloads)
        self.join, self.join_left, self.from_image = join, join.left, True
        return self._take_image(limit)

    cdef bint _is_back(self) noexcept nogil:
        # Return whether to report READY: a new writer has written a record; or the loop that was
        # stuck has run again, and this reader has read all that it had written by then.
        cdef RingReader* ring = &self.cursor.reader
        cdef bint stuck = ring_stuck(ring.header, clock_monotonic_ns(), RING_STUCK_NS)
        if load_relaxed(&ring.header.epoch) != self.gone_epoch:
            self.gone = CONNECTION_WRITER
        if self.gone == CONNECTION_WRITER:
            # Also before a lap, which may hide the RESTART: READY tells of the new writer then.
            return not self._all_read()
        if not (stuck or self.current):
            self.current = True
            self.current_index = load_relaxed(&ring.header.tail_index)
        return self.current and ring.index >= self.current_index

    cdef bint _all_read(self) noexcept nogil:
        # Return whether the file has nothing more. Who was lapped has the newest records to read,
        # which does not show where the cursor stands.
        cdef RingReader* ring = &self.cursor.reader
        return not ring_ready(ring) and (
            load_relaxed(&ring.header.intent) <= ring.cursor + ring.capacity)

    cdef void _note_unknown(self) noexcept nogil:
        # Report a loss of unknown size at the end of the previous log, as 1 record.
        self.unknown = False
        self.missed += 1
        self.missed_unknown += 1
        self.missed_reason = LAPPED_UNKNOWN

    cdef int64_t _end(self, int64_t code) noexcept:
        # The file was read to its end. After a killed writer, the next one may use another file.
        try:
            if self.steered:
                return code
            if self._follow():
                return 0
            return self.say_ended(code) if self.among else code
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef int64_t say_ended(self, int64_t code) except? -1:
        # The writer ended. Report DISCONNECTED once, since its books get older as those of a dead
        # one do; after that return `code`.
        if self.gone == CONNECTION_WRITER or not self.writer_ended():
            return code
        self.turned, self.turned_scope = CONNECTION_DISCONNECTED, CONNECTION_WRITER
        return self._hand_out_connection()

    cdef bint _follow(self) except -1:
        # Alone, a reader ends with a writer that ends in good order. Among others it goes on, and
        # so joins that feed again; what a writer wrote into a ring that was removed is missed.
        same = self.cursor.follow(closed=self.among, unread=self.among and self.removed)
        if same is None:
            return False
        self.use_arrays(self.cursor.headers, self.cursor.offsets, self.cursor.payloads)
        self.unknown = self.unknown or not same
        self.followed = True
        if self.gone:
            self.gone = CONNECTION_WRITER  # another writer writes this file
        return True

    cdef int64_t _hand_out_lapped(self) noexcept:
        # Hand out a LAPPED for the records that a new file lacks, if it has no record yet: its
        # first one, which would report them, may take long to come. Return 0 if it lacks none.
        cdef Lapped lapped
        cdef RingReader* ring = &self.cursor.reader
        cdef uint64_t missed = 0
        self.followed = False
        if ring.jumped and ring.cursor == ring.header.first:
            missed = ring.header.first_index - ring.index
            ring.index += missed
            ring.lapped += missed
            ring.jumped = False
        self.missed = 0
        self.missed_reason = LAPPED_READER
        if self.unknown:
            self._note_unknown()
        missed += self.missed
        self.missed = 0
        if missed == 0:
            return 0
        doubt_record_lapped(self.headers, &lapped, missed, self.missed_reason, clock_realtime_ns())
        memcpy(self.payloads, &lapped, sizeof(lapped))
        self.headers.position = ring.cursor
        self.headers.index = ring.index
        self.offsets[0] = 0
        self.join_taken += 1
        return 1

    cdef take_file(self):
        # Use the file in which the cursor continues.
        self.use_arrays(self.cursor.headers, self.cursor.offsets, self.cursor.payloads)
        self.names_region = None
        self.names = NameCache()
        self.unknown = self.followed = self.removed = False
        self.removed_index = INT64_MAX
        self.gone = 0

    cdef int64_t _hand_out_connection(self) noexcept:
        # Hand out a CONNECTION, which is in no ring: the writer is dead, stuck or has ended
        # (DISCONNECTED), or it continues or was replaced (READY).
        cdef Connection said
        cdef Record* header = self.headers
        cdef RingReader* ring = &self.cursor.reader
        cdef int64_t now_ns = clock_realtime_ns()
        memset(&said, 0, sizeof(said))
        doubt_record(header, KIND_CONNECTION, sizeof(said), now_ns)
        said.status = self.turned if self.turned else CONNECTION_READY
        said.scope = self.gone
        self.gone = 0
        if said.status == CONNECTION_DISCONNECTED:
            said.scope = self.gone = self.turned_scope
            self.gone_epoch = load_relaxed(&ring.header.epoch)
            self.current = False
            said.silent_ns = now_ns - self._last_ns()
        self.turned = 0
        memcpy(self.payloads, &said, sizeof(said))
        header.position = ring.cursor
        header.index = ring.index
        self.offsets[0] = 0
        self.missed = 0
        self.join_taken += 1
        return 1

    cdef int64_t _last_ns(self) noexcept:
        # Return when the last record was published, as of the writer's last flush.
        cdef const RingReader* ring = &self.cursor.reader
        cdef uint64_t latest = load_acquire(&ring.header.latest) & ring.mask & ~<uint64_t>7
        cdef const Record* record = <const Record*>(ring.data + latest)
        cdef int64_t last_ns = 0
        if latest + RECORD_SIZE <= ring.capacity and record.length > 0:
            last_ns = record.published_ns
        return last_ns or self.cursor.region.created_ns

    cdef check(self):
        cdef int64_t now_ns
        if self.removed or self.cursor.region.replaced():  # also if it was put back
            if not self.steered and self._follow():
                self.removed, self.removed_index = False, INT64_MAX
                return
            self.removed_index = min(self.removed_index, self.cursor.tail_index)
            if self.removed or not self.cursor.closed_by_writer and (
                    self.cursor.reader.index >= self.removed_index
                    or self._all_read()):
                self.removed = True
                if not self.among:
                    raise RingClosedError(
                        f"{self.cursor.region.path} was removed: open a new reader")
            return
        now_ns = clock_monotonic_ns()
        if now_ns - self.looked_ns < WRITER_LOOK_NS:
            return
        self.looked_ns = now_ns
        self._look_at_writer(False, self._all_read())

    cdef bint _is_removed(self) noexcept:
        # Return whether the ring is still removed. Its writer may work: what it writes is not read.
        try:
            self.check()
            return self.removed
        except BaseException as failure:
            self.failure = failure
            return True

    cdef int64_t _end_removed(self) noexcept:
        # Among others a ring that was removed ends as one that is closed does.
        if self.failure is not None:
            return -EBADMSG
        if self.gone == CONNECTION_WRITER:
            return -EPIPE
        self.turned, self.turned_scope = CONNECTION_DISCONNECTED, CONNECTION_WRITER
        return self._hand_out_connection()

    cdef _look_at_writer(self, bint joins, bint all_read):
        # Decide whether to report the writer's state. A death is reported once all records were
        # read; a normal end only if this reader joins after it, since others see the ring closed.
        life = self.cursor.life
        self.turned = 0
        if life in ("gone", "failed", "left") or joins and life == "finished":
            if self.gone:
                self.gone = CONNECTION_WRITER  # a stuck writer has died: it does not continue
            elif all_read:
                self.turned, self.turned_scope = CONNECTION_DISCONNECTED, CONNECTION_WRITER
        elif life == "finished":
            return
        elif self.gone == CONNECTION_WRITER:
            self.turned = CONNECTION_READY
        elif life == "stuck" and all_read and not self.gone:
            self.turned, self.turned_scope = CONNECTION_DISCONNECTED, CONNECTION_LOOP

    cdef bint begins_again(self):
        return self.cursor.region.pointer != NULL and self.cursor.region.replaced()

    cdef bint writer_alive(self):
        return self.cursor.region.pointer != NULL and self.cursor.life == "running"

    cdef bint writer_ended(self):
        return self.cursor.region.pointer != NULL and self.cursor.closed_by_writer

    cdef bint writer_failed(self):
        return self.cursor.region.pointer != NULL and self.cursor.life == "failed"

    cdef bint writer_stuck(self):
        return self.cursor.region.pointer != NULL and self.cursor.life == "stuck"

    cdef names_published(self):
        with contextlib.suppress(UdpfastError):  # reading reports it
            self.renew_names()
        return Source.names_published(self)

    cdef fail(self, int64_t code):
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self.cursor._raise(code)

    cdef renew_names(self):
        # Open the names again only if their file was replaced and the ring's was not: a file that
        # replaced the ring's may have names that do not belong to this ring.
        if self.names_region is not None and (
                not self.names_region.replaced() or self.cursor.region.replaced()):
            return
        try:
            region = attach_names(Path(self.directory) / "names")
        except (FileNotFoundError, NotReadyError) as error:
            # Those of a new writer are ready at its RESTART.
            if not self.names_warned and self.names_region is None and (
                    isinstance(error, FileNotFoundError)
                    and self.cursor.reader.header.names != 0):
                self.names_warned = True
                warnings.warn(
                    f"{self.directory}/names: there is none: the reader knows no exchange and no "
                    "symbol, and no update has a book; start the feed again",
                    RuntimeWarning, stacklevel=2)
            return
        table = NameTable(names_table(region))
        if self.cursor.reader.header.names not in (0, table.mark):
            return  # this table is not the one that the ring's records refer to
        self.names_region = region
        self.names = NameCache(table)

    cdef bint names_missing(self):
        # A failed attempt takes 17 us, and some rings never have names: so pause between attempts.
        # The first attempt is made at once, because a subscriber creates names before any record.
        if self.names_region is not None:
            return False
        if clock_monotonic_ns() - self.names_looked_ns < NAMES_PAUSE_NS:
            return False
        self.names_looked_ns = clock_monotonic_ns()
        return True

    cdef sleeper(self):
        # Without a wake file that this user may write, the event loop polls the ring instead.
        try:
            return Sleeper.attach(self.directory)
        except (OSError, RegionError):
            return None

    cdef report(self, uint64_t read):
        store_relaxed(&self.entry.read, max(read, self.join_taken) - self.join_taken)
        reader_report(self.entry, &self.cursor.reader, clock_realtime_ns())

    cdef uint64_t next_index(self):
        return self.cursor.reader.index

    cdef uint64_t next_position(self):
        return self.cursor.reader.cursor

    cdef bint joining(self):
        return self.join_left > 0 or self.joins_until_ns > 0

    cdef uint64_t missed_total(self):
        return self.cursor.reader.lapped + self.missed_unknown

    cdef uint64_t written(self):
        return self.cursor.tail_index

    cdef uint64_t writer_epoch(self):
        return self.cursor.epoch

    cdef bint detached(self):
        return self.cursor.region.pointer == NULL

    cdef detach(self):
        self.entry = NULL  # records in memory are still handed out, without being timed
        self.join = None
        self.join_left = 0
        self.registration.close()
        self.cursor.close()


def open_source(
        target: str, *, start: Moment, batch: int, buffer_bytes: int | None,
        timeout: float | None, name: str, image: bool = False, populate: bool = True,
        tell: bool = True) -> Source:
    """Attach to the ring of an instance; wait until `timeout` for it to appear.

    A reader that begins at the tail also waits for the next writer of a ring whose writer has
    ended, failed or died, and gets that ring as it is at the deadline.

    Parameters
    ----------
    target : str
        The instance's name, or its directory.
    start, batch, buffer_bytes, timeout, name, image
        As for `Reader`.
    populate : bool
        True: map all pages of the ring at once, which takes 6 ms for 64 MiB. False: on access.
    tell : bool
        True: warn if the ring has no working writer.
    """
    cdef RingCursor cursor
    start_ns = None
    if start not in ("tail", "begin", "oldest"):
        # Most readers do without.
        start_ns = import_module("udpfast.core.moment").unix_ns(start, "start", START_EXPECTED)
        start = "tail"
    deadline_s = deadline_of(timeout)
    attach = partial(_attach, target, (start, batch, buffer_bytes, PAYLOAD_HASH, populate))
    try:
        directory, cursor = when_there(attach, deadline_s)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            errno.ENOENT, f"no ring {target!r}{instance_hint(target)}", error.filename) from None
    if start == "tail" and start_ns is None:  # others want what the ring has already
        cursor = _await_writer(cursor, attach, deadline_s)
    join = None
    if image:
        join = ImageJoin(directory, RingFeedCursor(cursor),
                         max(_PATIENCE_S, time_left(deadline_s)))
        if join.payload_max > cursor._room:
            cursor._allocate(batch, join.payload_max)
    source = RingSource(directory, cursor, name or Path(sys.argv[0]).name or "python", join)
    if tell:
        _warn(source, "image" if image else start if start_ns is None else "time")
    if start_ns is None:
        return source
    try:
        return import_module("udpfast.client.ring_history").open_own_history(
            source, start_ns, batch, buffer_bytes, f"ring:{target}", deadline_s)
    except BaseException:
        source.detach()
        raise


cdef RingCursor _await_writer(RingCursor cursor, attach, deadline_s):
    # Return a cursor in the ring of the writer that follows one that has ended, failed or died, or
    # this one at the deadline. A ring that was closed gets no other writer, which puts a new file
    # in its place; that of a killed one may be continued.
    while cursor.life in ("finished", "failed", "left", "gone") and time_left(deadline_s):
        if cursor.region.replaced():
            with contextlib.suppress(FileNotFoundError, NotReadyError):
                _, following = attach()
                cursor.close()
                cursor = following
                continue
        time.sleep(PAUSE_S)
    return cursor


cdef _warn(RingSource source, start):
    # Warn if the writer does not work. A reader that starts at the beginning or at a time wants
    # history, so a ring that ended is fine; any other reader expects current records.
    cdef RingCursor cursor = source.cursor
    life = cursor.life
    if life == "running" or life == "finished" and start in ("begin", "time"):
        return
    how = {"gone": "is dead", "failed": "has failed", "finished": "has ended",
           "left": "was stopped to be started again", "stuck": "stands still"}[life]
    then = {"finished": "ends", "stuck": "waits until it goes on"}
    import_module("udpfast.client.no_writer").warn_of_no_ring_writer(
        cursor.region.path, (source.directory, cursor.log, cursor.epoch),
        f"its writer (pid {cursor.region.writer_pid}) {how}",
        source._last_ns(), start, then.get(life, "waits for the next writer"))


def _attach(target, options):
    directory = instance_directory(target)
    return directory, RingCursor.attach(directory, *options)
