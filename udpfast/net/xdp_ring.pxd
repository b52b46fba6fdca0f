# One queue of a network interface as an AF_XDP socket: frames from a ring, without a system call.
#
#            UMEM: frames of 2,048 bytes, allocated and pre-faulted once
#   kernel --- RX ring (frame, size) ---> xdp_receive: check, find the line, lend the payload
#   kernel <-- fill ring (free frame) --- at the next receive: until then the payload is valid
#
# Every frame taken from the ring is counted at one line as one of XdpOutcome; the loop counts each
# datagram again. All queues of an interface share one table of the lines that its frames can belong
# to (XdpPorts). For one thread at a time.
# https://www.kernel.org/doc/html/latest/networking/af_xdp.html

from libc.errno cimport EAGAIN, ENETDOWN, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport counter_add, load_acquire_32, store_release_32
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport LINE_FRAMES, LINE_KERNEL_DROPS, LINE_RECEIVE_ERRORS
from udpfast.core.layout cimport (
    DATAGRAM_NO_TIMESTAMP, DATAGRAM_SENDER_REFUSED, Datagram,
)
from udpfast.net.link cimport LinkDatagram
from udpfast.net.xdp_frame cimport XDP_DATAGRAM, XDP_FOREIGN, XDP_MALFORMED, xdp_find_datagram

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recvfrom(int fd, void* buffer, size_t size, int flags, void* address, void* length)
    int getsockopt(int fd, int level, int option, void* value, uint32_t* size)
    uint16_t htons(uint16_t port)
    int MSG_DONTWAIT, SOL_SOCKET, SO_MEMINFO

cdef extern from * nogil:
    void prefetch "__builtin_prefetch" (const void* address)

cdef extern from *:
    """
    #define UDPFAST_XDP_STAMPED UINT64_C(0x5D3C9E417A60B2F7)
    """
    uint64_t XDP_STAMPED "UDPFAST_XDP_STAMPED"   # as STAMPED of xdp_program.py

cdef struct XdpStamp:            # written before a frame by the XDP program
    int64_t monotonic_ns
    uint64_t stamped             # XDP_STAMPED; the reader resets it to 0

cdef enum:  # linux/if_xdp.h
    SOL_XDP = 283
    XDP_STATISTICS = 7
    XDP_RING_NEED_WAKEUP = 1
    MEMINFO_DROPS = 8            # linux/sock_diag.h, SK_MEMINFO_DROPS
    MEMINFO_COUNT = 9
    XDP_FRAME_SIZE = 2048        # holds any frame of an Ethernet with an MTU of 1,500
    XDP_PORTS_MAX = 512          # SOCKETS_MAX of config/parse.py
    XDP_CHAINS = 1024            # hash chains of ports, by address and port: about one port each
    XDP_BATCH_MAX = 64           # BATCH_MAX of datagram.pxd, which cimports this file
    XDP_AHEAD = 4                # how many frames ahead to prefetch
    XDP_PREFETCH_SIZE = 640      # bytes to prefetch: headers, and Roq's largest datagram

cdef struct XdpDescriptor:
    uint64_t address             # offset of the frame's first byte in the UMEM
    uint32_t size
    uint32_t options

cdef struct XdpStatistics:
    uint64_t rx_dropped          # there was no free frame, or the data did not fit a frame
    uint64_t rx_invalid
    uint64_t tx_invalid
    uint64_t rx_ring_full
    uint64_t fill_ring_empty
    uint64_t tx_ring_empty

cdef struct XdpSender:           # as Sender of datagram.pxd
    uint64_t high
    uint64_t low
    uint16_t port                # network byte order; 0 = any port

cdef struct XdpPort:             # an address of a line, and who may send to it
    uint64_t high                # destination in IPv6 form (IPv4 mapped), as two words
    uint64_t low
    uint16_t port                # host byte order
    uint8_t channel
    uint8_t line
    uint8_t address              # as Datagram.address
    uint16_t next                # index + 1 of the next port of its chain; 0: it is the last
    bint source_only             # source-specific: only `source` belongs to this line
    XdpSender source
    uint32_t senders_count       # 0: everyone may send
    XdpSender* senders
    int member_fd                # the ordinary socket that holds the membership
    uint32_t member_drops        # datagrams that went to the kernel instead of the ring
    int64_t* counters            # indexed by LineCounter of core/counter

cdef struct XdpPorts:
    uint32_t count
    int checksums                # CHECKSUMS_*
    uint16_t chains[XDP_CHAINS]  # index + 1 of the first port of each chain
    XdpPort items[XDP_PORTS_MAX]

cdef struct XdpQueue:
    int fd
    bint first                   # first queue of its interface: it also reads membership sockets
    bint busy_poll               # run the network card's driver when the ring is empty
    bint gone                    # the interface was removed
    XdpPorts* ports
    uint8_t* frames
    uint32_t rx_mask
    uint32_t rx_next             # free-running, as the kernel's indexes are
    uint32_t* rx_producer
    uint32_t* rx_consumer
    XdpDescriptor* rx
    uint32_t fill_mask
    uint32_t fill_next
    uint32_t* fill_producer
    uint32_t* fill_flags
    uint64_t* fill
    uint32_t lent_count          # frames taken by the last receive, to be returned by the next
    uint64_t lent[XDP_BATCH_MAX]
    uint64_t drops_seen
    uint64_t wakeups


cdef inline int xdp_receive(XdpQueue* q, Datagram* items, uint32_t capacity) noexcept nogil:
    # As datagram_receive: returns how many items were filled; 0: none; < 0: -errno.
    cdef XdpDescriptor* descriptor
    cdef uint32_t available, i
    cdef int count = 0
    if q.lent_count:
        xdp_give_back(q)
    # Pairs with the kernel's release: the descriptors and frames before it are complete.
    available = load_acquire_32(q.rx_producer) - q.rx_next
    if available == 0:
        return xdp_wake(q)
    available = min(available, capacity)
    for i in range(min(available, <uint32_t>XDP_AHEAD)):
        xdp_prefetch(q, q.rx_next + i)
    for i in range(available):
        descriptor = &q.rx[(q.rx_next + i) & q.rx_mask]
        if i + XDP_AHEAD < available:
            xdp_prefetch(q, q.rx_next + i + XDP_AHEAD)
        q.lent[i] = descriptor.address
        count += xdp_accept(
            q.ports, q.frames + descriptor.address, descriptor.size, &items[count])
    q.lent_count = available
    q.rx_next += available
    # The kernel may reuse these descriptors now; the frames are lent until the next receive.
    store_release_32(q.rx_consumer, q.rx_next)
    return count


cdef inline void xdp_prefetch(XdpQueue* q, uint32_t at) noexcept nogil:
    # Prefetch the whole frame: another core wrote it, and the loop will copy the payload.
    cdef XdpDescriptor* descriptor = &q.rx[at & q.rx_mask]
    cdef const uint8_t* line = q.frames + descriptor.address - sizeof(XdpStamp)
    cdef const uint8_t* end = (
        line + sizeof(XdpStamp) + min(descriptor.size, <uint32_t>XDP_PREFETCH_SIZE))
    while line < end:
        prefetch(line)
        line += 64


cdef inline void xdp_give_back(XdpQueue* q) noexcept nogil:
    # The fill ring always has room: it has as many entries as there are frames.
    cdef uint32_t i
    for i in range(q.lent_count):
        q.fill[(q.fill_next + i) & q.fill_mask] = q.lent[i] & ~<uint64_t>(XDP_FRAME_SIZE - 1)
    q.fill_next += q.lent_count
    q.lent_count = 0
    # Pairs with the kernel's acquire: it may fill these frames again.
    store_release_32(q.fill_producer, q.fill_next)


cdef inline int xdp_wake(XdpQueue* q) noexcept nogil:
    # Call the driver if it sleeps, or if this loop is the one that polls the card.
    if likely(not q.busy_poll and not q.fill_flags[0] & XDP_RING_NEED_WAKEUP and not q.gone):
        return 0
    q.wakeups += 1
    return xdp_probe(q)


cdef inline int xdp_probe(XdpQueue* q) noexcept nogil:
    if recvfrom(q.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL) >= 0 or errno == EAGAIN:
        return 0
    if errno == ENETDOWN:  # the interface may come up again, and the socket then continues
        counter_add(&q.ports.items[0].counters[LINE_RECEIVE_ERRORS], 1)
        return 0
    q.gone = 1
    return -errno


cdef inline bint xdp_accept(
        XdpPorts* ports, const uint8_t* frame, uint32_t size, Datagram* item) noexcept nogil:
    # Count the frame; fill the item and return 1 if it is a datagram of a line. The stamp is by the
    # monotonic clock until xdp_stamp converts it. (The kernel reserves 256 bytes before a frame.)
    cdef LinkDatagram found
    cdef XdpStamp* stamp = <XdpStamp*>(frame - sizeof(XdpStamp))
    cdef bint stamped = stamp.stamped == XDP_STAMPED
    cdef XdpPort* port = NULL
    cdef int outcome = xdp_find_datagram(frame, size, ports.checksums, &found)
    stamp.stamped = 0            # so that a later frame without a stamp does not seem to have one
    if likely(outcome < XDP_MALFORMED):
        port = xdp_find_port(ports, &found)
        if unlikely(port is NULL):
            outcome = XDP_FOREIGN
    if unlikely(port is NULL):
        port = &ports.items[0]
    counter_add(&port.counters[LINE_FRAMES], 1)
    if unlikely(outcome != XDP_DATAGRAM):
        counter_add(&port.counters[LINE_FRAMES + outcome], 1)
        return 0
    item.data = frame + found.offset
    item.size = found.size
    item.flags = 0 if likely(stamped) else DATAGRAM_NO_TIMESTAMP
    item.received_ns = stamp.monotonic_ns if likely(stamped) else 0
    item.channel = port.channel
    item.line = port.line
    item.address = port.address
    if unlikely(port.senders_count and not xdp_sender_is(
            port.senders, port.senders_count, &found)):
        item.flags |= DATAGRAM_SENDER_REFUSED
    return 1


cdef inline void xdp_stamp(Datagram* items, int count, int64_t offset_ns) noexcept nogil:
    # Convert the stamps of a batch to UNIX ns. offset_ns: real-time clock minus monotonic clock.
    cdef int i
    for i in range(count):
        if likely(not items[i].flags & DATAGRAM_NO_TIMESTAMP):
            items[i].received_ns += offset_ns


cdef inline XdpPort* xdp_find_port(XdpPorts* ports, LinkDatagram* found) noexcept nogil:
    cdef uint64_t high, low
    cdef XdpPort* port
    cdef uint16_t at
    memcpy(&high, found.destination, 8)
    memcpy(&low, found.destination + 8, 8)
    at = ports.chains[xdp_chain(low, found.destination_port)]
    while at:
        port = &ports.items[at - 1]
        if (port.port == found.destination_port and port.low == low and port.high == high
                and (not port.source_only or xdp_sender_is(&port.source, 1, found))):
            return port
        at = port.next
    return NULL


cdef inline uint32_t xdp_chain(uint64_t low, uint16_t port) noexcept nogil:
    # Ports come from the settings only: no sender can make a chain long, so the hash has no key.
    return <uint32_t>(((low ^ port) * <uint64_t>0x9E3779B97F4A7C15) >> 54)


cdef inline void xdp_link_ports(XdpPorts* ports) noexcept nogil:
    # Build the chains, once all ports are set; each chain keeps the order of the ports.
    cdef uint32_t n = ports.count
    cdef uint16_t* first
    while n:
        first = &ports.chains[xdp_chain(ports.items[n - 1].low, ports.items[n - 1].port)]
        ports.items[n - 1].next = first[0]
        first[0] = <uint16_t>n
        n -= 1


cdef inline bint xdp_sender_is(
        XdpSender* senders, uint32_t count, LinkDatagram* found) noexcept nogil:
    cdef uint64_t high, low
    cdef uint32_t i
    memcpy(&high, found.source, 8)
    memcpy(&low, found.source + 8, 8)
    for i in range(count):
        if (senders[i].low == low and senders[i].high == high
                and (senders[i].port == 0 or senders[i].port == htons(found.source_port))):
            return 1
    return 0


cdef inline int xdp_drops_read(XdpQueue* q) noexcept nogil:
    # Count losses before user space: no free frame, a full ring, or a frame passed to the kernel
    # because the program did not match it (extension headers) or its queue has no socket. 0 or
    # -errno. fill_ring_empty is left out: in copy mode rx_dropped includes it, and with zero copy
    # the card drops the frame and counts it (ethtool -S).
    cdef XdpStatistics statistics
    cdef uint32_t size = sizeof(statistics)
    cdef uint64_t drops
    cdef uint32_t i
    if q.first:
        for i in range(q.ports.count):
            xdp_member_drops_read(&q.ports.items[i])
    if getsockopt(q.fd, SOL_XDP, XDP_STATISTICS, &statistics, &size) < 0:
        return -errno
    drops = statistics.rx_dropped + statistics.rx_ring_full
    counter_add(
        &q.ports.items[0].counters[LINE_KERNEL_DROPS], <int64_t>(drops - q.drops_seen))
    q.drops_seen = drops
    return xdp_probe(q)


cdef inline void xdp_member_drops_read(XdpPort* port) noexcept nogil:
    cdef uint32_t values[MEMINFO_COUNT]
    cdef uint32_t size = sizeof(values)
    if getsockopt(port.member_fd, SOL_SOCKET, SO_MEMINFO, values, &size) < 0:
        return
    if size >= sizeof(values):
        counter_add(&port.counters[LINE_KERNEL_DROPS],
                    <int64_t>(values[MEMINFO_DROPS] - port.member_drops))
        port.member_drops = values[MEMINFO_DROPS]
