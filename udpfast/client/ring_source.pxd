# RingSource: the Source of "ring:NAME": a cursor in a ring of this host, the names beside it, and
# an entry among its readers.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.image_join cimport ImageJoin
from udpfast.client.source cimport Source
from udpfast.log.cursor cimport RingCursor
from udpfast.log.readers cimport ReaderRegistration

cdef class RingSource(Source):
    cdef RingCursor cursor
    cdef ReaderRegistration registration  # for tools: they see our name and our lag
    cdef ImageJoin join          # what comes before the ring's records; None: nothing (more)
    cdef int64_t join_left       # records of it
    cdef uint64_t join_taken     # handed out, and not the ring's: records of it, and our own
    # ConnectionScope: its writer's end was said, or that its loop stands still; 0: neither.
    cdef uint32_t gone
    cdef uint64_t gone_epoch     # which writer that was
    cdef bint current            # its loop was up to date again,
    cdef uint64_t current_index  # when it had put out so many records
    cdef bint unknown            # another log follows: what is missing, nobody knows
    cdef bint followed           # another file was begun, and it was not looked what that lacks
    cdef uint32_t turned         # ConnectionStatus to be handed out; 0: none
    cdef uint32_t turned_scope   # of DISCONNECTED; that of READY is `gone`
    cdef uint64_t missed_unknown  # as missed, at least so many
    cdef int64_t looked_ns       # when the writer was looked for
    cdef bint steered            # who holds it says which file comes next
    cdef object names_region
    cdef object failure          # what `fail` raises
    cdef int64_t names_looked_ns  # when names_missing last said that there are none

    cdef bint _follow(self) except -1
    cdef int64_t say_ended(self, int64_t code) except? -1
    cdef _look_at_writer(self, bint joins, bint all_read)
    cdef bint _is_back(self) noexcept nogil
    cdef take_file(self)
    cdef void _note_unknown(self) noexcept nogil
    cdef int64_t _last_ns(self) noexcept
    cdef int64_t _end(self, int64_t code) noexcept
    cdef int64_t _hand_out_connection(self) noexcept
    cdef int64_t _hand_out_lapped(self) noexcept
