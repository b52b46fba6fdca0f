# Datagrams sent in batches: sendmmsg to one destination, by libc's ordinary symbol as in
# datagram.pxd. Sending never blocks; datagrams that cannot be sent now are counted.
#
#   sender = DatagramSender("239.1.2.3:9001", interface="eth0")
#   send_batch_add(&sender.batch, payload, size)   # 0: full
#   datagram_send(&sender.batch)                   # how many left the batch, or -errno

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.net.datagram cimport BATCH_MAX, iovec, mmsghdr

cdef enum:
    SEGMENT_CONTROL_WORDS = 3    # CMSG_SPACE(2) in words: holds the size of a train's datagrams

cdef struct SendBatch:
    # Datagrams that wait to be sent by one connected socket. For one thread at a time.
    int fd                       # borrowed
    uint32_t first               # next to send
    uint32_t count               # one past the last to send
    bint segment                 # equal-sized neighbours are sent as one train (UDP_SEGMENT)
    uint64_t datagrams           # sent
    uint64_t bytes               # sent
    uint64_t calls
    uint64_t would_block         # calls that met a full queue (EAGAIN, ENOBUFS): the rest waits
    uint64_t icmp_errors         # ICMP errors about earlier datagrams: sending went on
    uint64_t unreachable         # datagrams given up: no route, interface down, forbidden
    int unreachable_errno        # errno of the last one given up; 0: none was
    int blocked_errno            # of the last call that met a full queue
    uint8_t given_up[BATCH_MAX]  # errno of a datagram given up, by place; who reads it clears it
    uint64_t trains              # trains of several datagrams that the kernel split
    uint64_t trains_refused      # the route cannot split trains: `segment` was turned off
    mmsghdr headers[BATCH_MAX]
    iovec vectors[BATCH_MAX]
    mmsghdr train_headers[BATCH_MAX]
    uint64_t controls[BATCH_MAX][SEGMENT_CONTROL_WORDS]

cdef void send_batch_init(SendBatch* batch, int fd) noexcept nogil

# Appends one datagram; its bytes are borrowed until it is sent. 1, or 0 if the batch is full.
cdef inline bint send_batch_add(
        SendBatch* batch, const void* payload, size_t size) noexcept nogil:
    if batch.count == BATCH_MAX:
        return 0
    batch.vectors[batch.count].iov_base = <void*>payload
    batch.vectors[batch.count].iov_len = size
    batch.count += 1
    return 1

# Sends the waiting datagrams. Returns how many left the batch (sent, or given up and counted);
# fewer than waited: the socket's queue is full, or an error that the next call will return;
# < 0: -errno, and none left.
cdef int datagram_send(SendBatch* batch) noexcept nogil

# Sends datagrams [first, count), number i with sizes[i] bytes at data + i * stride, until the
# queue is full. Returns how many; -errno if none. The batch is empty afterwards.
cdef int send_slots(SendBatch* batch, const uint8_t* data, size_t stride, const int64_t* sizes,
                    uint32_t first, uint32_t count) noexcept nogil

cdef class DatagramSender:
    cdef SendBatch batch
    cdef readonly object socket
    cdef readonly object results
    cdef readonly object tied_to
    cdef object _open

    # Sends `count` datagrams, number i with sizes[i] bytes at data + i * stride, in up to
    # `attempts` calls if the queue is full. Returns how many were given up; `error`: errno or 0.
    cdef int64_t send_slots(self, const uint8_t* data, size_t stride, const int64_t* sizes,
                            uint32_t count, int attempts, int* error) noexcept
    cdef int _flush(self) except -1
