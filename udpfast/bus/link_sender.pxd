# The end of a link at which the records are. A link that breaks is over, and the next one begins
# with where the copy's records end.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from udpfast.bus.log cimport LinkEnd, Place, Store
from udpfast.bus.wire cimport LinkHeader, Progress

cdef enum:
    PROGRESS_NS = 1_000_000      # so often at most it tells that more is released
    # Bytes of records that are sent at once, unless one record is larger: the copy's end checks
    # and places them while they are in its processor's cache.
    RUN_BYTES = 1 << 16
    RUN_NONE = 0                 # there are no more records now
    RUN_ATTEND = -1              # `attend` first

cdef class LinkSender(LinkEnd):
    cdef readonly Store store
    cdef readonly str receiver_host   # the host that it copies to; empty before its HELLO
    cdef readonly str closed     # why it ended; empty: it lives
    cdef readonly bint following
    cdef readonly uint64_t acked, acked_synced
    cdef uint64_t acked_kept
    cdef uint64_t _acks, _acks_known  # ACKs that were taken; those that the store knows of
    cdef readonly int64_t heard_ns
    cdef readonly int64_t said_ns
    cdef bytes _input
    cdef object _nonce
    cdef Place _place
    cdef object _memory          # that _place points into
    cdef uint64_t _until         # position where the next epoch begins
    cdef uint64_t _epoch         # of the records at _place
    cdef uint64_t _cuts
    cdef uint64_t _changes       # of the store, that it knows of
    cdef bint _announced         # the segment at _place was
    cdef bytes _segment_told     # its header, or that of an earlier one; None: none was announced
    cdef uint64_t _names         # number of its table of names; 0: none
    cdef uint64_t _names_told    # of that table
    cdef const uint64_t* _names_count  # how many it has
    cdef object _names_memory
    cdef bint _relayed           # its copy follows this host, whoever writes
    cdef bint _lost              # this host did not know who writes, nor does its copy
    cdef tuple _told             # progress that was said last
    cdef uint64_t _stood         # where it stands ...
    cdef int64_t _stood_ns       # ... and since when
    cdef _look_standing(self, int64_t now_ns)
    cdef _tell_names(self)
    cdef _attend(self)
    cdef bint _note(self, const Progress* progress) noexcept nogil
    cdef int64_t run(self, LinkHeader* header, const uint8_t** at) noexcept nogil
    cdef bint take_ack(self, const LinkHeader* header, int64_t now_ns) noexcept nogil
