# The sending end of a link, at the source. A broken link is not resumed: the next link begins at
# the end of the copy's records.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from udpfast.bus.log cimport LinkEnd, Place, Store
from udpfast.bus.wire cimport LinkHeader, Progress

cdef enum:
    PROGRESS_NS = 1_000_000      # shortest time between two reports that more is released
    # Bytes of records per frame, unless one record is larger. The receiver checks and places them
    # while they are in its processor's cache.
    RUN_BYTES = 1 << 16
    RUN_NONE = 0                 # there are no more records now
    RUN_ATTEND = -1              # call `attend` first

cdef class LinkSender(LinkEnd):
    cdef readonly Store store
    cdef readonly str receiver_host   # the host that it copies to; empty before its HELLO
    cdef readonly str closed     # why the link ended; empty: it is alive
    cdef readonly bint following
    cdef readonly uint64_t acked, acked_synced
    cdef uint64_t acked_kept
    cdef uint64_t _acks, _acks_known  # ACKs taken; those that the store was told of
    cdef readonly int64_t heard_ns
    cdef readonly int64_t said_ns
    cdef bytes _input
    cdef object _nonce
    cdef Place _place
    cdef object _memory          # keeps the memory that _place points into
    cdef uint64_t _until         # position where the next epoch begins
    cdef uint64_t _epoch         # of the records at _place
    cdef uint64_t _cuts
    cdef uint64_t _changes       # the value of store.changes that it last saw
    cdef bint _announced         # the segment at _place was announced
    cdef bytes _segment_told     # header of the last segment announced; None: none yet
    cdef uint64_t _names         # number of the segment's table of names; 0: none
    cdef uint64_t _names_told    # how many names of that table were sent
    cdef const uint64_t* _names_count  # how many names the table has
    cdef object _names_memory
    cdef bint _relayed           # the copy follows this host even if it is a replica
    cdef bint _lost              # neither this host nor the copy knew who writes
    cdef tuple _told             # the last progress reported
    cdef uint64_t _stood         # where the link makes no progress ...
    cdef int64_t _stood_ns       # ... and since when
    cdef _look_standing(self, int64_t now_ns)
    cdef _tell_names(self)
    cdef _attend(self)
    cdef bint _note(self, const Progress* progress) noexcept nogil
    cdef int64_t run(self, LinkHeader* header, const uint8_t** at) noexcept nogil
    cdef bint take_ack(self, const LinkHeader* header, int64_t now_ns) noexcept nogil
