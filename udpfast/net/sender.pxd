# Datagrams sent in batches: sendmmsg to one destination, through libc's ordinary symbol as in
# datagram.pxd. What cannot leave now is counted and never blocks.
#
#   sender = DatagramSender("239.1.2.3:9001", interface="eth0")
#   send_batch_add(&sender.batch, payload, size)   # 0: full
#   datagram_send(&sender.batch)                   # how many are done with, or -errno

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.net.datagram cimport BATCH_MAX, iovec, mmsghdr

cdef enum:
    SEGMENT_CONTROL_WORDS = 3    # CMSG_SPACE(2) in words: where the train's datagram size is said

cdef struct SendBatch:
    # Datagrams that wait to leave through one connected socket. One thread at a time.
    int fd                       # borrowed
    uint32_t first               # next to send
    uint32_t count               # one past the last to send
    bint segment                 # equal-sized neighbours leave as one train (UDP_SEGMENT)
    uint64_t datagrams           # sent
    uint64_t bytes               # sent
    uint64_t calls
    uint64_t would_block         # EAGAIN or ENOBUFS: nothing left, the rest waits
    uint64_t icmp_errors         # complaints about earlier datagrams: sending went on
    uint64_t unreachable         # datagrams given up: no route, interface down, forbidden
    int unreachable_errno        # why, the last time; 0: never
    uint64_t trains              # calls' worth of several datagrams that were cut by the kernel
    uint64_t trains_refused      # the route cannot cut trains: `segment` was turned off
    mmsghdr headers[BATCH_MAX]
    iovec vectors[BATCH_MAX]
    mmsghdr train_headers[BATCH_MAX]
    uint64_t controls[BATCH_MAX][SEGMENT_CONTROL_WORDS]

cdef void send_batch_init(SendBatch* batch, int fd) noexcept nogil

# Appends one datagram; its bytes are borrowed until it has left. 1, or 0 when the batch is full.
cdef inline bint send_batch_add(
        SendBatch* batch, const void* payload, size_t size) noexcept nogil:
    if batch.count == BATCH_MAX:
        return 0
    batch.vectors[batch.count].iov_base = <void*>payload
    batch.vectors[batch.count].iov_len = size
    batch.count += 1
    return 1

# Sends what waits. Returns how many datagrams left the batch (sent, or given up and counted);
# fewer than waited = the socket's buffer is full, or an error that the next call meets first;
# < 0 = -errno, and none left.
cdef int datagram_send(SendBatch* batch) noexcept nogil

# Sends datagrams [first, count), number i of sizes[i] bytes at data + i * stride, as far as the
# queue takes them: how many; -errno if none. Nothing is kept in the batch.
cdef int send_slots(SendBatch* batch, const uint8_t* data, size_t stride, const int64_t* sizes,
                    uint32_t first, uint32_t count) noexcept nogil

cdef class DatagramSender:
    cdef SendBatch batch
    cdef readonly object socket
    cdef readonly object results
    cdef readonly object tied_to
    cdef object _open

    # Sends `count` datagrams, number i of sizes[i] bytes at data + i * stride. A full queue is
    # asked `attempts` times; returns how many were given up, and why if it was for an error.
    cdef int64_t send_slots(self, const uint8_t* data, size_t stride, const int64_t* sizes,
                            uint32_t count, int attempts, int* error) noexcept
    cdef int _flush(self) except -1
