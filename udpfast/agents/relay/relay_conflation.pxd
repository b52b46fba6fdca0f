# RelayConflation: what the far end is told of each value, at once or later. While the line is
# short, or the relay behind, tops and books are held; of each the newest state leaves when there is
# room.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from udpfast.agents.relay.relay_held cimport Held
from udpfast.agents.relay.relay_output cimport RelayOutput
from udpfast.agents.relay.relay_told cimport Told
from udpfast.core.layout cimport Record
from udpfast.market.state cimport State

cdef class RelayConflation(RelayOutput):
    cdef State state
    cdef Told* told                  # by index of the state's value
    cdef uint32_t told_room
    cdef Held held
    cdef int64_t held_ns             # when something was held last

    cdef bint _has_to_wait(self, uint32_t index, uint16_t kind) noexcept nogil
    cdef void _hold(
        self, uint32_t index, const Record* header, const uint8_t* payload) noexcept nogil
    cdef void _line_up(self, uint32_t index) noexcept nogil
    cdef void _tell_whole(self, uint32_t index) noexcept nogil
    cdef void _answer(self, uint32_t index, bint said) noexcept nogil
    cdef int _release(self) noexcept nogil
    cdef void _put_held(self, uint32_t index) noexcept nogil
    cdef void _look_at_late(self) noexcept nogil
    cdef void _look_at_budget(self) noexcept nogil
    cdef bint _put_record(
        self, uint32_t index, const Record* header, const uint8_t* payload) noexcept nogil
    cdef bint _put_whole(self, uint32_t index) noexcept nogil
    cdef uint32_t _encode_whole(self, uint32_t index) noexcept nogil
    cdef void _doubt(self, uint32_t index) noexcept nogil
    cdef void _say_doubt(self, uint32_t index) noexcept nogil
