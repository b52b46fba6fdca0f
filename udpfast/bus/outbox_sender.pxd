# OutboxSender, which brings an outbox's messages to the sequencer, and StreamWatch, which looks for
# them in the stream.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from udpfast.bus.log cimport Place, Store
from udpfast.bus.outbox cimport Outbox, OutboxHeader
from udpfast.core.layout cimport Record

cdef enum:
    SENT_AHEAD = 4096         # sent and not seen: what the sequencer holds (AHEAD_MAX)
    RESEND_MAX_NS = 8_000_000_000
    ALIVE_EVERY_NS = 1_000_000_000


cdef class OutboxSender:
    cdef readonly Outbox outbox
    cdef readonly Store store
    cdef public bint alive       # the app: its name is kept for it
    cdef OutboxHeader* header
    cdef uint64_t _sent          # messages 1 to this one were sent, by this outbox sender
    cdef int64_t _clock_ns       # stands still while the stream does not come
    cdef int64_t _now_ns
    cdef int64_t _due_ns         # nothing is sent again before
    cdef int64_t _resend_ns
    cdef int64_t _register_ns    # when registration is said again
    cdef int _register_step
    cdef int64_t _alive_ns
    cdef uint64_t _number        # of the last datagram
    cdef uint64_t _epoch         # that the last datagram was for
    cdef uint64_t _known         # epoch of the last record of the store, when it last sent
    cdef _let_go(self)
    cdef void lost(self, uint64_t number)
    cdef void saw(self, uint64_t number, uint64_t end) noexcept nogil
    cdef uint64_t fill(self, uint64_t first, uint64_t last, uint8_t* datagram, uint64_t* size
                       ) noexcept nogil
    cdef bint doze(self, bint asleep) noexcept nogil


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
    cdef uint8_t[1025] _ours     # of sender: whether an outbox sender of ours has it
