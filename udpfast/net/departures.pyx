"""Read the time stamps of sent datagrams, which `options.set_departures` requests."""

from libc.string cimport memcpy

from udpfast.net.datagram cimport iovec, msghdr

__all__ = ["read_departures"]

cdef extern from "<sys/socket.h>" nogil:
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    cmsghdr* CMSG_FIRSTHDR(msghdr* message)
    cmsghdr* CMSG_NXTHDR(msghdr* message, cmsghdr* control)
    unsigned char* CMSG_DATA(cmsghdr* control)
    ssize_t recvmsg(int fd, msghdr* message, int flags)
    int MSG_DONTWAIT, MSG_ERRQUEUE
    int SOL_SOCKET, SO_TIMESTAMPING

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_IP, IPPROTO_IPV6, IP_RECVERR, IPV6_RECVERR

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec

cdef extern from "<linux/errqueue.h>" nogil:
    struct sock_extended_err:
        unsigned char ee_origin
        uint32_t ee_data
    enum:
        SO_EE_ORIGIN_TIMESTAMPING

cdef struct ScmTimestamping:
    timespec software
    timespec unused
    timespec hardware

cdef enum:
    CONTROL_SIZE = 256           # the stamps, and the error with its address
    PAYLOAD_SIZE = 64            # OPT_TSONLY leaves none


cdef bint departure_next(int fd, Departures* found) noexcept nogil:
    cdef unsigned char control[CONTROL_SIZE]
    cdef unsigned char payload[PAYLOAD_SIZE]
    cdef iovec vector
    cdef msghdr message
    cdef cmsghdr* part
    cdef ScmTimestamping stamps
    cdef sock_extended_err error
    cdef bint numbered = 0
    vector.iov_base = payload
    vector.iov_len = PAYLOAD_SIZE
    message.msg_name = NULL
    message.msg_namelen = 0
    message.msg_iov = &vector
    message.msg_iovlen = 1
    message.msg_control = control
    message.msg_controllen = CONTROL_SIZE
    message.msg_flags = 0
    if recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0:
        return 0
    found.stamp_ns = 0
    found.hardware = 0
    part = CMSG_FIRSTHDR(&message)
    while part is not NULL:
        if part.cmsg_level == SOL_SOCKET and part.cmsg_type == SO_TIMESTAMPING:
            memcpy(&stamps, CMSG_DATA(part), sizeof(ScmTimestamping))
            found.hardware = stamps.hardware.tv_sec != 0
            if found.hardware:
                found.stamp_ns = stamp_ns(&stamps.hardware)
            else:
                found.stamp_ns = stamp_ns(&stamps.software)
        elif ((part.cmsg_level == IPPROTO_IP and part.cmsg_type == IP_RECVERR)
                or (part.cmsg_level == IPPROTO_IPV6 and part.cmsg_type == IPV6_RECVERR)):
            memcpy(&error, CMSG_DATA(part), sizeof(sock_extended_err))
            numbered = error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING
            found.number = error.ee_data
        part = CMSG_NXTHDR(&message, part)
    return numbered and found.stamp_ns != 0


cdef inline int64_t stamp_ns(timespec* stamp) noexcept nogil:
    return <int64_t>stamp.tv_sec * 1_000_000_000 + stamp.tv_nsec


def read_departures(int fd) -> list[tuple[int, int, bool]]:
    """Return the stamps queued at a socket, as a list of (number, UNIX ns, whether the NIC's)."""
    cdef Departures found
    taken = []
    while departure_next(fd, &found):
        taken.append((found.number, found.stamp_ns, bool(found.hardware)))
    return taken
