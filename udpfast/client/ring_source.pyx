"""Records of a ring on this host: what `Reader("ring:NAME")` reads from."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from udpfast.client.image_join cimport ImageJoin
from udpfast.client.record cimport NameCache
from udpfast.client.source cimport Source
from udpfast.core.atomics cimport store_relaxed
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.idle cimport Idle, idle_step
from udpfast.shm.cursor cimport RingCursor
from udpfast.shm.readers cimport ReaderRegistration, reader_report
from udpfast.shm.region cimport REGION_PAGE
from udpfast.shm.ring cimport RingReader, ring_poll, ring_ready

import contextlib
import errno
import sys
import time
from importlib import import_module
from pathlib import Path

from udpfast.client.image_join import ImageJoin
from udpfast.errors import NotReadyError, RegionError, RingClosedError
from udpfast.market.names import NAMES_REGION_KIND, NameTable
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.cursor import RingCursor
from udpfast.shm.instance import instance_directory
from udpfast.shm.readers import ReaderRegistration
from udpfast.shm.region import Region
from udpfast.shm.wake import Sleeper

__all__ = ["RingSource", "open_source"]

cdef enum:
    LOOK_TURNS = 64              # a spinning wait looks at the clock, and for laps, this often
    NAMES_PAUSE_NS = 20_000_000  # between two looks for names in vain

_ATTACH_PAUSE_S = 0.01

# A keeper that was just started, or is behind for a moment, is waited for whatever `timeout` says.
_PATIENCE_S = 1.0


@cython.final
cdef class RingSource(Source):
    """A cursor in a ring, the names beside it, and an entry among its readers.

    Parameters
    ----------
    directory : Path
        Of the instance.
    cursor : RingCursor
    name : str
        What tools call this reader.
    join : ImageJoin, optional
        Records that come before those of the ring.
    """

    def __init__(self, directory, RingCursor cursor not None, name, ImageJoin join=None):
        self.directory = directory
        self.cursor = cursor
        self.use_arrays(cursor.headers, cursor.offsets, cursor.payloads)
        self.names = NameCache()
        with contextlib.suppress(RegionError):  # being made; if it is wrong, a later look says so
            self.renew_names()
        self.registration = ReaderRegistration.create(
            directory, name, cursor.index, clock_realtime_ns())
        self.entry = self.registration.entry
        self.join = join
        self.join_left = 0 if join is None else join.left

    @property
    def log(self) -> bytes:
        """Which log the ring is of."""
        return self.cursor.log

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        cdef RingReader* ring = &self.cursor.reader
        cdef uint64_t turns = 0
        cdef bint look = True
        cdef int64_t count
        self.from_image = self.join_left > 0
        if unlikely(self.from_image):
            count = self.join.take(
                self.headers, self.offsets, self.payloads, self.cursor._room, limit)
            self.join_left -= count
            self.join_taken += count
            self.missed = 0
            return count
        ring.waiting = False  # not yet: a poll returns what is there
        while True:
            # A look at the commit word alone (ring_ready) sees neither laps nor the end.
            if look or ring_ready(ring):
                count = ring_poll(ring, self.headers, self.offsets, self.payloads,
                                  self.cursor._room, limit, &self.missed)
                if count != 0:
                    idle_step(idle, 1)
                    return count
            if look and (self.closing or clock_monotonic_ns() >= until_ns):
                return 0
            idle_step(idle, 0)
            turns += 1
            look = idle.parked or turns % LOOK_TURNS == 0

    cdef check(self):
        if self.cursor.region.replaced():
            raise RingClosedError(f"{self.cursor.region.path}: another file took its place: "
                                  "open a new reader")

    cdef fail(self, int64_t code):
        self.cursor._raise(code)

    cdef renew_names(self):
        if self.names_region is not None and not self.names_region.replaced():
            return
        try:
            region = Region.attach(
                Path(self.directory) / "names", NAMES_REGION_KIND, PAYLOAD_HASH)
        except (FileNotFoundError, NotReadyError):  # a new writer's: its RESTART comes after it
            return
        self.names_region = region
        self.names = NameCache(NameTable(region.view()[REGION_PAGE:]))

    cdef bint names_missing(self):
        # A look in vain takes 17 us, and a ring that its owner gave no names never has any. The
        # first one is always due: with its first record a subscriber's names are there.
        if self.names_region is not None:
            return False
        if clock_monotonic_ns() - self.names_looked_ns < NAMES_PAUSE_NS:
            return False
        self.names_looked_ns = clock_monotonic_ns()
        return True

    cdef sleeper(self):
        # A ring without the file, or of a user who does not let us write it, is looked at instead.
        try:
            return Sleeper.attach(self.directory)
        except (OSError, RegionError):
            return None

    cdef report(self, uint64_t read):
        store_relaxed(&self.entry.read, max(read, self.join_taken) - self.join_taken)
        reader_report(self.entry, &self.cursor.reader, clock_realtime_ns())

    cdef uint64_t next_index(self):
        return self.cursor.reader.index

    cdef bint joining(self):
        return self.join_left > 0

    cdef uint64_t missed_total(self):
        return self.cursor.reader.lapped

    cdef uint64_t written(self):
        return self.cursor.tail_index

    cdef uint64_t writer_epoch(self):
        return self.cursor.epoch

    cdef bint detached(self):
        return self.cursor.region.pointer == NULL

    cdef detach(self):
        self.entry = NULL  # what is in memory is handed out still, untimed
        self.join = None
        self.join_left = 0
        self.registration.close()
        self.cursor.close()


def open_source(
        target, *, start, batch, buffer_bytes, timeout, name, image=False) -> Source:
    """Attach to the ring of an instance, which may take a while to appear.

    Parameters
    ----------
    target : str
        The instance's name, or its directory.
    start, batch, buffer_bytes, timeout, name, image
        As `Reader` has them.
    """
    cdef RingCursor cursor
    start_ns = None
    if start not in ("tail", "begin", "oldest"):
        journal_source = import_module("udpfast.client.journal_source")  # which not all need
        start_ns, start = journal_source.unix_ns(start, "start"), "tail"
    deadline_s = float("inf") if timeout is None else time.monotonic() + timeout
    while True:
        try:
            directory = instance_directory(target)
            cursor = RingCursor.attach(directory, start, batch, buffer_bytes, PAYLOAD_HASH)
            break
        except FileNotFoundError as error:
            if time.monotonic() >= deadline_s:
                raise FileNotFoundError(
                    errno.ENOENT, f"no ring {target!r}; is its subscriber running?",
                    error.filename) from None
        except NotReadyError:  # a large ring takes its writer seconds
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(_ATTACH_PAUSE_S)
    join = None
    if image:
        join = ImageJoin(directory, cursor, max(_PATIENCE_S, deadline_s - time.monotonic()))
        if join.payload_max > cursor._room:
            cursor._allocate(batch, join.payload_max)
    source = RingSource(directory, cursor, name or Path(sys.argv[0]).name or "python", join)
    if start_ns is None:
        return source
    try:
        return import_module("udpfast.client.history_source").open_history(
            source, start_ns, batch, buffer_bytes, f"ring:{target}")
    except BaseException:
        source.detach()
        raise
