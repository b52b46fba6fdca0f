"""AF_XDP: receive the datagrams of an interface's lines below the kernel's network stack.

A small program on the interface (`xdp_program`) redirects the frames of the lines to one AF_XDP
socket per queue (`xdp_ring`); all other frames go to the kernel as before. Program and sockets
belong to this process: when it ends, however it ends, the kernel removes them.
"""

import array
import ipaddress
import os
import socket
import struct
import time
import weakref

cimport cython

from libc.errno cimport EBUSY, EEXIST, EPERM, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE,
    madvise, mmap, munmap,
)

from udpfast.core.atomics cimport store_release_32
from udpfast.core.counter cimport LINE_COUNTER_COUNT, Counters
from udpfast.core.layout cimport Datagram
from udpfast.core.oserr cimport check
from udpfast.net.datagram cimport (
    BATCH_MAX, SENDERS_MAX, DatagramBatch, datagram_batch_free, datagram_drops_read,
    datagram_receive,
)
from udpfast.net.xdp_ring cimport (
    SOL_XDP, XDP_BATCH_MAX, XDP_FRAME_SIZE, XDP_PORTS_MAX, XdpDescriptor, XdpPort, XdpPorts,
    XdpQueue, XdpSender, htons, xdp_link_ports,
)

from typing import NamedTuple

from udpfast.core.counter import LINE_COUNTERS
from udpfast.core.endpoint import parse_endpoint
from udpfast.errors import ConfigError
from udpfast.net.line import parse_senders
from udpfast.net.options import OptionResult
from udpfast.net.xdp_bpf import attach_link, put_socket
from udpfast.net.xdp_host import CHECKSUMS, XdpOptions, find_interface
from udpfast.net.xdp_open import (
    attempt, choose_queues, drive_driver, explain_refusal, load, open_member, open_xdp_socket,
    refuse_program, refuse_socket,
)

__all__ = ["XdpDatagram", "XdpReceiver"]

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr:
        pass
    int bind(int fd, const sockaddr* address, uint32_t size)

cdef struct SocketAddress:       # struct sockaddr_xdp
    uint16_t family
    uint16_t flags
    uint32_t interface
    uint32_t queue
    uint32_t shared_umem_fd

cdef enum:  # linux/if_xdp.h
    AF_XDP = 44                  # as in xdp_open.py
    XDP_COPY = 2
    XDP_ZEROCOPY = 4
    XDP_USE_NEED_WAKEUP = 8
    XDP_MMAP_OFFSETS = 1
    XDP_RX_RING = 2
    XDP_UMEM_REG = 4
    XDP_UMEM_FILL_RING = 5
    XDP_UMEM_COMPLETION_RING = 6
    XDP_OPTIONS = 8
    XDP_OPTIONS_ZEROCOPY = 1
    XDP_FLAGS_SKB_MODE = 2       # linux/if_link.h
    XDP_FLAGS_DRV_MODE = 4
    COMPLETION_FRAMES = 64       # the kernel requires a ring for sending, which is never used
    MAP_HUGETLB = 0x40000
    HUGE_PAGE = 1 << 21
    MADV_HUGEPAGE = 14
    # The kernel releases the queue of a closed socket in the background (xp_release_deferred).
    BIND_ATTEMPTS = 100
    SO_ATTACH_FILTER = 26        # asm-generic/socket.h

cdef long FILL_RING_OFFSET = 0x100000000
BIND_PAUSE_S = 0.02


if <int>XDP_BATCH_MAX != <int>BATCH_MAX:
    raise ImportError(f"a batch of {BATCH_MAX} datagrams, but of {XDP_BATCH_MAX} frames")


class XdpDatagram(NamedTuple):
    """A datagram as a Python object: for tests and slow tools."""

    payload: bytes
    channel: int
    line: int
    address: int
    flags: int
    monotonic_ns: int  # when the driver handed it over; 0 if flags has NO_TIMESTAMP


@cython.final
cdef class XdpReceiver:
    """The lines of one interface, received by AF_XDP: all queues, their memory, the program.

    The loop polls `batch(n)` of every queue with `datagram_receive`, as it does with sockets;
    `receive` does the same for Python. Not thread-safe.

    Parameters
    ----------
    lines : sequence of XdpLine
        Lines of one interface (`xdp_host.group_lines`), an entry per address; at most 512.
    options : XdpOptions
        How to receive.
    capacity : int
        Most datagrams per call, 1..64.

    Attributes
    ----------
    address : str
        The interface, for messages.
    interface_index : int
        Index of the interface.
    queues : tuple of int
        The queues that are received from.
    results : tuple of OptionResult
        The requested and granted value of each option.
    fallbacks : tuple of str
        A sentence for each option where "auto" selected the slower way, with the reason.

    Raises
    ------
    ConfigError
        An address, the interface or a queue is invalid.
    OSError
        Rights or kernel features are missing, or another process uses the interface; the message
        says which.
    """

    def __cinit__(self):
        self.ports = <XdpPorts*>calloc(1, sizeof(XdpPorts))
        self.own = <int64_t*>calloc(XDP_PORTS_MAX * LINE_COUNTER_COUNT, sizeof(int64_t))
        if self.ports is NULL or self.own is NULL:
            raise MemoryError

    def __init__(
            self, lines: Sequence[XdpLine], options: XdpOptions | None = None,
            int capacity=BATCH_MAX):
        if not 1 <= capacity <= BATCH_MAX:
            raise ValueError(f"capacity must be 1..{BATCH_MAX}, was {capacity}")
        if self.slots is not NULL:
            raise RuntimeError("a receiver can be opened only once")
        if not 1 <= len(lines) <= XDP_PORTS_MAX:
            raise ConfigError(
                f"expected 1 to {XDP_PORTS_MAX} addresses on one interface, found {len(lines)}")
        self._options = XdpOptions() if options is None else options
        self._sockets, self._members, self._descriptors, self._noted = [], [], [], []
        _RECEIVERS.add(self)
        self.fallbacks = ()
        interface = find_interface(lines[0].line)
        self.address = f"{interface.name} (AF_XDP)"
        self.interface_index = interface.index
        self.queues = choose_queues(interface, self._options.queues)
        self.slots = <XdpSlot*>calloc(len(self.queues), sizeof(XdpSlot))
        if self.slots is NULL:
            raise MemoryError
        try:
            self._set_ports(lines)
            generic = self._attach(interface, lines)
            for queue in self.queues:
                self._open_queue(interface, queue, generic, capacity)
            for n, item in enumerate(lines):
                self._keep_member(n, item.line)
        except BaseException:
            self.close()
            raise
        self.results = tuple(self._noted)

    def __del__(self):
        # Without close() the program would stay, and no other process could attach one.
        if self._descriptors is not None:
            self.close()

    def __dealloc__(self):
        self._unmap()
        if self.ports is not NULL:
            for n in range(<int>self.ports.count):
                free(self.ports.items[n].senders)
        free(self.ports)
        free(self.own)

    def __enter__(self) -> XdpReceiver:
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self) -> None:
        """Detach the program, close the sockets, free the memory. Idempotent."""
        for descriptor in reversed(self._descriptors):
            os.close(descriptor)
        # A mapped ring would keep its socket alive, and the queue busy.
        self._unmap()
        for sock in (*self._sockets, *self._members):
            sock.close()
        self._sockets, self._members, self._descriptors = [], [], []

    cdef _unmap(self):
        cdef XdpSlot* slot
        cdef int n
        for n in range(self.queue_count):
            slot = &self.slots[n]
            unmap(&slot.rx)
            unmap(&slot.fill)
            unmap(&slot.frames)
            datagram_batch_free(&slot.batch)
        self.queue_count = 0
        free(self.slots)
        self.slots = NULL

    cdef DatagramBatch* batch(self, int n) noexcept:
        return &self.slots[n].batch

    cdef void count_into(self, Counters* counters) noexcept:
        cdef XdpPort* port
        cdef uint32_t n
        for n in range(self.ports.count):
            port = &self.ports.items[n]
            port.counters = counters.line[port.channel][port.line]

    # --- opening, in this order ------------------------------------------------------------------

    def _set_ports(self, lines):
        cdef XdpPort* port
        cdef int n, k
        self.ports.checksums = CHECKSUMS.index(self._options.checksums)
        for n, item in enumerate(lines):
            host, number = parse_endpoint(item.line.address)
            port = &self.ports.items[n]
            set_words(&port.high, &port.low, mapped(host))
            port.port = number
            port.channel = item.channel
            port.line = item.index
            port.address = item.address
            port.counters = self.own + n * LINE_COUNTER_COUNT
            if item.line.source:
                port.source_only = True
                set_words(&port.source.high, &port.source.low, mapped(item.line.source))
            senders = parse_senders(item.line.senders)
            port.senders = <XdpSender*>calloc(SENDERS_MAX, sizeof(XdpSender))
            if port.senders is NULL:
                raise MemoryError
            for k, (address, sender_port) in enumerate(senders):
                set_words(&port.senders[k].high, &port.senders[k].low, address)
                port.senders[k].port = htons(<uint16_t>sender_port)
            port.senders_count = len(senders)
            self.ports.count = n + 1
        xdp_link_ports(self.ports)

    def _attach(self, interface, lines):
        # Load the program and attach it; return whether the mode is generic.
        self._descriptors.extend(load(lines, self.queues, self._options))
        program_fd = self._descriptors[1]
        asked = self._options.mode
        refused = 0
        for mode, flags in (("native", XDP_FLAGS_DRV_MODE), ("generic", XDP_FLAGS_SKB_MODE)):
            if asked not in ("auto", mode):
                continue
            link_fd = attach_link(program_fd, interface.index, flags)
            if link_fd >= 0:
                self._descriptors.append(link_fd)
                self._noted.append(OptionResult("XDP mode", asked, mode))
                if refused:
                    self._fall_back(
                        "XDP mode is generic instead of native: "
                        f"{interface.name}{explain_refusal(refused, 'native', interface)}")
                return mode == "generic"
            if asked != "auto" or -link_fd in (EBUSY, EEXIST, EPERM):
                refuse_program(link_fd, mode, interface)
            refused = link_fd
        refuse_program(refused, "generic", interface)

    def _fall_back(self, sentence):
        self.fallbacks = (*self.fallbacks, sentence)

    def _open_queue(self, interface, int queue, bint generic, int capacity):
        cdef XdpSlot* slot = &self.slots[self.queue_count]
        cdef XdpQueue* q = &slot.queue
        where = f"queue {queue} of {interface.name}"
        sock = open_xdp_socket(where)
        self._sockets.append(sock)
        self.queue_count += 1
        q.fd = sock.fileno()
        q.ports = self.ports
        q.first = self.queue_count == 1
        self._map_frames(slot)
        self._map_rings(sock, slot, where)
        results = drive_driver(sock, self._options)
        q.busy_poll = self._options.busy_poll_us > 0 and not results[0].reason
        if q.first:
            self._noted += results
        self._bind(sock, interface, queue, generic)
        put_socket(self._descriptors[0], queue, q.fd)
        slot.batch.xdp = q
        slot.batch.fd = q.fd
        slot.batch.capacity = capacity
        slot.batch.items = <Datagram*>calloc(BATCH_MAX, sizeof(Datagram))
        if slot.batch.items is NULL:
            raise MemoryError
        # A queue may fail before its first datagram: the loop reports the line of items[0].
        slot.batch.items[0].channel = self.ports.items[0].channel
        slot.batch.items[0].line = self.ports.items[0].line
        slot.batch.items[0].address = self.ports.items[0].address

    cdef _map_frames(self, XdpSlot* slot):
        cdef size_t size = <size_t>self._options.frames * XDP_FRAME_SIZE
        cdef int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE  # no page fault in the loop
        cdef void* data = <void*>MAP_FAILED
        if self._options.huge_pages:
            data = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0)
            if slot.queue.first:
                got = data != <void*>MAP_FAILED
                self._noted.append(OptionResult(
                    "XDP huge pages", "on", "on" if got else "off",
                    "" if got else f"{size >> 21} free pages of 2 MiB are needed per queue "
                    "(vm.nr_hugepages)"))
        slot.frames.size = size
        if data == <void*>MAP_FAILED:
            # With pages of 4 KiB, every two frames would need an address translation. So request
            # transparent huge pages, and align the frames to them.
            slot.frames.size = size + HUGE_PAGE
            data = mmap(NULL, slot.frames.size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        check(-errno if data == <void*>MAP_FAILED else 0, f"take {size} bytes for frames")
        slot.frames.data = data
        if slot.frames.size > size:
            data = <void*>((<size_t>data + HUGE_PAGE - 1) & ~<size_t>(HUGE_PAGE - 1))
            madvise(data, size, MADV_HUGEPAGE)
            memset(data, 0, size)  # no page fault in the loop
        slot.queue.frames = <uint8_t*>data

    cdef _map_rings(self, sock, XdpSlot* slot, where):
        cdef XdpQueue* q = &slot.queue
        cdef uint8_t* rx
        cdef uint8_t* fill
        cdef uint32_t i, frames = self._options.frames
        cdef size_t size = <size_t>frames * XDP_FRAME_SIZE
        attempt(f"register {size >> 20} MiB of frames",
                f"{where} (ENOBUFS: the limit of locked memory, ulimit -l; CAP_IPC_LOCK lifts it)",
                sock.setsockopt, SOL_XDP, XDP_UMEM_REG, struct.pack(
                    "=QQIIIxxxx", <uint64_t>q.frames, size, XDP_FRAME_SIZE, 0, 0))
        for option, count in ((XDP_UMEM_FILL_RING, frames), (XDP_RX_RING, frames),
                              (XDP_UMEM_COMPLETION_RING, COMPLETION_FRAMES)):
            attempt("set up a ring", where, sock.setsockopt, SOL_XDP, option, count)
        # struct xdp_mmap_offsets: producer, consumer, descriptors, flags of rx, tx, fill, ...
        offsets = struct.unpack("=16Q", sock.getsockopt(SOL_XDP, XDP_MMAP_OFFSETS, 128))
        self._map_ring(q.fd, &slot.rx, offsets[2] + frames * sizeof(XdpDescriptor), 0)
        self._map_ring(q.fd, &slot.fill, offsets[10] + frames * 8, FILL_RING_OFFSET)
        rx = <uint8_t*>slot.rx.data
        fill = <uint8_t*>slot.fill.data
        q.rx_mask = q.fill_mask = frames - 1
        q.rx_producer = <uint32_t*>(rx + <size_t>offsets[0])
        q.rx_consumer = <uint32_t*>(rx + <size_t>offsets[1])
        q.rx = <XdpDescriptor*>(rx + <size_t>offsets[2])
        q.fill_producer = <uint32_t*>(fill + <size_t>offsets[8])
        q.fill = <uint64_t*>(fill + <size_t>offsets[10])
        q.fill_flags = <uint32_t*>(fill + <size_t>offsets[11])
        for i in range(frames):
            q.fill[i] = <uint64_t>i * XDP_FRAME_SIZE
        q.fill_next = frames
        store_release_32(q.fill_producer, frames)  # give all frames to the kernel

    cdef void _map_ring(self, int fd, XdpMapping* mapping, size_t size, long offset) except *:
        cdef void* data = mmap(
            NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset)
        check(-errno if data == <void*>MAP_FAILED else 0, "map a ring")
        mapping.data = data
        mapping.size = size

    def _bind(self, sock, interface, uint32_t queue, bint generic):
        cdef SocketAddress address
        cdef int rc = -EBUSY
        asked = self._options.zero_copy
        memset(&address, 0, sizeof(address))
        address.family = AF_XDP
        address.interface = interface.index
        address.queue = queue
        address.flags = XDP_USE_NEED_WAKEUP
        if asked == "on":
            address.flags |= XDP_ZEROCOPY
        elif asked == "off" or generic:
            address.flags |= XDP_COPY
        for _ in range(BIND_ATTEMPTS):
            rc = -errno if bind(sock.fileno(), <sockaddr*>&address, sizeof(address)) < 0 else 0
            if rc != -EBUSY:
                break
            time.sleep(BIND_PAUSE_S)
        refuse_socket(rc, queue, interface, self._options, generic)
        flags = struct.unpack("=I", sock.getsockopt(SOL_XDP, XDP_OPTIONS, 4))[0]
        if self.slots[0].queue.fd == sock.fileno():
            got = "on" if flags & XDP_OPTIONS_ZEROCOPY else "off"
            self._noted.append(OptionResult("XDP zero copy", asked, got))
            if asked == "auto" and got == "off":
                why = "generic mode" if generic else f"the driver of {interface.name}"
                self._fall_back(f"frames are copied: {why} has no zero copy")

    def _keep_member(self, int n, line):
        # Its filter refuses the datagrams that the kernel still passes to it; they are counted as
        # lost.
        sock, joined = open_member(line)
        self._members.append(sock)
        refuse_all = array.array("B", struct.pack("=HBBI", 0x06, 0, 0, 0))  # BPF_RET | BPF_K, 0
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER,
                        struct.pack("@HP", 1, refuse_all.buffer_info()[0]))
        self.ports.items[n].member_fd = sock.fileno()
        self._noted += joined

    # --- for tests and slow tools ----------------------------------------------------------------

    def receive(self) -> list[XdpDatagram]:
        """Return the datagrams waiting in all queues, at most `capacity` each; never blocks.

        Returns
        -------
        list of XdpDatagram
            Copies.

        Raises
        ------
        OSError
            The interface was removed.
        """
        cdef int n, count, i
        cdef Datagram* item
        received = []
        if self.slots is NULL:
            raise ValueError("the receiver is closed")
        for n in range(self.queue_count):
            with nogil:
                count = datagram_receive(&self.slots[n].batch)
            check(count, "receive", self.address)
            for i in range(count):
                item = &self.slots[n].batch.items[i]
                received.append(XdpDatagram(
                    item.data[:item.size], item.channel, item.line, item.address, item.flags,
                    item.received_ns))
        return received

    def read_counts(self) -> list[dict[str, int]]:
        """Return the counters of every line by name, in the order of the lines.

        Counters of the loop (`datagrams`, verdicts) are 0 unless a loop runs.
        """
        cdef int n, k
        for n in range(self.queue_count):
            check(datagram_drops_read(&self.slots[n].batch), "read the drop count", self.address)
        return [
            {LINE_COUNTERS[k].name: self.ports.items[n].counters[k]
             for k in range(LINE_COUNTER_COUNT)}
            for n in range(<int>self.ports.count)]


# Close these in a forked child, which inherits descriptors and mappings, and would otherwise hold
# interface, queues and ports after this process has ended.
_RECEIVERS = weakref.WeakSet()


def _close_in_child():
    for receiver in list(_RECEIVERS):
        receiver.close()


os.register_at_fork(after_in_child=_close_in_child)


cdef void unmap(XdpMapping* mapping) noexcept:
    if mapping.data is not NULL:
        munmap(mapping.data, mapping.size)


cdef bytes mapped(host):
    address = ipaddress.ip_address(host)
    return (bytes(10) + b"\xff\xff" if address.version == 4 else b"") + address.packed


cdef void set_words(uint64_t* high, uint64_t* low, bytes address) noexcept:
    cdef const uint8_t* data = address
    memcpy(high, data, 8)
    memcpy(low, data + 8, 8)
