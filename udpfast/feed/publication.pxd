# Publication: what a publisher puts on its channels waits in send queues, in the datagrams' own
# form.
#
#   seqno = publication.put(payload, size, object_type, object_id, snapshot, now_ns, -1, 0)
#   send_queue = &publication.send_queues[CHANNEL_INCREMENTAL]   # send its `count` datagrams
#   send_queue.count = 0

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from udpfast.core.layout cimport CHANNEL_COUNT, DATAGRAM_SIZE_MAX, Frame

cdef enum:
    # Room per channel: a flush is due at SEND_QUEUE_FLUSH, so a message of 256 fragments always
    # fits behind what may wait (63 + 256 < 512).
    SEND_QUEUE_SLOTS = 512
    SEND_QUEUE_FLUSH = 64

cdef struct SendQueue:
    # Datagrams of one channel that wait to be sent, in order: sizes[i] bytes at data + i * 528.
    uint8_t* data
    int64_t* sizes
    uint32_t count


cdef inline uint8_t* send_queue_datagram(SendQueue* send_queue, uint32_t index) noexcept nogil:
    return send_queue.data + <size_t>index * DATAGRAM_SIZE_MAX


cdef inline Frame send_queue_frame(SendQueue* send_queue, uint32_t index) noexcept nogil:
    cdef Frame frame
    memcpy(&frame, send_queue_datagram(send_queue, index), sizeof(Frame))
    return frame


cdef inline void send_queue_move(SendQueue* send_queue, uint32_t to, uint32_t index) noexcept nogil:
    # A datagram takes the place of one that was before it.
    if to != index:
        memcpy(send_queue_datagram(send_queue, to), send_queue_datagram(send_queue, index),
               <size_t>send_queue.sizes[index])
        send_queue.sizes[to] = send_queue.sizes[index]


cdef class Publication:
    cdef SendQueue send_queues[CHANNEL_COUNT]
    cdef tuple memory                # of the send queues: (data, offsets, sizes) per channel
    cdef uint32_t first_seqnos[CHANNEL_COUNT]
    cdef uint32_t next_seqnos[CHANNEL_COUNT]
    cdef int64_t last_published_ns[CHANNEL_COUNT]
    cdef int64_t message_counts[CHANNEL_COUNT]
    cdef int64_t heartbeat_counts[CHANNEL_COUNT]
    cdef int64_t datagram_counts[CHANNEL_COUNT]
    cdef int64_t byte_counts[CHANNEL_COUNT]
    cdef int64_t heartbeat_interval
    cdef uint16_t session
    cdef uint8_t encoding_number
    cdef bint legacy
    cdef bint big_endian
    cdef dict last_seqnos            # (object_type << 16 | object_id) -> last incremental seqno
    cdef bytes open_payload          # a snapshot whose fragments leave at a pace, its frame,
    cdef Frame open_frame            # and the next fragment
    cdef uint32_t open_fragment

    # As `publish`, which describes it.
    cdef uint32_t put(self, const uint8_t* payload, Py_ssize_t payload_size, object object_type,
                      object object_id, bint snapshot, int64_t now_ns, Py_ssize_t stamp_offset,
                      int64_t stamp_ns) except? 0
    # The same, and a heartbeat, for an owner that keeps every object's last seqno, gives nothing
    # that is out of range, and empties a send queue of SEND_QUEUE_FLUSH datagrams before the next
    # message.
    cdef uint32_t put_chained(self, const uint8_t* payload, uint32_t size, uint8_t object_type,
                              uint16_t object_id, bint snapshot, uint32_t last_seqno,
                              int64_t now_ns) noexcept nogil
    cdef void put_heartbeat(self, int channel, int64_t now_ns) noexcept nogil
    # The next incremental number is of no message: a gap to every subscriber.
    cdef void leave_out(self) noexcept nogil
    # A message of the snapshot channel whose datagrams [fragment, fragment_stop) follow by `emit`.
    cdef Frame take_snapshot(self, uint32_t size, uint8_t object_type, uint16_t object_id,
                             uint32_t last_seqno, int64_t now_ns) noexcept nogil
    cdef void emit(self, int channel, const Frame* frame, const uint8_t* payload, Py_ssize_t size,
                   uint32_t fragment, uint32_t fragment_stop, Py_ssize_t stamp_offset,
                   int64_t stamp_ns) noexcept nogil
    cdef Frame _frame(self, int channel, uint8_t object_type, uint16_t object_id, bint snapshot,
                      Py_ssize_t size, uint32_t last_seqno) noexcept nogil
    cdef int _check_room(self, int channel, uint32_t count) except -1
