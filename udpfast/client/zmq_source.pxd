# ZmqSource: the Source of "zmq:...": messages of a fan-out, on this host or another.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.source cimport Source
from udpfast.client.zmq_silence cimport Silence
from udpfast.core.layout cimport Record
from udpfast.net.envelope cimport Envelope, RecordWalk

cdef class ZmqSource(Source):
    cdef object __weakref__
    cdef object socket
    cdef int pid                 # of the process whose socket it is
    cdef object leave            # closes the socket and its context, once
    cdef object receive          # of the socket
    cdef object none_came        # zmq.Again
    cdef object failure          # what `wait` met, for `fail` to raise
    cdef bytes topic
    cdef bytes message           # whose records are being handed out
    cdef RecordWalk walk
    cdef Envelope envelope       # of that message
    cdef bint last               # these are last values
    cdef bint image_due          # last values were asked for, and are not all there
    cdef uint32_t last_taken     # of those of the answer that is being given
    cdef bint begun              # the numbers below are known
    cdef bint ended              # the feed has, in good order, as the fan-out said
    cdef bint end_said           # by a record
    cdef bint late               # values came, and nothing since of a writer at work
    cdef bint failed             # an error ended the feed, as the fan-out said
    cdef Silence silence
    cdef uint32_t turned         # ConnectionStatus to be said; 0: none
    cdef uint32_t turned_scope   # ConnectionScope of it
    cdef int64_t silent_ns       # to be said with it
    cdef uint64_t behind         # position behind the last record handed out
    cdef uint64_t room
    cdef uint64_t ring
    cdef uint64_t epoch
    cdef uint64_t stream
    cdef uint64_t expected       # sequence of the next message of the stream
    cdef uint64_t unseen
    cdef uint64_t looked         # index up to which the fan-out had looked
    cdef uint64_t seen           # index behind the last record handed out
    cdef uint64_t joined         # index of the first that it could read
    cdef uint64_t back           # records handed out that are not in the log any more; to be said
    cdef uint64_t back_at        # position of the first of them
    cdef uint64_t tail
    cdef uint64_t pending        # records missed, not said yet
    cdef uint64_t lapped
    cdef object name_list        # of `names`
    cdef uint32_t table
    cdef int64_t asked_ns        # when names were asked for last
    cdef bytes asked

    cdef int64_t _wait(self, int64_t limit, int64_t until_ns) except? -1
    cdef bint _receive(self, int64_t until_ns) except -1
    cdef int64_t _hand_out(self, int64_t limit) except -1
    cdef int64_t _end(self) except? -1
    cdef int64_t _hand_out_connection(self) except -1
    cdef int64_t _hand_out_rollback(self) except -1
    cdef int64_t _hand_out_own(self, const Record* header, const void* payload) except -1
    cdef uint64_t _index_ahead(self) noexcept
    cdef _settle(self)
    cdef bint _take(self, bytes message) except -1
    cdef int64_t _topic_size(self, bytes message) except -2
    cdef _read_envelope(self, bytes message, size_t topic_size)
    cdef bint _note_ring(self) except -1
    cdef _take_body(self, bytes message, size_t at)
    cdef _note_failed(self)
    cdef _note_behind(self)
    cdef _begin_silence(self, uint32_t scope)
    cdef _note_heard(self, bint restarted)
    cdef _account(self)
    cdef _take_names(self, bytes body)
    cdef _ask_names(self)
