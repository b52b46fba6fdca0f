"""Send messages when they are due, on one or more lines: the open-loop sender of benchmarks.

Every message carries the time at which it was due. A sender that was stopped catches up at once,
and the time it was stopped shows in the latencies that the receiver computes, instead of being
left out. `agents/feed/load` sends whole datagrams at one rate; here the times are given one by one,
a message may take several datagrams, and each line has its own times.
"""

from dataclasses import dataclass

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cimport cython

from udpfast.core.atomics cimport cpu_relax
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport (
    DATAGRAM_SIZE_MAX, ENCODING_NATIVE, FRAGMENT_SIZE, FRAME_SIZE, LINES_MAX, Frame,
)
from udpfast.core.oserr cimport check
from udpfast.net.datagram cimport BATCH_MAX
from udpfast.net.sender cimport DatagramSender, SendBatch, datagram_send, send_batch_add

__all__ = ["PaceResult", "PacedSender"]

cdef enum:
    # A full queue is asked again for about 1 ms, then the rest of the batch is given up.
    SEND_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True)
class PaceResult:
    """What became of a schedule.

    Attributes
    ----------
    datagrams : int
        Given to the kernel, on all lines together.
    unsent : int
        Given up, because a queue stayed full.
    late_ns_max : int
        The furthest that any message was behind its time when it was handed to the kernel.
    elapsed_ns : int
        From the first due time until the last datagram had left.
    """

    datagrams: int
    unsent: int
    late_ns_max: int
    elapsed_ns: int


@cython.final
cdef class PacedSender:
    """Send a schedule of messages; the calling thread spins in between.

    Payloads are opaque (encoding "native", object type 0, which is never gated): 8 bytes of
    monotonic ns, when the message was due, zeros, and 8 bytes with its seqno at the end.

    Parameters
    ----------
    senders : sequence of DatagramSender
        1..8 lines.
    message_bytes : int
        16..32768; more than 512 are sent as fragments. The last fragment has 8 bytes or more.
    session_id : int
    """

    cdef tuple senders
    cdef SendBatch* batches[LINES_MAX]
    cdef int line_count
    cdef uint32_t message_size
    cdef int fragment_count
    cdef Frame frame
    cdef int64_t unsent
    cdef int64_t late_ns
    cdef uint8_t slots[BATCH_MAX][DATAGRAM_SIZE_MAX]

    def __init__(
            self, senders: Sequence[DatagramSender], *, message_bytes: int = 64,
            session_id: int = 1):
        cdef int line
        if not 1 <= len(senders) <= LINES_MAX:
            raise ValueError(f"a schedule needs 1..{LINES_MAX} lines, had {len(senders)}")
        if not 16 <= message_bytes <= BATCH_MAX * FRAGMENT_SIZE:
            raise ValueError(f"message_bytes must be 16..{BATCH_MAX * FRAGMENT_SIZE}, "
                             f"was {message_bytes}")
        if 0 < message_bytes % FRAGMENT_SIZE < 8:
            raise ValueError("message_bytes must leave 8 or more to the last fragment, "
                             f"was {message_bytes}")
        self.senders = tuple(senders)
        self.line_count = len(self.senders)
        for line in range(self.line_count):
            self.batches[line] = &(<DatagramSender?>self.senders[line]).batch
        self.message_size = message_bytes
        self.fragment_count = (message_bytes + FRAGMENT_SIZE - 1) // FRAGMENT_SIZE
        memset(&self.frame, 0, sizeof(self.frame))
        memset(self.slots, 0, sizeof(self.slots))
        self.frame.control = ENCODING_NATIVE
        self.frame.fragment_max = <uint8_t>(self.fragment_count - 1)
        self.frame.session_id = session_id

    @property
    def fragments(self) -> int:
        """Datagrams that one message takes on one line."""
        return self.fragment_count

    def send(
            self, const int64_t[::1] due_ns, const int64_t[::1] stamps_ns,
            const uint32_t[::1] seqnos, const uint8_t[::1] lines) -> PaceResult:
        """Send each entry on its line when it is due; without the GIL.

        Parameters
        ----------
        due_ns : array of int64
            Monotonic ns, not falling.
        stamps_ns : array of int64
            The time that the message carries; the same for its copies on several lines.
        seqnos : array of uint32
        lines : array of uint8

        Raises
        ------
        OSError
            A socket is of no use.
        """
        cdef Py_ssize_t i, count = due_ns.shape[0]
        cdef int rc
        cdef int64_t ended_ns
        if not count == stamps_ns.shape[0] == seqnos.shape[0] == lines.shape[0]:
            raise ValueError(f"expected arrays of one length, found {count}, {stamps_ns.shape[0]}, "
                             f"{seqnos.shape[0]} and {lines.shape[0]}")
        for i in range(count):
            if lines[i] >= self.line_count:
                raise ValueError(f"line must be 0..{self.line_count - 1}, was {lines[i]}")
        if count == 0:
            return PaceResult(0, 0, 0, 0)
        self.unsent = self.late_ns = 0
        with nogil:
            rc = self._run(&due_ns[0], &stamps_ns[0], &seqnos[0], &lines[0], count)
            ended_ns = clock_monotonic_ns()
        check(rc, "send", "schedule")
        return PaceResult(count * self.fragment_count - self.unsent, self.unsent, self.late_ns,
                          ended_ns - due_ns[0])

    cdef int _run(
            self, const int64_t* due_ns, const int64_t* stamps_ns, const uint32_t* seqnos,
            const uint8_t* lines, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t i = 0
        cdef int filled, line, rc
        cdef int64_t now_ns
        while i < count:
            now_ns = clock_monotonic_ns()
            if due_ns[i] > now_ns:
                cpu_relax()
                continue
            self.late_ns = max(self.late_ns, now_ns - due_ns[i])
            filled = 0
            while (i < count and due_ns[i] <= now_ns
                    and filled + self.fragment_count <= BATCH_MAX):
                self._add(filled, lines[i], seqnos[i], stamps_ns[i])
                filled += self.fragment_count
                i += 1
            for line in range(self.line_count):
                rc = self._send_line(self.batches[line])
                if rc < 0:
                    return rc
        return 0

    cdef void _add(
            self, int filled, uint8_t line, uint32_t seqno, int64_t stamp_ns) noexcept nogil:
        cdef int fragment
        cdef uint32_t left = self.message_size, size = 0
        cdef uint64_t mark = seqno
        cdef uint8_t* slot = NULL
        self.frame.seqno = seqno
        for fragment in range(self.fragment_count):
            slot = &self.slots[filled + fragment][0]
            size = min(left, <uint32_t>FRAGMENT_SIZE)
            left -= size
            self.frame.fragment = <uint8_t>fragment
            memcpy(slot, &self.frame, FRAME_SIZE)
            memset(slot + FRAME_SIZE, 0, size)
            if fragment == 0:
                memcpy(slot + FRAME_SIZE, &stamp_ns, sizeof(stamp_ns))
            if left == 0:
                memcpy(slot + FRAME_SIZE + size - sizeof(mark), &mark, sizeof(mark))
            send_batch_add(self.batches[line], slot, FRAME_SIZE + size)

    cdef int _send_line(self, SendBatch* batch) noexcept nogil:
        cdef int _attempt, rc
        for _attempt in range(SEND_ATTEMPTS):
            if batch.count == 0:
                return 0
            rc = datagram_send(batch)
            if rc < 0:
                return rc
        self.unsent += batch.count - batch.first
        batch.first = batch.count = 0
        return 0
