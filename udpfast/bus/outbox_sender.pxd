# OutboxSender sends an outbox's messages to the sequencer; StreamWatch looks for them in the
# stream.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from udpfast.bus.log cimport Place, Store
from udpfast.bus.outbox cimport Outbox, OutboxHeader
from udpfast.core.layout cimport Record

cdef enum:
    SENT_AHEAD = 4096  # most messages sent and not seen: as many as the sequencer holds (AHEAD_MAX)
    RESEND_MAX_NS = 8_000_000_000
    ALIVE_EVERY_NS = 1_000_000_000


cdef class OutboxSender:
    cdef readonly Outbox outbox
    cdef readonly Store store
    cdef public bint alive       # the app is alive: its name is kept for it
    cdef OutboxHeader* header
    cdef uint64_t _sent          # messages 1 to this one have been sent by this outbox sender
    cdef int64_t _clock_ns       # stands still while the stream does not arrive
    cdef int64_t _now_ns
    cdef int64_t _due_ns         # nothing is due to be sent again before
    cdef int64_t _resend_ns
    cdef int64_t _register_ns    # when to register again
    cdef int _register_step
    cdef int64_t _alive_ns
    cdef uint64_t _number        # number of the last datagram
    cdef uint64_t _epoch         # epoch that the last datagram was for
    cdef uint64_t _known         # epoch of the store's last record at the last call of work
    cdef _let_go(self)
    cdef void lost(self, uint64_t number)
    cdef void note_seen(self, uint64_t number, uint64_t end) noexcept nogil
    cdef uint64_t fill(self, uint64_t first, uint64_t last, uint8_t* datagram, uint64_t* size
                       ) noexcept nogil
    cdef bint set_asleep(self, bint asleep) noexcept nogil


cdef class StreamWatch:
    cdef readonly Store store
    cdef readonly list outbox_senders
    cdef Place _place
    cdef object _memory
    cdef uint64_t _cuts
    cdef bint _standing
    cdef object _by_sender       # sender -> OutboxSender
    cdef bint _is_through(self) except? False
    cdef _senders(self, const Record* record, uint64_t end)
    cdef uint8_t[1025] _ours     # by sender number: whether it is in _by_sender
