"""Records on a schedule, each timed until the other end acknowledges it: with a store, and bare.

    StorePace + SenderThread, one thread --TCP--> ReceiverThread    append, send; check, place, ack
    TcpPace -------------------------------TCP--> TcpEcho           the same bytes of nothing

A gap of 0 sends the next when the one before is acknowledged.
"""

import cython
import numpy as np

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from udpfast.bus.log cimport log_append
from udpfast.bus.link_sender cimport LinkSender
from udpfast.core.agent cimport AGENT_DONE, Agent
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_BUS, RECORD_SIZE, STREAM_NONE, Record

__all__ = ["StorePace", "TcpEcho", "TcpPace"]

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    ACK_SIZE = 72                # of a copy's ACK
    CHUNK = 1 << 17              # that is read, and sent, at once


cdef class Pace(Agent):
    # What is due when, and how long it took until it was acknowledged.
    cdef int64_t[::1] _due       # of each, then its latency
    cdef int64_t _count, _gap_ns, _begun_ns
    cdef int64_t _given, _acked

    def __init__(self, role, count, gap_ns):
        super().__init__(role)
        self._due = np.zeros(count, np.int64)
        self._count, self._gap_ns = count, gap_ns

    @property
    def latencies(self) -> NDArray[np.int64]:
        """Of each, in order, ns from when it was due."""
        return np.asarray(self._due)

    @property
    def done(self) -> bool:
        """Whether all are acknowledged."""
        return self._acked == self._count

    cdef int64_t due(self, int64_t now_ns) noexcept nogil:
        # How many more are due, of which it notes that they were given.
        cdef int64_t until, at
        if self._begun_ns == 0:
            self._begun_ns = now_ns
        if self._gap_ns:
            until = min((now_ns - self._begun_ns) // self._gap_ns + 1, self._count)
            for at in range(self._given, until):
                self._due[at] = self._begun_ns + at * self._gap_ns
        else:
            until = min(self._acked + 1, self._count)
            if until > self._given:
                self._due[self._given] = clock_monotonic_ns()
        at = until - self._given
        self._given = until
        return at

    cdef void acknowledged(self, int64_t count) noexcept nogil:
        cdef int64_t now_ns
        if count > self._acked:
            now_ns = clock_monotonic_ns()
            while self._acked < count:
                self._due[self._acked] = now_ns - self._due[self._acked]
                self._acked += 1


@cython.final
cdef class StorePace(Pace):
    """Appends records to the store of a source, on its thread.

    Parameters
    ----------
    source : LinkSender
    count, size : int
        Of records, and bytes of a payload.
    gap_ns : int
    """

    cdef LinkSender _source
    cdef Record _record
    cdef uint8_t[1024] _payload
    cdef uint64_t _first, _step

    def __init__(self, LinkSender source, count: int, size: int, gap_ns: int):
        super().__init__("append", count, gap_ns)
        self._source = source
        self._first, self._step = source.store.log.writer.position, RECORD_SIZE + size
        memset(&self._record, 0, sizeof(self._record))
        self._record.length = RECORD_SIZE + size
        self._record.kind = KIND_BUS
        self._record.stream = STREAM_NONE

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef int64_t count
        cdef uint64_t acked = self._source.acked
        if acked > self._first:
            self.acknowledged(<int64_t>((acked - self._first) // self._step))
        count = self.due(now_ns)
        for _ in range(count):
            self._record.published_ns = self._source.store.log.last_ns + 1
            log_append(self._source.store.log, &self._record, self._payload)
        return <int>count


@cython.final
cdef class TcpPace(Pace):
    """Sends the same bytes of nothing.

    Parameters
    ----------
    fd : int
        Of a socket that does not block.
    count, size : int
    gap_ns : int
    """

    cdef int _fd
    cdef uint8_t* _content
    cdef int64_t _owed, _step, _heard
    cdef uint8_t[ACK_SIZE] _ack

    def __cinit__(self):
        self._content = <uint8_t*>calloc(CHUNK, 1)
        if self._content == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._content)

    def __init__(self, fd: int, count: int, size: int, gap_ns: int):
        super().__init__("send", count, gap_ns)
        self._fd, self._step = fd, RECORD_SIZE + size

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef ssize_t rc
        cdef int64_t total
        while True:
            rc = recv(self._fd, &self._ack[self._heard], <size_t>(ACK_SIZE - self._heard),
                      MSG_DONTWAIT)
            if rc <= 0:
                break
            self._heard += rc
            if self._heard == ACK_SIZE:
                self._heard = 0
                memcpy(&total, self._ack, sizeof(total))
                self.acknowledged(total // self._step)
        self._owed += self.due(now_ns) * self._step
        if self._owed == 0:
            return 0
        rc = send(self._fd, self._content, <size_t>min(self._owed, <int64_t>CHUNK),
                  MSG_DONTWAIT | MSG_NOSIGNAL)
        if rc > 0:
            self._owed -= rc
        elif errno not in (EAGAIN, EINTR):
            return -errno
        return 1


@cython.final
cdef class TcpEcho(Agent):
    """Reads, and says after each read how many bytes it has; until the other end closes.

    Parameters
    ----------
    fd : int
        Of a socket that does not block.
    """

    cdef int _fd
    cdef int64_t _had
    cdef uint8_t* _content
    cdef uint8_t[ACK_SIZE] _ack

    def __cinit__(self):
        self._content = <uint8_t*>calloc(CHUNK, 1)
        if self._content == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._content)

    def __init__(self, fd: int):
        super().__init__("echo")
        self._fd = fd

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef ssize_t rc = recv(self._fd, self._content, CHUNK, MSG_DONTWAIT)
        cdef size_t said = 0
        if rc <= 0:
            return 0 if rc < 0 and errno in (EAGAIN, EINTR) else AGENT_DONE
        self._had += rc
        memcpy(self._ack, &self._had, sizeof(self._had))
        while said < ACK_SIZE:
            rc = send(self._fd, &self._ack[said], ACK_SIZE - said, MSG_DONTWAIT | MSG_NOSIGNAL)
            if rc > 0:
                said += <size_t>rc
            elif errno not in (EAGAIN, EINTR):
                return AGENT_DONE
        return 1
