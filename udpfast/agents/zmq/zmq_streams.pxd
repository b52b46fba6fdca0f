# TopicStreams: what each topic gets, and which records belong to which of them.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.core.layout cimport KIND_UPDATES, Record
from udpfast.market.name_ids cimport NameIds, record_name_ids

cdef class TopicStream:
    cdef object send             # of its socket
    cdef object socket
    cdef object topic
    cdef bytes text
    cdef bint everything
    cdef uint64_t number         # which life of the stream
    cdef uint64_t sequence       # records, sent or dropped
    cdef uint64_t bit            # in the masks of records; 0: everything
    cdef uint32_t names          # sent so far
    cdef int64_t subscribers
    cdef dict markers            # by connection: what tells that it subscribes
    cdef int64_t sent_ns

cdef class TopicStreams:
    cdef readonly list live      # the streams, in the order of their bits
    cdef bint filtered           # whether one of them does not get everything
    cdef uint64_t* masks         # of the records of the last `mark`: bits of the streams
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
    # Names of an update alone: doubt is everybody's, whatever it is about. 0: it names none.
    cdef const NameIds* ids = record_name_ids(header, payload)
    cdef bint named = ids != NULL and header.kind >= KIND_UPDATES
    exchange_id[0] = ids.exchange_id if named else 0
    symbol_id[0] = ids.symbol_id if named else 0
