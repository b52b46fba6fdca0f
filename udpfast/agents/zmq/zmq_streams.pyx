"""The streams of a fan-out: one per topic and socket, however many subscribers it has."""

import cython
import numpy as np

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.layout cimport KIND_MESSAGE, KIND_UPDATES
from udpfast.net.envelope cimport LONGEST_TOPIC

from udpfast.agents.zmq.topics import NAMES_REQUEST, parse_topic
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError

__all__ = ["TopicStream", "TopicStreams"]

cdef enum:
    STREAMS_MAX = 64             # number of bits in a mask

cdef dict _KIND_NAMES = {int(kind): kind.name for kind in Kind}


@cython.final
cdef class TopicStream:
    """The stream of one topic on one socket."""


@cython.final
cdef class TopicStreams:
    """The streams that are being served.

    Parameters
    ----------
    names : RingNames
        Names for the ids in records.
    records : int
        Most records that one `mark` takes.

    Attributes
    ----------
    live : list of TopicStream
        The streams.
    """

    def __init__(self, names: RingNames, records: int):
        self._names = names
        self._by_topic = {}
        self._known = {}
        self.live = []
        self._masks_array = np.zeros(records, np.uint64)
        self.masks = <uint64_t*><size_t>self._masks_array.ctypes.data

    cdef TopicStream find(self, socket, bytes text):
        return self._by_topic.get((socket, text))

    cdef TopicStream serve(self, socket, bytes text):
        # Return the stream of a topic, new or known. A request for names gets a temporary one.
        cdef TopicStream stream = self._by_topic.get((socket, text))
        cdef uint64_t bit = 1
        if stream is not None:
            return stream
        if text.startswith(NAMES_REQUEST):
            if not text[len(NAMES_REQUEST):].isdigit() or len(text) > 30:
                raise ConfigError(f"expected {NAMES_REQUEST.decode()}ID, found {text!r}")
            return new_stream(socket, text)
        topic = parse_topic(text)
        if len(self._by_topic) == STREAMS_MAX:
            raise ConfigError(
                f"the limit of {STREAMS_MAX} different topics is reached: use a topic that is "
                "served already")
        stream = new_stream(socket, text)
        stream.topic = topic
        stream.everything = not topic.patterns
        if not stream.everything:
            while self._used_bits & bit:
                bit <<= 1
            stream.bit = bit
            self._used_bits |= bit
        stream.names = len(self._names.texts)
        self._by_topic[socket, text] = stream
        self._arrange()
        return stream

    cdef end(self, TopicStream stream):
        del self._by_topic[stream.socket, stream.text]
        self._used_bits &= ~stream.bit
        self._arrange()

    cdef mark(self, FeedCursor cursor, int64_t first, int64_t end):
        # Set the mask of streams of each record, cached in a dict by kind, exchange and symbol.
        cdef TopicStream stream
        cdef uint64_t key
        cdef uint32_t exchange_id = 0, symbol_id = 0
        cdef uint16_t kind
        cdef int64_t i
        for i in range(first, end):
            record_names(cursor.headers + i, cursor.payloads + cursor.offsets[i], &exchange_id,
                         &symbol_id)
            kind = cursor.headers[i].kind
            # Ids have 24 bits (NAMES_CAPACITY_MAX).
            key = <uint64_t>kind << 48 | <uint64_t>exchange_id << 24 | symbol_id
            mask = self._known.get(key)
            if mask is None:
                mask = 0
                for stream in self.live:
                    if self.belongs(stream, kind, exchange_id, symbol_id):
                        mask |= stream.bit
                self._known[key] = mask
            self.masks[i] = mask

    cdef bint belongs(self, TopicStream stream, uint16_t kind, uint32_t exchange_id,
                      uint32_t symbol_id) except -1:
        # Records of the feed itself (doubts) belong to every topic.
        return (kind < KIND_UPDATES and kind != KIND_MESSAGE) or stream.topic.matches(
            _KIND_NAMES.get(kind, ""), self._names.text(exchange_id), self._names.text(symbol_id))

    cdef forget(self):
        # Forget all cached masks: the ids have another meaning now.
        self._known.clear()

    cdef _arrange(self):
        cdef TopicStream stream
        self.live = list(self._by_topic.values())
        self.filtered = any([(<TopicStream>stream).bit != 0 for stream in self.live])
        self.forget()


cdef TopicStream new_stream(socket, bytes text):
    cdef TopicStream stream = TopicStream.__new__(TopicStream)
    stream.socket = socket
    stream.send = socket.send
    stream.text = text[:LONGEST_TOPIC]
    stream.number = clock_realtime_ns()
    stream.markers = {}
    return stream
