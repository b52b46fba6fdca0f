"""The ZeroMQ fan-out: sends the records of a ring or store to its subscribers.

It never waits for a subscriber. One that is too slow misses records, and learns from the numbers in
each message how many. docs/zmq.md describes the messages byte by byte, and `topics.py` what a
subscription can select.
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
from udpfast.agents.zmq.zmq_sockets import Outlets, try_outlets
from udpfast.agents.zmq.zmq_streams import TopicStreams
from udpfast.archive.feed_cursor import open_feed_cursor
from udpfast.config import ZmqConfig
from udpfast.errors import ConfigError, FormatError, NotReadyError

__all__ = ["ZmqFanout", "build", "try_start"]

cdef enum:
    CHORES_NS = 1_000_000        # period of the checks for subscriptions and laps
    LOOK_NS = 50_000_000         # period of the check for a (new) ring
    ENDING_NS = 500_000_000      # the end of the ring is sent repeatedly for this long,
    END_PAUSE_NS = 5_000_000     # with this period
    REQUESTS_MAX = 256           # most subscriptions answered in one turn


@cython.final
cdef class ZmqFanout(Agent):
    """Send the records of a ring, or of a feed's store, to ZeroMQ subscribers.

    Parameters
    ----------
    config : ZmqConfig
        Settings of the fan-out.
    directory : path
        Directory of the instance, which may have neither ring nor store yet.
    objects : int
        Most objects whose last values are kept.

    Attributes
    ----------
    addresses : list of str
        Endpoints to which subscribers connect, once it is started.
    """

    cdef object config
    cdef object directory
    cdef object outlets
    cdef readonly list addresses
    cdef FeedCursor cursor       # None: there is no ring or store yet
    cdef ReaderRegistration registration
    cdef object names            # RingNames
    cdef int64_t names_number    # number of the records' table of names; -1: not known yet
    cdef TopicStreams streams
    cdef Envelopes envelopes
    cdef LastValues last         # None: not kept
    cdef int64_t batch_records
    cdef int64_t linger_ns
    cdef int64_t heartbeat_ns
    cdef bint behind             # the feed's loop stands still; or it, or the fan-out, catches up
    cdef bint current            # the loop has caught up,
    cdef uint64_t current_index  # and the fan-out has when it comes to this record
    cdef int64_t due_ns          # when waiting records are sent; 0: none waits
    cdef int64_t chores_ns       # when the next chores are due
    cdef int64_t look_ns         # when the next check for a ring is due
    cdef int64_t end_ns          # the feed has ended: until then that is sent,
    cdef int end_type            # as a message of this EnvelopeType; 0: it has not ended
    cdef uint64_t read           # records read
    cdef uint64_t markers        # markers made so far: see _subscribe
    cdef uint64_t requests       # subscriptions so far
    cdef uint64_t refused        # requests refused so far

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
        """Detach from the ring, and close the sockets; queued messages are still sent."""
        try:
            self._detach()
        finally:
            self.outlets.close()

    def statistics(self) -> dict[str, int]:
        """Return counters of the fan-out.

        Returns
        -------
        dict of str to int
            records: read from the ring; unseen: missed by the fan-out itself; messages, bytes:
            sent; streams: topics served now; subscribers: of all streams now; requests:
            subscriptions so far; refused: requests that were refused.
        """
        return {
            "records": self.read, "unseen": self.envelopes.unseen,
            "messages": self.envelopes.messages, "bytes": self.envelopes.bytes_sent,
            "streams": len(self.streams.live),
            "subscribers": sum((<TopicStream>stream).subscribers for stream in self.streams.live),
            "requests": self.requests, "refused": self.refused,
        }

    def work(self, int64_t now_ns) -> int:
        """Do one turn, as a runner does; for callers that run several agents on one thread."""
        done = self.do_work(now_ns)
        if self.failure is not None:
            raise self.failure
        return done

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        # Take the GIL only if there is something to send: most turns of a quiet feed have nothing.
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
        # Records are old while the feed's loop stands still, and until it and the fan-out have both
        # caught up. Their messages say so (heartbeat_ms 0), and no heartbeats are sent meanwhile.
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
            # Send the end repeatedly for a while: a slow subscriber's queue may be full now.
            self.end_ns = now_ns + ENDING_NS
            self.end_type = ENVELOPE_FAILED if cursor.failed() else ENVELOPE_END
            return 0
        if count < 0:
            cursor.fail(count)
        if count == 0:
            return 0
        if cursor.missed:
            self.envelopes.unseen += cursor.missed
            self._renew_names()  # the missed records may include a RESTART
            if self.last is not None:
                self.last.lapped(cursor, cursor.missed)
        if cursor.names_number() != self.names_number:
            self._renew_names()
        self.read += count
        for i in range(count):
            # A RESTART may begin a new table of names: the records before it need the old one.
            if cursor.headers[i].kind == KIND_RESTART:
                self._publish(first, i, now_ns)
                self._renew_names()
                first = i
        self._publish(first, count, now_ns)
        if self.last is not None and self.last.apply(cursor, count) < 0:
            raise MemoryError("not enough memory for last values")
        return <int>count

    cdef _publish(self, int64_t first, int64_t end, int64_t now_ns):
        # Send the consecutive records [first, end) to every stream.
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
        if self.last is None or self.last.ready():  # until then requests wait in their sockets
            for socket in self.outlets.sockets:
                self._take_requests(socket)
        for stream in self.streams.live:
            if self.end_ns and now_ns - stream.sent_ns >= END_PAUSE_NS:
                self.envelopes.send_body(stream, TOPIC_STREAM, self.end_type, b"", 0)
            elif now_ns - stream.sent_ns >= self.heartbeat_ns and not (
                    # While the feed's loop is behind, send no heartbeat: readers must notice it.
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
        # A request is a byte, 1 to subscribe or 0 to unsubscribe, and the topic (RFC 29/PUBSUB).
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
        # Subscribe this one subscriber to the answer's topic: no other subscriber gets the answer.
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
        # Set all subscriptions before anything is sent: sending may show libzmq that another
        # connection is gone, and it then no longer knows whose subscriptions these are.
        socket.setsockopt(zmq.SUBSCRIBE, answer)
        if refusal is None and not text.startswith(NAMES_REQUEST):
            socket.setsockopt(zmq.SUBSCRIBE, text + bytes([TOPIC_STREAM]))
            if not self._take_marker(stream, connection):  # count a repeated subscription once
                stream.subscribers += 1
            self.markers += 1
            # The marker is a subscription that no message matches: libzmq keeps it for us as long
            # as the connection lives.
            stream.markers[connection] = b"\xff%d" % self.markers
            socket.setsockopt(zmq.SUBSCRIBE, stream.markers[connection])
        if refusal is None:
            self._answer(stream)
        else:
            self.envelopes.send_body(stream, TOPIC_ANSWER, ENVELOPE_REFUSED, refusal, 0)
        # This has no effect if libzmq no longer knows whose it is. The subscriber then also gets
        # the answers to others, which do no harm.
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
        # Remove the marker of the last request's sender; return whether it subscribes to a stream.
        # A marker that an earlier connection with the same number left behind is not the sender's.
        import zmq
        marker = stream.markers.pop(connection, None)
        if marker is None:
            return False
        before = stream.socket.getsockopt(zmq.TOPICS_COUNT)
        stream.socket.setsockopt(zmq.UNSUBSCRIBE, marker)
        return stream.socket.getsockopt(zmq.TOPICS_COUNT) < before

    cdef _unsubscribe(self, socket, bytes text, int64_t connection):
        # A request without a connection is made by libzmq for one that has gone: it is accepted.
        import zmq
        cdef TopicStream stream = self.streams.find(socket, text)
        if stream is None:
            return
        if connection >= 0 and not self._take_marker(stream, connection):
            self.refused += 1  # the sender does not subscribe to this stream
            return
        socket.setsockopt(zmq.UNSUBSCRIBE, text + bytes([TOPIC_STREAM]))
        stream.subscribers -= 1
        if stream.subscribers <= 0:
            self.streams.end(stream)

    # --- records and names -----------------------------------------------------------------------

    cdef _attach(self):
        # Attach to the log, at its writer's first record if that is still there: last values are
        # then complete. Otherwise at the end of an image, or at the end of the log.
        cdef FeedCursor cursor
        try:
            cursor = self._cursor()
        except (FileNotFoundError, NotReadyError):
            return
        if cursor.ended():  # the feed has ended: wait for the next feed's ring
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
    # Return the number of a request's connection; -1: libzmq made the request.
    import zmq
    try:
        return frame.get(zmq.SRCFD)
    except zmq.ZMQError:
        return -1


def build(config: FeedConfig, directory: Path) -> ZmqFanout:
    """Build the fan-out of a feed; see `agents.feed.factories`."""
    return ZmqFanout(config.zmq, directory, config.objects.max)


def try_start(config: FeedConfig) -> None:
    """Bind the addresses for a moment; raise what binding them does."""
    try_outlets(config.zmq)
