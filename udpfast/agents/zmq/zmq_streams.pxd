# TopicStreams: the topics that are served, and which records belong to which topics.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.core.layout cimport KIND_UPDATES, Record
from udpfast.market.name_ids cimport NameIds, record_name_ids

cdef class TopicStream:
    cdef object send             # the socket's send
    cdef object socket
    cdef object topic            # Topic
    cdef bytes text              # the subscription
    cdef bint everything         # all records belong to it
    cdef uint64_t number         # identity of the stream, in envelopes
    cdef uint64_t sequence       # records sent or dropped
    cdef uint64_t bit            # its bit in the masks of records; 0: all records belong to it
    cdef uint32_t names          # names sent so far
    cdef int64_t subscribers
    cdef dict markers            # by connection: marker of its subscription (zmq_fanout.pyx)
    cdef int64_t sent_ns         # when the last message was sent; 0: never

cdef class TopicStreams:
    cdef readonly list live      # the streams that are served
    cdef bint filtered           # some stream does not get all records
    cdef uint64_t* masks         # for each record of the last `mark`: bits of its streams
    cdef object _names           # RingNames
    cdef object _by_topic        # (socket, text) -> TopicStream
    cdef dict _known             # key of a record -> its mask
    cdef uint64_t _used_bits
    cdef object _masks_array

    cdef TopicStream find(self, socket, bytes text)
    cdef TopicStream serve(self, socket, bytes text)
    cdef end(self, TopicStream stream)
    cdef mark(self, FeedCursor cursor, int64_t first, int64_t end)
    cdef bint belongs(self, TopicStream stream, uint16_t kind, uint32_t exchange_id,
                      uint32_t symbol_id) except -1
    cdef forget(self)
    cdef _arrange(self)

cdef TopicStream new_stream(socket, bytes text)


cdef inline void record_names(
        const Record* header, const uint8_t* payload, uint32_t* exchange_id,
        uint32_t* symbol_id) noexcept nogil:
    # Ids of the names of an update, 0: none. Doubts have none: they belong to every topic.
    cdef const NameIds* ids = record_name_ids(header, payload)
    cdef bint named = ids != NULL and header.kind >= KIND_UPDATES
    exchange_id[0] = ids.exchange_id if named else 0
    symbol_id[0] = ids.symbol_id if named else 0
