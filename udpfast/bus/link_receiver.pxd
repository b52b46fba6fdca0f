# The receiving end of a link, at the copy. A broken link is not resumed: the next link begins at
# the end of the copy's records.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.bus.log cimport LinkEnd, Log, Store
from udpfast.bus.wire cimport LinkHeader

cdef enum:
    BUSY_ACK_NS = 1_000_000      # after receiving records, acknowledge after this time ...
    ACK_BYTES = 1 << 18          # ... or after this many bytes

cdef class LinkReceiver(LinkEnd):
    cdef readonly Store store
    cdef Log _log
    cdef readonly str closed     # why the link ended; empty: it is alive
    cdef readonly object refused  # hello.Refuse, if the source refused the copy
    cdef readonly object welcome  # hello.Welcome, once the copy follows
    cdef readonly bint following
    cdef readonly bint left      # the source said that its host is being stopped in good order
    cdef readonly bint stalled   # waiting for room for the next segment
    cdef readonly int64_t heard_ns
    cdef readonly uint64_t source_end
    cdef readonly bint damaged   # ended because bytes had changed on the way
    cdef readonly bint failed    # ended because of what arrived, damaged or not
    cdef bint _drain, _any
    cdef uint8_t* _staging
    cdef uint64_t _at, _size     # offsets of the unprocessed bytes in _staging: from, to
    cdef int _failure            # of a run of records, as returned by `_data`
    cdef uint64_t _epoch         # of the last record
    cdef uint64_t _known         # the latest epoch that the source knows
    cdef int64_t _acked_ns
    cdef uint64_t _acked
    cdef uint64_t _synced, _kept_most  # as of the last `work`
    cdef tuple _told
    cdef uint8_t* space(self, uint64_t* room) noexcept nogil
    cdef bint arrived(self, uint64_t count, int64_t now_ns) noexcept nogil
    cdef uint32_t ack(self, uint8_t* frame, int64_t now_ns, int64_t unix_ns) noexcept nogil
    cdef _process(self)
    cdef _fail(self)
    cdef bint _records_come(self) noexcept nogil
    cdef bint _take(self, const LinkHeader* header) noexcept nogil
    cdef _copy(self, const LinkHeader* header)
    cdef bint _control(self, const LinkHeader* header, const uint8_t* at) except *
    cdef bint _is_over(self, uint64_t epoch) noexcept nogil
    cdef _welcomed(self, welcome, const LinkHeader* header)
    cdef bint _segment(self, uint64_t position, bytes header) except *
    cdef int _data(self, Log log, const LinkHeader* header, const uint8_t* body) noexcept nogil
