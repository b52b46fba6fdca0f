"""The writing end of a ring, as Python sees it. The protocol is in `ring.pxd`."""

import os
from pathlib import Path

from libc.string cimport memset

from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.layout cimport FLIGHT_UNKNOWN, KIND_RESTART, STREAM_NONE, Restart
from udpfast.core.layout import CONTROL_DTYPES, RECORD, layout_hash
from udpfast.errors import RegionError

__all__ = ["RING_KIND", "RING_LAYOUT", "Ring", "ring_path"]

#: Kind and layout hash of a ring's region.
RING_KIND = "RING"
# 5 is the version of RingHeader.
RING_LAYOUT: int = layout_hash(RECORD, *CONTROL_DTYPES.values()) ^ 5

if sizeof(RingHeader) != 512 or sizeof(RingHeader) > RING_DATA:
    raise ImportError(f"RingHeader has {sizeof(RingHeader)} bytes, not 512")


cdef class Ring:
    """The writing end of a ring. One process, one thread.

    Attributes
    ----------
    region : Region
    restarted : bool
        Whether it continues the ring of an earlier writer. If so, call `announce_restart` before
        anything else: who keeps the records reads on, and nobody knows what came in between.
    """

    @staticmethod
    def create(
            path: str | os.PathLike[str], capacity_bytes: int, payload_hash: int = 0,
            publish: bool = True, names: int = 0, huge: bool = False) -> Ring:
        """Create a ring, or continue the ring of a writer that was killed.

        The existing ring is replaced if its writer closed it (even because of an error), or if its
        capacity or its table of names differs. The new file continues its log: positions and
        indices go on. A new log begins only if the existing ring is unreadable or its layout
        differs.

        Parameters
        ----------
        path : str or path
            The ring's file, or an instance's directory (then its file `ring`).
        capacity_bytes : int
            A power of two, at least 4096. A record takes at most an eighth of it.
        payload_hash : int
            Hash of the layouts of the payloads; readers must pass the same one.
        publish : bool
            Become the ring's writer now. False: only lock the ring, until `publish` is called.
        names : int
            Mark of the table of names that its records use; 0: none.
        huge : bool
            Put a new file on pages of 2 MiB, as far as the kernel provides them.

        Raises
        ------
        WriterExistsError
            A living process writes it.
        """
        if capacity_bytes < RING_CAPACITY_MIN or capacity_bytes & (capacity_bytes - 1):
            raise ValueError(
                f"capacity_bytes must be a power of two and at least {RING_CAPACITY_MIN}, was "
                f"{capacity_bytes}")
        cdef Ring ring
        path = ring_path(path)
        layout = RING_LAYOUT ^ payload_hash
        ring = _take_over(path, capacity_bytes, layout, names)
        if ring is None:
            ring = _succeed(path, capacity_bytes, layout, huge)
        ring._names = names
        if publish:
            ring.publish()
        return ring

    def publish(self) -> None:
        """Become the ring's writer: from now on readers find it. Idempotent.

        Do everything that may fail before this call.
        """
        cdef RingHeader* header = self.writer.header
        self._check_open()
        if self._published:
            return
        header.names = self._names
        self.region.mark_ready()
        self._published = True
        if self._before is None and self.restarted:
            header.began = self.writer.position
            header.began_index = self.writer.index
            # Orders the start of this writer's records before its epoch; read by _seek.
            store_release(&header.epoch, header.epoch + 1)
            # Clear what the previous writer reported. Release: whoever sees it knows of this
            # writer.
            ring_note_current(&self.writer, 0)
        if self._before is not None:
            # Tell readers that reach the end of the old file to look for the new one. A closed ring
            # instead ends its readers.
            header = <RingHeader*>self._before.pointer
            if header.state != RING_CLOSED:
                store_release(&header.state, RING_REPLACED)
            self._before.close()
            self._before = None

    def append(
            self, kind: int, payload: bytes | bytearray | memoryview, flags: int = 0,
            received_ns: int = 0, published_ns: int = 0, *, line: int = 0, number: int = 0,
            object: int = 0, flight_ns: int = FLIGHT_UNKNOWN, stream: int = 0,
            session: int = 0) -> int:
        """Append one record; return its position. For tools and tests: the hot loop uses C.

        Parameters
        ----------
        kind : int
        payload : bytes-like
        flags : int
        received_ns, published_ns, line, number, object, flight_ns, stream, session : int
            Fields of the header, as in `core.layout.RECORD`.

        Raises
        ------
        ValueError
            The payload is larger than `payload_max`.
        """
        cdef const uint8_t[::1] view = payload
        cdef uint32_t size = view.shape[0]
        cdef Record* record
        self._check_open()
        record = ring_claim(&self.writer, size) if view.shape[0] <= self.payload_max else NULL
        if record == NULL:
            raise ValueError(
                f"a payload must have at most {self.payload_max} bytes, has {view.shape[0]}")
        record.received_ns = received_ns
        record.published_ns = published_ns
        record.number = number
        record.object = object
        record.flight_ns = flight_ns
        record.stream = stream
        record.session = session
        if size > 0:
            memcpy(<uint8_t*>record + RECORD_SIZE, &view[0], size)
        position = self.writer.position
        ring_commit(&self.writer, kind, line, flags, size)
        return position

    def announce_restart(self, now_ns: int) -> None:
        """Append the RESTART record that tells readers of the new writer.

        Parameters
        ----------
        now_ns : int
            UNIX ns.
        """
        cdef Restart restart
        restart.epoch = self.epoch
        restart.restarted_ns = now_ns
        self.append(KIND_RESTART, (<uint8_t*>&restart)[:sizeof(restart)],
                    received_ns=now_ns, published_ns=now_ns,
                    stream=STREAM_NONE, session=self.writer.header.session)
        self.flush()

    def note_current(self, now_ns: int) -> None:
        """Report that the writer is running and has read everything received by now_ns.

        From then on it counts as stuck if it does not report again within a second.

        Parameters
        ----------
        now_ns : int
            Monotonic clock.
        """
        self._check_open()
        ring_note_current(&self.writer, now_ns)

    def flush(self) -> None:
        """Publish how far the ring reaches, for tools and for readers that attach."""
        self._check_open()
        ring_flush(&self.writer)

    @property
    def capacity_bytes(self) -> int:
        """Bytes of records that the ring holds."""
        return self.writer.capacity

    @property
    def payload_max(self) -> int:
        """The largest payload, in bytes."""
        return self.writer.record_max - RECORD_SIZE

    @property
    def position(self) -> int:
        """Position of the next record."""
        return self.writer.position

    @property
    def index(self) -> int:
        """Index of the next record: the number of records ever written."""
        return self.writer.index

    @property
    def epoch(self) -> int:
        """Number of this writer in the log, from 1; each writer adds one."""
        self._check_open()
        return self.writer.header.epoch

    @property
    def log(self) -> bytes:
        """Identity of the log: 16 random bytes. Together with an index it identifies a record."""
        self._check_open()
        return bytes((<uint8_t*>self.writer.header.log)[:16])

    def close(self, bint failed=False, bint again=False) -> None:
        """Record how its writer ended, and release the ring. Idempotent.

        A ring that was not published stays as it was.

        Parameters
        ----------
        failed : bool
            An error ended the writer. Readers then wait for the next writer, which begins another
            file of the log, because this file's memory may be damaged. False: nothing more will
            come.
        again : bool
            It is stopped to be started again: readers wait for the next writer, too.
        """
        cdef uint64_t state = RING_FAILED if failed else RING_LEFT if again else RING_CLOSED
        if self.region.pointer != NULL:
            if self._published and self.region.writer_pid == os.getpid():  # not in a forked child
                ring_flush(&self.writer)
                # Orders the last records before the end; read by ring_poll.
                store_release(&self.writer.header.state, state)
            if self._before is not None:
                self._before.close()
            self.region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    cdef _check_open(self):
        if self.region.pointer == NULL:
            raise ValueError(f"ring {self.region.path} is closed")


def ring_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a ring's file; for an instance's directory, its file `ring`."""
    path = Path(path)
    return path / "ring" if path.is_dir() else path


cdef Ring _new_ring(Region region):
    cdef Ring ring = Ring.__new__(Ring)
    cdef RingReader reader
    ring_reader_init(&reader, region.pointer, region.size_bytes)  # only for the sizes
    memset(&ring.writer, 0, sizeof(ring.writer))
    ring.region = region
    ring.writer.header = <RingHeader*>region.pointer
    ring.writer.data = region.pointer + RING_DATA
    ring.writer.capacity = reader.capacity
    ring.writer.mask = reader.mask
    ring.writer.chunk = reader.chunk
    ring.writer.record_max = reader.record_max
    return ring


cdef Ring _take_over(path, capacity_bytes, layout, uint64_t names):
    # Continue in the existing file. None: there is no file that can be continued.
    cdef Region region
    cdef Ring ring
    try:
        # Read it to its end before locking it: a start that locked it in vain could refuse a second
        # start that replaces it, and then be refused itself. Of two concurrent starts, exactly one
        # succeeds.
        with Region.attach(path, RING_KIND, layout, populate=False) as region:
            if region.size_bytes != RING_DATA + capacity_bytes or not _stands(region):
                return None
            if (<const RingHeader*>region.pointer).names not in (0, names):
                return None  # its names are lost: its ids must not be resolved by others
        region = Region.reopen_for_write(path, RING_KIND, layout, claim=False)
    except (FileNotFoundError, RegionError):
        return None  # Region.create refuses a symbolic link or another user's file again
    ring = _new_ring(region)
    if _stands(region) and _stand_behind(ring, region):
        # The dead writer may have written anything below its intent, so intent must not shrink.
        ring.writer.intent = ring.writer.header.intent
        ring.restarted = True
        return ring
    region.close()
    return None


cdef Ring _succeed(path, capacity_bytes, layout, huge):
    # Begin a file of its own, which continues the log of the existing file, if there is one.
    cdef Region region = Region.create(
        path, RING_KIND, RING_DATA + capacity_bytes, layout, replace=True, huge=huge)
    cdef Ring ring = _new_ring(region)
    cdef RingHeader* header = ring.writer.header
    cdef const RingHeader* before
    cdef bytes log = os.urandom(16)
    header.epoch = header.generation = 1
    try:
        ring._before = Region.attach(path, RING_KIND, layout, writable=True, populate=False)
    except (FileNotFoundError, RegionError):
        pass  # a new log begins
    else:
        before = <const RingHeader*>ring._before.pointer
        ring.restarted = True
        header.epoch = before.epoch + 1
        if _stand_behind(ring, ring._before):
            log = bytes((<const uint8_t*>before.log)[:16])
            header.generation = before.generation + 1
            header.session = before.session
    memcpy(header.log, <const char*>log, 16)
    header.first = header.began = header.tail = ring.writer.position
    header.first_index = header.began_index = header.tail_index = ring.writer.index
    header.intent = ring.writer.intent = header.latest = ring.writer.latest = header.first
    header.born_ns = clock_realtime_ns()
    header.state = RING_OPEN
    return ring


cdef bint _stands(Region region):
    # Return whether its writer left it open and all its records are readable.
    cdef RingReader reader
    cdef uint64_t latest = 0
    size = region.size_bytes - RING_DATA
    if (<const RingHeader*>region.pointer).state != RING_OPEN or (
            size < RING_CAPACITY_MIN or size & (size - 1)):
        return False
    ring_reader_init(&reader, region.pointer, region.size_bytes)
    return ring_walk(&reader, True, &latest)


cdef bint _stand_behind(Ring ring, Region region):
    # Set the writer behind the last record that the region holds. False: it is unreadable.
    cdef RingReader reader
    cdef uint64_t latest = 0
    size = region.size_bytes - RING_DATA
    if size < RING_CAPACITY_MIN or size & (size - 1):
        return False
    ring_reader_init(&reader, region.pointer, region.size_bytes)
    if not ring_walk(&reader, True, &latest):
        return False
    ring.writer.latest = latest
    ring.writer.position = reader.cursor
    ring.writer.index = reader.index
    return True
