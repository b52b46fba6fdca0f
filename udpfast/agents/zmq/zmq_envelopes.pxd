# Envelopes: builds and sends the messages of a fan-out (net/envelope.pxd).

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.agents.zmq.zmq_streams cimport TopicStream, TopicStreams
from udpfast.archive.feed_cursor cimport FeedCursor

cdef class Envelopes:
    cdef FeedCursor feed         # None: there is no ring or store yet
    cdef uint16_t heartbeat_ms   # a stream's longest silence; 0: the feed's loop stands still
    cdef uint64_t unseen         # records that the fan-out itself has missed
    cdef uint64_t messages       # messages sent
    cdef uint64_t bytes_sent
    cdef object _names           # RingNames
    cdef uint64_t _batch_bytes
    cdef uint64_t _room          # most bytes of a message's body
    cdef uint32_t _last_sent     # last values sent so far in the current answer
    cdef object _out_array
    cdef uint8_t* _out
    cdef object _view

    cdef send_records(self, TopicStream stream, FeedCursor cursor, const uint64_t* masks,
                      int64_t first, int64_t end, int64_t now_ns)
    cdef send_names(self, TopicStream stream, int place, uint32_t known)
    cdef send_last(self, TopicStream stream, TopicStreams streams, bytes records, bint unkept)
    cdef send_body(self, TopicStream stream, int place, int kind, bytes body, uint32_t count)
    cdef _send_part(self, TopicStream stream, uint64_t size, uint32_t count)
    cdef _send(self, TopicStream stream, int place, int kind, uint64_t size, uint32_t count,
               uint64_t index, int64_t now_ns)
