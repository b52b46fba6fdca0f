"""The lines of a relay: each carries the same datagrams, and none waits for another."""

from libc.stdint cimport int64_t, uint32_t

from udpfast.core.layout cimport CHANNEL_COUNT, DATAGRAM_SIZE_MAX, LINES_MAX
from udpfast.core.oserr cimport check
from udpfast.feed.publication cimport Outbox
from udpfast.net.sender cimport DatagramSender, SendBatch, send_slots

import numpy as np

from udpfast.net.sender import DatagramSender
from udpfast.shm.relay_counts import RELAY_LINE_COUNTS

__all__ = ["RelayLines"]

cdef enum:
    # How often a full queue is asked again before the rest is given up for that line: about 0.1 ms,
    # for which the other lines wait.
    ATTEMPTS = 100

if len(RELAY_LINE_COUNTS) != RELAY_LINE_COUNT:
    raise ImportError(f"expected {RELAY_LINE_COUNT} names, found {len(RELAY_LINE_COUNTS)}")


cdef class RelayLines:
    """Sockets of each line and channel.

    Parameters
    ----------
    lines : sequence of RelayLine
        Of the settings; both addresses are known.
    counts : numpy.ndarray, optional
        int64, a row for each line, as `shm.relay_counts.RelayCounts.lines`: where it counts.

    Raises
    ------
    ConfigError, OSError
        As `DatagramSender`.
    """

    def __init__(self, lines, counts=None):
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
        self._counts_owner = counts
        self.counts = &memory[0, 0]
        self.counts_stride = memory.shape[1]
        try:
            for number, line in enumerate(lines):
                for channel, address in enumerate((line.incremental, line.snapshot)):
                    sender = DatagramSender(
                        address, interface=line.interface, ttl=line.ttl, loop=line.loop)
                    self.senders[channel].append(sender)
                    self.batches[channel][<int>number] = &sender.batch
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the sockets. Idempotent."""
        for channel in self.senders:
            for sender in channel:
                sender.close()

    def troubles(self) -> dict:
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

    cdef void send(self, int channel, const Outbox* outbox) noexcept nogil:
        cdef uint32_t line
        cdef int64_t* counts
        cdef SendBatch* batch
        for line in range(self.lines):
            batch = self.batches[channel][line]
            counts = self.counts + line * self.counts_stride
            counts[RELAY_LINE_DATAGRAMS] -= <int64_t>batch.datagrams
            counts[RELAY_LINE_BYTES] -= <int64_t>batch.bytes
            counts[RELAY_LINE_UNSENT] -= <int64_t>batch.unreachable
            counts[RELAY_LINE_UNSENT] += send_all(batch, outbox, &self.errors[channel][line])
            counts[RELAY_LINE_DATAGRAMS] += <int64_t>batch.datagrams
            counts[RELAY_LINE_BYTES] += <int64_t>batch.bytes
            counts[RELAY_LINE_UNSENT] += <int64_t>batch.unreachable


cdef int64_t send_all(SendBatch* batch, const Outbox* outbox, int* error) noexcept nogil:
    # How many were given up, and why if it was for an error.
    cdef uint32_t done = 0
    cdef int sent = 0, _attempt
    for _attempt in range(ATTEMPTS):
        sent = send_slots(
            batch, outbox.data, DATAGRAM_SIZE_MAX, outbox.sizes, done, outbox.count)
        if sent < 0:
            break
        done += <uint32_t>sent
        if done == outbox.count:
            break
    error[0] = -sent if sent < 0 else 0
    return outbox.count - done
