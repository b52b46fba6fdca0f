"""Queue datagrams in a socket, then time how long a receiver takes to get them out.

On one host the sending side is slower than any receiver, because its core also runs the
kernel's receive path: a test at full speed measures the sender. So a burst is queued first, by a
thread on another core, and only the receiver's work is timed.
"""

import os
import threading

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cimport cython

from udpfast.core.agent cimport Agent
from udpfast.core.atomics cimport cpu_relax, load_acquire, store_release
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport FRAME_SIZE
from udpfast.core.oserr cimport check
from udpfast.net.datagram cimport BATCH_MAX, DatagramReceiver, datagram_receive
from udpfast.net.sender cimport DatagramSender, SendBatch, datagram_send, send_batch_add

__all__ = ["BurstSender", "drain_agent", "drain_receiver"]

cdef enum:
    SEQNO_OFFSET = 8         # of Frame.seqno

cdef int64_t FOREVER = 0x7FFFFFFFFFFFFFFF

# What the sending thread is asked for.
cdef enum:
    ORDER_NONE = 0
    ORDER_SEND = 1
    ORDER_REST = 2


@cython.final
cdef class BurstSender:
    """A thread on a core of its own that queues bursts on request.

    Between `awake` and `rest` it spins, because a core that has gone to sleep takes the interrupts
    by which the receiving kernel gives buffers back at another price than a busy one. At rest it
    leaves its core to others (to whoever measures how far the cores are apart).

    Parameters
    ----------
    core : int or None
        Where to send from; None: anywhere.
    """

    cdef object _thread
    cdef object _wanted
    cdef object _core
    cdef bint _stopping
    cdef uint64_t _order
    cdef SendBatch* _batch
    cdef const uint8_t* _data
    cdef int64_t _count
    cdef uint32_t _stride
    cdef uint32_t _train
    cdef int _failure

    def __init__(self, core: int | None = None):
        self._core = core
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="burst sender", daemon=True)
        self._thread.start()

    def awake(self) -> None:
        """Begin to spin."""
        self._wanted.set()

    def rest(self) -> None:
        """Give the core away; returns when the thread no longer spins."""
        if self._wanted.is_set():
            self._wanted.clear()
            with nogil:
                self._ask(ORDER_REST)

    def close(self) -> None:
        """End the thread; once more does nothing."""
        self.rest()
        self._stopping = True
        self._wanted.set()
        self._thread.join()

    def send(
            self, DatagramSender sender, const uint8_t[:, ::1] datagrams,
            int train=BATCH_MAX) -> None:
        """Send a burst and return when the last datagram is in the receiver's queue.

        Parameters
        ----------
        sender : DatagramSender
            Connected to the receiver, which is on this host.
        datagrams : 2-D array of bytes
            One per row.
        train : int
            Datagrams per system call; with a segmenting sender, per train.

        Raises
        ------
        OSError
            The socket is of no use.
        """
        if not 1 <= train <= BATCH_MAX:
            raise ValueError(f"train must be 1..{BATCH_MAX}, was {train}")
        if not self._wanted.is_set():
            raise RuntimeError("the burst sender rests: wake it first")
        self._batch = &sender.batch
        self._data = &datagrams[0, 0]
        self._count = datagrams.shape[0]
        self._stride = <uint32_t>datagrams.shape[1]
        self._train = train
        with nogil:
            self._ask(ORDER_SEND)
        check(self._failure, "send", "a burst")

    cdef void _ask(self, uint64_t order) noexcept nogil:
        store_release(&self._order, order)
        while load_acquire(&self._order) != ORDER_NONE:
            cpu_relax()

    def _serve(self):
        # Thread id 0 in sched_setaffinity(2) is the calling thread.
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})
        while True:
            self._wanted.wait()
            if self._stopping:
                return
            with nogil:
                self._spin()

    cdef void _spin(self) noexcept nogil:
        cdef uint64_t order = ORDER_NONE
        while order != ORDER_REST:
            order = load_acquire(&self._order)
            if order == ORDER_SEND:
                self._failure = self._send()
            if order != ORDER_NONE:
                store_release(&self._order, ORDER_NONE)
            else:
                cpu_relax()

    cdef int _send(self) noexcept nogil:
        cdef int64_t i
        cdef int rc
        for i in range(self._count):
            send_batch_add(self._batch, self._data + i * self._stride, self._stride)
            if self._batch.count == self._train or i + 1 == self._count:
                while self._batch.count:
                    rc = datagram_send(self._batch)
                    if rc < 0:
                        return rc
        return 0


def drain_agent(Agent agent, int64_t turns=FOREVER) -> tuple[int, int]:
    """Give an agent turns until one brings nothing, as its runner does.

    Parameters
    ----------
    agent : Agent
        Started.
    turns : int
        At most so many: work may come faster than it is done.

    Returns
    -------
    (int, int)
        Nanoseconds, and the work that the turns reported.
    """
    cdef int64_t started_ns, now_ns, total = 0
    cdef int count = 1
    with nogil:
        started_ns = now_ns = clock_monotonic_ns()
        while count > 0 and turns > 0:
            turns -= 1
            count = agent.do_work(now_ns)
            total += count
            now_ns = clock_monotonic_ns()
    check(min(count, 0), "drain", agent.role)
    return now_ns - started_ns, total


def drain_receiver(DatagramReceiver receiver) -> tuple[int, int, int]:
    """Receive until nothing waits, and do nothing with it but to add up the seqnos.

    Returns
    -------
    (int, int, int)
        Nanoseconds, datagrams, and the sum of their seqnos modulo 2^64.
    """
    cdef int64_t started_ns, total = 0
    cdef uint64_t checksum = 0
    cdef uint32_t seqno
    cdef int i, count = 1
    with nogil:
        started_ns = clock_monotonic_ns()
        while count > 0:
            count = datagram_receive(&receiver.batch)
            for i in range(count):
                if receiver.batch.items[i].size >= FRAME_SIZE:
                    memcpy(&seqno, receiver.batch.items[i].data + SEQNO_OFFSET, sizeof(seqno))
                    checksum += seqno
            total += count
        started_ns = clock_monotonic_ns() - started_ns
    check(count, "drain", "receiver")
    return started_ns, total, checksum
