"""Receive datagrams in batches: the Python classes, and the functions of `datagram.pxd`.

The feed's loop cimports `datagram_receive`. The classes here open the socket and own the memory;
their own `receive` is for tests and slow tools.
"""

import os
import socket
import threading
import weakref
from typing import NamedTuple

from msgspec.structs import replace

from libc.errno cimport (
    EAGAIN, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EINTR, ENETUNREACH, ENOMEM, ENOPROTOOPT,
    ENOSPC, EPROTO, errno,
)
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cimport cython

from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport (
    DATAGRAM_NO_TIMESTAMP, DATAGRAM_SENDER_REFUSED, DATAGRAM_TRUNCATED,
)
from udpfast.core.oserr cimport check
from udpfast.net.xdp_ring cimport XdpQueue, xdp_drops_read, xdp_receive

from udpfast.net.line import (
    ReceiveOptions, open_receiver, parse_senders, tied_interface,
)

__all__ = ["DatagramReceiver", "ReceivedDatagram"]

cdef extern from "<sys/socket.h>" nogil:
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    cmsghdr* CMSG_FIRSTHDR(msghdr* message)
    cmsghdr* CMSG_NXTHDR(msghdr* message, cmsghdr* control)
    unsigned char* CMSG_DATA(cmsghdr* control)
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t recvmsg(int fd, msghdr* message, int flags)
    int recvmmsg(int fd, mmsghdr* messages, unsigned int count, int flags, void* timeout)
    int getsockopt(int fd, int level, int option, void* value, uint32_t* size)
    int MSG_DONTWAIT, MSG_TRUNC
    int SOL_SOCKET, SO_RXQ_OVFL, SO_TIMESTAMPING, SO_TIMESTAMPNS, SO_MEMINFO
    int AF_INET, AF_INET6

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    uint16_t htons(uint16_t port)
    struct in6_addr:
        uint8_t s6_addr[16]
    ctypedef struct sockaddr_in6_fields "struct sockaddr_in6":
        uint16_t sin6_family
        uint16_t sin6_port
        in6_addr sin6_addr

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec

cdef extern from "<linux/sock_diag.h>" nogil:
    enum:
        SK_MEMINFO_DROPS
        SK_MEMINFO_VARS

cdef enum:
    SOL_UDP = 17                 # linux/udp.h, which clashes with <netinet/udp.h>
    UDP_GRO = 104
    NS_PER_S = 1_000_000_000
    # A NIC clock this far from the kernel's runs on another scale (TAI: 37 s) or was never set.
    NIC_CLOCK_LIMIT_NS = NS_PER_S

cdef struct ScmTimestamping:  # linux/errqueue.h; its header clashes with <time.h>
    timespec software
    timespec legacy              # always zero
    timespec hardware


# --- the loop ------------------------------------------------------------------------------------

cdef int datagram_batch_init(
        DatagramBatch* batch, int fd, uint8_t channel, uint8_t line, uint8_t address,
        uint32_t capacity, bint asks_senders, bint control, bint trains,
        uint8_t* slots) noexcept nogil:
    cdef uint32_t index, items_max
    memset(batch, 0, sizeof(DatagramBatch))
    batch.fd = fd
    batch.capacity = min(capacity, <uint32_t>TRAIN_BATCH_MAX) if trains else capacity
    batch.slot_size = TRAIN_SLOT_SIZE if trains else SLOT_SIZE
    items_max = batch.capacity * TRAIN_LENGTH_MAX if trains else batch.capacity
    capacity = batch.filled = batch.capacity
    batch.asks_senders = asks_senders
    batch.control = control or trains    # the size of a train's datagrams is a control message
    batch.trains = trains
    batch.items = <Datagram*>calloc(items_max, sizeof(Datagram))
    batch.borrowed = slots is not NULL
    batch.slots = slots if batch.borrowed else <uint8_t*>calloc(capacity, batch.slot_size)
    batch.headers = <mmsghdr*>calloc(capacity, sizeof(mmsghdr))
    batch.vectors = <iovec*>calloc(capacity, sizeof(iovec))
    batch.addresses = <sockaddr_in6*>calloc(capacity, sizeof(sockaddr_in6))
    batch.controls = <uint8_t*>calloc(capacity, CONTROL_SIZE)
    batch.senders = <Sender*>calloc(SENDERS_MAX, sizeof(Sender))
    batch.sender_tags = <uint32_t*>calloc(SENDERS_MAX, sizeof(uint32_t))
    if (batch.items is NULL or batch.slots is NULL or batch.headers is NULL
            or batch.vectors is NULL or batch.addresses is NULL or batch.controls is NULL
            or batch.senders is NULL or batch.sender_tags is NULL):
        datagram_batch_free(batch)
        return -ENOMEM
    # calloc returns untouched pages: write to them here, or the loop would take page faults.
    if not batch.borrowed:
        memset(batch.slots, 0xA5, <size_t>capacity * batch.slot_size)
    for index in range(items_max):
        batch.items[index].channel = channel
        batch.items[index].line = line
        batch.items[index].address = address
    for index in range(capacity):
        batch.items[index].data = batch.slots + <size_t>index * batch.slot_size
        batch.vectors[index].iov_base = batch.slots + <size_t>index * batch.slot_size
        batch.vectors[index].iov_len = batch.slot_size
        batch.headers[index].msg_hdr.msg_iov = &batch.vectors[index]
        batch.headers[index].msg_hdr.msg_iovlen = 1
        if asks_senders:
            batch.headers[index].msg_hdr.msg_name = &batch.addresses[index]
        if batch.control:
            batch.headers[index].msg_hdr.msg_control = (
                batch.controls + <size_t>index * CONTROL_SIZE)
    return 0


cdef void datagram_batch_free(DatagramBatch* batch) noexcept nogil:
    free(batch.items)
    if not batch.borrowed:
        free(batch.slots)
    free(batch.headers)
    free(batch.vectors)
    free(batch.addresses)
    free(batch.controls)
    free(batch.senders)
    free(batch.sender_tags)
    memset(batch, 0, sizeof(DatagramBatch))
    batch.fd = -1


cdef int datagram_batch_allow(
        DatagramBatch* batch, const uint8_t* address, uint16_t port) noexcept nogil:
    cdef Sender* sender
    if batch.senders_count == SENDERS_MAX:
        return -ENOSPC
    sender = &batch.senders[batch.senders_count]
    memcpy(&sender.high, address, 8)
    memcpy(&sender.low, address + 8, 8)
    sender.port = port
    batch.sender_tags[batch.senders_count] = sender_tag(sender.low)
    batch.senders_count += 1
    return 0


cdef int datagram_receive(DatagramBatch* batch) noexcept nogil:
    # From a quiet line request one datagram: a spinning recv sees it 10-20 % sooner at p50 than a
    # spinning recvmmsg, and an empty recv costs 281 ns instead of 410. Datagrams that follow at
    # once are a backlog, for which recvmmsg takes 0.74 of the time per datagram. So: first one,
    # then whole batches until a call returns none.
    cdef int asked = <int>batch.capacity if batch.backlog else 1
    cdef int count
    batch.calls += 1
    batch.full = 0
    if batch.xdp is not NULL:
        count = xdp_receive(<XdpQueue*>batch.xdp, batch.items, batch.capacity)
        # Count frames, not datagrams: frames of no line were waiting, too.
        batch.full = (<XdpQueue*>batch.xdp).lent_count == batch.capacity
        return count
    rearm(batch)
    if batch.backlog:
        count = recvmmsg(batch.fd, batch.headers, batch.capacity, MSG_DONTWAIT, NULL)
    elif batch.asks_senders or batch.control:
        count = receive_one_message(batch)
    else:
        return receive_one_bare(batch)
    if count <= 0:
        return receive_nothing(batch, count)
    batch.backlog = 1
    batch.full = count == asked
    batch.filled = count
    if batch.trains:
        return finish_trains(batch, count)
    finish(batch, count)
    return count


cdef inline int receive_one_bare(DatagramBatch* batch) noexcept nogil:
    cdef Datagram* item = batch.items
    # MSG_TRUNC: return the datagram's real length even if the slot is shorter.
    cdef ssize_t size = recv(batch.fd, batch.slots, SLOT_SIZE, MSG_DONTWAIT | MSG_TRUNC)
    if size < 0:
        return receive_nothing(batch, -1)
    batch.backlog = batch.full = 1
    item.flags = DATAGRAM_NO_TIMESTAMP
    item.received_ns = 0
    item.size = <uint32_t>size
    if unlikely(size > SLOT_SIZE):
        item.size = SLOT_SIZE
        item.flags |= DATAGRAM_TRUNCATED
    return 1


cdef inline int receive_one_message(DatagramBatch* batch) noexcept nogil:
    cdef ssize_t size = recvmsg(batch.fd, &batch.headers[0].msg_hdr, MSG_DONTWAIT)
    if size < 0:
        return -1
    batch.headers[0].msg_len = <unsigned int>size
    return 1


cdef int receive_nothing(DatagramBatch* batch, int rc) noexcept nogil:
    cdef int error = errno if rc < 0 else EAGAIN
    batch.backlog = 0
    if likely(error == EAGAIN or error == EINTR):
        return 0
    if is_icmp_error(error):
        batch.icmp_errors += 1
        return 0
    return -error


cdef inline bint is_icmp_error(int error) noexcept nogil:
    # An ICMP error of a router or peer about an earlier datagram. The socket stays usable (udp(7)).
    return (error == ECONNREFUSED or error == EHOSTUNREACH or error == ENETUNREACH
            or error == EHOSTDOWN or error == EPROTO or error == ENOPROTOOPT)


cdef inline void rearm(DatagramBatch* batch) noexcept nogil:
    # Reset the lengths: the kernel overwrites them with those that it used.
    cdef uint32_t index
    if not (batch.asks_senders or batch.control):
        return
    note_replaced(batch)
    for index in range(batch.filled):
        batch.headers[index].msg_hdr.msg_namelen = sizeof(sockaddr_in6) if batch.asks_senders else 0
        batch.headers[index].msg_hdr.msg_controllen = CONTROL_SIZE if batch.control else 0
    batch.filled = 0


cdef inline void note_replaced(DatagramBatch* batch) noexcept nogil:
    # A new socket counts drops from 0. This must precede the first count that it reports, or its
    # drops would be counted twice.
    if unlikely(load_acquire(&batch.replaced)):  # pairs with _put
        store_release(&batch.replaced, 0)
        batch.drops_seen = 0


cdef inline void finish(DatagramBatch* batch, int count) noexcept nogil:
    cdef int index
    cdef Datagram* item
    cdef mmsghdr* header
    for index in range(count):
        item = &batch.items[index]
        header = &batch.headers[index]
        item.size = header.msg_len
        item.flags = DATAGRAM_NO_TIMESTAMP
        item.received_ns = 0
        if unlikely(header.msg_hdr.msg_flags & MSG_TRUNC):
            item.flags |= DATAGRAM_TRUNCATED
        if batch.control:
            read_control(batch, &header.msg_hdr, item)
        if batch.asks_senders and not sender_is_allowed(batch, &batch.addresses[index]):
            item.flags |= DATAGRAM_SENDER_REFUSED


cdef inline int finish_trains(DatagramBatch* batch, int count) noexcept nogil:
    # Each slot holds one datagram, or several of one size (the last may be shorter), which all have
    # the sender and the stamp of the first one.
    cdef Datagram head
    cdef Datagram* item = batch.items
    cdef const uint8_t* data
    cdef uint32_t left, size, length
    cdef int index
    for index in range(count):
        head.received_ns = 0
        head.flags = DATAGRAM_NO_TIMESTAMP
        left = batch.headers[index].msg_len
        size = read_control(batch, &batch.headers[index].msg_hdr, &head)
        if batch.asks_senders and not sender_is_allowed(batch, &batch.addresses[index]):
            head.flags |= DATAGRAM_SENDER_REFUSED
        if unlikely(batch.headers[index].msg_hdr.msg_flags & MSG_TRUNC):
            head.flags |= DATAGRAM_TRUNCATED
        data = batch.slots + <size_t>index * TRAIN_SLOT_SIZE
        length = 0
        while True:
            length += 1
            item.data = data
            item.received_ns = head.received_ns
            item.flags = head.flags
            if size == 0 or left <= size:
                item.size = left
            elif unlikely(length == TRAIN_LENGTH_MAX):
                # No kernel makes such a train: mark the rest as truncated, so that it is refused.
                item.size = left
                item.flags |= DATAGRAM_TRUNCATED
            else:
                item.size = size
            data += item.size
            left -= item.size
            item += 1
            if left == 0:
                break
    return <int>(item - batch.items)


cdef inline uint32_t read_control(
        DatagramBatch* batch, msghdr* message, Datagram* item) noexcept nogil:
    # Returns the size of a train's datagrams; 0: it is a single datagram.
    cdef cmsghdr* control = CMSG_FIRSTHDR(message)
    cdef ScmTimestamping stamps
    cdef timespec stamp
    cdef uint32_t drops
    cdef int size = 0
    while control is not NULL:
        if control.cmsg_level == SOL_SOCKET:
            if control.cmsg_type == SO_TIMESTAMPING:
                memcpy(&stamps, CMSG_DATA(control), sizeof(ScmTimestamping))
                set_received_ns(item, choose_stamp(batch, &stamps))
            elif control.cmsg_type == SO_TIMESTAMPNS:
                memcpy(&stamp, CMSG_DATA(control), sizeof(timespec))
                set_received_ns(item, stamp_ns(&stamp))
            elif control.cmsg_type == SO_RXQ_OVFL:
                memcpy(&drops, CMSG_DATA(control), sizeof(uint32_t))
                count_drops(batch, drops)
        elif control.cmsg_level == SOL_UDP and control.cmsg_type == UDP_GRO:
            memcpy(&size, CMSG_DATA(control), sizeof(int))
        control = CMSG_NXTHDR(message, control)
    return <uint32_t>size if size > 0 else 0


cdef inline int64_t choose_stamp(DatagramBatch* batch, ScmTimestamping* stamps) noexcept nogil:
    cdef int64_t software = stamp_ns(&stamps.software)
    cdef int64_t hardware = stamp_ns(&stamps.hardware)
    if hardware == 0:
        return software
    if software != 0 and not (-NIC_CLOCK_LIMIT_NS < hardware - software < NIC_CLOCK_LIMIT_NS):
        batch.nic_stamps_foreign += 1
        return software
    batch.nic_stamps += 1
    return hardware


cdef inline int64_t stamp_ns(timespec* stamp) noexcept nogil:
    return <int64_t>stamp.tv_sec * NS_PER_S + stamp.tv_nsec


cdef inline void set_received_ns(Datagram* item, int64_t received_ns) noexcept nogil:
    if likely(received_ns != 0):
        item.received_ns = received_ns
        item.flags &= ~<uint32_t>DATAGRAM_NO_TIMESTAMP


cdef inline void count_drops(DatagramBatch* batch, uint32_t drops) noexcept nogil:
    # A datagram carries the count of when it was queued, which may be less than the one that
    # datagram_drops_read saw; the sign of the difference modulo 2^32 tells.
    cdef uint32_t more = drops - batch.drops_seen
    if <int32_t>more > 0:
        batch.drops_seen = drops
        batch.kernel_drops += more


cdef inline uint32_t sender_tag(uint64_t low) noexcept nogil:
    return <uint32_t>(low ^ (low >> 32))


cdef inline bint sender_is_allowed(DatagramBatch* batch, sockaddr_in6* address) noexcept nogil:
    cdef uint8_t mapped[16]
    cdef uint64_t high, low
    cdef uint16_t port
    cdef uint32_t index, tag, found = 0
    cdef sockaddr_in* v4 = <sockaddr_in*>address
    cdef sockaddr_in6_fields* v6 = <sockaddr_in6_fields*>address
    if v4.sin_family == AF_INET:
        memset(mapped, 0, 10)
        memset(mapped + 10, 0xFF, 2)
        memcpy(mapped + 12, &v4.sin_addr, 4)
        port = v4.sin_port
    else:
        memcpy(mapped, &v6.sin6_addr, 16)
        port = v6.sin6_port
    memcpy(&high, mapped, 8)
    memcpy(&low, mapped + 8, 8)
    # Without branches, so that the compiler vectorises it; rejects most senders that are not
    # allowed.
    tag = sender_tag(low)
    for index in range(<uint32_t>SENDERS_MAX):
        found |= batch.sender_tags[index] == tag
    if not found:
        return 0
    for index in range(batch.senders_count):
        if (batch.senders[index].low == low and batch.senders[index].high == high
                and (batch.senders[index].port == 0 or batch.senders[index].port == port)):
            return 1
    return 0


cdef int datagram_drops_read(DatagramBatch* batch) noexcept nogil:
    cdef uint32_t values[SK_MEMINFO_VARS]
    cdef uint32_t size = sizeof(values)
    if batch.xdp is not NULL:
        return xdp_drops_read(<XdpQueue*>batch.xdp)
    note_replaced(batch)
    if getsockopt(batch.fd, SOL_SOCKET, SO_MEMINFO, values, &size) < 0:
        return -errno
    if size > SK_MEMINFO_DROPS * sizeof(uint32_t):
        count_drops(batch, values[SK_MEMINFO_DROPS])
    return 0


# --- Python face ---------------------------------------------------------------------------------

class ReceivedDatagram(NamedTuple):
    """A datagram as a Python object: for tests and slow tools."""

    payload: bytes
    received_ns: int
    flags: int


@cython.final
cdef class DatagramReceiver:
    """The socket of one line, with its batch memory and counters.

    The loop takes `&receiver.batch` and calls `datagram_receive`; `receive` does the same for
    Python. Not thread-safe: a receiver belongs to the thread that polls it.

    Parameters
    ----------
    line : LineAddress
        The address to listen at.
    options : ReceiveOptions
        How to receive.
    channel, line_index : int
        Written into each datagram.
    capacity : int
        Most datagrams per call, 1..64.
    address_index : int
        Also written into each datagram: the index among its line's addresses.
    memory : DatagramReceiver, optional
        A receiver with the same `capacity` and options, whose slots this one shares: they hold the
        datagrams that either of them received last. Close it after this one.

    Attributes
    ----------
    socket : socket.socket
        The non-blocking socket.
    results : tuple of OptionResult
        The requested and granted value of each socket option.
    tied_to : int
        Index of the interface on which the socket depends (`line.tied_interface`); 0: none.
    replaced : Callable[[], object] or None
        Called each time another socket was put under the same descriptor.

    Raises
    ------
    ConfigError, OSError
        As for `line.open_receiver`.
    """

    def __cinit__(self):
        self.batch.fd = -1
        self._lock = threading.Lock()

    def __init__(
            self, line: LineAddress, options: ReceiveOptions | None = None, int channel=0,
            int line_index=0, int capacity=BATCH_MAX, int address_index=0,
            DatagramReceiver memory=None):
        if not 1 <= capacity <= BATCH_MAX:
            raise ValueError(f"capacity must be 1..{BATCH_MAX}, was {capacity}")
        if self.batch.items is not NULL:
            raise RuntimeError("a receiver can be opened only once")
        wanted = ReceiveOptions() if options is None else options
        senders = parse_senders(line.senders)
        self._line, self._options = line, wanted
        self.socket = self._open()
        host = line.address.rpartition(":")[0]  # a new socket gets the port that 0 became
        self._line = replace(line, address=f"{host}:{self.address[1]}")
        control = wanted.timestamps != "none"
        self._memory = memory
        check(datagram_batch_init(
            &self.batch, self.socket.fileno(), channel, line_index, address_index, capacity,
            bool(senders), control, wanted.gro, NULL if memory is None else memory.batch.slots),
            "take memory for", line.address)
        for address, port in senders:
            allow(&self.batch, address, port)

    def __dealloc__(self):
        datagram_batch_free(&self.batch)

    def __enter__(self) -> DatagramReceiver:
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self) -> None:
        """Close the socket and free the memory. Idempotent."""
        with self._lock:
            if self.socket is not None:
                self.socket.close()
            datagram_batch_free(&self.batch)

    def replace_socket(self) -> bool:
        """Replace a socket whose interface is gone; may be called from any thread.

        The polling loop continues with the new socket; datagrams queued in the old one are lost.

        Returns
        -------
        bool
            False: the receiver is closed.

        Raises
        ------
        ConfigError, OSError
            As for `line.open_receiver`; the receiver gets nothing until a call succeeds.
        """
        with self._lock:
            if self.batch.items is NULL:
                return False
            # Close the old socket first. It drops its membership by interface index, and would end
            # a new membership on an interface that has the same index.
            self._put(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
            self._put(self._open())
            return True

    def find_tie(self) -> int:
        """Return `tied_to`; look it up again if there was no route when the socket was opened."""
        if not self.tied_to:
            self.tied_to = tied_interface(self._line)
        return self.tied_to

    def _put(self, opened):
        # dup2 replaces the socket atomically: the loop's next call uses it under the same number.
        with opened:
            os.dup2(opened.fileno(), self.batch.fd, inheritable=False)
        # Release: note_replaced, which loads with acquire, then uses the new socket.
        store_release(&self.batch.replaced, 1)
        if self.replaced is not None:
            self.replaced()

    def _open(self):
        # Look up the interface first: if it is removed meanwhile, the index will be found missing.
        tied_to = tied_interface(self._line)
        sock, results = open_receiver(self._line, self._options)
        self.results, self.tied_to = tuple(results), tied_to
        _SOCKETS.add(sock)
        return sock

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 if closed."""
        return self.batch.fd

    @property
    def address(self) -> tuple[Any, ...]:
        """The address that the socket is bound to, (ip, port, ...), with the port that 0 became."""
        return self.socket.getsockname()

    def receive(self) -> list[ReceivedDatagram]:
        """Return at most `capacity` waiting datagrams; never blocks.

        Returns
        -------
        list of ReceivedDatagram
            Copies; empty if none waits. `received_ns` is UNIX time; 0 if `flags` has
            NO_TIMESTAMP.

        Raises
        ------
        OSError
            The socket is no longer usable.
        """
        if self.batch.items is NULL:
            raise ValueError("the receiver is closed")
        cdef int count
        with nogil:
            count = datagram_receive(&self.batch)
        check(count, "receive")
        return [
            ReceivedDatagram(
                self.batch.items[index].data[:self.batch.items[index].size],
                self.batch.items[index].received_ns, self.batch.items[index].flags)
            for index in range(count)]

    def read_kernel_drops(self) -> int:
        """Ask the kernel how many datagrams the full queue has lost since the socket was opened."""
        if self.batch.items is not NULL:
            check(datagram_drops_read(&self.batch), "read the drop count")
        return self.batch.kernel_drops

    @property
    def kernel_drops(self) -> int:
        """Datagrams lost because the kernel's queue was full, as far as reported so far."""
        return self.batch.kernel_drops

    @property
    def counts(self) -> dict[str, int]:
        """Counters of the receive calls, by name."""
        return {
            "calls": self.batch.calls,
            "icmp_errors": self.batch.icmp_errors,
            "kernel_drops": self.batch.kernel_drops,
            "nic_stamps": self.batch.nic_stamps,
            "nic_stamps_foreign": self.batch.nic_stamps_foreign,
        }


cdef int allow(DatagramBatch* batch, bytes address, int port) except -1:
    cdef const uint8_t* first = address
    return <int>check(
        datagram_batch_allow(batch, first, htons(<uint16_t>port)),
        f"allow more than {SENDERS_MAX} senders")


# Close these in a forked child, which would otherwise hold the ports after this process has ended,
# so that the next start would find its addresses in use.
_SOCKETS = weakref.WeakSet()


def _close_in_child():
    for sock in list(_SOCKETS):
        sock.close()


os.register_at_fork(after_in_child=_close_in_child)
