"""Where a feed's records go: a ring, or a bus's store; what the hot half (`output.pxd`) leaves."""

import os

import cython

from libc.stdint cimport INT64_MIN
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from udpfast.bus.log cimport log_append
from udpfast.bus.sequencer cimport epoch_begin
from udpfast.bus.wire cimport EpochBegin
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.layout cimport (
    FLIGHT_UNKNOWN, KIND_RESTART, LAPPED_DISK, STREAM_NONE, Lapped)
from udpfast.log.doubt_records cimport doubt_record_lapped
from udpfast.log.journal cimport journal_flush
from udpfast.log.ring cimport Ring
from udpfast.log.segment cimport SEGMENT_END_SIZE

from udpfast.bus.wire import epoch_after
from udpfast.errors import UdpfastError

__all__ = ["Output"]

cdef enum:
    # The largest message has 131,072 bytes; a book of it, decoded, a few times that.
    STORE_RECORD_MAX = 1 << 20


@cython.final
cdef class Output:
    """The writing end that an engine fills: of a ring, or of a store.

    A store that has no room, because its disk is full or slow, holds up nothing: records are
    counted instead, and the first that gets in again is a LAPPED that says how many are missing.

    Parameters
    ----------
    ring : Ring, optional
    disk : StoreDisk, optional
        Of the store, if there is no ring.

    Attributes
    ----------
    ring_face : Ring or None
    disk : StoreDisk or None
    """

    def __cinit__(self):
        self._spare = <uint8_t*>malloc(STORE_RECORD_MAX)
        if self._spare == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._spare)

    def __init__(self, Ring ring=None, disk: StoreDisk | None = None):
        self.ring_face, self.disk = ring, disk
        if ring is not None:
            self.ring = &ring.writer
            return
        self.log, self.store = disk.log, disk.store
        self.log.session = self.log.find_session()
        self._record_max = min(
            self.log.capacity - SEGMENT_END_SIZE, <uint64_t>STORE_RECORD_MAX)
        self._dirty = self.log.writer.position
        self._dropped_told = self.log.journal.written.dropped

    @property
    def session(self) -> int:
        """Ordinal of the latest session in its log."""
        return self.ring.header.session if self.ring != NULL else self.log.session

    def begin(self, int64_t unix_ns) -> None:
        """Become the writer of the log: readers are told so by a RESTART.

        Raises
        ------
        UdpfastError
            A store's disk has no room for it.
        """
        cdef Record record
        cdef EpochBegin begin
        if self.ring_face is not None:
            self.ring_face.publish()
            if self.ring_face.restarted:
                self.ring_face.announce_restart(unix_ns)
            return
        epoch = epoch_after(
            max(self.store.promised, self.store.epoch), int.from_bytes(os.urandom(8), "little"),
            promoted=False)
        begin = epoch_begin(self.store, epoch, unix_ns)
        self.store.begin(epoch)
        memset(&record, 0, sizeof(record))
        record.length = <int>(RECORD_SIZE + sizeof(begin))
        record.kind = KIND_RESTART
        record.stream = STREAM_NONE
        record.session = <unsigned short>self.log.session
        record.flight_ns = FLIGHT_UNKNOWN
        record.received_ns = unix_ns
        record.published_ns = max(
            unix_ns, self.log.last_ns + 1 if self.log.last_ns != INT64_MIN else unix_ns)
        began = self.log.writer.position
        while not log_append(self.log, &record, <const uint8_t*>&begin):
            if not self._roll():
                raise UdpfastError(
                    f"{self.log.directory}: expected disk space for a segment of "
                    f"{self.log.capacity} bytes, found too little")
        self._flush_store(unix_ns)
        self.disk.live.begin_feed(epoch, began, self.log.end_index - 1)

    def close(self, bint failed=False, bint again=False) -> None:
        """End the log: nothing more will come of this writer. Idempotent.

        Parameters
        ----------
        failed, again : bool
            As for `Ring.close`. Readers of a store wait for the next writer either way.
        """
        if self.ring_face is not None:
            self.ring_face.close(failed, again)
        elif self.log.journal is not None:
            if self.missed and self._find_room(RECORD_SIZE) == <Record*>self._spare:
                self.missed = 0  # no record could say it
            self._flush_store(clock_realtime_ns())
            self.disk.live.end_feed(self.log.writer.position, failed or again)

    cdef Record* _find_room(self, uint64_t size) noexcept nogil:
        # Off the common path: in the next segment, behind what is missing; or the spare place.
        cdef uint64_t more = size
        self._spared = False
        if self.missed:
            more += record_size(RECORD_SIZE + sizeof(Lapped))
        if not self.store.writer or (
                not segment_has_room(&self.log.writer, more) and not self._roll()):
            self._spared = True
            return <Record*>self._spare
        if self.missed:
            self._say_missed(clock_realtime_ns())
        self._dirty = max(self._dirty, self.log.writer.position + size)
        return <Record*>segment_place(&self.log.writer)

    cdef bint _roll(self) noexcept nogil:
        # Once per segment, and never while none is ready: then the keeper is at it.
        cdef uint64_t end = self.log.writer.position + SEGMENT_END_SIZE
        if self.log.journal._next is None:
            return False
        # Behind END nothing stands: what was claimed there is no record.
        if self.log.writer.limit and self._dirty > end:
            memset(segment_place(&self.log.writer) + SEGMENT_END_SIZE, 0, self._dirty - end)
        with gil:
            try:
                if not self.log.roll():
                    return False
            except BaseException as failure:  # nobody but the disk's keeper can say it
                self.disk.problem = str(failure)
                return False
        self._dirty = self.log.writer.position
        return True

    cdef void _say_missed(self, int64_t unix_ns) noexcept nogil:
        # There is room for it.
        cdef Record record
        cdef Lapped lapped
        doubt_record_lapped(&record, &lapped, self.missed, LAPPED_DISK, unix_ns)
        record.published_ns = max(unix_ns, self.log.last_ns + 1)
        # A claim that was given up may have left something where the next record's word is read.
        store_relaxed(<uint64_t*>(segment_place(&self.log.writer) + record_size(record.length)), 0)
        if log_append(self.log, &record, <const uint8_t*>&lapped):
            self.missed = 0

    cdef void _flush_store(self, int64_t unix_ns) noexcept nogil:
        cdef uint64_t dropped = self.log.journal.written.dropped
        if (self.log.journal.written.position == self.log.writer.position
                and self._dropped_told == dropped):
            return
        self._dropped_told = dropped
        self.log.journal.writer = self.log.writer
        journal_flush(self.log.journal, unix_ns)
