"""The sending half of a feed: what a gateway does before its sockets.

`Publication` gives messages their seqnos, links each object's messages by `last_seqno`, cuts them
into fragments and puts frames before them (docs/protocol.md, 1 and 5). The datagrams wait in memory
until the owner takes or sends them; time is an argument.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cimport cython

from udpfast.core.check cimport invariant
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, DATAGRAM_SIZE_MAX, ENCODING_FLATBUFFERS,
    FRAGMENT_SIZE, FRAGMENTS_MAX, FRAME_SIZE, MESSAGE_SIZE_MAX, Frame,
)

import numpy as np

__all__ = ["Publication"]

cdef extern from *:
    """
    #define udpfast_swap16(x) __builtin_bswap16(x)
    #define udpfast_swap32(x) __builtin_bswap32(x)
    """
    uint16_t swap16 "udpfast_swap16" (uint16_t) noexcept nogil
    uint32_t swap32 "udpfast_swap32" (uint32_t) noexcept nogil

cdef enum:
    SNAPSHOT_BIT = 0x10


cdef inline int64_t _object_key(int object_type, int object_id) noexcept nogil:
    return <int64_t>object_type << 16 | object_id


@cython.final
cdef class Publication:
    """Both channels of one publisher session, without sockets and without a clock.

    Parameters
    ----------
    session_id : int
        0..65535. A random one per start; a subscriber forgets everything when it changes.
    first_seqno, first_snapshot_seqno : int
        Where the numbering of the two channels starts. Both wrap from 2^32 - 1 to 0.
    encoding : int
        What the payloads are (1 native, 2 FlatBuffers); 0..15, in the legacy revision 0..255.
    revision : {"current", "legacy"}
        "legacy" has no snapshot bit: the whole first byte is the encoding (docs/protocol.md, 1).
    byteorder : {"little", "big"}
        Of the frame's integers.
    heartbeat_interval_ns : int
        A channel that was silent for as long gets a heartbeat. 0 turns heartbeats off.

    Attributes
    ----------
    flush_at : int
    message_size_max : int

    Notes
    -----
    Not thread-safe: one owner. `publish` and `publish_snapshot` fill a channel's send queue of 512
    datagrams; the owner empties it (`take`) when `pending` is `flush_at` (64) or more, and before
    it goes idle.
    """

    flush_at = SEND_QUEUE_FLUSH
    message_size_max = MESSAGE_SIZE_MAX

    def __cinit__(self):
        cdef int channel
        cdef uint8_t[::1] data
        cdef int64_t[::1] sizes
        self.memory = tuple(
            (np.zeros(SEND_QUEUE_SLOTS * DATAGRAM_SIZE_MAX, np.uint8),
             np.arange(SEND_QUEUE_SLOTS, dtype=np.int64) * DATAGRAM_SIZE_MAX,
             np.zeros(SEND_QUEUE_SLOTS, np.int64))
            for _ in range(CHANNEL_COUNT))
        for channel in range(CHANNEL_COUNT):
            data, _, sizes = self.memory[channel]
            self.send_queues[channel].data = &data[0]
            self.send_queues[channel].sizes = &sizes[0]

    def __init__(
            self, session_id: int, *, first_seqno: int = 1, first_snapshot_seqno: int = 1,
            encoding: int = ENCODING_FLATBUFFERS, revision: str = "current",
            byteorder: str = "little", heartbeat_interval_ns: int = 1_000_000_000):
        if revision not in ("current", "legacy"):
            raise ValueError(f"revision must be 'current' or 'legacy', was {revision!r}")
        if byteorder not in ("little", "big"):
            raise ValueError(f"byteorder must be 'little' or 'big', was {byteorder!r}")
        self.legacy = revision == "legacy"
        self.big_endian = byteorder == "big"
        self.encoding_number = _checked("encoding", encoding, 0xFF if self.legacy else 0x0F)
        self.heartbeat_interval = _checked(
            "heartbeat_interval_ns", heartbeat_interval_ns, (1 << 63) - 1)
        self.first_seqnos[CHANNEL_INCREMENTAL] = _checked("first_seqno", first_seqno, 0xFFFFFFFF)
        self.first_seqnos[CHANNEL_SNAPSHOT] = _checked(
            "first_snapshot_seqno", first_snapshot_seqno, 0xFFFFFFFF)
        self._begin(_checked("session_id", session_id, 0xFFFF))

    def publish(
            self, const uint8_t[::1] payload not None, object_type: int, object_id: int, *,
            snapshot: bool = False, int64_t now_ns, Py_ssize_t stamp_offset=-1,
            int64_t stamp_ns=0) -> int:
        """Put one message on the incremental channel.

        Parameters
        ----------
        payload : bytes-like
            1..131,072 bytes; copied.
        object_type, object_id : int
            0..255 and 0..65535. Type 0 takes no part in `last_seqno`.
        snapshot : bool
            Whether the payload is the object's complete state.
        now_ns : int
            Monotonic time, for the heartbeats.
        stamp_offset, stamp_ns : int
            Where in the payload a little-endian u64 `stamp_ns` replaces what is there (the send
            time of an encoded event); -1: nowhere. The caller's bytes are not changed.

        Returns
        -------
        int
            The message's seqno.

        Raises
        ------
        ValueError
            The payload is empty or too large, or a number is out of range.
        BufferError
            The send queue has no room: the owner did not empty it.
        """
        return self.put(
            &payload[0] if payload.shape[0] else NULL, payload.shape[0], object_type, object_id,
            snapshot, now_ns, stamp_offset, stamp_ns)

    cdef uint32_t put(self, const uint8_t* payload, Py_ssize_t payload_size, object object_type,
                      object object_id, bint snapshot, int64_t now_ns, Py_ssize_t stamp_offset,
                      int64_t stamp_ns) except? 0:
        cdef Py_ssize_t size = _checked_size(payload_size, stamp_offset)
        cdef int type_number = _checked("object_type", object_type, 0xFF)
        cdef int64_t key = _object_key(type_number, _checked("object_id", object_id, 0xFFFF))
        cdef uint32_t last_seqno = 0 if type_number == 0 else self.last_seqnos.get(key, 0)
        cdef Frame frame = self._frame(
            CHANNEL_INCREMENTAL, type_number, key & 0xFFFF, snapshot, size, last_seqno)
        self._check_room(CHANNEL_INCREMENTAL, <uint32_t>frame.fragment_max + 1)
        self.emit(CHANNEL_INCREMENTAL, &frame, payload, size,
                  0, <uint32_t>frame.fragment_max + 1, stamp_offset, stamp_ns)
        self.next_seqnos[CHANNEL_INCREMENTAL] = frame.seqno + 1
        self.last_published_ns[CHANNEL_INCREMENTAL] = now_ns
        self.message_counts[CHANNEL_INCREMENTAL] += 1
        if type_number != 0:
            self.last_seqnos[key] = frame.seqno
        return frame.seqno

    def publish_snapshot(
            self, const uint8_t[::1] payload not None, object_type: int, object_id: int, *,
            last_seqno: int | None = None, int64_t now_ns, Py_ssize_t stamp_offset=-1,
            int64_t stamp_ns=0) -> int:
        """Put an object's complete state on the snapshot channel, all fragments at once.

        Parameters
        ----------
        last_seqno : int, optional
            The object's last incremental seqno that the state contains. By default the last
            published one: right only if the payload was made from the state as it is now.

        See `publish` for the others, the result and what is raised.
        """
        if self.send_queues[CHANNEL_SNAPSHOT].count + FRAGMENTS_MAX > SEND_QUEUE_SLOTS:
            raise BufferError("the snapshot channel's send queue is full: take or send it first")
        self.begin_snapshot(
            payload, object_type, object_id, last_seqno=last_seqno, now_ns=now_ns,
            stamp_offset=stamp_offset, stamp_ns=stamp_ns)
        cdef uint32_t seqno = self.open_frame.seqno
        self.continue_snapshot(FRAGMENTS_MAX, now_ns=now_ns)
        return seqno

    def begin_snapshot(
            self, const uint8_t[::1] payload not None, object_type: int, object_id: int, *,
            last_seqno: int | None = None, int64_t now_ns, Py_ssize_t stamp_offset=-1,
            int64_t stamp_ns=0) -> int:
        """Open a snapshot whose fragments leave by `continue_snapshot`; see `publish_snapshot`.

        A message of 256 datagrams at once overflows a receive buffer of the usual size, so they
        can leave at a pace. Until the last one has left no other snapshot can begin.

        Returns
        -------
        int
            The number of datagrams it takes.
        """
        if self.open_payload is not None:
            raise BufferError("the snapshot before is not published to its end")
        cdef Py_ssize_t size = _checked_size(payload.shape[0], stamp_offset)
        cdef int type_number = _checked("object_type", object_type, 0xFF)
        cdef int64_t key = _object_key(type_number, _checked("object_id", object_id, 0xFFFF))
        if last_seqno is None:
            last_seqno = 0 if type_number == 0 else self.last_seqnos.get(key, 0)
        self.open_frame = self._frame(
            CHANNEL_SNAPSHOT, type_number, key & 0xFFFF, True, size,
            _checked("last_seqno", last_seqno, 0xFFFFFFFF))
        self.open_payload = _stamped(payload, stamp_offset, stamp_ns)
        self.open_fragment = 0
        self.next_seqnos[CHANNEL_SNAPSHOT] = self.open_frame.seqno + 1
        self.last_published_ns[CHANNEL_SNAPSHOT] = now_ns
        self.message_counts[CHANNEL_SNAPSHOT] += 1
        return self.open_frame.fragment_max + 1

    def continue_snapshot(self, int datagrams_max, *, int64_t now_ns) -> int:
        """Put up to `datagrams_max` more datagrams of the open snapshot into the send queue.

        Returns
        -------
        int
            How many were put there; 0 when no snapshot is open.
        """
        if self.open_payload is None:
            return 0
        cdef uint32_t total = <uint32_t>self.open_frame.fragment_max + 1
        cdef uint32_t first = self.open_fragment
        cdef uint32_t stop = min(total, first + <uint32_t>max(datagrams_max, 0))
        cdef const uint8_t* payload = self.open_payload
        self._check_room(CHANNEL_SNAPSHOT, stop - first)
        self.emit(CHANNEL_SNAPSHOT, &self.open_frame, payload, len(self.open_payload),
                  first, stop, -1, 0)
        self.open_fragment = stop
        self.last_published_ns[CHANNEL_SNAPSHOT] = now_ns
        if stop == total:
            self.open_payload = None
        return stop - first

    @staticmethod
    def check(
            const uint8_t[::1] payload not None, object_type: int, object_id: int, *,
            Py_ssize_t stamp_offset=-1) -> None:
        """Raise what publishing this message would raise, and do no more.

        Raises
        ------
        ValueError
            The payload is empty or too large, or a number is out of range.
        """
        cdef int _number = _checked("object_type", object_type, 0xFF)
        _number = _checked("object_id", object_id, 0xFFFF)
        _checked_size(payload.shape[0], stamp_offset)

    def heartbeat(self, int64_t now_ns) -> int:
        """Put a heartbeat on each channel that was silent for the heartbeat interval.

        A heartbeat has no payload, object type 0, and takes a seqno like any message.

        Returns
        -------
        int
            The number of heartbeats, 0..2.
        """
        cdef int channel, count = 0
        if self.heartbeat_interval == 0:
            return 0
        for channel in range(CHANNEL_COUNT):
            if channel == CHANNEL_SNAPSHOT and self.open_payload is not None:
                continue
            if self.last_published_ns[channel] < 0:  # the interval starts with the first look
                self.last_published_ns[channel] = now_ns
            if now_ns - self.last_published_ns[channel] < self.heartbeat_interval:
                continue
            self._check_room(channel, 1)
            self.put_heartbeat(channel, now_ns)
            count += 1
        return count

    cdef void put_heartbeat(self, int channel, int64_t now_ns) noexcept nogil:
        cdef Frame frame = self._frame(channel, 0, 0, False, 0, 0)
        self.emit(channel, &frame, NULL, 0, 0, 1, -1, 0)
        self.next_seqnos[channel] = frame.seqno + 1
        self.last_published_ns[channel] = now_ns
        self.message_counts[channel] += 1
        self.heartbeat_counts[channel] += 1

    cdef uint32_t put_chained(self, const uint8_t* payload, uint32_t size, uint8_t object_type,
                              uint16_t object_id, bint snapshot, uint32_t last_seqno,
                              int64_t now_ns) noexcept nogil:
        cdef Frame frame = self._frame(
            CHANNEL_INCREMENTAL, object_type, object_id, snapshot, size, last_seqno)
        self.emit(CHANNEL_INCREMENTAL, &frame, payload, size,
                  0, <uint32_t>frame.fragment_max + 1, -1, 0)
        self.next_seqnos[CHANNEL_INCREMENTAL] = frame.seqno + 1
        self.last_published_ns[CHANNEL_INCREMENTAL] = now_ns
        self.message_counts[CHANNEL_INCREMENTAL] += 1
        return frame.seqno

    cdef void leave_out(self) noexcept nogil:
        self.next_seqnos[CHANNEL_INCREMENTAL] += 1

    cdef Frame take_snapshot(self, uint32_t size, uint8_t object_type, uint16_t object_id,
                             uint32_t last_seqno, int64_t now_ns) noexcept nogil:
        cdef Frame frame = self._frame(
            CHANNEL_SNAPSHOT, object_type, object_id, True, size, last_seqno)
        self.next_seqnos[CHANNEL_SNAPSHOT] = frame.seqno + 1
        self.last_published_ns[CHANNEL_SNAPSHOT] = now_ns
        self.message_counts[CHANNEL_SNAPSHOT] += 1
        return frame

    def heartbeat_due_ns(self) -> int:
        """Return when the next heartbeat is due, monotonic; 0 if at once, -1 if never."""
        cdef int64_t earliest = min(self.last_published_ns[0], self.last_published_ns[1])
        if self.heartbeat_interval == 0:
            return -1
        return 0 if earliest < 0 else earliest + self.heartbeat_interval

    def restart(self, session_id: int) -> None:
        """Begin a new session: numbers from the start, no object known, nothing half published.

        Datagrams of the old session that wait in the send queues stay there. The id may equal the
        old one: 16 bits collide, and a subscriber must notice.
        """
        self._begin(_checked("session_id", session_id, 0xFFFF))

    def _begin(self, session_id):
        cdef int channel
        self.session = session_id
        self.last_seqnos = {}
        self.open_payload = None
        for channel in range(CHANNEL_COUNT):
            self.next_seqnos[channel] = self.first_seqnos[channel]
            self.last_published_ns[channel] = -1

    def take(self, channel: int) -> list[bytes]:
        """Return the datagrams that wait on a channel, as a list of bytes, and forget them."""
        cdef int number = _checked("channel", channel, CHANNEL_COUNT - 1)
        cdef SendQueue* send_queue = &self.send_queues[number]
        cdef uint32_t i
        datagrams = [
            <bytes>send_queue_datagram(send_queue, i)[:send_queue.sizes[i]]
            for i in range(send_queue.count)]
        send_queue.count = 0
        return datagrams

    def views(self, channel: int) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Return the datagrams that wait on a channel where they lie; `clear` forgets them.

        Returns
        -------
        tuple of numpy.ndarray
            (buffer, offsets, sizes): uint8, int64, int64. Datagram i is `sizes[i]` bytes at
            `buffer[offsets[i]]`, valid until `clear` or `take`.
        """
        cdef int number = _checked("channel", channel, CHANNEL_COUNT - 1)
        cdef uint32_t count = self.send_queues[number].count
        data, offsets, sizes = self.memory[number]
        return data, offsets[:count], sizes[:count]

    def clear(self, channel: int) -> None:
        """Forget the datagrams that wait on a channel: they were sent."""
        self.send_queues[<int>_checked("channel", channel, CHANNEL_COUNT - 1)].count = 0

    def pending(self, channel: int) -> int:
        """Return the number of datagrams that wait on a channel."""
        return self.send_queues[<int>_checked("channel", channel, CHANNEL_COUNT - 1)].count

    def last_seqno(self, object_type: int, object_id: int) -> int:
        """Return an object's last incremental seqno in this session, 0 when it has none."""
        return self.last_seqnos.get(_object_key(object_type, object_id), 0)

    @property
    def session_id(self) -> int:
        """The session's id, 0..65535."""
        return self.session

    @property
    def snapshot_open(self) -> bool:
        """Whether a snapshot has begun of which datagrams are still to be put out."""
        return self.open_payload is not None

    @property
    def next_seqno(self) -> int:
        """The seqno that the next incremental message gets."""
        return self.next_seqnos[CHANNEL_INCREMENTAL]

    @property
    def next_snapshot_seqno(self) -> int:
        """The seqno that the next message of the snapshot channel gets."""
        return self.next_seqnos[CHANNEL_SNAPSHOT]

    def counters(self, channel: int) -> dict[str, int]:
        """Return what was put on a channel since the start, over all sessions.

        Returns
        -------
        dict[str, int]
            `messages` (heartbeats included), `heartbeats`, `datagrams`, `bytes` (of UDP payload).
        """
        cdef int number = _checked("channel", channel, CHANNEL_COUNT - 1)
        return {
            "messages": self.message_counts[number],
            "heartbeats": self.heartbeat_counts[number],
            "datagrams": self.datagram_counts[number],
            "bytes": self.byte_counts[number],
        }

    cdef Frame _frame(self, int channel, uint8_t object_type, uint16_t object_id, bint snapshot,
                      Py_ssize_t size, uint32_t last_seqno) noexcept nogil:
        cdef Frame frame
        frame.control = self.encoding_number
        if snapshot and not self.legacy:
            frame.control |= SNAPSHOT_BIT
        frame.fragment = 0
        frame.fragment_max = 0 if size == 0 else <uint8_t>((size - 1) // FRAGMENT_SIZE)
        frame.object_type = object_type
        frame.object_id = object_id
        frame.session_id = self.session
        frame.seqno = self.next_seqnos[channel]
        frame.last_seqno = last_seqno
        return frame

    cdef int _check_room(self, int channel, uint32_t count) except -1:
        if self.send_queues[channel].count + count > SEND_QUEUE_SLOTS:
            raise BufferError(
                f"send_queue full: {count} datagrams more, {self.send_queues[channel].count} of "
                f"{SEND_QUEUE_SLOTS} wait already; take or send them first")
        return 0

    cdef void emit(self, int channel, const Frame* frame, const uint8_t* payload, Py_ssize_t size,
                   uint32_t fragment, uint32_t fragment_stop, Py_ssize_t stamp_offset,
                   int64_t stamp_ns) noexcept nogil:
        cdef SendQueue* send_queue = &self.send_queues[channel]
        cdef Frame wire = frame[0]
        cdef uint8_t* slot
        cdef Py_ssize_t offset, length
        cdef uint32_t i
        invariant(send_queue.count + (fragment_stop - fragment) <= SEND_QUEUE_SLOTS)
        if self.big_endian:
            wire.object_id = swap16(wire.object_id)
            wire.session_id = swap16(wire.session_id)
            wire.seqno = swap32(wire.seqno)
            wire.last_seqno = swap32(wire.last_seqno)
        for i in range(fragment, fragment_stop):
            offset = <Py_ssize_t>i * FRAGMENT_SIZE
            length = min(size - offset, <Py_ssize_t>FRAGMENT_SIZE)
            wire.fragment = <uint8_t>i
            slot = send_queue_datagram(send_queue, send_queue.count)
            memcpy(slot, &wire, FRAME_SIZE)
            if length > 0:
                memcpy(slot + FRAME_SIZE, payload + offset, length)
                if stamp_offset >= 0:
                    _stamp(slot + FRAME_SIZE, length, stamp_offset - offset, stamp_ns)
            send_queue.sizes[send_queue.count] = FRAME_SIZE + length
            send_queue.count += 1
            self.byte_counts[channel] += FRAME_SIZE + length
        self.datagram_counts[channel] += fragment_stop - fragment


cdef inline void _stamp(
        uint8_t* target, Py_ssize_t size, Py_ssize_t at, int64_t value) noexcept nogil:
    # Byte by byte: a stamp may lie across two fragments, of which this is one.
    cdef Py_ssize_t i
    for i in range(8):
        if 0 <= at + i < size:
            target[at + i] = <uint8_t>(<uint64_t>value >> (8 * i))


cdef bytes _stamped(const uint8_t[::1] payload, Py_ssize_t stamp_offset, int64_t stamp_ns):
    cdef bytes copy = bytes(payload)
    if stamp_offset < 0:
        return copy
    return copy[:stamp_offset] + stamp_ns.to_bytes(8, "little") + copy[stamp_offset + 8:]


cdef object _checked(str name, value, limit):
    if not 0 <= value <= limit:
        raise ValueError(f"{name} must be 0..{limit}, was {value}")
    return value


cdef Py_ssize_t _checked_size(Py_ssize_t size, Py_ssize_t stamp_offset) except -1:
    if not 1 <= size <= MESSAGE_SIZE_MAX:
        raise ValueError(
            f"payload must have 1..{MESSAGE_SIZE_MAX} bytes ({FRAGMENTS_MAX} fragments of "
            f"{FRAGMENT_SIZE}), had {size}")
    if stamp_offset >= 0 and stamp_offset > size - 8:
        raise ValueError(
            f"stamp_offset must leave room for 8 bytes in a payload of {size}, was {stamp_offset}")
    return size
