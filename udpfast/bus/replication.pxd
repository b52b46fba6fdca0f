# A store's way to another host: LinkSender (of the copy) and LinkReceiver (the copy). Each is one
# end of a link; a link that breaks is over, and the next one begins with where the copy's records
# end.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.bus.log cimport LinkEnd, Log, Place, Store
from udpfast.bus.wire cimport LinkHeader, Progress

cdef enum:
    SILENT_NS = 1_000_000_000    # an end that said nothing for so long is dead
    BEAT_NS = 100_000_000        # so often an end says something
    BUSY_ACK_NS = 1_000_000      # a consumer that got something says so after this time ...
    ACK_BYTES = 1 << 18          # ... or so many bytes
    PROGRESS_NS = 1_000_000      # a source tells at most so often that more is released
    # Bytes of records that are sent at once, unless one record is larger: the copy's end checks
    # and places them while they are in its processor's cache.
    RUN_BYTES = 1 << 16
    RUN_NONE = 0                 # there are no more records now
    RUN_ATTEND = -1              # `attend` first

cdef class LinkSender(LinkEnd):
    cdef readonly Store store
    cdef readonly str consumer   # the host that it copies to; empty before its HELLO
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

cdef class LinkReceiver(LinkEnd):
    cdef readonly Store store
    cdef Log _log
    cdef readonly str closed     # why it ended; empty: it lives
    cdef readonly object refused  # hello.Refuse, if that is why
    cdef readonly object welcome  # hello.Welcome, once it follows
    cdef readonly bint following
    cdef readonly bint left      # the source said that its host is being stopped in good order
    cdef readonly bint stalled   # there is no room for the next segment
    cdef readonly int64_t heard_ns
    cdef readonly uint64_t source_end
    cdef readonly bint damaged   # it ended because bytes were not what was sent
    cdef readonly bint failed    # it ended because of what came, whatever that was
    cdef bint _drain, _any
    cdef uint8_t* _staging
    cdef uint64_t _at, _size     # bytes there that are not taken yet: from, to
    cdef int _failure            # of a run of records, as `_data` returned it
    cdef uint64_t _epoch         # of the last record
    cdef uint64_t _known         # the latest that the source knows
    cdef int64_t _acked_ns
    cdef uint64_t _acked
    cdef uint64_t _synced, _kept_most  # as of the last `work`
    cdef tuple _told
    cdef uint8_t* space(self, uint64_t* room) noexcept nogil
    cdef bint arrived(self, uint64_t count, int64_t now_ns) noexcept nogil
    cdef uint32_t ack(self, uint8_t* frame, int64_t now_ns, int64_t unix_ns) noexcept nogil
    cdef _process(self)
    cdef _fail(self)
    cdef bint _take(self, const LinkHeader* header) noexcept nogil
    cdef _copy(self, const LinkHeader* header)
    cdef bint _control(self, const LinkHeader* header, const uint8_t* at) except *
    cdef bint _is_over(self, uint64_t epoch) noexcept nogil
    cdef _welcomed(self, welcome, const LinkHeader* header)
    cdef bint _segment(self, uint64_t position, bytes header) except *
    cdef int _data(self, Log log, const LinkHeader* header, const uint8_t* body) noexcept nogil
