"""Send datagrams in batches to one destination: the class, and the functions of `sender.pxd`."""

import os
from functools import partial

from libc.errno cimport (
    EACCES, EAGAIN, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EINTR, EINVAL, EIO, EMSGSIZE, ENETDOWN,
    ENETUNREACH, ENOBUFS, ENODEV, EPERM, errno,
)
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cimport cython

from udpfast.core.oserr cimport check
from udpfast.net.datagram cimport msghdr

from udpfast.net.line import LineAddress, open_sender, tied_interface

__all__ = ["DatagramSender"]

cdef extern from "<sys/socket.h>" nogil:
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    unsigned char* CMSG_DATA(cmsghdr* control)
    size_t CMSG_LEN(size_t size)
    ssize_t send(int fd, const void* bytes, size_t size, int flags)
    int sendmmsg(int fd, mmsghdr* messages, unsigned int count, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef enum:
    SOL_UDP = 17                 # linux/udp.h, which clashes with <netinet/udp.h>
    UDP_SEGMENT = 103
    # Until it is split, a train is one IP datagram of at most 65,535 bytes: 65,000 leave room for
    # headers and IPv6 extensions. Older kernels split into at most 64 datagrams (BATCH_MAX).
    TRAIN_BYTES_MAX = 65000


cdef void send_batch_init(SendBatch* batch, int fd) noexcept nogil:
    cdef int index
    memset(batch, 0, sizeof(SendBatch))
    batch.fd = fd
    for index in range(BATCH_MAX):
        batch.headers[index].msg_hdr.msg_iov = &batch.vectors[index]
        batch.headers[index].msg_hdr.msg_iovlen = 1


cdef int datagram_send(SendBatch* batch) noexcept nogil:
    cdef uint32_t begin = batch.first
    cdef int rc
    while batch.first < batch.count:
        batch.calls += 1
        rc = send_trains(batch) if batch.segment else send_plain(batch)
        if rc < 0:
            rc = send_refused(batch, errno)
            if rc < 0 and batch.first == begin:
                return rc
            if rc != 0:  # some were sent: the next call returns the error
                break
            continue
    rc = <int>(batch.first - begin)
    if batch.first == batch.count:
        batch.first = batch.count = 0
    return rc


cdef int send_slots(SendBatch* batch, const uint8_t* data, size_t stride, const int64_t* sizes,
                    uint32_t first, uint32_t count) noexcept nogil:
    cdef uint32_t index, done = first
    cdef int sent
    while done < count:
        index = done
        while index < count and send_batch_add(batch, data + index * stride, sizes[index]):
            index += 1
        sent = datagram_send(batch)
        batch.first = batch.count = 0  # the bytes belong to the caller: keep none
        if sent < 0:
            return sent if done == first else <int>(done - first)
        done += <uint32_t>sent
        if done < index:
            break
    return <int>(done - first)


cdef inline int send_plain(SendBatch* batch) noexcept nogil:
    cdef uint32_t index
    cdef int sent
    if batch.count - batch.first == 1:
        return send_single(batch)
    sent = sendmmsg(batch.fd, &batch.headers[batch.first], batch.count - batch.first,
                    MSG_DONTWAIT | MSG_NOSIGNAL)
    if sent < 0:
        return sent
    for index in range(batch.first, batch.first + sent):
        batch.bytes += batch.headers[index].msg_len
    batch.datagrams += sent
    batch.first += sent
    return sent


cdef inline int send_single(SendBatch* batch) noexcept nogil:
    # One datagram alone takes 0.2 us less by send than by sendmmsg.
    cdef iovec* vector = &batch.vectors[batch.first]
    cdef ssize_t sent = send(
        batch.fd, vector.iov_base, vector.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
    if sent < 0:
        return <int>sent
    batch.bytes += sent
    batch.datagrams += 1
    batch.first += 1
    return 1


cdef int send_trains(SendBatch* batch) noexcept nogil:
    # A train is a run of equal-sized datagrams, of which the last may be shorter: the kernel passes
    # it through routing, queueing and the driver as one, and splits it as late as possible.
    cdef uint32_t count = 0, at = batch.first, length
    cdef int sent, index
    while at < batch.count:
        length = train_length(batch, at)
        train_describe(batch, &batch.train_headers[count].msg_hdr, batch.controls[count], at,
                       length)
        at += length
        count += 1
    sent = sendmmsg(batch.fd, batch.train_headers, count, MSG_DONTWAIT | MSG_NOSIGNAL)
    for index in range(sent):
        length = <uint32_t>batch.train_headers[index].msg_hdr.msg_iovlen
        batch.bytes += batch.train_headers[index].msg_len
        batch.trains += length > 1
        batch.datagrams += length
        batch.first += length
    return sent


cdef inline uint32_t train_length(SendBatch* batch, uint32_t at) noexcept nogil:
    cdef size_t size = batch.vectors[at].iov_len
    cdef size_t total = size
    cdef uint32_t length = 1
    while at + length < batch.count:
        total += batch.vectors[at + length].iov_len
        # An empty datagram cannot be part of a train: it would be indistinguishable from its end.
        if (size == 0 or total > TRAIN_BYTES_MAX or batch.vectors[at + length].iov_len == 0
                or batch.vectors[at + length].iov_len > size):
            break
        length += 1
        if batch.vectors[at + length - 1].iov_len < size:
            break
    return length


cdef inline void train_describe(
        SendBatch* batch, msghdr* message, uint64_t* memory, uint32_t at,
        uint32_t length) noexcept nogil:
    cdef cmsghdr* control = <cmsghdr*>memory
    cdef uint16_t size = <uint16_t>batch.vectors[at].iov_len
    message.msg_iov = &batch.vectors[at]
    message.msg_iovlen = length
    message.msg_control = NULL
    message.msg_controllen = 0
    if length > 1:
        control.cmsg_level = SOL_UDP
        control.cmsg_type = UDP_SEGMENT
        control.cmsg_len = CMSG_LEN(sizeof(uint16_t))
        memcpy(CMSG_DATA(control), &size, sizeof(uint16_t))
        message.msg_control = control
        message.msg_controllen = SEGMENT_CONTROL_WORDS * 8


cdef int send_refused(SendBatch* batch, int error) noexcept nogil:
    # Returns 0: continue; 1: stop, the rest waits; < 0: -errno.
    if batch.segment and error in (EINVAL, EIO, EMSGSIZE):
        # The route cannot split trains (no checksum offload, datagrams beyond the MTU): send one by
        # one. If the datagram itself is at fault, the plain call fails with the same error.
        batch.segment = 0
        batch.trains_refused += 1
        return 0
    if error == EAGAIN or error == ENOBUFS:
        batch.would_block += 1
        batch.blocked_errno = error
        return 1
    if error == EINTR:
        return 0
    if error == ECONNREFUSED:
        # It is about an earlier datagram. Reporting cleared it; nothing was sent: try again.
        batch.icmp_errors += 1
        return 0
    if error in (EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, ENETDOWN, ENODEV, EPERM, EACCES, EINVAL):
        # This line cannot send it now (EACCES, EINVAL: its route prohibits or swallows it). Market
        # data must not wait, and the other lines continue.
        batch.unreachable += 1
        batch.unreachable_errno = error
        batch.given_up[batch.first] = <uint8_t>error
        batch.first += 1
        return 0
    return -error


@cython.final
cdef class DatagramSender:
    """A socket connected to one destination, which sends many datagrams per system call.

    Parameters
    ----------
    destination : str
        "ip:port" or "[ip6]:port" of a group or a host.
    interface, ttl, loop, sndbuf_bytes
        As for `line.open_sender`.
    segment : bool
        Pass runs of equal-sized datagrams (the fragments of a message, a burst) to the kernel as
        one train (UDP_SEGMENT). Turned off when a route cannot split them
        (`counts["trains_refused"]`).

    Attributes
    ----------
    socket : socket.socket
        The non-blocking, connected socket.
    results : tuple of OptionResult
        The requested and granted value of each socket option.
    tied_to : int
        Index of the interface on which the socket depends; 0: none.

    Raises
    ------
    ConfigError, OSError
        As for `line.open_sender`.
    """

    def __cinit__(self):
        send_batch_init(&self.batch, -1)

    def __init__(self, str destination, *, str interface="", int ttl=1, bint loop=True,
                 int sndbuf_bytes=4 << 20, bint segment=False):
        self._open = partial(_open, destination, interface, ttl, loop, sndbuf_bytes)
        self.socket, self.results, self.tied_to = self._open()
        send_batch_init(&self.batch, self.socket.fileno())
        self.batch.segment = segment

    def __enter__(self) -> DatagramSender:
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self) -> None:
        """Close the socket. Idempotent."""
        if self.socket is not None:
            self.socket.close()
        self.batch.fd = -1

    def replace_socket(self) -> None:
        """Replace a socket whose interface is gone. No other thread may be sending.

        Raises
        ------
        ConfigError, OSError
            As for `line.open_sender`; the old socket stays in use.
        """
        if self.batch.fd < 0:
            raise ValueError("the sender is closed")
        opened, self.results, self.tied_to = self._open()
        with opened:
            os.dup2(opened.fileno(), self.batch.fd, inheritable=False)

    def send(
            self,
            datagrams: Sequence[Any] | tuple[Any, NDArray[np.int64], NDArray[np.int64]]) -> int:
        """Send datagrams in order; never blocks.

        Parameters
        ----------
        datagrams : sequence of bytes-like, or (buffer, offsets, sizes)
            The second form sends slices of one contiguous buffer without copying: `offsets` and
            `sizes` are int64 arrays.

        Returns
        -------
        int
            How many datagrams, from the first, were sent or given up because there is no route
            (`counts["unreachable"]`). Fewer than given: the socket's queue is full; send the rest
            later.

        Raises
        ------
        OSError
            The socket is unusable, or the first datagram left is too long for it.
        """
        if isinstance(datagrams, tuple) and len(datagrams) == 3 and not isinstance(
                datagrams[1], (bytes, bytearray, memoryview)):
            return self._send_slices(*datagrams)
        cdef const uint8_t[::1] view
        cdef int sent
        done = 0
        while done < len(datagrams):
            views = datagrams[done:done + BATCH_MAX]  # keeps the bytes alive during the call
            try:
                for datagram in views:
                    if len(datagram):
                        view = datagram
                        send_batch_add(&self.batch, &view[0], view.shape[0])
                    else:
                        send_batch_add(&self.batch, NULL, 0)
            except BaseException:
                # The datagrams added are borrowed: they must not stay in the batch.
                self.batch.first = self.batch.count = 0
                raise
            sent = self._flush()
            done += sent
            if sent < len(views):
                break
        return done

    def _send_slices(self, const uint8_t[::1] buffer, const int64_t[::1] offsets,
                     const int64_t[::1] sizes):
        cdef Py_ssize_t index, done = 0, count = offsets.shape[0]
        cdef int sent = 0
        if sizes.shape[0] != count:
            raise ValueError(f"{count} offsets, but {sizes.shape[0]} sizes")
        for index in range(count):
            if not (0 <= sizes[index] and 0 <= offsets[index]
                    and offsets[index] <= buffer.shape[0] - sizes[index]):
                raise ValueError(
                    f"datagram {index}: {sizes[index]} bytes at {offsets[index]} are not inside "
                    f"the buffer of {buffer.shape[0]} bytes")
        while done < count:
            index = done
            while index < count and send_batch_add(
                    &self.batch, slice_start(buffer, offsets[index]), sizes[index]):
                index += 1
            sent = self._flush()
            done += sent
            if done < index:
                break
        return done

    cdef int64_t send_slots(self, const uint8_t* data, size_t stride, const int64_t* sizes,
                            uint32_t count, int attempts, int* error) noexcept:
        cdef uint32_t done = 0
        cdef int sent = 0, _attempt
        with nogil:
            for _attempt in range(attempts):
                sent = send_slots(&self.batch, data, stride, sizes, done, count)
                if sent < 0:
                    break
                done += <uint32_t>sent
                if done == count:
                    break
        error[0] = -sent if sent < 0 else 0
        return count - done

    cdef int _flush(self) except -1:
        cdef int sent
        with nogil:
            sent = datagram_send(&self.batch)
        # The bytes belong to the caller: do not keep unsent datagrams beyond this call.
        self.batch.first = self.batch.count = 0
        return <int>check(sent, "send")

    @property
    def carried(self) -> int:
        """Number of datagrams sent."""
        return self.batch.datagrams

    @property
    def unreachable(self) -> int:
        """Number of datagrams given up, because there was no route or the interface was down."""
        return self.batch.unreachable

    @property
    def trouble(self) -> str:
        """The system's error for the last datagram given up; "" if none was."""
        try:
            check(-self.batch.unreachable_errno, "send")
        except OSError as error:
            return str(error)
        return ""

    @property
    def counts(self) -> dict[str, int]:
        """Counters of the datagrams, calls and errors, by name."""
        return {
            "datagrams": self.batch.datagrams,
            "bytes": self.batch.bytes,
            "calls": self.batch.calls,
            "would_block": self.batch.would_block,
            "icmp_errors": self.batch.icmp_errors,
            "unreachable": self.batch.unreachable,
            "trains": self.batch.trains,
            "trains_refused": self.batch.trains_refused,
        }


def _open(destination, interface, ttl, loop, sndbuf_bytes):
    # Without an interface the socket follows the kernel's route, and depends on no interface.
    tied_to = tied_interface(LineAddress(destination, interface)) if interface else 0
    sock, results = open_sender(destination, interface, ttl, loop, sndbuf_bytes)
    return sock, tuple(results), tied_to


cdef inline const uint8_t* slice_start(const uint8_t[::1] buffer, int64_t offset) noexcept nogil:
    return &buffer[0] + offset if buffer.shape[0] else NULL
