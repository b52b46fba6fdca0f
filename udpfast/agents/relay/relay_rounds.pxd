# RelayRounds: the snapshot round. Each value in its turn: whole if the far end is in doubt of it,
# else its snapshot; tops, which have none, once more.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from udpfast.agents.relay.relay_conflation cimport RelayConflation
from udpfast.core.layout cimport Frame

cdef class RelayRounds(RelayConflation):
    cdef int64_t round_interval_ns
    cdef int64_t round_datagram_ns
    cdef int64_t round_paid_ns       # up to when the datagrams of rounds are paid for
    cdef uint32_t round_at           # value whose turn is next
    cdef uint8_t* open_payload       # a snapshot whose fragments leave at a pace,
    cdef uint32_t open_fragment      # the next fragment,
    cdef Frame open_frame            # and its frame

    cdef int _round(self) noexcept nogil
    cdef uint32_t _round_next(self) noexcept nogil
    cdef void _open_snapshot(
        self, uint32_t size, uint8_t object_type, uint16_t object_id,
        uint32_t last_seqno) noexcept nogil
    cdef uint32_t _continue_snapshot(self, uint32_t allowed) noexcept nogil
