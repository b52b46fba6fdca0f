# Datagrams received in batches: recvmmsg into memory that is allocated once (sending: sender.pxd).
#
# All calls use libc's ordinary symbols, so that a preloaded stack (Onload, VMA, XLIO) can replace
# them; a raw syscall() would bypass it. Nothing here ever answers a datagram.
#
#   receiver = DatagramReceiver(LineAddress(...), ReceiveOptions(...), channel=0, line=0)
#   count = datagram_receive(&receiver.batch)      # > 0, 0: nothing, < 0: -errno
#   for index in range(count): ... &receiver.batch.items[index]

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.layout cimport Datagram

cdef extern from "<sys/socket.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    struct msghdr:
        void* msg_name
        uint32_t msg_namelen
        iovec* msg_iov
        size_t msg_iovlen
        void* msg_control
        size_t msg_controllen
        int msg_flags
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len

cdef extern from "<netinet/in.h>" nogil:
    struct sockaddr_in6:
        pass

cdef enum:
    BATCH_MAX = 64               # most datagrams per call; more gains nothing (recvmmsg 32 .. 128)
    # Bytes per datagram; a longer one is marked as truncated. Not a power of two: the same offsets
    # in all slots would compete for a few sets of the first-level cache.
    SLOT_SIZE = 4160
    CONTROL_SIZE = 160           # room for one time stamp of each sort, drop count, train size
    TRAIN_SLOT_SIZE = 65536      # a train that the kernel assembled is at most one IP datagram
    TRAIN_BATCH_MAX = 16         # trains per call: more megabytes would not fit the cache
    TRAIN_LENGTH_MAX = 128       # datagrams of one train (UDP_MAX_SEGMENTS since Linux 6.9)
    SENDERS_MAX = 64             # compared one by one: 64 comparisons take less than 100 ns

cdef struct Sender:
    uint64_t high                # the address in IPv6 form (IPv4 mapped), as two words
    uint64_t low
    uint16_t port                # network byte order; 0 = any port
    uint16_t reserved[3]

cdef struct DatagramBatch:
    # One socket, its slots and the result of the last receive. For one thread at a time.
    Datagram* items              # [items_max]; data points at the slot, valid until next receive
    int fd                       # borrowed
    void* xdp                    # XdpQueue of net/xdp_ring.pxd instead of a UDP socket, or NULL
    uint32_t capacity            # slots
    uint32_t slot_size
    bint trains                  # UDP_GRO: a slot may hold several datagrams of one size
    uint32_t filled              # headers that the kernel rewrote: reset before the next call
    bint backlog                 # the last call returned datagrams: request a whole batch
    bint full                    # the last call returned as many as requested: more may wait
    bint asks_senders            # sender addresses are requested (13 % of a receive)
    bint control                 # time stamps are requested, and with them drop counts
    uint32_t drops_seen          # SO_RXQ_OVFL as last seen: 32 bits, wraps
    uint64_t replaced            # `fd` is another socket now, whose drop count begins at 0
    uint64_t kernel_drops        # lost before user space since the socket was opened; only grows
    uint64_t drops_counted       # how many of these the loop has added to the line's counter
    uint64_t calls               # receive calls made
    uint64_t icmp_errors         # ICMP errors that a receive returned instead of a datagram
    uint64_t nic_stamps          # datagrams stamped by the NIC
    uint64_t nic_stamps_foreign  # NIC stamps that are not UNIX time: the kernel's was used instead
    uint32_t senders_count       # 0 = everyone may send
    uint32_t* sender_tags        # [SENDERS_MAX]: 32 bits of each, compared all at once
    Sender* senders              # [SENDERS_MAX]
    bint borrowed                # the slots belong to another batch
    uint8_t* slots               # [capacity * slot_size]
    mmsghdr* headers             # [capacity], and one vector, name and control area for each
    iovec* vectors
    sockaddr_in6* addresses
    uint8_t* controls

# Allocates and pre-faults the memory. The slots may be those of another batch of the same kind,
# used in turn, so that they stay in the cache however many sockets there are. 0 or -ENOMEM.
cdef int datagram_batch_init(
    DatagramBatch* batch, int fd, uint8_t channel, uint8_t line, uint8_t address,
    uint32_t capacity, bint asks_senders, bint control, bint trains, uint8_t* slots) noexcept nogil
cdef void datagram_batch_free(DatagramBatch* batch) noexcept nogil

# Adds one allowed sender: 16 address bytes, port in network byte order (0 = any). 0 or -ENOSPC.
cdef int datagram_batch_allow(
    DatagramBatch* batch, const uint8_t* address, uint16_t port) noexcept nogil

# Receives at most `capacity` waiting datagrams or trains; never blocks. Returns how many items were
# filled; 0: none (EAGAIN, EINTR, ICMP errors); < 0: -errno, and the socket is unusable.
# items[i].flags: DATAGRAM_TRUNCATED, DATAGRAM_SENDER_REFUSED, DATAGRAM_NO_TIMESTAMP (received_ns is
# then 0, and the caller sets it from its own clock).
cdef int datagram_receive(DatagramBatch* batch) noexcept nogil

# Reads the socket's drop count now (a system call). SO_RXQ_OVFL needs stamps, and comes only with
# the next datagram: drops at the end of a burst would go unnoticed. 0 or -errno.
cdef int datagram_drops_read(DatagramBatch* batch) noexcept nogil

cdef class DatagramReceiver:
    cdef DatagramBatch batch
    cdef readonly object socket
    cdef readonly object results
    cdef readonly object tied_to
    cdef object _line
    cdef object _options
    cdef object _memory          # the receiver whose slots this one shares; None: its own
    cdef public object replaced  # called in the thread that replaced the socket; may be None
    cdef object _lock            # close and replace_socket may be called from different threads
