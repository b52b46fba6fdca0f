# RelayOutput: messages leave. Each has a number and an object, is charged to the budget when it is
# put, and leaves when it is paid for; a number that is left out doubts all at the far end.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.agents.relay.relay_budget cimport Budget
from udpfast.agents.relay.relay_encoding cimport RelayEncoding
from udpfast.agents.relay.relay_lines cimport RelayLines
from udpfast.agents.relay.relay_told cimport Told
from udpfast.core.layout cimport CHANNEL_COUNT
from udpfast.feed.publication cimport Publication

cdef class RelayOutput(RelayEncoding):
    cdef readonly Publication publication
    cdef readonly RelayLines lines   # None: datagrams are kept
    cdef readonly tuple kept
    cdef int64_t* counts             # RELAY_COUNT
    cdef object _counts_owner
    cdef uint32_t given[16]          # objects of each kind
    cdef uint64_t number             # counts incremental messages, and numbers left out
    cdef uint64_t left_out           # the last one that was left out
    cdef bint said                   # something about objects was said since
    cdef bytes status_payload        # GatewayStatus, as it is now
    cdef bint status_due             # it was not said yet
    cdef bint available
    cdef Budget budget
    cdef int64_t late_ns             # what was held for so long is in doubt
    cdef int64_t pause_ns            # a turn that is so late follows a pause
    cdef bint holding                # there is a budget, or something was held ever
    cdef bint behind                 # what is taken is old: no book and no top may leave
    cdef uint32_t charged[CHANNEL_COUNT]     # datagrams of the send queue that are paid for,
    cdef int64_t charged_ns[CHANNEL_COUNT]   # and what they cost
    cdef int64_t round_due_ns        # when the next snapshot round begins
    cdef uint32_t open_size          # of a snapshot whose fragments leave at a pace; 0: none

    cdef int64_t _credit_ns(self) noexcept nogil
    cdef uint32_t _paid(self, int channel) noexcept nogil
    # Whether so much waits to leave that no record is to be taken now.
    cdef bint full(self) noexcept nogil
    cdef void _withdraw(self) noexcept nogil
    cdef void flush(self, int channel) noexcept nogil
    cdef void _send(self, int channel, uint32_t count) noexcept nogil
    cdef void doubt_all(self) noexcept nogil
    # What is taken from now on is old, or no longer is.
    cdef void fall_behind(self, bint behind) noexcept nogil
    cdef void _put(self, Told* told, uint32_t size, bint snapshot) noexcept nogil
    cdef bint _name(self, Told* told, int kind) noexcept nogil
    cdef void _put_status(self) noexcept nogil
