# RelayLines: the lines of a relay. Every line of a channel carries the same datagrams, but one that
# leaves out what its own budget has no room for.

from libc.stdint cimport int64_t, uint32_t

from udpfast.agents.relay_budget cimport Budget
from udpfast.core.layout cimport CHANNEL_COUNT, LINES_MAX
from udpfast.feed.publication cimport Outbox
from udpfast.net.sender cimport SendBatch

cdef enum:  # RelayLineCount: what is counted of each line, as `RELAY_LINE_COUNTS` names it
    RELAY_LINE_DATAGRAMS
    RELAY_LINE_BYTES
    RELAY_LINE_UNSENT
    RELAY_LINE_LEFT_OUT
    RELAY_LINE_COUNT

cdef class RelayLines:
    cdef readonly tuple names
    cdef readonly list senders       # of each channel: one DatagramSender per line
    cdef SendBatch* batches[CHANNEL_COUNT][LINES_MAX]
    cdef int errors[CHANNEL_COUNT][LINES_MAX]    # what a line failed with last; 0: it sends
    cdef uint32_t lines
    cdef int64_t* counts             # RELAY_LINE_COUNT of each line, and so far apart:
    cdef Py_ssize_t counts_stride
    cdef object _counts_owner
    cdef Budget budgets[LINES_MAX]   # of lines that leave out; without a rate: none does

    # Send all of it by every line of the channel; what a line does not take is given up there.
    cdef void send(self, int channel, Outbox* outbox, int64_t now_ns) noexcept nogil
    cdef void _send_all(
        self, int channel, uint32_t line, const Outbox* outbox, uint32_t first,
        uint32_t stop) noexcept nogil
    cdef void _send_some(
        self, int channel, uint32_t line, Outbox* outbox, int64_t now_ns) noexcept nogil
