"""What a program imports to publish messages of its own: `udpfast.Publisher`."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from udpfast.config import Destination, PublishConfig, load_publish
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.core.layout import Encoding
from udpfast.feed.transmitter import Transmitter
from udpfast.net.sender import DatagramSender

__all__ = ["Publisher"]

#: Between two looks of the background thread. Snapshots leave in bursts of 64 datagrams at most,
#: so 2 ms allow 32,000 per second; a heartbeat is late by no more than that.
TICK_S = 0.002


class Publisher:
    """Publish messages over UDP: fragments when it must, heartbeats when idle (PROTOCOL 5).

    Parameters
    ----------
    settings : str, Path or PublishConfig
        A TOML file, or what `udpfast.config.parse_publish` made of tables.
    encoding : int
        What the payloads are: 1 native, 2 FlatBuffers (the default).

    Raises
    ------
    ConfigError
        A setting is wrong; names file, key, what was expected and what was found.
    OSError
        A socket cannot be opened.

    Notes
    -----
    `send` works in the caller's thread and returns when the datagrams are with the kernel. A
    thread of its own sends heartbeats and repeats snapshots, so that they come whatever the
    caller does. Any number of threads may call; they take turns.
    """

    def __init__(
        self, settings: str | Path | PublishConfig, *, encoding: int = Encoding.FLATBUFFERS
    ) -> None:
        config = settings if isinstance(settings, PublishConfig) else load_publish(settings)
        self._segment = config.segment
        self._senders: list[DatagramSender] = []
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
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._tick, name="udpfast-publish", daemon=True)
        self._thread.start()

    def send(
        self,
        payload: bytes,
        object_type: int,
        object_id: int,
        *,
        snapshot: bool = False,
        stamp_offset: int = -1,
    ) -> int:
        """Publish one message on the incremental channel.

        Parameters
        ----------
        payload : bytes-like
            1..131,072 bytes.
        object_type, object_id : int
            0..255 and 0..65535: what the message is about. Type 0 is about no object.
        snapshot : bool
            Whether the payload is the object's complete state, not a change to it.
        stamp_offset : int
            Where in the payload the send time belongs, a u64 of UNIX ns; -1: nowhere.

        Returns
        -------
        int
            Its seqno.

        Raises
        ------
        ValueError
            The payload is empty or too large, or a number is out of range.
        OSError
            A socket is of no use any more.
        """
        with self._lock:
            self._check()
            now_ns = self._now()
            seqno = self._transmitter.send(
                payload,
                object_type,
                object_id,
                snapshot=snapshot,
                now_ns=now_ns,
                stamp_offset=stamp_offset,
            )
            self._transmitter.flush(now_ns)
            return seqno

    def publish_snapshot(
        self, payload: bytes, object_type: int, object_id: int, *, stamp_offset: int = -1
    ) -> None:
        """Publish an object's complete state on the snapshot channel, in every round to come.

        It must contain all messages that `send` has published of the object, and no more. Give
        it anew when the state has changed: who joins late applies the changes sent since.
        """
        with self._lock:
            self._check()
            self._transmitter.put_snapshot(
                bytes(payload), object_type, object_id, stamp_offset=stamp_offset
            )

    def restart(self, session_id: int | None = None) -> int:
        """Begin a new session, as after a restart; return its id. All objects are forgotten."""
        with self._lock:
            self._check()
            return self._transmitter.restart(session_id)

    @property
    def session_id(self) -> int:
        """The session's id, 0..65535."""
        return self._transmitter.publication.session_id

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """What was published per channel: messages, heartbeats, datagrams, bytes, unsent.

        `datagrams` are those of one line; `unsent` were given up on any line, its queue full.
        """
        with self._lock:
            return {
                name: {
                    **self._transmitter.publication.counters(channel),
                    "unsent": sum(self._transmitter.unsent[channel]),
                }
                for channel, name in enumerate(("incremental", "snapshot"))
            }

    def close(self) -> None:
        """Stop heartbeats and snapshots and close the sockets; once more does nothing."""
        self._closed.set()
        self._thread.join()
        with self._lock:  # another thread may be sending
            self._close_senders()

    def __enter__(self) -> Self:
        """Return the publisher itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _open(self, destination: Destination) -> DatagramSender:
        sender = DatagramSender(
            destination.address,
            interface=destination.interface,
            ttl=destination.ttl,
            loop=destination.loop,
            segment=self._segment,
        )
        self._senders.append(sender)
        return sender

    def _close_senders(self) -> None:
        for sender in self._senders:
            sender.close()

    def _now(self) -> int:
        now_ns = monotonic_ns()
        self._transmitter.utc_offset_ns = realtime_ns() - now_ns
        return now_ns

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed.is_set():
            raise ValueError("this publisher is closed")

    def _tick(self) -> None:
        while not self._closed.wait(TICK_S):
            with self._lock:
                try:
                    self._transmitter.do_work(self._now())
                except Exception as error:  # the caller hears of it with the next send
                    self._failure = error
                    return
