"""The Source of "zmq:ipc://..." and "zmq:tcp://...": records of a fan-out, over ZeroMQ.

The fan-out numbers everything it sends, so the exact number of records that a slow subscriber lost
is known. Every message is checked before it is used (docs/zmq.md, `net/envelope`).
"""

cimport cython
from libc.errno cimport EBADMSG, EPIPE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.unistd cimport getpid

from udpfast.client.record cimport NameCache
from udpfast.client.source cimport Source
from udpfast.client.zmq_silence cimport Silence
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.idle cimport Idle
from udpfast.core.layout cimport (
    CONNECTION_DISCONNECTED, CONNECTION_FANOUT, CONNECTION_READY, CONNECTION_WRITER, Connection,
    KIND_CONNECTION, KIND_ROLLBACK, Lapped, RECORD_SIZE, RECORD_SNAPSHOT, Record, Rollback)
from udpfast.log.doubt_records cimport doubt_record, doubt_record_lapped
from udpfast.net.envelope cimport (
    ENVELOPE_ALIVE, ENVELOPE_BEGIN, ENVELOPE_END, ENVELOPE_FAILED, ENVELOPE_LAST, ENVELOPE_NAMES,
    ENVELOPE_RECORDS, ENVELOPE_REFUSED, ENVELOPE_SIZE, ENVELOPE_VERSION, LARGEST_MESSAGE,
    TOPIC_ANSWER, Envelope, envelope_read, envelope_take)

import stat
import urllib.parse
import weakref
from pathlib import Path

import numpy as np

from udpfast.client.record import NameCache
from udpfast.client.zmq_silence import Silence
from udpfast.client.zmq_sleeper import SocketSleeper
from udpfast.core.layout import RECORD
from udpfast.errors import ConfigError, FormatError, ImageError, RingClosedError, shown
from udpfast.log.ring import RING_LAYOUT
from udpfast.market.names import name_text
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.net.envelope import TOPIC_SIZE_MAX, unpack_names
from udpfast.shm.instance import instance_directory

__all__ = ["ZmqSource", "open_source"]

cdef enum:
    SLICE_MS = 10                # longest wait in one libzmq call; a Reader allows 20 ms
    ASK_NS = 1_000_000_000       # least time between two requests for missing names
    NAME_BYTES_MAX = 120         # NAME_SIZE_MAX of the fan-out's table of names
    NAMES_MAX = 1 << 24          # most names accepted from a fan-out
    QUEUE_MESSAGES = 1_000       # our receive queue; more wait in the fan-out's, then are lost

cdef uint64_t LAYOUT = RING_LAYOUT ^ PAYLOAD_HASH

#: Least time to wait for the fan-out's answer. A running one answers within a round trip; one that
#: does not may still be starting.
_ANSWER_S = 2.0


class _Names:
    """The names received so far, as a table for NameCache."""

    def __init__(self):
        self.texts = []

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, name_id):
        return name_text(self.texts[name_id - 1])


@cython.final
cdef class ZmqSource(Source):
    """A subscription to a fan-out.

    Parameters
    ----------
    endpoint : str
        ZeroMQ endpoint: "ipc://path" or "tcp://host:port".
    topic : bytes
        Topic to subscribe to (`agents/zmq/topics.py`).
    keys : tuple of bytes, optional
        CURVE keys: our public and secret key, and the server's public key.
    batch : int
        Most records that one `wait` returns.
    buffer_bytes : int, optional
        Most payload bytes that one `wait` returns.
    image : bool
        Whether the topic requests last values.
    silent_ns : int, optional
        Silence after which the fan-out is reported as disconnected (`Silence`).
    """

    def __init__(
            self, endpoint: str, topic: bytes, keys: tuple[bytes, bytes, bytes] | None, batch: int,
            buffer_bytes: int | None, image: bool = False, silent_ns: int | None = None):
        import zmq
        self.topic = topic
        path = Path(endpoint.removeprefix("ipc://"))
        self.feed = path.parent.name if endpoint.startswith("ipc://") and path.name == "zmq" else ""
        self.silence = Silence(silent_ns)
        self.image_due = image
        self.none_came = zmq.Again
        self.name_list = _Names()
        self.names = NameCache()
        # The largest record must fit. Pages that are never written take no memory.
        self.room = max(256 * batch if buffer_bytes is None else buffer_bytes, LARGEST_MESSAGE)
        self.use_arrays(np.zeros(batch, RECORD), np.zeros(batch, np.uint64),
                        np.zeros(self.room, np.uint8))
        context = zmq.Context()
        self.socket = context.socket(zmq.SUB)
        self.pid = getpid()
        # Close the socket also if the reader is dropped without `close`: if the context were
        # collected first, its term() would wait for the open socket for ever.
        self.leave = weakref.finalize(self, _leave, self.socket, context)
        try:
            self._set_up(endpoint, keys)
        except zmq.ZMQError as error:
            self.detach()
            raise ConfigError(
                f"zmq:{endpoint}: expected a ZeroMQ endpoint, found: {error.strerror}") from None

    def _set_up(self, endpoint, keys):
        import zmq
        socket = self.socket
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
        socket.setsockopt(zmq.RCVTIMEO, SLICE_MS)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 30_000)
        if keys is not None:
            socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = keys
        socket.connect(endpoint)
        socket.subscribe(self.topic)
        self.receive = socket.recv

    def await_answer(self, timeout: float | None) -> None:
        """Wait until the fan-out has answered; `timeout` in seconds (at least 2), None: no limit.

        Raises
        ------
        TimeoutError
            No fan-out answered in time.
        """
        deadline_ns = 1 << 62
        if timeout is not None:
            deadline_ns = clock_monotonic_ns() + int(max(timeout, _ANSWER_S) * 1e9)
        while not self.begun and not self.walk.size and not self.ended:
            if not self._receive(deadline_ns) and clock_monotonic_ns() >= deadline_ns:
                raise TimeoutError(
                    f"{self.socket.getsockopt_string(32)}: no fan-out answers; is it running "
                    "([zmq] enabled), and do the keys fit?")

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        # libzmq waits, not `idle`: a thread that spins would compete with libzmq's own threads.
        with gil:
            try:
                return self._wait(limit, until_ns)
            except BaseException as failure:
                self.failure = failure
                return -EBADMSG

    cdef int64_t _wait(self, int64_t limit, int64_t until_ns) except? -1:
        cdef int64_t count
        cdef int64_t now_ns
        if getpid() != self.pid:
            # libzmq's threads do not exist in a forked child: its calls would wait for ever.
            raise RingClosedError(
                f"{self._where()}: only process {self.pid}, which opened this reader, can read "
                f"it, and this is its forked child {getpid()}: open a new reader here")
        while True:
            if self.turned:
                return self._hand_out_connection()
            if self.back:
                return self._hand_out_rollback()
            while self.walk.at < self.walk.size:
                count = self._hand_out(limit)
                if count:
                    return count
            if self.ended:
                return self._end()
            if self.closing:
                return 0
            if not self._receive(until_ns):
                now_ns = clock_monotonic_ns()
                if not self.silence.judge(now_ns):
                    return 0
                self.turned = CONNECTION_DISCONNECTED
                self.turned_scope = CONNECTION_FANOUT
                self.silent_ns = self.silence.since(now_ns)

    cdef bint _receive(self, int64_t until_ns) except -1:
        # Take one message. Return False if none came in time.
        cdef int64_t left_ns = until_ns - clock_monotonic_ns()
        try:
            if left_ns >= SLICE_MS * 1_000_000:
                message = self.receive()
            elif left_ns < 1_000_000 or self.socket.poll(left_ns // 1_000_000):
                message = self.receive(1)  # zmq.NOBLOCK
            else:
                return False
        except self.none_came:
            return False
        self.taken += 1
        self._take(message)
        return True

    cdef int64_t _hand_out(self, int64_t limit) except -1:
        # Copy records of the message into the arrays. Return 0 if all of them are known already.
        cdef int64_t count = 0, size
        cdef uint64_t used = 0
        cdef Record* header
        while count < limit and self.walk.at < self.walk.size:
            header = self.headers + count
            size = envelope_take(&self.walk, header, self.payloads + used, self.room - used)
            if size < 0:
                if count:
                    break  # the next call meets it first, and reports it
                raise FormatError(f"{self._where()}: expected a record, found none among "
                                  f"{self.walk.size} bytes at {self.walk.at}")
            if self.last:
                header.flags |= RECORD_SNAPSHOT
            elif header.index < self.seen:
                continue  # a fan-out that restarted sends earlier records again
            else:
                self.seen = header.index + 1
            self.offsets[count] = used
            self.behind = header.position + RECORD_SIZE + size
            used += size
            count += 1
        if count:
            self._settle()
        return count

    cdef int64_t _end(self) except? -1:
        # The feed ended. If this is one of several sources, or joined after the end and has last
        # values that are out of date, report DISCONNECTED first. Losses behind the last record are
        # reported before one more record: that one, or an empty LAPPED.
        cdef Record header
        cdef Lapped lapped
        if not self.end_said and (self.among or self.late):
            self.end_said = True
            self.turned = CONNECTION_DISCONNECTED
            self.turned_scope = CONNECTION_WRITER
            self.silent_ns = self.silence.since(clock_monotonic_ns())
            return self._hand_out_connection()
        if self.pending == 0:
            return -EPIPE
        doubt_record_lapped(&header, &lapped, 0, self.missed_reason, clock_realtime_ns())
        return self._hand_out_own(&header, &lapped)

    cdef int64_t _hand_out_connection(self) except -1:
        # Hand out a CONNECTION: the fan-out is silent or came back; or the writer failed, ended, or
        # was replaced.
        cdef Record header
        cdef Connection said
        memset(&said, 0, sizeof(said))
        said.status = self.turned
        said.scope = self.turned_scope
        said.silent_ns = self.silent_ns
        self.turned = 0
        doubt_record(&header, KIND_CONNECTION, sizeof(said), clock_realtime_ns())
        return self._hand_out_own(&header, &said)

    cdef int64_t _hand_out_rollback(self) except -1:
        # Hand out a ROLLBACK: a host that lost its power had sent records that it had not written
        # to disk. Losses that are pending come behind it.
        cdef Record header
        cdef Rollback said
        cdef uint64_t pending = self.pending
        said.records = self.back
        said.position = self.back_at
        self.pending = self.back = 0
        doubt_record(&header, KIND_ROLLBACK, sizeof(said), clock_realtime_ns())
        self._hand_out_own(&header, &said)
        self.headers.position = said.position
        self.headers.index = self.seen
        self.pending = pending
        return 1

    cdef int64_t _hand_out_own(self, const Record* header, const void* payload) except -1:
        # Hand out a record that is in no ring.
        memcpy(self.headers, header, RECORD_SIZE)
        memcpy(self.payloads, payload, header.length - RECORD_SIZE)
        self.headers.position = self.behind
        self.headers.index = self._index_ahead()
        self.offsets[0] = 0
        self._settle()
        self.from_image = False
        return 1

    cdef uint64_t _index_ahead(self) noexcept:
        cdef Record ahead
        if self.last or self.walk.size - self.walk.at < RECORD_SIZE:
            return self.looked
        memcpy(&ahead, self.walk.body + self.walk.at, RECORD_SIZE)
        return ahead.index

    cdef _settle(self):
        self.missed = self.pending
        self.from_image = self.last
        self.lapped += self.pending
        self.pending = 0

    # --- messages --------------------------------------------------------------------------------

    cdef bint _take(self, bytes message) except -1:
        # Take a message. Return False if it is of another topic.
        cdef int64_t topic_size = self._topic_size(message)
        cdef bint restarted
        cdef Envelope* envelope = &self.envelope
        if topic_size < 0:
            return False
        self._read_envelope(message, topic_size)
        restarted = envelope.ring and self._note_ring()  # ring 0: the fan-out has no ring yet
        self.tail = max(self.tail, envelope.tail)
        self._take_body(message, topic_size + 1 + ENVELOPE_SIZE)
        if envelope.type == ENVELOPE_FAILED:
            self._note_failed()
            return True
        self.failed = False
        if self.table != envelope.table or envelope.names > <uint32_t>len(self.name_list):
            self._ask_names()
        if envelope.ring and envelope.heartbeat_ms == 0:
            self._note_behind()
        elif envelope.ring or not self.silence.silent:  # a fan-out without a ring stays silent
            self._note_heard(restarted)
        return True

    cdef int64_t _topic_size(self, bytes message) except -2:
        # Return the size of the topic at the beginning of the message; -1: another topic.
        cdef const uint8_t* data = message
        cdef size_t size = len(message)
        cdef size_t topic_size = len(self.topic)
        if self.asked is not None and message.startswith(self.asked):
            topic_size = len(self.asked)
        elif size <= topic_size or memcmp(data, <const char*>self.topic, topic_size) != 0:
            return -1
        if size <= topic_size or data[topic_size] > TOPIC_ANSWER:
            return -1  # a longer topic, which a proxy let through
        return <int64_t>topic_size

    cdef _read_envelope(self, bytes message, size_t topic_size):
        cdef const uint8_t* data = message
        cdef Envelope* envelope = &self.envelope
        if envelope_read(data, len(message), topic_size, envelope) < 0:
            raise FormatError(
                f"{self._where()}: expected a message of a fan-out, version {ENVELOPE_VERSION}, "
                f"found {len(message)} bytes with magic {envelope.magic:08x}, version "
                f"{envelope.version}")
        if envelope.layout != LAYOUT:
            raise FormatError(
                f"{self._where()}: expected layout hash {LAYOUT:016x}, found "
                f"{envelope.layout:016x}: the fan-out runs another version of udpfast")

    cdef bint _note_ring(self) except -1:
        # Note which ring the fan-out reads. Return True if the ring has a new writer.
        cdef Envelope* envelope = &self.envelope
        cdef bint restarted = self.ring and envelope.epoch != self.epoch
        if self.ring and (envelope.ring != self.ring or envelope.epoch < self.epoch):
            raise RingClosedError(
                f"{self._where()}: another ring has taken its place: open a new reader")
        if restarted and self.begun and envelope.began < self.seen:
            self.back += self.seen - max(envelope.began, self.joined)
            self.back_at = envelope.began_at
            self.seen = self.joined = envelope.began
            self.looked = min(self.looked, envelope.began)
        self.ring = envelope.ring
        self.epoch = envelope.epoch
        return restarted

    cdef _take_body(self, bytes message, size_t at):
        cdef const uint8_t* data = message
        cdef Envelope* envelope = &self.envelope
        if envelope.type == ENVELOPE_LAST:
            self.late = True
        elif envelope.type == ENVELOPE_RECORDS or envelope.type == ENVELOPE_ALIVE:
            self.late = False
        if envelope.type == ENVELOPE_NAMES:
            self._take_names(message[at:])
        elif envelope.type == ENVELOPE_REFUSED:
            raise ConfigError(f"{self._where()}: {message[at:].decode('utf-8', 'replace')}")
        elif envelope.type == ENVELOPE_RECORDS or envelope.type == ENVELOPE_LAST:
            self.last = envelope.type == ENVELOPE_LAST
            self._account()
            self.message = message
            self.walk.body = data + at
            self.walk.size = len(message) - at
            self.walk.at = 0
        elif envelope.type in (
                ENVELOPE_BEGIN, ENVELOPE_ALIVE, ENVELOPE_END, ENVELOPE_FAILED):
            if envelope.type == ENVELOPE_BEGIN and envelope.count and (
                    self.image_due and not self.begun):
                raise ImageError(
                    f"{self._where()}: its fan-out keeps no last values: set zmq.last_values = "
                    "true there")
            self._account()
            self.ended = envelope.type == ENVELOPE_END
        else:
            raise FormatError(f"{self._where()}: expected a message of type {ENVELOPE_RECORDS} to "
                              f"{ENVELOPE_FAILED}, found {envelope.type}")

    cdef _note_failed(self):
        # The feed failed: treat the fan-out as silent until another writer has written.
        self.failed = True
        self._begin_silence(CONNECTION_WRITER)

    cdef _note_behind(self):
        # The feed's loop stands still or catches up, so its records are old: treat it as silent.
        self._begin_silence(CONNECTION_FANOUT)

    cdef _begin_silence(self, uint32_t scope):
        if not self.silence.silent:
            self.silent_ns = self.silence.since(clock_monotonic_ns())
            self.silence.begin()
            self.turned = CONNECTION_DISCONNECTED
            self.turned_scope = scope

    cdef _note_heard(self, bint restarted):
        # Report the end of a silence: scope WRITER if there is a new writer, whose RESTART follows
        # or was missed; otherwise FANOUT.
        cdef int64_t now_ns = clock_monotonic_ns()
        cdef int64_t silent_ns = self.silence.since(now_ns)
        if self.silence.hear(now_ns, <int64_t>self.envelope.heartbeat_ms * 1_000_000):
            self.turned = CONNECTION_READY
            self.turned_scope = CONNECTION_WRITER if restarted else CONNECTION_FANOUT
            self.silent_ns = silent_ns

    cdef _account(self):
        # Count the records missed before this message. Within one stream its sequence numbers tell.
        # If the fan-out restarted, the ring's index does: exactly for the topic of all records, as
        # an upper limit for any other topic.
        cdef Envelope* envelope = &self.envelope
        cdef uint32_t count = envelope.count if envelope.type == ENVELOPE_RECORDS else 0
        if envelope.type == ENVELOPE_LAST or envelope.type == ENVELOPE_BEGIN:
            # An answer that is too large for the queue may have a hole: its state is incomplete.
            if envelope.last > self.last_taken:
                self.pending += envelope.last - self.last_taken
            self.last_taken = envelope.last + envelope.count
        elif self.image_due:
            self.pending += 1  # the end of the answer was missed, too
        if envelope.type != ENVELOPE_LAST:
            self.image_due = False
            self.last_taken = 0
        if not self.begun:
            self.begun = True
            # If the answer was missed, begin with the first record of this message.
            self.seen = 0 if count else envelope.index
            self.joined = envelope.index - count
        elif envelope.stream == self.stream:
            if envelope.sequence > self.expected:
                self.pending += envelope.sequence - self.expected
            if envelope.unseen > self.unseen:
                self.pending += envelope.unseen - self.unseen
        elif envelope.index > self.looked + count:
            self.pending += envelope.index - self.looked - count
        self.stream = envelope.stream
        self.expected = envelope.sequence + count
        self.unseen = envelope.unseen
        self.looked = max(self.looked, envelope.index)

    cdef _take_names(self, bytes body):
        first_id, texts = unpack_names(body, self.envelope.count)
        if any(len(text) > NAME_BYTES_MAX for text in texts) or first_id + len(texts) > NAMES_MAX:
            raise FormatError(
                f"{self._where()}: expected names of at most {NAME_BYTES_MAX} bytes, and at most "
                f"{NAMES_MAX} of them")
        if self.envelope.table != self.table and first_id == 1:
            self.table = self.envelope.table
            self.name_list = _Names()
            self.names = NameCache(self.name_list)
        if self.envelope.table == self.table and first_id <= len(self.name_list) + 1:
            self.name_list.texts.extend(texts[len(self.name_list) + 1 - first_id:])

    cdef _ask_names(self):
        # A message with names was missed: request the missing ones, or those of the new table.
        if clock_monotonic_ns() - self.asked_ns < ASK_NS:
            return
        self.asked_ns = clock_monotonic_ns()
        if self.asked is not None:
            self.socket.unsubscribe(self.asked)
        first = len(self.name_list) + 1 if self.table == self.envelope.table else 1
        self.asked = b"@names/%d" % first
        self.socket.subscribe(self.asked)

    def _where(self):
        return "zmq" if self.socket is None else f"zmq:{self.socket.getsockopt_string(32)}"

    # --- what a Reader asks ----------------------------------------------------------------------

    cdef fail(self, int64_t code):
        failure = self.failure
        if failure is not None:
            self.failure = None
            raise failure
        raise RingClosedError(
            f"{self._where()}: the writer closed the ring after {self.seen} records")

    cdef sleeper(self):
        return SocketSleeper(self.socket)

    cdef uint64_t next_index(self):
        return self.seen

    cdef bint joining(self):
        return self.image_due or self.last and self.walk.at < self.walk.size

    cdef object end(self):
        # A message states the ring's end as of its own time, and nobody tells how many of them are
        # in the queue: no more than it holds.
        return self.taken + QUEUE_MESSAGES

    cdef bint passed(self, end) except -1:
        return self.taken > end and not self.joining()

    cdef uint64_t missed_total(self):
        return self.lapped + self.pending

    cdef uint64_t written(self):
        return self.tail

    cdef uint64_t writer_epoch(self):
        return self.epoch

    cdef bint writer_ended(self):
        return self.ended

    cdef bint writer_failed(self):
        return self.failed

    cdef tuple feeds(self):
        return self.feed, self.feed

    cdef names_published(self):
        return set(), set()  # they come with the records

    cdef bint writer_alive(self):
        return not (self.ended or self.silence.silent or self.socket is None)

    cdef bint detached(self):
        return self.socket is None

    cdef detach(self):
        if self.socket is not None:
            self.leave()
            self.socket = None


def open_source(
        target: str, *, start: Literal['tail', 'begin'], batch: int, buffer_bytes: int | None,
        timeout: float | None, name: str, image: bool = False) -> ZmqSource:
    """Subscribe to a fan-out, and wait for its answer.

    Parameters
    ----------
    target : str
        "ipc://path", "tcp://host:port", or the name of an instance on this host. Optional parts
        follow: "?key=FILE&server=FILE" (CURVE: our secret key, the server's public key),
        "silent_ms=MS" (silence after which the fan-out is reported), and then "#TOPIC".
    start, batch, buffer_bytes, timeout, name, image
        As for `Reader`. A fan-out keeps no history: `start` must be "tail".

    Raises
    ------
    ConfigError
        The target, its keys or its topic are invalid, or `start` is not "tail".
    TimeoutError
        No fan-out answered in time.
    """
    if start != "tail":
        raise ConfigError(f"start of zmq:{target} must be 'tail', was {shown(start)}")
    endpoint, _, topic = target.partition("#")
    endpoint, _, query = endpoint.partition("?")
    if "://" not in endpoint:
        endpoint = f"ipc://{instance_directory(endpoint)}/zmq"
    topic = f"{'' if image else '~'}{topic}".encode()
    if len(topic) > TOPIC_SIZE_MAX:
        raise ConfigError(f"a topic must have at most {TOPIC_SIZE_MAX} bytes, has {len(topic)}")
    keys, silent_ns = _options(query, target)
    source = ZmqSource(endpoint, topic, keys, batch, buffer_bytes, image, silent_ns)
    try:
        source.await_answer(timeout)
    except BaseException:
        _close(source)
        raise
    return source


def _close(ZmqSource source):
    source.detach()


def _leave(socket, context):
    socket.close()
    context.term()


def _options(query, target):
    # Return the CURVE keys (None: none given) and silent_ns. Keys are in files, in the format of
    # zmq.auth.create_certificates.
    found = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    silent_ms = found.pop("silent_ms", None)
    if (query and not found and silent_ms is None) or set(found) not in (set(), {"key", "server"}):
        raise ConfigError(f"zmq:{target}: expected ?key=FILE&server=FILE, silent_ms=MS or both, "
                          f"found ?{query}")
    if silent_ms is not None and not (silent_ms.isdecimal() and len(silent_ms) < 10):
        raise ConfigError(f"zmq:{target}: expected silent_ms=MS, 0 or more ms, found {silent_ms!r}")
    keys = None
    if found:
        keys = *_load(found["key"], secret=True), _load(found["server"], secret=False)[0]
    return keys, None if silent_ms is None else int(silent_ms) * 1_000_000


def _load(path, secret):
    import zmq.auth
    try:
        found = zmq.auth.load_certificate(path)
        mode = stat.S_IMODE(Path(path).stat().st_mode)
    except (OSError, ValueError) as error:
        raise ConfigError(f"expected a CURVE key file, cannot read {path!r}: {error}") from None
    if secret and found[1] is None:
        raise ConfigError(f"expected a file with a secret key, found none in {path!r}")
    if secret and mode & 0o077:
        raise ConfigError(
            f"expected {path!r} to be readable only by its owner (chmod 600), found mode "
            f"{mode:04o}")
    return found
