# ZmqSource: the Source of "zmq:...": the messages of a fan-out on this host or another one.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.source cimport Source
from udpfast.client.zmq_silence cimport Silence
from udpfast.core.layout cimport Record
from udpfast.net.envelope cimport Envelope, RecordWalk

cdef class ZmqSource(Source):
    cdef object __weakref__
    cdef object socket
    cdef int pid                 # process that opened the socket; a forked child must not use it
    cdef object leave            # closes the socket and its context, once
    cdef object receive          # the socket's recv
    cdef object none_came        # zmq.Again
    cdef object failure          # exception of `wait`, for `fail` to raise
    cdef str feed                # name of the instance, if it is on this host; else empty
    cdef bytes topic
    cdef uint64_t taken          # messages received
    cdef bytes message           # the message whose records are being handed out
    cdef RecordWalk walk
    cdef Envelope envelope       # envelope of that message
    cdef bint last               # its records are last values
    cdef bint image_due          # last values were requested, and have not all come
    cdef uint32_t last_taken     # last values taken of the current answer
    cdef bint begun              # the numbers below are known
    cdef bint ended              # the fan-out stated that the feed ended normally
    cdef bint end_said           # a record has reported that end
    cdef bint late               # last values came, but no message of a working writer since
    cdef bint failed             # the fan-out stated that an error ended the feed
    cdef Silence silence
    cdef uint32_t turned         # ConnectionStatus to hand out next; 0: none
    cdef uint32_t turned_scope   # ConnectionScope of it
    cdef int64_t silent_ns       # Connection.silent_ns of it
    cdef uint64_t behind         # position behind the last record handed out
    cdef uint64_t room           # bytes of payloads_array
    cdef uint64_t ring           # identity of the fan-out's ring; 0: not known
    cdef uint64_t epoch          # epoch of the ring's writer
    cdef uint64_t stream         # identity of the fan-out's stream: it changes when that restarts
    cdef uint64_t expected       # sequence of the next message of the stream
    cdef uint64_t unseen         # records that the fan-out itself has missed
    cdef uint64_t looked         # index up to which the fan-out had read its ring
    cdef uint64_t seen           # index behind the last record handed out
    cdef uint64_t joined         # index of the first record that this reader could get
    cdef uint64_t back           # records handed out that the log has lost, not reported yet
    cdef uint64_t back_at        # position of the first of them
    cdef uint64_t tail           # index behind the last record written, as the fan-out states it
    cdef uint64_t pending        # records missed, not reported yet
    cdef uint64_t lapped         # records missed and reported
    cdef object name_list        # texts of `names`
    cdef uint32_t table          # number of the table of names
    cdef int64_t asked_ns        # when missing names were last requested
    cdef bytes asked             # topic of that request

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
