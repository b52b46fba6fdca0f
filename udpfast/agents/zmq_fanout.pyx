"""The ZeroMQ fan-out: a reader of the ring that sends what it reads, to any number of subscribers.

It never waits for one of them. What a subscriber does not take in time it misses, and learns from
the numbers in each message how many records that were. The messages are told byte by byte in
docs/zmq.md; what a subscription may ask for stands in `topics.py`.
"""

import cython
import numpy as np

from libc.errno cimport EPIPE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.agents.zmq_last cimport LastValues
from udpfast.core.agent cimport AGENT_DONE, Agent
from udpfast.core.atomics cimport load_relaxed
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport (
    KIND_BOOK, KIND_MESSAGE, KIND_RESTART, RECORD_SIZE, Record,
)
from udpfast.core.linux cimport ECANCELED
from udpfast.market.updates cimport UpdateHeader
from udpfast.net.envelope cimport (
    ENVELOPE_ALIVE,
    ENVELOPE_BEGIN,
    ENVELOPE_END,
    ENVELOPE_LAST,
    ENVELOPE_MAGIC,
    ENVELOPE_NAMES,
    ENVELOPE_RECORDS,
    ENVELOPE_REFUSED,
    ENVELOPE_SIZE,
    ENVELOPE_VERSION,
    LARGEST_MESSAGE,
    LONGEST_TOPIC,
    TOPIC_ANSWER,
    TOPIC_STREAM,
    Envelope,
    envelope_aligned,
)
from udpfast.shm.cursor cimport RingCursor
from udpfast.shm.readers cimport ReaderRegistration, reader_report
from udpfast.shm.ring cimport RingReader, ring_poll, ring_ready

from udpfast.agents.ring_names import RingNames
from udpfast.agents.topics import NAMES_REQUEST, parse_topic
from udpfast.agents.zmq_last import LastValues
from udpfast.agents.zmq_sockets import Outlets
from udpfast.config import ZmqConfig
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, FormatError, NotReadyError, RingClosedError
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.net.envelope import pack_names
from udpfast.shm.cursor import RingCursor
from udpfast.shm.ring import RING_LAYOUT

__all__ = ["ZmqFanout", "build"]

cdef enum:
    CHORES_NS = 1_000_000        # subscriptions and laps are looked for this often
    LOOK_NS = 50_000_000         # and this often whether there is a (new) ring
    ENDING_NS = 500_000_000      # the end of the ring is told for so long,
    END_PAUSE_NS = 5_000_000     # at this distance
    REQUESTS_MAX = 256           # subscriptions answered in one turn
    STREAMS_MAX = 64             # bits of a mask
    LAST_BYTES = 1 << 20         # of last values in one message: an answer shall fit the queue
    NAMES_BYTES = 1 << 16        # of names in one message, about
    FRONT = LONGEST_TOPIC + 1 + ENVELOPE_SIZE

cdef uint64_t LAYOUT = RING_LAYOUT ^ PAYLOAD_HASH
cdef dict _KIND_NAMES = {int(kind): kind.name for kind in Kind}


@cython.final
cdef class Stream:
    """All that one topic gets on one socket, however many subscribe to it."""

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
    cdef int64_t sent_ns


@cython.final
cdef class ZmqFanout(Agent):
    """Send a ring's records to ZeroMQ subscribers.

    Parameters
    ----------
    config : ZmqConfig
    directory : path
        The instance's. It may have no ring yet.
    objects : int
        So many objects' last values are kept, at most.

    Attributes
    ----------
    addresses : list of str
        Where subscribers connect, once it is started.
    """

    cdef object config
    cdef object directory
    cdef object outlets
    cdef readonly list addresses
    cdef RingCursor cursor
    cdef RingReader* ring        # of the cursor; NULL: there is none
    cdef ReaderRegistration registration
    cdef object names            # RingNames
    cdef uint64_t ring_number
    cdef LastValues last         # None: not kept
    cdef object streams          # (socket, text) -> Stream
    cdef list live               # the streams, in the order of their bits
    cdef bint filtered           # whether one of them does not get everything
    cdef dict masks              # key of a record -> bits of the streams that it belongs to
    cdef uint64_t used_bits
    cdef uint64_t[::1] record_masks
    cdef object out_array
    cdef uint8_t* out
    cdef object out_view
    cdef uint64_t batch_bytes
    cdef uint64_t room           # for one record
    cdef int64_t batch_records
    cdef int64_t linger_ns
    cdef int64_t heartbeat_ns
    cdef int64_t due_ns          # when what is there is sent; 0: nothing is there
    cdef int64_t chores_ns
    cdef int64_t look_ns
    cdef uint32_t last_sent      # of the answer that is being given
    cdef int64_t end_ns          # the ring was closed: what is left of it is told until then
    cdef uint64_t unseen
    cdef uint64_t read
    cdef uint64_t messages
    cdef uint64_t bytes_sent
    cdef uint64_t requests
    cdef uint64_t refused

    def __init__(self, config, directory, objects=65_536):
        super().__init__("udpfast zmq")
        if not isinstance(config, ZmqConfig):
            raise TypeError(f"config must be a ZmqConfig, was {type(config).__name__}")
        self.config = config
        self.directory = directory
        self.addresses = []
        self.names = RingNames(directory)
        self.streams = {}
        self.live = []
        self.masks = {}
        self.last = LastValues(objects) if config.last_values else None
        self.batch_bytes = config.batch_bytes
        self.batch_records = config.batch_records
        self.linger_ns = config.linger_us * 1000
        self.heartbeat_ns = config.heartbeat_ms * 1_000_000
        # Of what is never written no memory is taken.
        self.out_array = np.empty(LARGEST_MESSAGE, np.uint8)
        self.out_view = memoryview(self.out_array)
        self.out = <uint8_t*><size_t>self.out_array.ctypes.data
        self.room = LARGEST_MESSAGE - FRONT
        self.record_masks = np.zeros(self.batch_records, np.uint64)

    def on_start(self) -> None:
        """Bind the sockets, and attach to the ring if there is one."""
        self.outlets = Outlets(self.config, self.directory)
        self.addresses = list(self.outlets.addresses)
        try:
            self._attach()
        except BaseException:
            self.outlets.close(linger_ms=0)
            raise

    def on_stop(self) -> None:
        """Let go of the ring, and close the sockets: what was sent may still leave."""
        try:
            self._detach()
        finally:
            self.outlets.close()

    def statistics(self) -> dict:
        """Return what was sent so far, and to how many.

        Returns
        -------
        dict of str to int
            records: read from the ring; unseen: records that the fan-out itself missed;
            messages, bytes: sent; streams: topics served now; subscribers: of all streams;
            requests: subscriptions so far; refused: of these, not served.
        """
        return {
            "records": self.read, "unseen": self.unseen, "messages": self.messages,
            "bytes": self.bytes_sent, "streams": len(self.live),
            "subscribers": sum((<Stream>stream).subscribers for stream in self.live),
            "requests": self.requests, "refused": self.refused,
        }

    def work(self, int64_t now_ns) -> int:
        """Do one turn, as a runner does: for who takes turns with it on one thread."""
        done = self.do_work(now_ns)
        if self.failure is not None:
            raise self.failure
        return done

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        # Without the GIL as long as there is nothing to send: most turns of a quiet feed.
        if now_ns < self.chores_ns:
            if self.ring == NULL or not ring_ready(self.ring):
                return 0
            if self.linger_ns:
                if self.due_ns == 0:
                    self.due_ns = now_ns + self.linger_ns
                if now_ns < self.due_ns:
                    return 0
        with gil:
            try:
                return self._turn(now_ns)
            except BaseException as failure:
                self.failure = failure
                return -ECANCELED

    cdef int _turn(self, int64_t now_ns) except? -1:
        if now_ns >= self.chores_ns:
            self.chores_ns = now_ns + CHORES_NS
            self._chores(now_ns)
            if self.linger_ns and now_ns < self.due_ns:
                return 0
        if self.end_ns:
            return AGENT_DONE if now_ns >= self.end_ns or not self.live else 0
        return self._poll(now_ns) if self.ring != NULL else 0

    cdef int _poll(self, int64_t now_ns) except? -1:
        cdef RingCursor cursor = self.cursor
        cdef int64_t count, i, first = 0
        cdef uint64_t lapped = 0
        self.due_ns = 0
        self.ring.waiting = False
        with nogil:
            count = ring_poll(self.ring, cursor._headers, cursor._offsets, cursor._payloads,
                              cursor._room, self.batch_records, &lapped)
        if count == -EPIPE:
            # Said again and again for a while: who is behind has no room for it at once.
            self.end_ns = now_ns + ENDING_NS
            return 0
        if count < 0:
            cursor._raise(count)
        if count == 0:
            return 0
        if lapped:
            self.unseen += lapped
            if self.last is not None:
                self.last.lapped(cursor, lapped)
        self.read += count
        for i in range(count):
            # Names may be others after a restart: what was before it goes with the old ones.
            if cursor._headers[i].kind == KIND_RESTART:
                self._publish(first, i, now_ns)
                self._renew_names()
                first = i
        self._publish(first, count, now_ns)
        if self.last is not None and self.last.apply(cursor, count) < 0:
            raise MemoryError("no room for last values")
        return <int>count

    # --- records ---------------------------------------------------------------------------------

    cdef _publish(self, int64_t first, int64_t end, int64_t now_ns):
        # Records first to end, which follow each other in the ring, to every stream.
        cdef Stream stream
        if first == end:
            return
        self._learn_names(now_ns)
        if self.filtered:
            self._mask(first, end)
        for stream in self.live:
            if stream.names != <uint32_t>len(self.names.texts):
                self._send_names(stream, TOPIC_STREAM, stream.names)
                stream.names = len(self.names.texts)
            self._send_records(stream, first, end, now_ns)

    cdef _send_records(self, Stream stream, int64_t first, int64_t end, int64_t now_ns):
        cdef RingCursor cursor = self.cursor
        cdef Record* header
        cdef uint8_t* target = self.out + FRONT
        cdef uint64_t size, used = 0
        cdef uint32_t count = 0
        cdef int64_t i
        for i in range(first, end):
            if stream.bit and not self.record_masks[i] & stream.bit:
                continue
            header = cursor._headers + i
            size = envelope_aligned(<uint64_t>header.length)
            if count and used + size > self.batch_bytes:
                self._send(stream, TOPIC_STREAM, ENVELOPE_RECORDS, used, count,
                           cursor._headers[i - 1].index + 1, now_ns)
                used = 0
                count = 0
            if size > self.room:  # no feed has such records; whoever does is told
                stream.sequence += 1
                continue
            memcpy(target + used, header, RECORD_SIZE)
            memcpy(target + used + RECORD_SIZE, cursor._payloads + cursor._offsets[i],
                   size - RECORD_SIZE)
            used += size
            count += 1
        if count:
            self._send(stream, TOPIC_STREAM, ENVELOPE_RECORDS, used, count,
                       cursor._headers[end - 1].index + 1, now_ns)

    cdef _mask(self, int64_t first, int64_t end):
        # Which streams each record belongs to, from a dict by kind, exchange and symbol.
        cdef RingCursor cursor = self.cursor
        cdef uint64_t key
        cdef uint32_t exchange_id = 0, symbol_id = 0
        cdef int64_t i
        for i in range(first, end):
            _name_ids(cursor._headers + i, cursor._payloads + cursor._offsets[i], &exchange_id,
                      &symbol_id)
            # Ids have 24 bits (NAMES_CAPACITY_MAX).
            key = (<uint64_t>cursor._headers[i].kind << 48 | <uint64_t>exchange_id << 24
                   | symbol_id)
            mask = self.masks.get(key)
            if mask is None:
                mask = self._find_mask(cursor._headers[i].kind, exchange_id, symbol_id)
                self.masks[key] = mask
            self.record_masks[i] = mask

    cdef _find_mask(self, uint16_t kind, uint32_t exchange_id, uint32_t symbol_id):
        cdef Stream stream
        mask = 0
        for stream in self.live:
            if self._belongs(stream, kind, exchange_id, symbol_id):
                mask |= stream.bit
        return mask

    cdef bint _belongs(self, Stream stream, uint16_t kind, uint32_t exchange_id,
                       uint32_t symbol_id) except -1:
        # Doubt is everybody's: records of the feed itself belong to every topic.
        return (kind < KIND_BOOK and kind != KIND_MESSAGE) or stream.topic.matches(
            _KIND_NAMES.get(kind, ""), self.names.text(exchange_id), self.names.text(symbol_id))

    # --- messages --------------------------------------------------------------------------------

    cdef _send(self, Stream stream, int place, int kind, uint64_t size, uint32_t count,
               uint64_t index, int64_t now_ns):
        # The body lies at FRONT; topic and envelope go before it, so that it need not move.
        cdef Envelope envelope
        cdef size_t topic_size = len(stream.text)
        cdef uint8_t* start = self.out + FRONT - ENVELOPE_SIZE - 1 - topic_size
        cdef size_t begin = FRONT - ENVELOPE_SIZE - 1 - topic_size
        memcpy(start, <const char*>stream.text, topic_size)
        start[topic_size] = place
        memset(&envelope, 0, sizeof(envelope))
        envelope.magic = ENVELOPE_MAGIC
        envelope.version = ENVELOPE_VERSION
        envelope.type = kind
        envelope.layout = LAYOUT
        envelope.ring = self.ring_number
        if self.ring != NULL:
            envelope.epoch = load_relaxed(&self.ring.header.epoch)
            envelope.tail = load_relaxed(&self.ring.header.tail_index)
        envelope.tail = max(envelope.tail, index)
        envelope.stream = stream.number
        envelope.sequence = stream.sequence
        envelope.unseen = self.unseen
        envelope.index = index
        envelope.count = count
        envelope.table = self.names.number
        envelope.names = len(self.names.texts)
        envelope.last = self.last_sent
        memcpy(start + topic_size + 1, &envelope, sizeof(envelope))
        stream.send(self.out_view[begin:FRONT + size], 1)  # 1: zmq.NOBLOCK
        if kind == ENVELOPE_RECORDS:
            stream.sequence += count
        stream.sent_ns = now_ns
        self.messages += 1
        self.bytes_sent += FRONT + size - begin

    cdef _send_body(self, Stream stream, int place, int kind, bytes body, uint32_t count):
        cdef uint64_t size = min(<uint64_t>len(body), self.room)
        memcpy(self.out + FRONT, <const char*>body, size)
        self._send(stream, place, kind, size, count,
                   self.ring.index if self.ring != NULL else 0, clock_monotonic_ns())

    cdef _send_names(self, Stream stream, int place, uint32_t known):
        # The names behind the first `known`, in messages of a bearable size.
        cdef uint32_t first = known, i
        cdef uint64_t size = 0
        texts = self.names.texts
        for i in range(known, len(texts)):
            size += 2 + len(texts[i])
            if size > NAMES_BYTES:
                self._send_body(stream, place, ENVELOPE_NAMES,
                                pack_names(first + 1, texts[first:i]), i - first)
                first = i
                size = 2 + len(texts[i])
        self._send_body(stream, place, ENVELOPE_NAMES,
                        pack_names(first + 1, texts[first:]), len(texts) - first)

    # --- chores ----------------------------------------------------------------------------------

    cdef _chores(self, int64_t now_ns):
        cdef Stream stream
        for socket in self.outlets.sockets:
            self._take_requests(socket)
        for stream in self.live:
            if self.end_ns and now_ns - stream.sent_ns >= END_PAUSE_NS:
                self._send_body(stream, TOPIC_STREAM, ENVELOPE_END, b"", 0)
            elif now_ns - stream.sent_ns >= self.heartbeat_ns:
                self._send_body(stream, TOPIC_STREAM, ENVELOPE_ALIVE, b"", 0)
        if self.ring != NULL:
            self.registration.entry.read = self.read
            reader_report(self.registration.entry, self.ring, clock_realtime_ns())
        if now_ns >= self.look_ns:
            self.look_ns = now_ns + LOOK_NS
            if self.ring == NULL:
                self._attach()
            elif not self.end_ns and self.cursor.region.replaced():
                raise RingClosedError(f"{self.cursor.region.path}: another file took its place")

    cdef _take_requests(self, socket):
        # A message is 1 or 0, for subscribe and unsubscribe, and the topic (RFC 29/PUBSUB).
        import zmq
        for _ in range(REQUESTS_MAX):
            if not socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                return
            request = socket.recv(zmq.NOBLOCK)
            if request[:1] == b"\1":
                self.requests += 1
                self._subscribe(socket, request[1:])
            elif request[:1] == b"\0":
                self._unsubscribe(socket, request[1:])
            else:
                self.refused += 1

    cdef _subscribe(self, socket, bytes text):
        # What the answer's topic is, only this one subscriber has: nobody else gets the answer.
        import zmq
        cdef Stream stream
        answer = text + bytes([TOPIC_ANSWER])
        self._learn_names(clock_monotonic_ns())
        try:
            stream = self._stream(socket, text)
        except ConfigError as error:
            self.refused += 1
            stream = self._new_stream(socket, text)
            reason = str(error).encode()
        else:
            reason = None
        socket.setsockopt(zmq.SUBSCRIBE, answer)
        if reason is not None:
            self._send_body(stream, TOPIC_ANSWER, ENVELOPE_REFUSED, reason, 0)
        elif text.startswith(NAMES_REQUEST):
            first = int(text[len(NAMES_REQUEST):])
            self._send_names(stream, TOPIC_ANSWER, min(max(first, 1) - 1, len(self.names.texts)))
        else:
            self._send_names(stream, TOPIC_ANSWER, 0)
            self.last_sent = 0
            if stream.topic.last_values and self.last is not None and self.ring != NULL:
                self._send_last(stream, self.last.records())
            self._send_body(stream, TOPIC_ANSWER, ENVELOPE_BEGIN, b"", 0)
            self.last_sent = 0
        socket.setsockopt(zmq.UNSUBSCRIBE, answer)
        if reason is None and not text.startswith(NAMES_REQUEST):
            socket.setsockopt(zmq.SUBSCRIBE, text + bytes([TOPIC_STREAM]))
            stream.subscribers += 1

    cdef _send_last(self, Stream stream, bytes records):
        cdef const uint8_t* source = records
        cdef const Record* header
        cdef uint8_t* target = self.out + FRONT
        cdef uint64_t size, at = 0, used = 0
        cdef uint32_t exchange_id = 0, symbol_id = 0, count = 0
        while at < <uint64_t>len(records):
            header = <const Record*>(source + at)
            size = envelope_aligned(<uint64_t>header.length)
            _name_ids(header, source + at + RECORD_SIZE, &exchange_id, &symbol_id)
            if stream.everything or self._belongs(stream, header.kind, exchange_id, symbol_id):
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

    cdef _send_part(self, Stream stream, uint64_t size, uint32_t count):
        self._send(stream, TOPIC_ANSWER, ENVELOPE_LAST, size, count, self.ring.index,
                   clock_monotonic_ns())
        self.last_sent += count

    cdef _unsubscribe(self, socket, bytes text):
        import zmq
        cdef Stream stream = self.streams.get((socket, text))
        if stream is None:
            return
        socket.setsockopt(zmq.UNSUBSCRIBE, text + bytes([TOPIC_STREAM]))
        stream.subscribers -= 1
        if stream.subscribers <= 0:
            del self.streams[socket, text]
            self.used_bits &= ~stream.bit
            self._arrange()

    cdef Stream _stream(self, socket, bytes text):
        # The stream of a topic, new or known. A request for names gets one for its answer only.
        cdef Stream stream = self.streams.get((socket, text))
        cdef uint64_t bit = 1
        if stream is not None:
            return stream
        if text.startswith(NAMES_REQUEST):
            if not text[len(NAMES_REQUEST):].isdigit() or len(text) > 30:
                raise ConfigError(f"expected {NAMES_REQUEST.decode()}ID, found {text!r}")
            return self._new_stream(socket, text)
        topic = parse_topic(text)
        if len(self.streams) == STREAMS_MAX:
            raise ConfigError(f"{STREAMS_MAX} different topics are served already")
        stream = self._new_stream(socket, text)
        stream.topic = topic
        stream.everything = not topic.patterns
        if not stream.everything:
            while self.used_bits & bit:
                bit <<= 1
            stream.bit = bit
            self.used_bits |= bit
        stream.names = len(self.names.texts)
        self.streams[socket, text] = stream
        self._arrange()
        return stream

    cdef Stream _new_stream(self, socket, bytes text):
        cdef Stream stream = Stream.__new__(Stream)
        stream.socket = socket
        stream.send = socket.send
        stream.text = text[:LONGEST_TOPIC]
        stream.number = clock_realtime_ns()
        return stream

    cdef _arrange(self):
        cdef Stream stream
        self.live = list(self.streams.values())
        self.filtered = any([(<Stream>stream).bit != 0 for stream in self.live])
        self.masks.clear()

    # --- ring and names --------------------------------------------------------------------------

    cdef _attach(self):
        # To the ring, from its writer's beginning if that is still there: last values are then
        # complete. Otherwise from where an image of it ends, or from where it is now.
        cdef RingCursor cursor
        try:
            cursor = self._cursor()
        except (FileNotFoundError, NotReadyError):
            return
        if cursor.closed_by_writer:  # of a feed that ended: the next one's takes its place
            cursor.close()
            return
        identity = cursor.region._identity
        self.cursor = cursor
        self.ring_number = (<uint64_t>identity[0] << 48) ^ <uint64_t>identity[1]
        self.ring = &cursor.reader
        self.registration = ReaderRegistration.create(
            self.directory, "zmq", cursor.reader.index, clock_realtime_ns())
        self._renew_names()

    cdef RingCursor _cursor(self):
        cdef RingCursor cursor
        try:
            cursor = _attach_cursor(self.directory, "writer", self.batch_records)
            if self.last is not None:
                self.last.begin(cursor, 0)
        except FormatError:
            cursor = _attach_cursor(self.directory, "tail", self.batch_records)
            if self.last is not None and not self.last.resume(cursor):
                self.last.begin(cursor, cursor.index)
        return cursor

    cdef _detach(self):
        if self.ring == NULL:
            return
        self.ring = NULL
        self.registration.close()
        self.cursor.close()

    cdef _renew_names(self):
        cdef Stream stream
        if self.names.renew():
            self.masks.clear()
            for stream in self.live:
                stream.names = 0

    cdef _learn_names(self, int64_t now_ns):
        if self.names.learn(now_ns):
            self.masks.clear()


cdef RingCursor _attach_cursor(directory, start, limit):
    return RingCursor.attach(directory, start, limit, payload_hash=PAYLOAD_HASH)


cdef inline void _name_ids(
        const Record* header, const uint8_t* payload, uint32_t* exchange_id,
        uint32_t* symbol_id) noexcept nogil:
    # 0: the record names none. The struct is packed: any alignment will do.
    cdef const UpdateHeader* update = <const UpdateHeader*>payload
    cdef bint named = header.kind >= KIND_BOOK and (
        header.length >= <int64_t>(RECORD_SIZE + sizeof(UpdateHeader)))
    exchange_id[0] = update.exchange_id if named else 0
    symbol_id[0] = update.symbol_id if named else 0


def build(config, directory):
    """Build the fan-out of a feed; see `agents.factories`."""
    return ZmqFanout(config.zmq, directory, config.objects.max)
