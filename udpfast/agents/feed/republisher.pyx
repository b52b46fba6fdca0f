"""A ring that a journal's records go to once more, for strategies to read as if they were live."""

from pathlib import Path

import cython

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport LAPPED_DAMAGE, RECORD_SIZE, Lapped, Record
from udpfast.log.doubt_records cimport doubt_record_lapped
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.ring cimport Ring, ring_claim, ring_commit, ring_flush
from udpfast.shm.wake cimport WakeRegion, waker_turn

from udpfast.archive.names import journal_names, names_path
from udpfast.errors import FormatError
from udpfast.log.ring import Ring as RingFace
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.names import create_names, names_table
from udpfast.shm.wake import WakeRegion as WakeRegionFace

__all__ = ["Republisher"]


@cython.final
cdef class Republisher:
    """Publish a journal's records in a ring of their own.

    Each keeps its kind, stamps, line and payload; position and index are the new ring's. Where the
    journal goes on with other names, the ring says RESTART, as a feed's would.

    Parameters
    ----------
    directory : Path
        The new instance's.
    capacity_bytes : int
        Of its ring.

    Raises
    ------
    WriterExistsError
        A live process writes that instance.
    """

    cdef readonly Ring ring
    cdef WakeRegion _wake
    cdef object _directory
    cdef object _names_region
    cdef object _source              # NameTable of the journal's names; None: it has none
    cdef object _target              # of the ring's
    cdef int64_t _names

    def __init__(self, directory: Path, capacity_bytes: int):
        self._directory = Path(directory)
        self._names = -1
        self.ring = RingFace.create(self._directory / "ring", capacity_bytes, PAYLOAD_HASH)
        try:
            self._wake = WakeRegionFace.create(self._directory)
        except BaseException:
            self.ring.close()
            raise

    def take(self, JournalCursor cursor not None, int64_t start, int64_t stop) -> None:
        """Publish records [start, stop) of the cursor's last poll.

        Raises
        ------
        FormatError
            A record is too long for the ring.
        """
        cdef const Record* header
        cdef Record* record
        cdef uint32_t size
        cdef int64_t i
        if not 0 <= start <= stop <= len(cursor.headers):
            raise ValueError(f"start and stop must lie in 0..{len(cursor.headers)}, "
                             f"were {start} and {stop}")
        self._renew_names(cursor)
        for i in range(start, stop):
            header = &cursor._headers[i]
            size = <uint32_t>header.length - RECORD_SIZE
            record = ring_claim(&self.ring.writer, size)
            if record == NULL:
                raise FormatError(
                    f"record {header.index} has {size} bytes, but the ring takes at most "
                    f"{self.ring.payload_max}: use a larger ring")
            record.received_ns = header.received_ns
            record.published_ns = header.published_ns
            record.number = header.number
            record.object = header.object
            record.flight_ns = header.flight_ns
            record.stream = header.stream
            record.session = header.session
            memcpy(<uint8_t*>record + RECORD_SIZE, cursor._payloads + cursor._offsets[i], size)
            ring_commit(&self.ring.writer, header.kind, header.line, header.flags, size)
        ring_flush(&self.ring.writer)
        waker_turn(&self._wake.waker, self.ring.writer.position, clock_monotonic_ns())

    def say_missed(self, uint64_t missed, int64_t unix_ns) -> None:
        """Publish that records are missing where the ring is now: LAPPED, as a recorder says it."""
        cdef Record* record = ring_claim(&self.ring.writer, sizeof(Lapped))
        cdef Record header
        cdef Lapped lapped
        if record == NULL:
            raise FormatError(
                f"expected room for {sizeof(Lapped)} bytes, but the ring takes at most "
                f"{self.ring.payload_max}: use a larger ring")
        doubt_record_lapped(&header, &lapped, missed, LAPPED_DAMAGE, unix_ns)
        # Not the length: it is not there yet.
        memcpy(<uint8_t*>record + 4, <uint8_t*>&header + 4, RECORD_SIZE - 4)
        memcpy(<uint8_t*>record + RECORD_SIZE, &lapped, sizeof(lapped))
        ring_commit(
            &self.ring.writer, header.kind, header.line, header.flags, sizeof(Lapped))
        ring_flush(&self.ring.writer)

    def turn(self) -> None:
        """Wake readers that fell asleep meanwhile; while nothing is published."""
        waker_turn(&self._wake.waker, self.ring.writer.position, clock_monotonic_ns())

    def _renew_names(self, JournalCursor cursor):
        # Before the first record that goes by them. All are there: a finished journal's are, and
        # those of one that is written were copied before its records.
        number = cursor.names
        if number and number != self._names:
            self._begin_names(cursor, number)
        if self._source is not None:
            exchanges = set(self._source.exchanges)
            for each in range(len(self._target) + 1, len(self._source) + 1):
                name = self._source.bytes(each)
                if name is None:  # another one at its id would be a wrong name
                    raise FormatError(f"{names_path(cursor.directory, number)}: expected name "
                                      f"{each} with its hash, found other bytes")
                self._target.intern(name, each in exchanges)

    def _begin_names(self, JournalCursor cursor, number):
        self._source = journal_names(cursor.directory, number, cursor.names_mark)
        again = self._names_region is not None
        if again:
            self._names_region.close()
        capacity = self._source.capacity
        self._names_region = create_names(
            self._directory / "names", name_table_size(capacity))
        self._target = NameTable(names_table(self._names_region), capacity=capacity)
        self._names_region.mark_ready()
        self._names = number
        # The table first: a reader looks for it when it meets the RESTART.
        if again or self.ring.restarted:
            self.ring.announce_restart(cursor._headers[0].published_ns)

    def close(self) -> None:
        """Say that nothing more will come. Idempotent."""
        self.ring.close()
        self._wake.close()
        if self._names_region is not None:
            self._names_region.close()
