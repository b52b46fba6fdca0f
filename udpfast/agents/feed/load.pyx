"""Raw load: whole datagrams at a fixed rate, whatever becomes of them, to test receivers with.

The schedule is open-loop: datagram i is due at start + i / rate, and carries that time. A sender
that was stopped catches up at once, and the time it was stopped shows in the latencies that the
receiver computes, instead of being left out.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

cimport cython

from udpfast.core.atomics cimport cpu_relax
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.idle cimport idle_sleep
from udpfast.core.layout cimport (
    DATAGRAM_SIZE_MAX, ENCODING_NATIVE, FRAGMENT_SIZE, FRAME_SIZE, LINES_MAX, Frame,
)
from udpfast.core.oserr cimport check
from udpfast.net.datagram cimport BATCH_MAX
from udpfast.net.sender cimport DatagramSender, SendBatch, datagram_send, send_batch_add

__all__ = ["LoadGenerator"]

cdef enum:
    # A sleep ends up to 60 us late (timer slack 50 us), so the last part of a pause is spun.
    SPIN_NS = 100_000
    # A full queue is asked again for about 1 ms, then the rest of the batch is given up.
    SEND_ATTEMPTS = 1_000
    RATE_MAX = 1_000_000_000     # one per step of the clock


@cython.final
cdef class LoadGenerator:
    """Send `count` datagrams at `rate_per_s` on every line.

    Payloads are opaque (encoding "native"): 8 bytes of UNIX ns, when the datagram was due, then
    zeros. Object type 0 is never gated, so that every subscriber delivers them.

    Parameters
    ----------
    senders : sequence of DatagramSender
        1..8 lines; each gets every datagram.
    rate_per_s : float
        Datagrams per second and line.
    size_bytes : int
        Of the payload, 8..512.
    count : int
        0: until stopped.
    session_id, first_seqno : int
    object_type, object_id : int
    """

    cdef tuple senders
    cdef SendBatch* batches[LINES_MAX]
    cdef int line_count
    cdef double rate
    cdef int64_t count_wanted
    cdef int64_t sent_count
    cdef int64_t unsent_counts[LINES_MAX]
    cdef int64_t start_ns            # monotonic; -1 before the first datagram
    cdef int64_t utc_offset_ns
    cdef int64_t latest_ns
    cdef uint32_t size
    cdef Frame frame
    cdef uint8_t slots[BATCH_MAX][DATAGRAM_SIZE_MAX]

    def __init__(
            self, senders: Sequence[DatagramSender], *, double rate_per_s, int size_bytes=64,
            int64_t count=0, session_id: int = 1, first_seqno: int = 1, object_type: int = 0,
            object_id: int = 0):
        cdef int line
        if not 1 <= len(senders) <= LINES_MAX:
            raise ValueError(f"expected 1 to {LINES_MAX} lines, found {len(senders)}")
        if not 8 <= size_bytes <= FRAGMENT_SIZE:
            raise ValueError(f"size_bytes must be 8 to {FRAGMENT_SIZE}, was {size_bytes}")
        if not 0 < rate_per_s <= RATE_MAX:
            raise ValueError(
                f"rate_per_s must be above 0 and at most {RATE_MAX:,}, was {rate_per_s}")
        if count < 0:
            raise ValueError(f"count must be 0 or more, was {count}")
        self.senders = tuple(senders)
        self.line_count = len(self.senders)
        for line in range(self.line_count):
            self.batches[line] = &(<DatagramSender?>self.senders[line]).batch
        self.rate = rate_per_s
        self.size = size_bytes
        self.count_wanted = count
        self.start_ns = -1
        memset(self.slots, 0, sizeof(self.slots))
        self.frame.control = ENCODING_NATIVE
        self.frame.fragment = self.frame.fragment_max = 0
        self.frame.object_type = object_type
        self.frame.object_id = object_id
        self.frame.session_id = session_id
        self.frame.seqno = first_seqno
        self.frame.last_seqno = 0

    def run(self, int64_t duration_ns) -> bool:
        """Send what is due until `duration_ns` have passed, or all is sent.

        Without the GIL; call again to go on, the schedule stays that of the first call.

        Returns
        -------
        bool
            Whether all is sent.

        Raises
        ------
        OSError
            No line can send.
        """
        cdef int rc
        cdef int64_t stop_ns
        with nogil:
            stop_ns = clock_monotonic_ns() + duration_ns
            rc = self._run(stop_ns)
        check(rc, "send", "load")
        return rc == 1

    @property
    def sent(self) -> int:
        """Datagrams given to every line so far."""
        return self.sent_count

    @property
    def unsent(self) -> list[int]:
        """Datagrams given up per line: its queue stayed full, or it failed."""
        return [self.unsent_counts[line] for line in range(self.line_count)]

    @property
    def late_ns_max(self) -> int:
        """The furthest that any datagram was behind its schedule."""
        return self.latest_ns

    @property
    def next_seqno(self) -> int:
        """The seqno that the next datagram gets."""
        return self.frame.seqno

    cdef int _run(self, int64_t stop_ns) noexcept nogil:
        # 1: all sent; 0: time is up; < 0: -errno.
        cdef int64_t now_ns = clock_monotonic_ns()
        cdef int64_t due, wait_ns
        cdef int rc
        if self.start_ns < 0:
            self.start_ns = now_ns
            self.utc_offset_ns = clock_realtime_ns() - now_ns
        while now_ns < stop_ns:
            due = <int64_t>((now_ns - self.start_ns) * 1e-9 * self.rate) + 1
            if self.count_wanted > 0:
                due = min(due, self.count_wanted)
            if due > self.sent_count:
                rc = self._send(min(due - self.sent_count, <int64_t>BATCH_MAX), now_ns)
                if rc < 0:
                    return rc
                if self.sent_count == self.count_wanted:
                    return 1
            else:
                wait_ns = min(self._due_ns(self.sent_count), stop_ns) - now_ns - SPIN_NS
                if wait_ns > 0:
                    idle_sleep(wait_ns)
                else:
                    cpu_relax()
            now_ns = clock_monotonic_ns()
        return 0

    cdef int64_t _due_ns(self, int64_t index) noexcept nogil:
        return self.start_ns + <int64_t>(index / self.rate * 1e9)

    cdef int _send(self, int64_t count, int64_t now_ns) noexcept nogil:
        cdef int64_t i, stamp_ns
        cdef int line, rc = 0, failed = 0
        self.latest_ns = max(self.latest_ns, now_ns - self._due_ns(self.sent_count))
        for i in range(count):
            stamp_ns = self._due_ns(self.sent_count + i) + self.utc_offset_ns
            memcpy(&self.slots[i][0], &self.frame, FRAME_SIZE)
            memcpy(&self.slots[i][FRAME_SIZE], &stamp_ns, sizeof(stamp_ns))
            self.frame.seqno += 1
        for line in range(self.line_count):
            for i in range(count):
                send_batch_add(self.batches[line], &self.slots[i][0], FRAME_SIZE + self.size)
            rc = self._send_line(line)
            failed += rc < 0
        if failed == self.line_count:
            return rc
        self.sent_count += count
        return 0

    cdef int _send_line(self, int line) noexcept nogil:
        cdef SendBatch* batch = self.batches[line]
        cdef int _attempt, rc
        for _attempt in range(SEND_ATTEMPTS):
            rc = datagram_send(batch)
            if rc < 0:
                break  # one line's trouble is not the other lines'
            if batch.count == 0:
                return 0
        self.unsent_counts[line] += batch.count - batch.first
        batch.first = batch.count = 0
        return min(rc, 0)
