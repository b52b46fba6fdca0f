"""The thread of one link: bytes between a socket and one end of a link, without the GIL.

What needs the interpreter (the next segment, another epoch, names) waits until the daemon's loop
calls `attend` of that end. Links whose bytes carry tags have no thread: the loop carries them.
"""

import os

import cython

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memmove, memset

from udpfast.bus.log cimport LinkEnd
from udpfast.bus.replication cimport (
    ACK_BYTES, RUN_ATTEND, Consumer, Source)
from udpfast.bus.wire cimport LINK_HEADER_SIZE, LinkHeader, Progress, link_look
from posix.unistd cimport close, write

from udpfast.core.agent cimport Agent
from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.hold cimport hold_enter, hold_leave
from udpfast.core.idle cimport IDLE_SPINS
from udpfast.net.datagram cimport iovec, msghdr

__all__ = ["ConsumerThread", "SourceThread", "link_thread"]

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd_read(int fd, uint64_t* value)
    int eventfd_write(int fd, uint64_t value)

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* waited, unsigned long count, int timeout_ms)
    short POLLIN
    short POLLOUT

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    RUNS_PER_TURN = 4
    READ_BYTES = 1 << 17         # at once: the daemon's loop waits for the end of a turn
    WAIT_MS = 1                  # what the loop hands to this thread waits as long
    HEARD_BYTES = 4096           # of what a copy says; a HELLO, the longest, was heard before
    ACK_FRAME = LINK_HEADER_SIZE + sizeof(Progress)
    ACK_GAP_NS = 5_000           # at least, between two ACKs of a copy that is up to date


cdef class LinkThread(Agent):
    cdef LinkEnd end
    cdef readonly bint broken    # the link is over
    cdef readonly str idle       # what its runner does when there is nothing to do
    cdef int _fd
    cdef short _events           # that the socket is waited for
    cdef int _patience           # turns without work before that; -1: never
    cdef int _empty              # such turns
    cdef int _bell               # eventfd
    cdef uint64_t _asleep

    def __init__(self, LinkEnd end, fd, role, idle):
        super().__init__(role)
        self.end = end
        self._fd = fd
        # Spins and yields are the runner's; waits are for the socket, or for `wake`.
        self._patience = {"backoff": IDLE_SPINS, "sleep": 0}.get(idle, -1)
        self.idle = "spin" if self._patience >= 0 else idle
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = POLLIN

    def __dealloc__(self):
        if self._bell > 0:
            close(self._bell)

    cdef bint _lost(self, ssize_t rc) noexcept nogil:
        # Whether a call says that the link is over; otherwise there was nothing, or no room.
        if rc < 0 and errno in (EAGAIN, EINTR):
            return False
        self.broken = True
        return True

    cdef bint _say(self) noexcept nogil:
        # Send what the end has to say; False: not all of it.
        cdef ssize_t sent
        while self.end.said_size:
            sent = send(self._fd, self.end.said, self.end.said_size, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0:
                self._lost(sent)
                return False
            self.end.said += sent
            self.end.said_size -= <uint64_t>sent
        return True

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef int count
        if self.broken:
            return 0
        if not hold_enter(&self.end.hold):
            sched_yield()  # the loop may be waiting for this very core
            return 0
        count = 0 if self.end.over else self._turn(now_ns)
        hold_leave(&self.end.hold)
        if count:
            self._empty = 0
        elif self._patience >= 0:
            self._empty += 1
            # A socket that is full is waited for at once.
            if self._empty > self._patience or self._events & POLLOUT:
                self._await()
        return count

    cdef void _await(self) noexcept nogil:
        # The kernel ends this wait as soon as there is something, unlike a sleep.
        cdef pollfd waited[2]
        cdef uint64_t rung
        waited[0].fd, waited[0].events = self._fd, self._events
        waited[1].fd, waited[1].events = self._bell, POLLIN
        self._empty = self._patience
        store_release(&self._asleep, 1)  # read by wake
        if poll(waited, 2, WAIT_MS) > 0 and waited[1].revents:
            eventfd_read(self._bell, &rung)
        store_release(&self._asleep, 0)

    def wake(self) -> None:
        """Say that there is something for it, which it may not see for itself while it waits."""
        if load_acquire(&self._asleep):
            eventfd_write(self._bell, 1)

    cdef int _turn(self, int64_t now_ns) noexcept nogil:
        return 0


@cython.final
cdef class SourceThread(LinkThread):
    """Sends a store's records to one copy, from where they lie, and hears how far it is.

    Parameters
    ----------
    source : Source
        That follows; its bytes are this thread's from now on.
    fd : int
        Of a socket that does not block. The caller's; it must outlive the thread.
    idle : str
        What the thread does when there is nothing to do.
    acks : int
        Descriptor that gets a byte for what was acknowledged; -1: nobody waits for that.

    Attributes
    ----------
    idle : str
        What of that is left to its runner.
    broken : bool
        The link is over.
    """

    cdef Source _source
    cdef uint8_t[HEARD_BYTES] _heard
    cdef uint64_t _heard_size
    cdef bint _odd               # what was heard is no ACK
    cdef int _acks
    cdef LinkHeader _header      # of the run that is being sent
    cdef const uint8_t* _records
    cdef uint64_t _size, _sent   # of both together

    def __init__(self, Source source, fd, str idle, *, acks=-1):
        super().__init__(source, fd, "udpfast source", idle)
        self._source = source
        self._acks = acks

    cdef int _turn(self, int64_t now_ns) noexcept nogil:
        return self._hear(now_ns) + self._send()

    cdef int _hear(self, int64_t now_ns) noexcept nogil:
        cdef uint64_t at = 0
        cdef int64_t size
        cdef ssize_t got
        if self._odd:
            return 0
        got = recv(self._fd, &self._heard[self._heard_size], HEARD_BYTES - self._heard_size,
                   MSG_DONTWAIT)
        if got <= 0:
            self._lost(got)
            return 0
        self._heard_size += <uint64_t>got
        while True:
            size = link_look(&self._heard[at], self._heard_size - at)
            if size == 0 and (at or self._heard_size < HEARD_BYTES):
                break
            if size <= 0 or not self._source.take_ack(<const LinkHeader*>&self._heard[at], now_ns):
                self._odd = True
                break
            at += <uint64_t>size
        if at and self._acks >= 0:
            write(self._acks, self._heard, 1)  # any byte; one that is full says so already
        self._heard_size -= at
        memmove(self._heard, &self._heard[at], self._heard_size)
        return 1

    def odd(self) -> bytes:
        """Return what was heard that only the interpreter understands, once; usually nothing."""
        if not self._odd:
            return b""
        said = (<const char*>self._heard)[:self._heard_size]
        self._heard_size = 0
        self._odd = False
        return said

    cdef int _send(self) noexcept nogil:
        cdef int count = 0
        cdef int64_t size
        for _ in range(RUNS_PER_TURN):
            self._events = POLLIN
            if not self._flush() or not self._say():
                self._events = POLLIN | POLLOUT
                break
            size = self._source.run(&self._header, &self._records)
            if size == RUN_ATTEND:
                self._source.wants = True
            if size <= 0:
                break
            self._size, self._sent = <uint64_t>size + LINK_HEADER_SIZE, 0
            count += 1
        return count

    cdef bint _flush(self) noexcept nogil:
        # Send what is left of a run; False: not all of it.
        cdef iovec parts[2]
        cdef msghdr message
        cdef uint64_t head
        cdef ssize_t sent
        while self._sent < self._size:
            head = min(self._sent, <uint64_t>LINK_HEADER_SIZE)
            parts[0].iov_base = <uint8_t*>&self._header + head
            parts[0].iov_len = LINK_HEADER_SIZE - head
            parts[1].iov_base = <void*>(self._records + (self._sent - head))
            parts[1].iov_len = self._size - LINK_HEADER_SIZE - (self._sent - head)
            memset(&message, 0, sizeof(message))
            message.msg_iov, message.msg_iovlen = parts, 2
            sent = sendmsg(self._fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0:
                self._lost(sent)
                return False
            self._sent += <uint64_t>sent
        return True


@cython.final
cdef class ConsumerThread(LinkThread):
    """Takes records of a store's source into the copy, and says how far that is.

    Parameters
    ----------
    consumer : Consumer
        That follows; its bytes are this thread's from now on.
    fd : int
        Of a socket that does not block. The caller's; it must outlive the thread.
    idle : str
        What the thread does when there is nothing to do.

    Attributes
    ----------
    idle : str
        What of that is left to its runner.
    broken : bool
        The link is over.
    """

    cdef Consumer _consumer
    cdef uint8_t[ACK_FRAME] _ack

    def __init__(self, Consumer consumer, fd, str idle):
        super().__init__(consumer, fd, "udpfast copy", idle)
        self._consumer = consumer

    cdef int _turn(self, int64_t now_ns) noexcept nogil:
        cdef uint64_t room, unacked
        cdef uint8_t* place
        cdef ssize_t got = 0
        if not self._consumer.wants:
            place = self._consumer.space(&room)
            got = recv(self._fd, place, min(room, <uint64_t>READ_BYTES), MSG_DONTWAIT)
            if got <= 0:
                if self._lost(got):
                    return 0
                got = 0
            elif not self._consumer.arrived(<uint64_t>got, now_ns):
                self._consumer.wants = True
        # One that is up to date says so at once: records may be shown, and let go, by its word.
        unacked = self._consumer._log.writer.position - self._consumer._acked
        if not (self._say() and unacked):
            return got > 0
        if unacked >= ACK_BYTES or (<uint64_t>got < READ_BYTES // 2
                                    and now_ns - self._consumer._acked_ns >= ACK_GAP_NS):
            self.end.said_size = self._consumer.ack(self._ack, now_ns, clock_realtime_ns())
            self.end.said = self._ack
            self._say()
        return got > 0


def link_thread(end, fd, str idle, *, acks=-1):
    """Return the thread for an end of a link that follows, which it carries from now on."""
    if isinstance(end, Source):
        thread = SourceThread(end, fd, idle, acks=acks)
    else:
        thread = ConsumerThread(end, fd, idle)
    end.carried = True
    return thread
