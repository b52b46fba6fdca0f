# RelayLines: the lines of a relay. Every line of a channel carries the same datagrams, but one that
# leaves out what its own budget has no room for.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.agents.relay.relay_budget cimport Budget
from udpfast.core.layout cimport CHANNEL_COUNT, LINES_MAX
from udpfast.feed.parity cimport Parity
from udpfast.feed.publication cimport SEND_QUEUE_SLOTS, SendQueue
from udpfast.net.sender cimport SendBatch

cdef enum:  # RelayLineCount: what is counted of each line, as `RELAY_LINE_COUNTS` names it
    RELAY_LINE_DATAGRAMS
    RELAY_LINE_BYTES
    RELAY_LINE_UNSENT
    RELAY_LINE_PARITY
    RELAY_LINE_LEFT_OUT
    RELAY_LINE_COUNT

cdef enum:
    MIXED_SLOTS = 2 * SEND_QUEUE_SLOTS           # each datagram may have a parity behind it

cdef class RelayLines:
    cdef readonly tuple names
    cdef readonly list senders       # of each channel: one DatagramSender per line
    cdef SendBatch* batches[CHANNEL_COUNT][LINES_MAX]
    cdef int errors[CHANNEL_COUNT][LINES_MAX]    # what a line failed with last; 0: it sends
    cdef uint32_t lines
    cdef int64_t* counts             # RELAY_LINE_COUNT of each line, and so far apart:
    cdef Py_ssize_t counts_stride
    cdef object _counts_owner
    cdef Parity* parities[LINES_MAX]         # of each line; NULL: it has none
    # What leaves by a line with parity: datagrams of the send queue, and parity among them.
    cdef uint8_t* mixed
    cdef int64_t mixed_sizes[MIXED_SLOTS]
    cdef uint32_t mixed_count
    cdef int64_t parity_wait_ns
    cdef int64_t parity_datagrams    # by lines that do not leave out, which nobody has paid for
    cdef int64_t parity_bytes
    cdef Budget budgets[LINES_MAX]   # of lines that leave out; without a rate: none does

    # Send all of it by every line of the channel; what a line does not take is given up there.
    cdef void send(self, int channel, SendQueue* send_queue, int64_t now_ns) noexcept nogil
    # How long ago the turn began that is at `now_ns`.
    cdef int64_t turn_ns(self, int64_t now_ns) noexcept nogil
    cdef _begin_parity(self, int line, int members, int depth)
    # Parity of what left some time ago and is covered by none yet.
    cdef void expire(self, int64_t now_ns) noexcept nogil
    cdef uint8_t* _mixed_slot(self) noexcept nogil
    cdef bint _add_parity(self, uint32_t line, uint32_t size, int64_t now_ns) noexcept nogil
    cdef void _send_mixed(
        self, uint32_t line, const SendQueue* send_queue, uint32_t first, uint32_t stop,
        int64_t now_ns) noexcept nogil
    cdef void _send_slots(
        self, int channel, uint32_t line, const uint8_t* data, size_t stride,
        const int64_t* sizes, uint32_t first, uint32_t stop) noexcept nogil
    cdef void _send_all(
        self, int channel, uint32_t line, const SendQueue* send_queue, uint32_t first,
        uint32_t stop, int64_t now_ns) noexcept nogil
    cdef void _send_some(
        self, int channel, uint32_t line, SendQueue* send_queue, int64_t now_ns) noexcept nogil
