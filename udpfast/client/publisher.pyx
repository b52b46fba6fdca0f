"""The `udpfast.Publisher`, with which a program publishes messages of its own."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport CHANNEL_INCREMENTAL, DATAGRAM_SIZE_MAX
from udpfast.core.oserr cimport check
from udpfast.feed.publication cimport SEND_QUEUE_FLUSH, SendQueue, Publication
from udpfast.net.sender cimport DatagramSender

import socket
import threading
from contextlib import suppress

from udpfast.client.published_book import PublishedBook
from udpfast.config import PublishConfig, load_publish
from udpfast.core.layout import Encoding
from udpfast.errors import ConfigError, unexpected_keyword
from udpfast.feed.transmitter import CHANNELS, SEND_ATTEMPTS, Transmitter

__all__ = ["Publisher"]

cdef int ATTEMPTS = SEND_ATTEMPTS

#: Period of the background thread. Snapshots are sent in bursts of at most 64 datagrams, so 2 ms
#: allow 32,000 per second; a heartbeat is at most one period late.
TICK_S = 0.002

#: Period of the check whether a line's interface was removed and created again.
cdef int64_t RENEW_NS = 1_000_000_000


@cython.final
cdef class Publisher:
    """Publisher(settings, *, encoding=Encoding.FLATBUFFERS, on_event=None)\n--\n
    Publish messages over UDP, with fragments where needed and heartbeats (docs/protocol.md).

    Parameters
    ----------
    settings : str, Path or PublishConfig
        A TOML file, or the result of `udpfast.config.parse_publish`.
    encoding : int
        Encoding of the payloads: 1 native, 2 FlatBuffers (the default).
    on_event : callable, optional
        Called with a sentence when every line of a channel has failed, when one works again, and
        when an object's snapshot is refused. The publisher's own thread calls it, within 2 ms.
        Without it, `take_events` returns these sentences.

    Raises
    ------
    ConfigError
        A setting is wrong; the message names file, key, what was expected and what was found.
    OSError
        A socket cannot be opened.

    Notes
    -----
    `send` works in the caller's thread and returns once the kernel has the datagrams. A thread of
    the publisher sends heartbeats and repeats snapshots, independently of the caller. Any number
    of threads may call the methods; a lock serialises them.

    Several messages together need fewer system calls, at about half the cost each:

        for payload in burst:
            publisher.send(payload, object_type=1, object_id=42, flush=False)
        publisher.flush()
    """

    cdef readonly list _senders
    cdef readonly object _transmitter
    cdef readonly object _lock           # protects the transmitter and the senders
    cdef readonly object _closed         # Event: set by `close`, wakes the thread
    cdef readonly object _thread
    cdef object _on_event
    cdef dict _troubles                  # errors of the background thread, for `failures`
    cdef Publication _publication        # the transmitter's
    cdef list _incremental               # the senders of the incremental channel
    cdef bint _segment
    cdef readonly dict _reopened         # by sender: how often its socket was opened anew
    cdef int64_t _renew_at_ns            # when to check interfaces next (monotonic)

    def __init__(self, settings, *, encoding=Encoding.FLATBUFFERS, on_event=None, **unknown):
        if unknown:
            raise unexpected_keyword(Publisher, unknown)
        config = settings if isinstance(settings, PublishConfig) else load_publish(settings)
        self._segment = config.segment
        self._senders = []
        self._reopened = {}
        self._renew_at_ns = 0
        try:
            lines = [
                [self._open(destination) for destination in channel]
                for channel in (config.incremental, config.snapshot)
            ]
            self._transmitter = Transmitter(
                lines[0],
                lines[1],
                session_id=None if config.session_id < 0 else config.session_id,
                first_seqno=config.first_seqno,
                first_snapshot_seqno=config.first_seqno,
                encoding=encoding,
                revision=config.wire.revision,
                byteorder=config.wire.byteorder,
                heartbeat_interval_ns=config.heartbeat_interval_ms * 1_000_000,
                snapshot_interval_ns=config.snapshot_interval_ms * 1_000_000,
                snapshot_rate_per_s=config.snapshot_rate_per_s,
            )
        except BaseException:
            self._close_senders()
            raise
        self._publication = self._transmitter.publication
        self._incremental = lines[0]
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._on_event = on_event
        self._troubles = {}
        self._thread = threading.Thread(target=self._tick, name="udpfast-publish", daemon=True)
        self._thread.start()

    def send(self, payload, object_type, object_id, *, bint snapshot=False,
             Py_ssize_t stamp_offset=-1, bint flush=True) -> int:
        """Publish one message on the incremental channel.

        Parameters
        ----------
        payload : bytes-like
            1..131,072 bytes; not kept after the call.
        object_type, object_id : int
            0..255 and 0..65535: the object that the message is about. Type 0: no object.
        snapshot : bool
            True: the payload is the object's complete state. False: it is a change.
        stamp_offset : int
            Offset in the payload at which to write the send time (u64, UNIX ns); -1: do not.
        flush : bool
            True: send the message at once. False: send it together with the next flushed message,
            at `flush`, when 64 datagrams are waiting, or after 2 ms, whichever is first.

        Returns
        -------
        int
            The message's seqno.

        Raises
        ------
        ValueError
            The payload is empty or too large, a number is out of range, or this is closed.
        OSError
            Every line failed to send. If only some did, see `counts` and `failures`.
        """
        cdef Py_buffer view
        cdef uint32_t seqno = 0
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            with self._lock:
                self._check()
                seqno = self._publication.put(
                    <const uint8_t*>view.buf, view.len, object_type, object_id, snapshot,
                    clock_monotonic_ns(), stamp_offset,
                    clock_realtime_ns() if stamp_offset >= 0 else 0)
                if flush or (
                        self._publication.send_queues[CHANNEL_INCREMENTAL].count
                        >= SEND_QUEUE_FLUSH):
                    self._flush()
        finally:
            PyBuffer_Release(&view)
        return seqno

    def flush(self) -> None:
        """Send the messages queued by `send(..., flush=False)`."""
        with self._lock:
            self._check()
            self._flush()

    def open_book(self, exchange, symbol, object_type, object_id, *, stream_id=0,
                  price_precision=0, quantity_precision=0):
        """Return a book to publish: its updates are sent, and its state in every snapshot round.

        Parameters
        ----------
        exchange, symbol : str
            Names of the instrument.
        object_type, object_id : int
            0..255 and 0..65535: identify the book on the wire.
        stream_id, price_precision, quantity_precision
            As for `udpfast.payload.roq.encode.encode_book`.

        Returns
        -------
        PublishedBook
        """
        return PublishedBook(
            self, exchange, symbol, object_type, object_id, stream_id=stream_id,
            price_precision=price_precision, quantity_precision=quantity_precision)

    def _send_locked(self, payload, object_type, object_id, *, snapshot, stamp_offset):
        # As `send`; the caller holds the lock.
        self._check()
        seqno = self._transmitter.send(
            payload, object_type, object_id, snapshot=snapshot, now_ns=clock_monotonic_ns(),
            stamp_offset=stamp_offset)
        self._flush()
        return seqno

    def publish_snapshot(self, payload, object_type, object_id, *, stamp_offset=-1) -> None:
        """Publish an object's complete state in every round of the snapshot channel from now on.

        The state must include every message that `send` has published for the object so far. Pass
        a new one when the state has changed; subscribers that join late apply later changes to it.

        Raises
        ------
        ValueError
            The payload is empty or too large, or a number is out of range.
        """
        with self._lock:
            self._check()
            self._transmitter.put_snapshot(
                payload, object_type, object_id, stamp_offset=stamp_offset
            )

    def remove(self, object_type, object_id) -> bool:
        """Stop publishing an object's state, for example when an instrument has expired.

        A snapshot that is being sent is completed. The object's numbers are kept: a later `send`
        for it refers to the message published before.

        Returns
        -------
        bool
            Whether its state was being published.
        """
        with self._lock:
            self._check()
            return self._transmitter.remove_snapshot(object_type, object_id)

    def restart(self, session_id=None) -> int:
        """Begin a new session, as a restart would, and return its id. Forgets all objects."""
        with self._lock:
            self._check()
            return self._transmitter.restart(session_id)

    @property
    def session_id(self) -> int:
        """The session's id, 0..65535."""
        return self._transmitter.publication.session_id

    @property
    def counts(self):
        """Counts by channel: messages, heartbeats, datagrams, bytes, unsent, refused, reopened.

        `datagrams` counts those of one line. `unsent` counts datagrams dropped on any line, because
        its queue was full, it had no route, or it failed. `reopened` counts sockets opened anew
        because their interface was replaced. `refused` counts snapshots that were due and could not
        be sent; `failures` says why.
        """
        with self._lock:
            return {
                name: {
                    **self._transmitter.publication.counters(channel),
                    "unsent": sum(self._transmitter.unsent[channel])
                    + sum(sender.unreachable for sender in senders),
                    "refused": self._transmitter.cycle.refused if channel else 0,
                    "reopened": sum(self._reopened[sender] for sender in senders),
                }
                for channel, (name, senders) in enumerate(zip(CHANNELS, self._transmitter.lines))
            }

    @property
    def failures(self):
        """Errors by line (`incremental.0`) and by object (`snapshot of 41/7`), present or past.

        For a line, its last error: every message is still tried on every line, so the others are
        not affected. For an object, why its last snapshot was not sent. Empty if nothing failed.
        """
        with self._lock:
            found = {f"{name}.{line}": sender.trouble
                     for name, senders in zip(CHANNELS, self._transmitter.lines)
                     for line, sender in enumerate(senders) if sender.trouble}
            found |= {f"{CHANNELS[channel]}.{line}": str(error)
                      for (channel, line), error in sorted(self._transmitter.failures.items())}
            found |= {f"snapshot of {key[0]}/{key[1]}": str(error)
                      for key, error in sorted(self._transmitter.cycle.failures.items())}
            return found | self._troubles

    @property
    def silent(self):
        """The channels whose lines all fail at present; `failures` says why."""
        return self._transmitter.silent

    def take_events(self) -> list:
        """Return the events since the last call, a sentence each; empty if `on_event` gets them."""
        events = self._transmitter.events
        return [events.popleft() for _ in range(len(events))]

    def close(self) -> None:
        """Send queued messages, stop heartbeats and snapshots, close the sockets. Idempotent."""
        self._closed.set()
        self._thread.join()
        self._say()
        with self._lock:  # another thread may be sending
            try:
                self._flush()
            finally:
                self._publication.clear(CHANNEL_INCREMENTAL)
                self._close_senders()

    def __enter__(self):
        """Return the publisher itself."""
        return self

    def __exit__(self, kind, value, traceback):
        """Close it."""
        self.close()

    cdef int _flush(self) except -1:
        # As Transmitter.flush, for senders without injected faults: needs no array, and no slices.
        cdef SendQueue* send_queue = &self._publication.send_queues[CHANNEL_INCREMENTAL]
        cdef DatagramSender sender
        cdef int64_t unsent
        cdef int error, failed = 0
        if send_queue.count == 0:
            return 0
        for line, sender in enumerate(self._incremental):
            unsent = sender.send_slots(
                send_queue.data, DATAGRAM_SIZE_MAX, send_queue.sizes, send_queue.count, ATTEMPTS,
                &error)
            if unsent:
                self._transmitter.unsent[CHANNEL_INCREMENTAL][line] += unsent
            if error:
                failed += 1
                try:
                    check(-error, "send", f"line {line}")
                except OSError as failure:
                    self._transmitter.failures[CHANNEL_INCREMENTAL, line] = failure
        send_queue.count = 0
        if failed == len(self._incremental):
            check(-error, "send", "on any line")
        return 0

    def _open(self, destination):
        cdef DatagramSender sender = DatagramSender(
            destination.address,
            interface=destination.interface,
            ttl=destination.ttl,
            loop=destination.loop,
            segment=self._segment,
        )
        self._senders.append(sender)
        self._reopened[sender] = 0
        return sender

    cdef list _find_lost(self):
        # Return the senders whose interface no longer exists under its index: it was removed, or
        # created again, and their sockets are useless. Called without the lock: no other thread
        # opens sockets, and the check takes as long as several sends.
        cdef int64_t now_ns = clock_monotonic_ns()
        if now_ns < self._renew_at_ns:
            return []
        self._renew_at_ns = now_ns + RENEW_NS
        tied = [sender for sender in self._senders if sender.tied_to]
        try:
            there = {index for index, _ in socket.if_nameindex()} if tied else ()
        except OSError:  # no free descriptor for the query
            return []
        return [sender for sender in tied if sender.tied_to not in there]

    def _renew(self, lost):
        for sender in lost:
            with suppress(ConfigError, OSError):  # no interface yet: tried again in a second
                sender.replace_socket()
                self._reopened[sender] += 1

    def _close_senders(self):
        for sender in self._senders:
            sender.close()

    cdef int _check(self) except -1:
        if self._closed.is_set():
            raise ValueError("this publisher is closed")
        return 0

    def _tick(self):
        while not self._closed.wait(TICK_S):
            # Heartbeats must continue whatever fails: subscribers would take silence for an outage.
            try:
                self._turn(self._find_lost())
                self._say()
            except Exception as error:
                self._troubles["thread"] = f"{type(error).__name__}: {error}"

    def _turn(self, lost):
        with self._lock:
            now_ns = clock_monotonic_ns()
            self._renew(lost)
            self._transmitter.utc_offset_ns = clock_realtime_ns() - now_ns
            self._transmitter.do_work(now_ns)

    def _say(self):
        # Called without the lock: the callback may call this publisher.
        if self._on_event is not None:
            for event in self.take_events():
                self._on_event(event)
