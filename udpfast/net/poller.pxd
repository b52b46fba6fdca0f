# Find out which of many sockets have datagrams, by one epoll that never waits, or sleep until one
# of a few has. The calls are libc's, as in datagram.pxd, so that a preloaded stack can replace
# them.

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport timespec

cdef extern from "<sys/epoll.h>" nogil:
    struct epoll_event:
        uint32_t events
        uint64_t place "data.u64"    # user data: the socket's place
    int epoll_create1(int flags)
    int epoll_ctl(int poller, int operation, int fd, epoll_event* event)
    int epoll_wait(int poller, epoll_event* events, int events_max, int timeout_ms)
    enum:
        EPOLL_CLOEXEC
        EPOLL_CTL_ADD
        EPOLLIN

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int ppoll(pollfd* sockets, unsigned long count, const timespec* timeout, const void* signals)
    short POLLIN


cdef inline int poller_open() noexcept nogil:
    # Returns a descriptor, or -errno.
    cdef int poller = epoll_create1(EPOLL_CLOEXEC)
    return poller if poller >= 0 else -errno


cdef inline int poller_add(int poller, int fd, uint32_t place) noexcept nogil:
    # Watch a socket until it is closed. 0 or -errno.
    cdef epoll_event event
    event.events = EPOLLIN
    event.place = place
    return 0 if epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0 else -errno


cdef inline int poller_wait(int poller, epoll_event* events, int events_max) noexcept nogil:
    # Returns how many sockets have a datagram or an error (their places: `events`), or -errno.
    cdef int count = epoll_wait(poller, events, events_max, 0)
    if count >= 0:
        return count
    return 0 if errno == EINTR else -errno


cdef inline bint sockets_wait(pollfd* sockets, int count, int64_t timeout_ns) noexcept nogil:
    # Sleep until one of them has a datagram or an error; returns whether that was why it ended.
    cdef timespec timeout
    timeout.tv_sec = timeout_ns // 1_000_000_000
    timeout.tv_nsec = timeout_ns % 1_000_000_000
    return ppoll(sockets, count, &timeout, NULL) > 0
