"""The lines of a relay: each carries the same datagrams, and none waits for another."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from udpfast.agents.relay.relay_budget cimport (
    HEADERS_IPV4, HEADERS_IPV6, budget_cost_ns, budget_credit_ns, budget_init, budget_pay)
from udpfast.agents.relay.relay_types cimport is_type_of
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, DATAGRAM_SIZE_MAX, Frame, LINES_MAX)
from udpfast.core.oserr cimport check
from udpfast.core.update_kinds cimport KIND_BOOK
from udpfast.feed.parity cimport PARITY_SIZE_MAX, Parity, parity_add, parity_init, parity_rest
from udpfast.feed.publication cimport SendQueue, Publication, send_queue_frame
from udpfast.net.sender cimport DatagramSender, SendBatch, send_slots

import numpy as np

from udpfast.net.sender import DatagramSender
from udpfast.shm.relay_counts import RELAY_LINE_COUNTS

__all__ = ["RelayLines", "line_budget"]

cdef enum:
    # How often a full queue is asked again before the rest is given up for that line: about 0.1 ms,
    # for which the other lines wait.
    ATTEMPTS = 100
    # Levels and snapshots leave this part of a burst to what goes before them.
    RESERVE = 4

if len(RELAY_LINE_COUNTS) != RELAY_LINE_COUNT:
    raise ImportError(f"expected {RELAY_LINE_COUNT} names, found {len(RELAY_LINE_COUNTS)}")


def line_budget(lines: Sequence[RelayLine]) -> dict[str, int]:
    """Return what a relay may send that sends the same by all lines, as `RelayFeed` takes it.

    The strictest budget of the lines that do not leave out.
    """
    rates = [line.bits_per_s for line in lines if line.bits_per_s and line.short == "conflate"]
    if not rates:
        return {}
    return {
        "bits_per_s": min(rates),
        "burst_bytes": min(line.burst_bytes for line in lines
                           if line.bits_per_s and line.short == "conflate"),
        "headers": max(line_headers(line) for line in lines),
    }


def line_headers(line) -> int:
    return HEADERS_IPV6 if line.incremental.startswith("[") else HEADERS_IPV4


cdef class RelayLines:
    """Sockets of each line and channel.

    Parameters
    ----------
    lines : sequence of RelayLine
        Of the settings; both addresses are known.
    counts : numpy.ndarray, optional
        int64, a row for each line, as `shm.relay_counts.RelayCounts.lines`: where it counts.
    parity_wait_ns : int
        After so long, parity is sent of datagrams that are fewer than a line's `parity` says.

    Attributes
    ----------
    names : tuple[str, ...]
    senders : list[list[DatagramSender]]

    Raises
    ------
    ConfigError, OSError
        As `DatagramSender`.
    """

    def __cinit__(self):
        self.mixed = <uint8_t*>calloc(MIXED_SLOTS, PARITY_SIZE_MAX)
        if self.mixed == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int line
        for line in range(LINES_MAX):
            free(self.parities[line])
        free(self.mixed)

    def __init__(
            self, lines: Sequence[RelayLine], counts: NDArray[np.int64] | None = None, *,
            parity_wait_ns: int = 2_000_000):
        cdef DatagramSender sender
        cdef int64_t[:, ::1] memory
        cdef int channel
        self.names = tuple(line.name for line in lines)
        self.senders = [[], []]
        self.lines = <uint32_t>len(self.names)
        if counts is None:
            counts = np.zeros((len(self.names), RELAY_LINE_COUNT), np.int64)
        memory = counts
        if not 1 <= len(self.names) <= LINES_MAX or memory.shape[0] != len(self.names) or (
                memory.shape[1] < RELAY_LINE_COUNT):
            raise ValueError(f"expected counts of 1 to {LINES_MAX} lines, found {counts.shape} "
                             f"for {len(self.names)}")
        self.parity_wait_ns = parity_wait_ns
        self._counts_owner = counts
        self.counts = &memory[0, 0]
        self.counts_stride = memory.shape[1]
        try:
            for number, line in enumerate(lines):
                if line.parity:
                    self._begin_parity(<int>number, line.parity, line.parity_depth)
                if line.short == "leave_out":
                    budget_init(&self.budgets[<int>number], line.bits_per_s, line.burst_bytes,
                                line_headers(line))
                for channel, address in enumerate((line.incremental, line.snapshot)):
                    sender = DatagramSender(
                        address, interface=line.interface, ttl=line.ttl, loop=line.loop)
                    self.senders[channel].append(sender)
                    self.batches[channel][<int>number] = &sender.batch
        except BaseException:
            self.close()
            raise

    cdef _begin_parity(self, int line, int members, int depth):
        self.parities[line] = <Parity*>calloc(1, sizeof(Parity))
        if self.parities[line] == NULL:
            raise MemoryError
        parity_init(self.parities[line], members, depth)

    def close(self) -> None:
        """Close the sockets. Idempotent."""
        for channel in self.senders:
            for sender in channel:
                sender.close()

    def troubles(self) -> dict[str, str]:
        """Return what each line that cannot send failed with last, by name and channel."""
        cdef int channel, line
        found = {}
        for channel in range(CHANNEL_COUNT):
            for line in range(<int>self.lines):
                name = f"{self.names[line]} ({('incremental', 'snapshot')[channel]})"
                if self.errors[channel][line]:
                    try:
                        check(-self.errors[channel][line], "send")
                    except OSError as error:
                        found[name] = str(error)
                elif self.senders[channel][line].trouble:
                    found[name] = self.senders[channel][line].trouble
        return found

    def send_publication(self, Publication publication not None, int64_t now_ns) -> None:
        """Send what a publication's send queues hold, by every line, and empty them; for tests."""
        cdef int channel
        for channel in range(CHANNEL_COUNT):
            self.send(channel, &publication.send_queues[channel], now_ns)
            publication.send_queues[channel].count = 0

    cdef void send(self, int channel, SendQueue* send_queue, int64_t now_ns) noexcept nogil:
        cdef uint32_t line
        for line in range(self.lines):
            if self.budgets[line].ps_per_byte:
                self._send_some(channel, line, send_queue, now_ns)
            else:
                self._send_all(channel, line, send_queue, 0, send_queue.count, now_ns)

    cdef int64_t turn_ns(self, int64_t now_ns) noexcept nogil:
        return clock_monotonic_ns() - now_ns

    cdef void expire(self, int64_t now_ns) noexcept nogil:
        cdef uint32_t line
        cdef Parity* parity
        for line in range(self.lines):
            parity = self.parities[line]
            if parity == NULL or parity.since_ns == 0 or (
                    now_ns - parity.since_ns < self.parity_wait_ns):
                continue
            self.mixed_count = 0
            while self._add_parity(line, parity_rest(parity, self._mixed_slot()), now_ns):
                pass
            self._send_slots(CHANNEL_INCREMENTAL, line, self.mixed, PARITY_SIZE_MAX,
                             self.mixed_sizes, 0, self.mixed_count)

    cdef uint8_t* _mixed_slot(self) noexcept nogil:
        return self.mixed + <size_t>self.mixed_count * PARITY_SIZE_MAX

    cdef bint _add_parity(self, uint32_t line, uint32_t size, int64_t now_ns) noexcept nogil:
        # What was written to the next slot leaves, too. False: nothing was.
        cdef Budget* budget = &self.budgets[line]
        if size == 0:
            return False
        self.mixed_sizes[self.mixed_count] = size
        self.mixed_count += 1
        self.counts[line * self.counts_stride + RELAY_LINE_PARITY] += 1
        if budget.ps_per_byte:
            budget_pay(budget, now_ns, budget_cost_ns(budget, size))
        else:
            self.parity_datagrams += 1
            self.parity_bytes += size
        return True

    cdef void _send_mixed(
            self, uint32_t line, const SendQueue* send_queue, uint32_t first, uint32_t stop,
            int64_t now_ns) noexcept nogil:
        # Datagrams [first, stop) of the incremental channel, and the parity that is due among them.
        cdef Parity* parity = self.parities[line]
        cdef const uint8_t* data
        cdef uint32_t i
        self.mixed_count = 0
        for i in range(first, stop):
            data = send_queue.data + <size_t>i * DATAGRAM_SIZE_MAX
            memcpy(self._mixed_slot(), data, send_queue.sizes[i])
            self.mixed_sizes[self.mixed_count] = send_queue.sizes[i]
            self.mixed_count += 1
            self._add_parity(
                line, parity_add(parity, data, <uint32_t>send_queue.sizes[i], now_ns,
                                 self._mixed_slot()), now_ns)
        self._send_slots(CHANNEL_INCREMENTAL, line, self.mixed, PARITY_SIZE_MAX, self.mixed_sizes,
                         0, self.mixed_count)

    cdef void _send_all(
            self, int channel, uint32_t line, const SendQueue* send_queue, uint32_t first,
            uint32_t stop, int64_t now_ns) noexcept nogil:
        # Datagrams [first, stop).
        if first == stop:
            return
        if channel == CHANNEL_INCREMENTAL and self.parities[line] != NULL:
            self._send_mixed(line, send_queue, first, stop, now_ns)
        else:
            self._send_slots(
                channel, line, send_queue.data, DATAGRAM_SIZE_MAX, send_queue.sizes, first, stop)

    cdef void _send_slots(
            self, int channel, uint32_t line, const uint8_t* data, size_t stride,
            const int64_t* sizes, uint32_t first, uint32_t stop) noexcept nogil:
        cdef SendBatch* batch = self.batches[channel][line]
        cdef int64_t* counts = self.counts + line * self.counts_stride
        counts[RELAY_LINE_DATAGRAMS] -= <int64_t>batch.datagrams
        counts[RELAY_LINE_BYTES] -= <int64_t>batch.bytes
        counts[RELAY_LINE_UNSENT] -= <int64_t>batch.unreachable
        counts[RELAY_LINE_UNSENT] += send_all(
            batch, data, stride, sizes, first, stop, &self.errors[channel][line])
        counts[RELAY_LINE_DATAGRAMS] += <int64_t>batch.datagrams
        counts[RELAY_LINE_BYTES] += <int64_t>batch.bytes
        counts[RELAY_LINE_UNSENT] += <int64_t>batch.unreachable

    cdef void _send_some(
            self, int channel, uint32_t line, SendQueue* send_queue, int64_t now_ns) noexcept nogil:
        # What the line's budget has room for: a message of a send queue goes whole or not at all.
        cdef Budget* budget = &self.budgets[line]
        cdef uint32_t first = 0, at = 0, end, i
        cdef int64_t kept_ns
        cdef Frame frame
        while at < send_queue.count:
            end = at + 1
            frame = send_queue_frame(send_queue, at)
            while end < send_queue.count and (
                    send_queue_frame(send_queue, end).seqno == frame.seqno):
                end += 1
            kept_ns = budget.burst_ns // RESERVE if (
                channel == CHANNEL_SNAPSHOT or is_type_of(frame.object_type, KIND_BOOK)) else 0
            if budget_credit_ns(budget, now_ns) > kept_ns:
                for i in range(at, end):
                    budget_pay(budget, now_ns, budget_cost_ns(budget, send_queue.sizes[i]))
            else:
                self._send_all(channel, line, send_queue, first, at, now_ns)
                self.counts[line * self.counts_stride + RELAY_LINE_LEFT_OUT] += end - at
                first = end
            at = end
        self._send_all(channel, line, send_queue, first, at, now_ns)


cdef int64_t send_all(
        SendBatch* batch, const uint8_t* data, size_t stride, const int64_t* sizes,
        uint32_t first, uint32_t stop, int* error) noexcept nogil:
    # How many were given up, and why if it was for an error.
    cdef uint32_t done = first
    cdef int sent = 0, _attempt
    for _attempt in range(ATTEMPTS):
        sent = send_slots(batch, data, stride, sizes, done, stop)
        if sent < 0:
            break
        done += <uint32_t>sent
        if done == stop:
            break
    error[0] = -sent if sent < 0 else 0
    return stop - done
