"""The writing end of a ring, as Python sees it. The protocol is in `ring.pxd`."""

import os
from pathlib import Path

from libc.string cimport memset

from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.layout cimport KIND_RESTART, Restart
from udpfast.core.layout import CONTROL_DTYPES, RECORD, layout_hash
from udpfast.errors import RegionError

__all__ = ["RING_KIND", "RING_LAYOUT", "Ring", "ring_path"]

#: Kind and layout hash of a ring's region.
RING_KIND = "RING"
RING_LAYOUT = layout_hash(RECORD, *CONTROL_DTYPES.values())

if sizeof(RingHeader) != 512 or sizeof(RingHeader) > RING_DATA:
    raise ImportError(f"RingHeader has {sizeof(RingHeader)} bytes, not 512")


cdef class Ring:
    """The writing end of a ring. One process, one thread.

    Attributes
    ----------
    region : Region
    restarted : bool
        A dead writer's ring was taken over: call `announce_restart` before anything else.
    """

    @staticmethod
    def create(path, capacity_bytes, payload_hash=0):
        """Create a ring, or take over the ring of a dead writer and go on where it ended.

        A ring that its writer closed, or of another capacity or layout, is replaced: its readers
        find it closed.

        Parameters
        ----------
        path : str or path
            Of the file, or of an instance's directory (then its file `ring`).
        capacity_bytes : int
            A power of two, at least 4096. The largest record takes an eighth of it.
        payload_hash : int
            Hash of the layouts that payloads have; readers must bring the same.

        Raises
        ------
        WriterExistsError
            A living process writes it.
        """
        if capacity_bytes < RING_CAPACITY_MIN or capacity_bytes & (capacity_bytes - 1):
            raise ValueError(f"capacity_bytes must be a power of two >= {RING_CAPACITY_MIN}, "
                             f"was {capacity_bytes}")
        cdef Ring ring
        cdef Region region
        path = ring_path(path)
        ring = _take_over(path, capacity_bytes, RING_LAYOUT ^ payload_hash)
        if ring is not None:
            return ring
        region = Region.create(path, RING_KIND, RING_DATA + capacity_bytes,
                               RING_LAYOUT ^ payload_hash, replace=True)
        ring = _new_ring(region)
        ring.writer.header.epoch = 1
        ring.writer.header.born_ns = clock_realtime_ns()
        ring.writer.header.state = RING_OPEN
        region.mark_ready()
        return ring

    def append(self, kind, payload, flags=0, received_ns=0, published_ns=0, frame=None):
        """Append one record; return its position. For tools and tests: the hot loop uses C.

        Parameters
        ----------
        kind : int
        payload : bytes-like
        flags : int
        received_ns, published_ns : int
        frame : bytes, optional
            The publisher's 16 bytes; zeros if None.

        Raises
        ------
        ValueError
            The payload is larger than `payload_max`, or the frame has not 16 bytes.
        """
        cdef const uint8_t[::1] view = payload
        cdef uint32_t size = view.shape[0]
        cdef bytes frame_bytes = bytes(16) if frame is None else bytes(frame)
        cdef Record* record
        if len(frame_bytes) != sizeof(record.frame):
            raise ValueError(f"frame must have 16 bytes, has {len(frame_bytes)}")
        self._check_open()
        record = ring_claim(&self.writer, size) if view.shape[0] <= self.payload_max else NULL
        if record == NULL:
            raise ValueError(
                f"payload must have <= {self.payload_max} bytes, has {view.shape[0]}")
        memset(<uint8_t*>record + 4, 0, RECORD_SIZE - 4)  # not the length: it is not there yet
        record.kind = kind
        record.flags = flags
        record.received_ns = received_ns
        record.published_ns = published_ns
        memcpy(&record.frame, <const char*>frame_bytes, sizeof(record.frame))
        if size > 0:
            memcpy(<uint8_t*>record + RECORD_SIZE, &view[0], size)
        position = self.writer.position
        ring_commit(&self.writer, size)
        return position

    def announce_restart(self, now_ns):
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
                    received_ns=now_ns, published_ns=now_ns)
        self.flush()

    def flush(self):
        """Publish how far the ring reaches, for tools and for readers that attach."""
        self._check_open()
        ring_flush(&self.writer)

    @property
    def capacity_bytes(self):
        """Bytes of records that it holds."""
        return self.writer.capacity

    @property
    def payload_max(self):
        """The largest payload, in bytes."""
        return self.writer.record_max - RECORD_SIZE

    @property
    def position(self):
        """Position of the next record."""
        return self.writer.position

    @property
    def index(self):
        """Index of the next record: the number of records ever written."""
        return self.writer.index

    @property
    def epoch(self):
        """Number of this writer, from 1: it grows by one with each takeover."""
        self._check_open()
        return self.writer.header.epoch

    def close(self):
        """Say that nothing more will come, and let go of the ring. Idempotent."""
        if self.region.pointer != NULL:
            if self.region.writer_pid == os.getpid():  # not in a forked child
                ring_flush(&self.writer)
                # Orders the last records before the end; read by ring_poll.
                store_release(&self.writer.header.state, RING_CLOSED)
            self.region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    cdef _check_open(self):
        if self.region.pointer == NULL:
            raise ValueError(f"ring {self.region.path} is closed")


def ring_path(path):
    """Return the path of a ring's file; of an instance's directory, its file `ring`."""
    path = Path(path)
    return path / "ring" if path.is_dir() else path


cdef Ring _new_ring(Region region):
    cdef Ring ring = Ring.__new__(Ring)
    cdef RingReader reader
    ring_reader_init(&reader, region.pointer, region.size_bytes)
    memset(&ring.writer, 0, sizeof(ring.writer))
    ring.region = region
    ring.writer.header = <RingHeader*>region.pointer
    ring.writer.data = region.pointer + RING_DATA
    ring.writer.capacity = reader.capacity
    ring.writer.mask = reader.mask
    ring.writer.chunk = reader.chunk
    ring.writer.record_max = reader.record_max
    return ring


cdef Ring _take_over(path, capacity_bytes, hash_):
    # None: there is nothing to take over, and what is there may be replaced.
    cdef Region region
    cdef Ring ring
    cdef RingReader reader
    try:
        region = Region.reopen_for_write(path, RING_KIND, hash_)
    except (FileNotFoundError, RegionError):
        return None  # a symbolic link or another user's file is refused again, by Region.create
    if region.size_bytes < RING_DATA:
        region.close()
        return None
    ring = _new_ring(region)
    if region.size_bytes == RING_DATA + capacity_bytes and ring.writer.header.state == RING_OPEN:
        ring_reader_init(&reader, region.pointer, region.size_bytes)
        if ring_walk(&reader, True, &ring.writer.latest):
            ring.writer.position = reader.cursor
            ring.writer.index = reader.index
            # The dead writer may have touched all that its intent says: it must not shrink.
            ring.writer.intent = ring.writer.header.intent
            ring.writer.header.began = reader.cursor
            ring.writer.header.began_index = reader.index
            # Orders where this writer begins before its number; read by _seek.
            store_release(&ring.writer.header.epoch, ring.writer.header.epoch + 1)
            ring.restarted = True
            return ring
    # Its readers learn that it ends here; their next attach finds the new one.
    store_release(&ring.writer.header.state, RING_CLOSED)
    region.close()
    return None
