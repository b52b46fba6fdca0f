"""Records of a file to a socket, as the source of a copy far behind would send them: two ways.

    by the mapped file   the bytes are copied out of the page cache into the socket's buffers
    by sendfile          the socket refers to the pages, if whoever reads is on another host, too

Either way each record's first word is looked at before it is sent, as a source does: only whole
records go, and none of another epoch.
"""

import os

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from udpfast.bus.log cimport Place, place_run
from udpfast.bus.link_sender cimport RUN_BYTES
from udpfast.bus.wire cimport LINK_HEADER_SIZE
from udpfast.net.datagram cimport iovec, msghdr

__all__ = ["send_file", "send_mapped"]

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int MSG_MORE
    int MSG_NOSIGNAL

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int to, int file, int64_t* offset, size_t size)


cdef uint64_t next_run(Place* place, uint64_t until) noexcept nogil:
    # The size of the next run, behind which the place stands then.
    cdef uint64_t count
    cdef uint64_t size = place_run(place, until, RUN_BYTES, &count)
    place.position += size
    return size


cdef Place place_of(const uint8_t[::1] mapped, uint64_t first):
    cdef Place place
    memset(&place, 0, sizeof(place))
    place.base, place.limit, place.position = <uint64_t><size_t>&mapped[0], mapped.shape[0], first
    return place


def send_mapped(int fd, const uint8_t[::1] mapped, uint64_t first, uint64_t until) -> int:
    """Send whole records of a mapped file that lie there from an offset on, before another one.

    Returns
    -------
    int
        Bytes that were sent, headers of runs included.
    """
    cdef Place place = place_of(mapped, first)
    cdef uint8_t header[LINK_HEADER_SIZE]
    cdef iovec parts[2]
    cdef msghdr message
    cdef uint64_t size, sent, head
    cdef uint64_t total = 0
    cdef ssize_t rc = 0
    cdef const uint8_t* at
    memset(header, 0, sizeof(header))
    with nogil:
        while True:
            at = &mapped[0] + place.position
            size = next_run(&place, until)
            if size == 0:
                break
            size += LINK_HEADER_SIZE
            sent = 0
            while sent < size:
                head = min(sent, <uint64_t>LINK_HEADER_SIZE)
                parts[0].iov_base, parts[0].iov_len = header + head, LINK_HEADER_SIZE - head
                parts[1].iov_base = <void*>(at + (sent - head))
                parts[1].iov_len = size - LINK_HEADER_SIZE - (sent - head)
                memset(&message, 0, sizeof(message))
                message.msg_iov, message.msg_iovlen = parts, 2
                rc = sendmsg(fd, &message, MSG_NOSIGNAL)
                if rc < 0:
                    break
                sent += <uint64_t>rc
            if rc < 0:
                break
            total += size
    if rc < 0:
        raise OSError(errno, os.strerror(errno))
    return total


def send_file(int fd, int file, const uint8_t[::1] mapped, uint64_t first, uint64_t until) -> int:
    """Send the same by `sendfile`; the mapped file is looked at, too.

    Returns
    -------
    int
        Bytes that were sent, headers of runs included.
    """
    cdef Place place = place_of(mapped, first)
    cdef uint8_t header[LINK_HEADER_SIZE]
    cdef uint64_t size
    cdef uint64_t total = 0
    cdef int64_t offset = <int64_t>first
    cdef ssize_t rc = 0
    memset(header, 0, sizeof(header))
    with nogil:
        while True:
            size = next_run(&place, until)
            if size == 0:
                break
            rc = send(fd, header, sizeof(header), MSG_MORE | MSG_NOSIGNAL)
            while rc >= 0 and offset < <int64_t>place.position:
                rc = sendfile(fd, file, &offset, <size_t>(<int64_t>place.position - offset))
            if rc < 0:
                break
            total += size + LINK_HEADER_SIZE
    if rc < 0:
        raise OSError(errno, os.strerror(errno))
    return total
