"""The messages of a fan-out: topic, envelope, and a body of records, names or last values.

Sending never waits for a subscriber. A subscriber that is too slow misses messages, and learns from
the numbers in the next envelope how many records it missed.
"""

import cython
import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.agents.zmq.zmq_streams cimport TopicStream, TopicStreams, record_names
from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport RECORD_SIZE, Record
from udpfast.net.envelope cimport (
    ENVELOPE_BEGIN,
    ENVELOPE_LAST,
    ENVELOPE_MAGIC,
    ENVELOPE_NAMES,
    ENVELOPE_RECORDS,
    ENVELOPE_SIZE,
    ENVELOPE_VERSION,
    LARGEST_MESSAGE,
    LONGEST_TOPIC,
    TOPIC_ANSWER,
    TOPIC_STREAM,
    Envelope,
    envelope_aligned,
)

from udpfast.log.ring import RING_LAYOUT
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.net.envelope import pack_names

__all__ = ["Envelopes"]

cdef enum:
    LAST_BYTES = 1 << 20         # last values per message: an answer should fit the queue
    NAMES_BYTES = 1 << 16        # approximate size of a message of names
    FRONT = LONGEST_TOPIC + 1 + ENVELOPE_SIZE

cdef uint64_t LAYOUT = RING_LAYOUT ^ PAYLOAD_HASH


@cython.final
cdef class Envelopes:
    """Builds the messages of a fan-out, one at a time, in memory that all share.

    Parameters
    ----------
    names : RingNames
        Names of the feed.
    batch_bytes : int
        Most bytes of records in one message; a larger record is sent alone.
    heartbeat_ms : int
        The longest silence of a stream, stated in every envelope.
    """

    def __init__(self, names: RingNames, batch_bytes: int, heartbeat_ms: int):
        self._names = names
        self._batch_bytes = batch_bytes
        self.heartbeat_ms = heartbeat_ms
        # Pages that are never written take no memory.
        self._out_array = np.empty(LARGEST_MESSAGE, np.uint8)
        self._view = memoryview(self._out_array)
        self._out = <uint8_t*><size_t>self._out_array.ctypes.data
        self._room = LARGEST_MESSAGE - FRONT

    cdef send_records(self, TopicStream stream, FeedCursor cursor, const uint64_t* masks,
                      int64_t first, int64_t end, int64_t now_ns):
        # Send the records [first, end) that belong to the stream.
        cdef Record* header
        cdef uint8_t* target = self._out + FRONT
        cdef uint64_t size, used = 0
        cdef uint32_t count = 0
        cdef int64_t i
        for i in range(first, end):
            if stream.bit and not masks[i] & stream.bit:
                continue
            header = cursor.headers + i
            size = envelope_aligned(<uint64_t>header.length)
            if count and used + size > self._batch_bytes:
                self._send(stream, TOPIC_STREAM, ENVELOPE_RECORDS, used, count,
                           cursor.headers[i - 1].index + 1, now_ns)
                used = 0
                count = 0
            if size > self._room:  # no feed has such records; it counts as sent, so as missed
                stream.sequence += 1
                continue
            memcpy(target + used, header, RECORD_SIZE)
            memcpy(target + used + RECORD_SIZE, cursor.payloads + cursor.offsets[i],
                   size - RECORD_SIZE)
            used += size
            count += 1
        if count:
            self._send(stream, TOPIC_STREAM, ENVELOPE_RECORDS, used, count,
                       cursor.headers[end - 1].index + 1, now_ns)

    cdef send_names(self, TopicStream stream, int place, uint32_t known):
        # Send the names behind the first `known`, split into messages of limited size.
        cdef uint32_t first = known, i
        cdef uint64_t size = 0
        texts = self._names.texts
        for i in range(known, len(texts)):
            size += 2 + len(texts[i])
            if size > NAMES_BYTES:
                self.send_body(stream, place, ENVELOPE_NAMES,
                               pack_names(first + 1, texts[first:i]), i - first)
                first = i
                size = 2 + len(texts[i])
        self.send_body(stream, place, ENVELOPE_NAMES,
                       pack_names(first + 1, texts[first:]), len(texts) - first)

    cdef send_last(self, TopicStream stream, TopicStreams streams, bytes records, bint unkept):
        # Send the last values that belong to the stream, and then BEGIN, which ends the answer.
        # unkept: last values were requested, but the fan-out keeps none.
        cdef const uint8_t* source = records
        cdef const Record* header
        cdef uint8_t* target = self._out + FRONT
        cdef uint64_t size, at = 0, used = 0
        cdef uint32_t exchange_id = 0, symbol_id = 0, count = 0
        self._last_sent = 0
        while at < <uint64_t>len(records):
            header = <const Record*>(source + at)
            size = envelope_aligned(<uint64_t>header.length)
            record_names(header, source + at + RECORD_SIZE, &exchange_id, &symbol_id)
            if stream.everything or streams.belongs(stream, header.kind, exchange_id, symbol_id):
                if count and used + size > LAST_BYTES:
                    self._send_part(stream, used, count)
                    used = 0
                    count = 0
                memcpy(target + used, header, size)
                used += size
                count += 1
            at += size
        if count:
            self._send_part(stream, used, count)
        self.send_body(stream, TOPIC_ANSWER, ENVELOPE_BEGIN, b"", unkept)
        self._last_sent = 0

    cdef _send_part(self, TopicStream stream, uint64_t size, uint32_t count):
        self._send(stream, TOPIC_ANSWER, ENVELOPE_LAST, size, count, self.feed.index(),
                   clock_monotonic_ns())
        self._last_sent += count

    cdef send_body(self, TopicStream stream, int place, int kind, bytes body, uint32_t count):
        cdef uint64_t size = min(<uint64_t>len(body), self._room)
        memcpy(self._out + FRONT, <const char*>body, size)
        self._send(stream, place, kind, size, count,
                   0 if self.feed is None else self.feed.index(), clock_monotonic_ns())

    cdef _send(self, TopicStream stream, int place, int kind, uint64_t size, uint32_t count,
               uint64_t index, int64_t now_ns):
        # The body is at FRONT; topic and envelope are written before it, so that it is not copied.
        cdef Envelope envelope
        cdef size_t topic_size = len(stream.text)
        cdef size_t begin = FRONT - ENVELOPE_SIZE - 1 - topic_size
        cdef uint8_t* start = self._out + begin
        memcpy(start, <const char*>stream.text, topic_size)
        start[topic_size] = place
        memset(&envelope, 0, sizeof(envelope))
        envelope.magic = ENVELOPE_MAGIC
        envelope.version = ENVELOPE_VERSION
        envelope.type = kind
        envelope.heartbeat_ms = self.heartbeat_ms
        envelope.layout = LAYOUT
        if self.feed is not None:
            envelope.ring = self.feed.log
            envelope.epoch = self.feed.epoch()  # must be read before began_index and began
            envelope.began = self.feed.began_index()
            envelope.began_at = self.feed.began()
            envelope.tail = self.feed.end_index()
        envelope.tail = max(envelope.tail, index)
        envelope.stream = stream.number
        envelope.sequence = stream.sequence
        envelope.unseen = self.unseen
        envelope.index = index
        envelope.count = count
        envelope.table = self._names.number
        envelope.names = len(self._names.texts)
        envelope.last = self._last_sent
        memcpy(start + topic_size + 1, &envelope, sizeof(envelope))
        stream.send(self._view[begin:FRONT + size], 1)  # 1: zmq.NOBLOCK
        if kind == ENVELOPE_RECORDS:
            stream.sequence += count
        if place == TOPIC_STREAM or stream.sent_ns == 0:  # an answer reaches one subscriber only
            stream.sent_ns = now_ns
        self.messages += 1
        self.bytes_sent += FRONT + size - begin
