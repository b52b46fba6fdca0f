"""The ZeroMQ fan-out: a reader of the ring, or of the feed's store, that sends what it reads, to
any number of subscribers.

It never waits for one of them. What a subscriber does not take in time it misses, and learns from
the numbers in each message how many records that were. The messages are told byte by byte in
docs/zmq.md; what a subscription may ask for stands in `topics.py`.
"""

import cython

from libc.errno cimport EPIPE
from libc.stdint cimport int64_t, uint64_t

from udpfast.agents.zmq.zmq_last cimport LastValues
from udpfast.agents.zmq.zmq_envelopes cimport Envelopes
from udpfast.agents.zmq.zmq_streams cimport TopicStream, TopicStreams, new_stream
from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.core.agent cimport AGENT_DONE, Agent
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport KIND_RESTART
from udpfast.core.linux cimport ECANCELED
from udpfast.log.readers cimport ReaderRegistration
from udpfast.log.ring cimport RING_STUCK_NS
from udpfast.net.envelope cimport (
    ENVELOPE_ALIVE, ENVELOPE_END, ENVELOPE_FAILED, ENVELOPE_REFUSED, TOPIC_ANSWER, TOPIC_STREAM)

from udpfast.agents.feed.ring_names import RingNames
from udpfast.agents.zmq.topics import NAMES_REQUEST
from udpfast.agents.zmq.zmq_last import LastValues
from udpfast.agents.zmq.zmq_envelopes import Envelopes
from udpfast.agents.zmq.zmq_sockets import Outlets
from udpfast.agents.zmq.zmq_streams import TopicStreams
from udpfast.archive.feed_cursor import open_feed_cursor
from udpfast.config import ZmqConfig
from udpfast.errors import ConfigError, FormatError, NotReadyError

__all__ = ["ZmqFanout", "build"]

cdef enum:
    CHORES_NS = 1_000_000        # subscriptions and laps are looked for this often
    LOOK_NS = 50_000_000         # and this often whether there is a (new) ring
    ENDING_NS = 500_000_000      # the end of the ring is told for so long,
    END_PAUSE_NS = 5_000_000     # at this distance
    REQUESTS_MAX = 256           # subscriptions answered in one turn


@cython.final
cdef class ZmqFanout(Agent):
    """Send the records of a ring, or of a feed's store, to ZeroMQ subscribers.

    Parameters
    ----------
    config : ZmqConfig
    directory : path
        The instance's. It may have neither yet.
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
    cdef FeedCursor cursor       # None: there is none
    cdef ReaderRegistration registration
    cdef object names            # RingNames
    cdef int64_t names_number    # of the table that records go by; -1: none was looked at
    cdef TopicStreams streams
    cdef Envelopes envelopes
    cdef LastValues last         # None: not kept
    cdef int64_t batch_records
    cdef int64_t linger_ns
    cdef int64_t heartbeat_ns
    cdef bint behind             # the feed's loop stands still, or catches up and we with it
    cdef bint current            # ... it has caught up,
    cdef uint64_t current_index  # and we have once we come to here
    cdef int64_t due_ns          # when what is there is sent; 0: nothing is there
    cdef int64_t chores_ns
    cdef int64_t look_ns
    cdef int64_t end_ns          # the feed has ended: that is told until then,
    cdef int end_type            # as this message: EnvelopeType
    cdef uint64_t read
    cdef uint64_t markers
    cdef uint64_t requests
    cdef uint64_t refused

    def __init__(self, config: ZmqConfig, directory: Path, objects: int = 65_536):
        super().__init__("udpfast zmq")
        if not isinstance(config, ZmqConfig):
            raise TypeError(f"config must be a ZmqConfig, was {type(config).__name__}")
        self.config = config
        self.directory = directory
        self.addresses = []
        self.names = RingNames(directory)
        self.names_number = -1
        self.streams = TopicStreams(self.names, config.batch_records)
        self.envelopes = Envelopes(self.names, config.batch_bytes, config.heartbeat_ms)
        self.last = LastValues(objects) if config.last_values else None
        self.batch_records = config.batch_records
        self.linger_ns = config.linger_us * 1000
        self.heartbeat_ns = config.heartbeat_ms * 1_000_000

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

    def statistics(self) -> dict[str, int]:
        """Return what was sent so far, and to how many.

        Returns
        -------
        dict of str to int
            records: read from the ring; unseen: records that the fan-out itself missed;
            messages, bytes: sent; streams: topics served now; subscribers: of all streams;
            requests: subscriptions so far; refused: what was asked for and not done.
        """
        return {
            "records": self.read, "unseen": self.envelopes.unseen,
            "messages": self.envelopes.messages, "bytes": self.envelopes.bytes_sent,
            "streams": len(self.streams.live),
            "subscribers": sum((<TopicStream>stream).subscribers for stream in self.streams.live),
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
            if self.cursor is None or not self.cursor.ready():
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
            return AGENT_DONE if now_ns >= self.end_ns or not self.streams.live else 0
        return 0 if self.cursor is None else self._poll(now_ns)

    cdef _note_loop(self, int64_t now_ns):
        # While the feed's loop stands still, and until it has caught up and we with it, all that is
        # sent is old: its messages say so, and no others are sent.
        cdef TopicStream stream
        if self.cursor.stuck(now_ns, RING_STUCK_NS):
            self.behind, self.current = True, False
            self.envelopes.heartbeat_ms = 0
            return
        if not self.behind:
            return
        if not self.current:
            self.current, self.current_index = True, self.cursor.end_index()
        if self.cursor.index() >= self.current_index:
            self.behind = False
            self.envelopes.heartbeat_ms = self.config.heartbeat_ms
            for stream in self.streams.live:
                self.envelopes.send_body(stream, TOPIC_STREAM, ENVELOPE_ALIVE, b"", 0)

    cdef int _poll(self, int64_t now_ns) except? -1:
        cdef FeedCursor cursor = self.cursor
        cdef int64_t count, i, first = 0
        self.due_ns = 0
        self._note_loop(now_ns)
        with nogil:
            count = cursor.poll(self.batch_records)
        if count == -EPIPE:
            if cursor.follow():
                return 0
            # Said again and again for a while: who is behind has no room for it at once.
            self.end_ns = now_ns + ENDING_NS
            self.end_type = ENVELOPE_FAILED if cursor.failed() else ENVELOPE_END
            return 0
        if count < 0:
            cursor.fail(count)
        if count == 0:
            return 0
        if cursor.missed:
            self.envelopes.unseen += cursor.missed
            self._renew_names()  # a RESTART may be among what was missed
            if self.last is not None:
                self.last.lapped(cursor, cursor.missed)
        if cursor.names_number() != self.names_number:
            self._renew_names()
        self.read += count
        for i in range(count):
            # Names may be others after a restart: what was before it goes with the old ones.
            if cursor.headers[i].kind == KIND_RESTART:
                self._publish(first, i, now_ns)
                self._renew_names()
                first = i
        self._publish(first, count, now_ns)
        if self.last is not None and self.last.apply(cursor, count) < 0:
            raise MemoryError("not enough memory for last values")
        return <int>count

    cdef _publish(self, int64_t first, int64_t end, int64_t now_ns):
        # Records first to end, which follow each other in the ring, to every stream.
        cdef TopicStream stream
        if first == end:
            return
        self._learn_names(now_ns)
        if self.streams.filtered:
            self.streams.mark(self.cursor, first, end)
        for stream in self.streams.live:
            if stream.names != <unsigned int>len(self.names.texts):
                self.envelopes.send_names(stream, TOPIC_STREAM, stream.names)
                stream.names = len(self.names.texts)
            self.envelopes.send_records(stream, self.cursor, self.streams.masks, first, end, now_ns)

    # --- chores ----------------------------------------------------------------------------------

    cdef _chores(self, int64_t now_ns):
        cdef TopicStream stream
        if self.cursor is not None and not self.end_ns:
            self._note_loop(now_ns)
        if self.last is None or self.last.ready():  # requests keep, in their sockets
            for socket in self.outlets.sockets:
                self._take_requests(socket)
        for stream in self.streams.live:
            if self.end_ns and now_ns - stream.sent_ns >= END_PAUSE_NS:
                self.envelopes.send_body(stream, TOPIC_STREAM, self.end_type, b"", 0)
            elif now_ns - stream.sent_ns >= self.heartbeat_ns and not (
                    # Then the fan-out is silent, too: what readers know grows old.
                    self.cursor is not None and self.behind):
                self.envelopes.send_body(stream, TOPIC_STREAM, ENVELOPE_ALIVE, b"", 0)
        if self.cursor is not None:
            self.registration.entry.read = self.read
            self.cursor.report(self.registration.entry)
        if now_ns >= self.look_ns:
            self.look_ns = now_ns + LOOK_NS
            if self.cursor is None:
                self._attach()
            elif not self.end_ns:
                self.cursor.check()

    cdef _take_requests(self, socket):
        # A message is 1 or 0, for subscribe and unsubscribe, and the topic (RFC 29/PUBSUB).
        import zmq
        for _ in range(REQUESTS_MAX):
            if not socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                return
            frame = socket.recv(zmq.NOBLOCK, copy=False)
            request = frame.bytes
            if request[:1] == b"\1":
                self.requests += 1
                self._subscribe(socket, request[1:], _connection(frame))
            elif request[:1] == b"\0":
                self._unsubscribe(socket, request[1:], _connection(frame))
            else:
                self.refused += 1

    cdef _subscribe(self, socket, bytes text, int64_t connection):
        # What the answer's topic is, only this one subscriber has: nobody else gets the answer.
        import zmq
        cdef TopicStream stream
        answer = text + bytes([TOPIC_ANSWER])
        self._learn_names(clock_monotonic_ns())
        refusal = None
        try:
            stream = self.streams.serve(socket, text)
        except ConfigError as error:
            self.refused += 1
            refusal = str(error).encode()
            stream = new_stream(socket, text)
        # All at once: what is sent in between may tell the library that another connection is gone,
        # and then it no longer knows whose subscriptions these are.
        socket.setsockopt(zmq.SUBSCRIBE, answer)
        if refusal is None and not text.startswith(NAMES_REQUEST):
            socket.setsockopt(zmq.SUBSCRIBE, text + bytes([TOPIC_STREAM]))
            if not self._take_marker(stream, connection):  # once more counts as once
                stream.subscribers += 1
            self.markers += 1
            # Nothing that is sent begins like this: the library keeps it for us, and no more.
            stream.markers[connection] = b"\xff%d" % self.markers
            socket.setsockopt(zmq.SUBSCRIBE, stream.markers[connection])
        if refusal is None:
            self._answer(stream)
        else:
            self.envelopes.send_body(stream, TOPIC_ANSWER, ENVELOPE_REFUSED, refusal, 0)
        # In vain where the library no longer knows: then the answers to others come here too, and
        # say what is known.
        socket.setsockopt(zmq.UNSUBSCRIBE, answer)

    cdef _answer(self, TopicStream stream):
        if stream.text.startswith(NAMES_REQUEST):
            first = int(stream.text[len(NAMES_REQUEST):])
            self.envelopes.send_names(
                stream, TOPIC_ANSWER, min(max(first, 1) - 1, len(self.names.texts)))
            return
        self.envelopes.send_names(stream, TOPIC_ANSWER, 0)
        last = b""
        if stream.topic.last_values and self.last is not None and self.cursor is not None:
            last = self.last.records()
        self.envelopes.send_last(
            stream, self.streams, last, stream.topic.last_values and self.last is None)

    cdef bint _take_marker(self, TopicStream stream, int64_t connection) except -1:
        # Whether the sender of the last request subscribes to a stream; its marker is taken off.
        # One that a connection of the same number left behind is not the sender's to take.
        import zmq
        marker = stream.markers.pop(connection, None)
        if marker is None:
            return False
        before = stream.socket.getsockopt(zmq.TOPICS_COUNT)
        stream.socket.setsockopt(zmq.UNSUBSCRIBE, marker)
        return stream.socket.getsockopt(zmq.TOPICS_COUNT) < before

    cdef _unsubscribe(self, socket, bytes text, int64_t connection):
        # The library itself says what a connection that has gone had: that is believed.
        import zmq
        cdef TopicStream stream = self.streams.find(socket, text)
        if stream is None:
            return
        if connection >= 0 and not self._take_marker(stream, connection):
            self.refused += 1  # who ends what others subscribe to
            return
        socket.setsockopt(zmq.UNSUBSCRIBE, text + bytes([TOPIC_STREAM]))
        stream.subscribers -= 1
        if stream.subscribers <= 0:
            self.streams.end(stream)

    # --- records and names -----------------------------------------------------------------------

    cdef _attach(self):
        # To the log, from its writer's beginning if that is still there: last values are then
        # complete. Otherwise from where an image of it ends, or from where it is now.
        cdef FeedCursor cursor
        try:
            cursor = self._cursor()
        except (FileNotFoundError, NotReadyError):
            return
        if cursor.ended():  # of a feed that ended: the next one's takes its place
            cursor.close()
            return
        self.registration = ReaderRegistration.create(
            cursor.readers, "zmq", cursor.index(), clock_realtime_ns())
        self.envelopes.feed = self.cursor = cursor
        self._renew_names()

    cdef FeedCursor _cursor(self):
        cdef FeedCursor cursor
        try:
            cursor = open_feed_cursor(self.directory, "writer", self.batch_records)
            if self.last is not None:
                self.last.begin(cursor, 0)
        except FormatError:
            cursor = open_feed_cursor(self.directory, "tail", self.batch_records)
            if self.last is not None and not self.last.resume(cursor, self.directory):
                self.last.begin(cursor, cursor.index())
        return cursor

    cdef _detach(self):
        cdef FeedCursor cursor = self.cursor
        if cursor is None:
            return
        self.envelopes.feed = self.cursor = None
        self.registration.close()
        cursor.close()

    cdef _renew_names(self):
        cdef TopicStream stream
        self.names_number = self.cursor.names_number()
        self.names.path = self.cursor.names_file()
        self.names.mark = self.cursor.names_mark()
        if self.names.renew():
            self.streams.forget()
            for stream in self.streams.live:
                stream.names = 0

    cdef _learn_names(self, int64_t now_ns):
        if self.names.learn(now_ns):
            self.streams.forget()


cdef int64_t _connection(frame) except -2:
    # The number of the connection that a request came by; -1: the library made it.
    import zmq
    try:
        return frame.get(zmq.SRCFD)
    except zmq.ZMQError:
        return -1


def build(config: FeedConfig, directory: Path) -> ZmqFanout:
    """Build the fan-out of a feed; see `agents.feed.factories`."""
    return ZmqFanout(config.zmq, directory, config.objects.max)
