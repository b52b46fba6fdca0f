# What a feed's loop lacks that venues' servers may have: written where the agents that ask them
# look (shm/answers). The loop waits for none of them.

from libc.stdint cimport int64_t, uint32_t

from udpfast.core.layout cimport Datagram
from udpfast.feed.pipeline_state cimport Pipeline
from udpfast.market.market cimport MarketStream
from udpfast.shm.answers cimport AnswersRegion

cdef class Wanted:
    cdef AnswersRegion retransmission  # None: no server is asked for messages
    cdef AnswersRegion snapshot_server
    cdef bint any                      # one of them is there
    cdef int64_t _ask_after_ns         # a hole is asked for once it is so old
    cdef int64_t _due_ns               # when it is written next
    cdef uint32_t _written[2]          # by channel: how many were written last

    # What a request has to repeat of what its venue sends: `item` is the newest datagram.
    cdef void note_header(self, const Datagram* item) noexcept nogil
    # Once in a while: which messages are missing, and which of the books' streams need a snapshot.
    cdef void note(
        self, Pipeline* pipeline, const MarketStream* streams, int64_t now_ns) noexcept nogil
    # Whether our agent wrote it down: it is no datagram of the venue.
    cdef bint is_books(self, const Datagram* item) noexcept nogil

    cdef void _want_messages(self, Pipeline* pipeline, int64_t now_ns) noexcept nogil
    cdef void _want_snapshots(
        self, Pipeline* pipeline, const MarketStream* streams) noexcept nogil
