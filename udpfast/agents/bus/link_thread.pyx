"""The thread of one link: it moves bytes between a socket and an end of the link without the GIL.

What needs the interpreter (the next segment, another epoch, names) waits until the daemon's loop
calls `attend` of that end. If bytes carry tags (bus/seal.py), they are made and checked here.
"""

import os

import cython

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memmove, memset

from udpfast.bus.log cimport LinkEnd
from udpfast.bus.link_seal cimport (
    PIECE_MAX, SEAL_SIZE, LinkSeal, seal_piece, seal_read, seal_space)
from udpfast.bus.link_receiver cimport ACK_BYTES, LinkReceiver
from udpfast.bus.link_sender cimport RUN_ATTEND, LinkSender
from udpfast.bus.wire cimport LINK_HEADER_SIZE, LinkHeader, Progress, link_look
from posix.unistd cimport close, write

from udpfast.core.agent cimport Agent
from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.hold cimport hold_enter, hold_leave
from udpfast.net.datagram cimport iovec, msghdr
from udpfast.shm.wake cimport Waker, WakeRegion, waker_turn

__all__ = ["ReceiverThread", "SenderThread", "link_thread"]

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
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    RUNS_PER_TURN = 4
    READ_BYTES = 1 << 17         # per read: the daemon's loop waits for the end of a turn
    LINGER_NS = 100_000          # a poll costs 5 to 50 us, so do not poll if more comes soon
    WAIT_MS = 1                  # the loop's hand-overs may wait this long
    HEARD_BYTES = 4096           # room for a copy's frames; the longest, HELLO, was read before
    ACK_FRAME = LINK_HEADER_SIZE + sizeof(Progress)
    ACK_GAP_NS = 5_000           # shortest time between two ACKs of a copy that is up to date


cdef class LinkThread(Agent):
    cdef LinkEnd end
    cdef readonly bint broken    # the link has broken ...
    cdef readonly bint forged    # ... because bytes were not sealed with a key
    cdef readonly str idle       # what its runner does if there is no work
    cdef int _fd
    cdef short _events           # events of the socket to wait for
    cdef int64_t _patience_ns    # how long without work before it waits; -1: it never does
    cdef int64_t _worked_ns      # when there was work last
    cdef int _bell               # eventfd
    cdef uint64_t _asleep
    cdef LinkSeal _seal          # None: bytes carry no tags
    cdef uint8_t[SEAL_SIZE] _prefix  # of the piece being sent ...
    cdef uint64_t _prefix_left   # ... and how much of prefix and piece is still to be sent
    cdef uint64_t _piece_left

    def __init__(self, LinkEnd end, fd, role, idle, LinkSeal seal):
        super().__init__(role)
        self.end = end
        self._fd = fd
        self._seal = seal
        # The runner spins or yields. Waiting is done here, for the socket or for `wake`.
        self._patience_ns = {"backoff": LINGER_NS, "sleep": 0}.get(idle, -1)
        self.idle = "spin" if self._patience_ns >= 0 else idle
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = POLLIN

    def __dealloc__(self):
        if self._bell > 0:
            close(self._bell)

    cdef bint _lost(self, ssize_t rc) noexcept nogil:
        # Note after a failed call whether the link has broken; if not, there was no data, or no
        # room.
        if rc < 0 and errno in (EAGAIN, EINTR) and not self.forged:
            return False
        self.broken = True
        return True

    cdef ssize_t _read(self, uint8_t* place, uint64_t room) noexcept nogil:
        # As `recv`, but only authentic bytes.
        cdef uint8_t* space
        cdef uint64_t size
        cdef ssize_t got
        if self._seal is None:
            return recv(self._fd, place, room, MSG_DONTWAIT)
        while True:  # until there is a complete piece, or nothing more to read
            got = seal_read(self._seal, place, room)
            if got:
                self.forged = got < 0
                return got
            space = seal_space(self._seal, &size)
            got = recv(self._fd, space, size, MSG_DONTWAIT)
            if got <= 0:
                return got
            self._seal._size += <uint64_t>got

    cdef ssize_t _write(
            self, const uint8_t* first, uint64_t first_size, const uint8_t* second,
            uint64_t second_size) noexcept nogil:
        # As `sendmsg`, of two buffers that must stay unchanged; returns how much of them was sent.
        # With tags, the caller must pass the rest again before anything else.
        cdef iovec parts[3]
        cdef msghdr message
        cdef ssize_t sent
        cdef uint64_t head
        if self._seal is not None:
            if self._piece_left == 0:
                self._piece_left = min(first_size + second_size, <uint64_t>PIECE_MAX)
                self._prefix_left = SEAL_SIZE
                first_size = min(first_size, self._piece_left)
                seal_piece(self._seal, self._prefix, first, first_size, second,
                           self._piece_left - first_size)
            first_size = min(first_size, self._piece_left)
            second_size = self._piece_left - first_size
        parts[0].iov_base = <uint8_t*>self._prefix + (SEAL_SIZE - self._prefix_left)
        parts[0].iov_len = self._prefix_left
        parts[1].iov_base, parts[1].iov_len = <void*>first, first_size
        parts[2].iov_base, parts[2].iov_len = <void*>second, second_size
        memset(&message, 0, sizeof(message))
        message.msg_iov, message.msg_iovlen = parts, 3
        sent = sendmsg(self._fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < 0 or self._seal is None:
            return sent
        head = min(<uint64_t>sent, self._prefix_left)
        self._prefix_left -= head
        self._piece_left -= <uint64_t>sent - head
        return sent - <ssize_t>head

    cdef bint _say(self) noexcept nogil:
        # Send the end's output. False: not all of it was sent.
        cdef ssize_t sent
        while self.end.said_size:
            sent = self._write(self.end.said, self.end.said_size, NULL, 0)
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
            sched_yield()  # the loop may be waiting for this core
            return 0
        count = 0 if self.end.over else self._turn(now_ns)
        hold_leave(&self.end.hold)
        if count:
            self._worked_ns = now_ns
        elif self._patience_ns >= 0:
            # If the socket is full, wait at once.
            if now_ns - self._worked_ns >= self._patience_ns or self._events & POLLOUT:
                self._await()
            else:
                sched_yield()  # the reader of what it just wrote may be waiting for this core
        return count

    cdef void _await(self) noexcept nogil:
        # Unlike a sleep, the kernel ends this wait as soon as there is an event.
        cdef pollfd waited[2]
        cdef uint64_t rung
        waited[0].fd, waited[0].events = self._fd, self._events
        waited[1].fd, waited[1].events = self._bell, POLLIN
        store_release(&self._asleep, 1)  # read by wake
        if poll(waited, 2, WAIT_MS) > 0 and waited[1].revents:
            eventfd_read(self._bell, &rung)
        store_release(&self._asleep, 0)

    def wake(self) -> None:
        """Wake the thread: it may be waiting for its socket only, and there is work for it."""
        if load_acquire(&self._asleep):
            eventfd_write(self._bell, 1)

    @property
    def speaking(self) -> bool:
        """Whether some of the end's output is still to be sent."""
        return not self.broken and self.end.said_size > 0

    cdef int _turn(self, int64_t now_ns) noexcept nogil:
        return 0


@cython.final
cdef class SenderThread(LinkThread):
    """Send a store's records to one copy in place, and receive its acknowledgements.

    Parameters
    ----------
    source : LinkSender
        An end that follows; the thread owns its bytes from now on.
    fd : int
        A non-blocking socket. The caller owns it; it must outlive the thread.
    idle : str
        What the thread does if there is no work: "spin", "yield", "backoff" or "sleep".
    acks : int
        Descriptor that gets a byte when something was acknowledged; -1: none.
    seal : LinkSeal, optional
        A seal that is `ready`; the thread owns it from now on.

    Attributes
    ----------
    idle : str
        The part of `idle` that is left to the runner.
    broken : bool
        The link has broken ...
    forged : bool
        ... because bytes were not sealed with a key.
    """

    cdef LinkSender _source
    cdef uint8_t[HEARD_BYTES] _heard
    cdef uint64_t _heard_size
    cdef bint _odd               # the first frame in _heard is not a valid ACK
    cdef int _acks
    cdef LinkHeader _header      # of the run being sent
    cdef const uint8_t* _records
    cdef uint64_t _size, _sent   # bytes of header and records, and how many were sent

    def __init__(
            self, LinkSender source, fd: int, str idle, *, acks: int = -1,
            seal: LinkSeal | None = None):
        super().__init__(source, fd, "udpfast source", idle, seal)
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
        got = self._read(&self._heard[self._heard_size], HEARD_BYTES - self._heard_size)
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
            write(self._acks, self._heard, 1)  # any byte; a full pipe wakes as well
        self._heard_size -= at
        memmove(self._heard, &self._heard[at], self._heard_size)
        return 1

    def odd(self) -> bytes:
        """Return, once, the received frames that need the interpreter; usually none."""
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
        # Send the rest of a run. False: not all of it was sent.
        cdef uint64_t head
        cdef ssize_t sent
        while self._sent < self._size:
            head = min(self._sent, <uint64_t>LINK_HEADER_SIZE)
            sent = self._write(
                <uint8_t*>&self._header + head, LINK_HEADER_SIZE - head,
                self._records + (self._sent - head),
                self._size - LINK_HEADER_SIZE - (self._sent - head))
            if sent < 0:
                self._lost(sent)
                return False
            self._sent += <uint64_t>sent
        return True


@cython.final
cdef class ReceiverThread(LinkThread):
    """Take the records of a store's source into the copy, and acknowledge them.

    Parameters
    ----------
    receiver : LinkReceiver
        An end that follows; the thread owns its bytes from now on.
    fd : int
        A non-blocking socket. The caller owns it; it must outlive the thread.
    idle : str
        What the thread does if there is no work: "spin", "yield", "backoff" or "sleep".
    seal : LinkSeal, optional
        A seal that is `ready`; the thread owns it from now on.
    wake : WakeRegion, optional
        For readers that may see every record at once. The caller owns it; it must outlive the
        thread.

    Attributes
    ----------
    idle : str
        The part of `idle` that is left to the runner.
    broken : bool
        The link has broken ...
    forged : bool
        ... because bytes were not sealed with a key.
    """

    cdef LinkReceiver _receiver
    cdef uint8_t[ACK_FRAME] _ack
    cdef Waker _waker            # its own: the loop has another one for the same readers

    def __init__(
            self, LinkReceiver receiver, fd: int, str idle, *, seal: LinkSeal | None = None,
            WakeRegion wake=None):
        super().__init__(receiver, fd, "udpfast copy", idle, seal)
        self._receiver = receiver
        if wake is not None:
            self._waker = wake.waker

    cdef int _turn(self, int64_t now_ns) noexcept nogil:
        cdef uint64_t room, unacked
        cdef uint8_t* place
        cdef ssize_t got = 0
        if not self._receiver.wants:
            place = self._receiver.space(&room)
            got = self._read(place, min(room, <uint64_t>READ_BYTES))
            if got <= 0:
                if self._lost(got):
                    return 0
                got = 0
            elif not self._receiver.arrived(<uint64_t>got, now_ns):
                self._receiver.wants = True
        waker_turn(&self._waker, self._receiver._log.writer.position, now_ns)
        # A copy that is up to date acknowledges at once: its ACK may release records and messages.
        unacked = self._receiver._log.writer.position - self._receiver._acked
        if not (self._say() and unacked):
            return got > 0
        if unacked >= ACK_BYTES or (<uint64_t>got < READ_BYTES // 2
                                    and now_ns - self._receiver._acked_ns >= ACK_GAP_NS):
            self.end.said_size = self._receiver.ack(self._ack, now_ns, clock_realtime_ns())
            self.end.said = self._ack
            self._say()
        return got > 0


def link_thread(
        end: LinkSender | LinkReceiver, fd: int, str idle, *, acks: int = -1,
        seal: LinkSeal | None = None,
        wake: WakeRegion | None = None) -> SenderThread | ReceiverThread:
    """Return the thread for an end that follows. It carries the end's bytes from now on."""
    if isinstance(end, LinkSender):
        thread = SenderThread(end, fd, idle, acks=acks, seal=seal)
    else:
        thread = ReceiverThread(end, fd, idle, seal=seal, wake=wake)
    end.carried = True
    return thread
