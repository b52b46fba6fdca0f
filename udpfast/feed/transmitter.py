"""One publisher session and the lines that carry it: publication, snapshot round, senders.

The lines are objects with `send`, given by the owner: sockets in production, lists in tests. A
bad network can stand between (`impair`). Time is an argument; nothing here waits. What a line or an
object fails with is counted and said, and the others go on.
"""

import heapq
import secrets
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from udpfast.core.layout import Channel
from udpfast.feed.carriage import Carriage, Carrier
from udpfast.feed.publication import Publication
from udpfast.feed.snapshot_cycle import SnapshotCycle, SnapshotSource, SnapshotState

__all__ = ["DatagramViews", "Impairment", "LineSender", "Transmitter", "datagrams_of"]

#: Datagrams where they lie: buffer (uint8), offsets and sizes (int64).
DatagramViews = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]

#: How often a full send queue is asked again before the rest is given up for that line. A turn
#: takes about 1 us, so a line may hold up the others for 1 ms.
SEND_ATTEMPTS = 1000

#: Sentences that are kept for an owner who does not fetch them.
EVENTS_MAX = 100

CHANNELS = ("incremental", "snapshot")


class LineSender(Carrier, Protocol):
    """One line of a channel; `net.sender.DatagramSender` is one."""

    def send(self, datagrams: DatagramViews) -> int:
        """Send in order; return how many are done with: fewer than given = the queue is full."""


class Impairment(Protocol):
    """A bad network: what arrives, and when, of the datagrams that a line is given."""

    def pass_through(
        self,
        channel: int,
        line: int,
        datagrams: list[bytes],
        now_ns: int,
    ) -> Sequence[tuple[int, bytes]]:
        """Return (due_ns, datagram) for each one that shall be sent; due_ns <= now_ns: at once."""


class Transmitter:
    """Publish a feed over several lines per channel.

    Parameters
    ----------
    incremental, snapshot : sequence of LineSender
        The lines of each channel; without snapshot lines there is no snapshot round.
    session_id : int, optional
        Drawn at random by default.
    first_seqno, first_snapshot_seqno, encoding, revision, byteorder, heartbeat_interval_ns
        As `Publication`.
    snapshot_interval_ns, snapshot_rate_per_s
        As `SnapshotCycle`.
    impair : Impairment, optional
        Stands before every line. May be set and taken away later.
    utc_offset_ns : int
        UNIX minus monotonic time, for send stamps; the owner keeps it right.

    Attributes
    ----------
    unsent : pair of list of int
        Datagrams given up, by channel and line: its queue stayed full, or it failed.
    failures : dict of (channel, line) to OSError
        What a line failed with last. It is asked again with every flush, and the others go on.
    events : deque of str
        What happened, a sentence each, once: a channel fell silent or is carried again, an object's
        snapshot was refused. Its owner takes them out; of the oldest, only the last 100 are kept.
    """

    def __init__(
        self,
        incremental: Sequence[LineSender],
        snapshot: Sequence[LineSender] = (),
        *,
        session_id: int | None = None,
        first_seqno: int = 1,
        first_snapshot_seqno: int = 1,
        encoding: int = 2,
        revision: str = "current",
        byteorder: str = "little",
        heartbeat_interval_ns: int = 1_000_000_000,
        snapshot_interval_ns: int = 1_000_000_000,
        snapshot_rate_per_s: int = 50_000,
        impair: Impairment | None = None,
        utc_offset_ns: int = 0,
    ) -> None:
        self.publication = Publication(
            secrets.randbelow(1 << 16) if session_id is None else session_id,
            first_seqno=first_seqno,
            first_snapshot_seqno=first_snapshot_seqno,
            encoding=encoding,
            revision=revision,
            byteorder=byteorder,
            heartbeat_interval_ns=heartbeat_interval_ns,
        )
        self.cycle = SnapshotCycle(
            self.publication, interval_ns=snapshot_interval_ns, rate_per_s=snapshot_rate_per_s
        )
        self.impair = impair
        self.utc_offset_ns = utc_offset_ns
        self.sessions = [self.publication.session_id]
        self.lines = (tuple(incremental), tuple(snapshot))
        self.unsent = ([0] * len(self.lines[0]), [0] * len(self.lines[1]))
        self.failures: dict[tuple[int, int], OSError] = {}
        self.events: deque[str] = deque(maxlen=EVENTS_MAX)
        self._said: dict[tuple[int, int], str] = {}  # of which object's snapshot
        self._carriages = [Carriage(*pair) for pair in zip(CHANNELS, self.lines, strict=True)]
        self._delayed: list[tuple[int, int, int, int, bytes]] = []
        self._delayed_count = 0

    def send(
        self,
        payload: bytes | bytearray,
        object_type: int,
        object_id: int,
        *,
        snapshot: bool = False,
        now_ns: int,
        stamp_offset: int = -1,
    ) -> int:
        """Put a message on the incremental channel; return its seqno.

        It leaves when 64 datagrams wait, or with `flush` or `do_work`. See `Publication.publish`.
        """
        seqno = self.publication.publish(
            payload,
            object_type,
            object_id,
            snapshot=snapshot,
            now_ns=now_ns,
            stamp_offset=stamp_offset,
            stamp_ns=now_ns + self.utc_offset_ns,
        )
        if self.publication.pending(Channel.INCREMENTAL) >= Publication.flush_at:
            self._flush_channel(Channel.INCREMENTAL, now_ns)
        return seqno

    def put_snapshot(
        self,
        payload: bytes | bytearray,
        object_type: int,
        object_id: int,
        *,
        stamp_offset: int = -1,
    ) -> None:
        """Publish this state of an object in every round from now on.

        It must contain exactly the object's incremental messages up to now.

        Raises
        ------
        ValueError
            The payload is empty or too large, or a number is out of range.
        """
        copy = memoryview(payload).tobytes()  # bytes(5) would be five zeros
        self.publication.check(copy, object_type, object_id, stamp_offset=stamp_offset)
        state = SnapshotState(
            copy, self.publication.last_seqno(object_type, object_id), stamp_offset
        )
        self.cycle.put(object_type, object_id, lambda: state)

    def put_snapshot_source(self, object_type: int, object_id: int, source: SnapshotSource) -> None:
        """Ask `source` for the object's state at its turn in every round from now on.

        What it raises, or a state that is no message, is counted and said; the round goes on.
        """
        self.cycle.put(object_type, object_id, source)

    def remove_snapshot(self, object_type: int, object_id: int) -> bool:
        """Publish an object's state no more; return whether it was published."""
        return self.cycle.remove(object_type, object_id)

    def do_work(self, now_ns: int) -> int:
        """Do what is due: snapshots, heartbeats, delayed datagrams, and flush both channels.

        Returns
        -------
        int
            How many datagrams that were.
        """
        work = self.cycle.work(now_ns, self.utc_offset_ns) if self.lines[Channel.SNAPSHOT] else 0
        work += self.publication.heartbeat(now_ns)
        self.flush(now_ns)
        work += self._send_delayed(now_ns)
        self._look_at_lines()
        self._look_at_objects()
        return work

    def flush(self, now_ns: int) -> None:
        """Send what waits in both channels."""
        self._flush_channel(Channel.INCREMENTAL, now_ns)
        self._flush_channel(Channel.SNAPSHOT, now_ns)

    def restart(self, session_id: int | None = None) -> int:
        """Begin a new session, as a restarted publisher would; return its id.

        All objects are forgotten, those of the snapshot round too: the owner announces them
        again. Datagrams that the old session still has on the way stay on the way.
        """
        if session_id is None:
            session_id = self.publication.session_id
            while session_id == self.publication.session_id:
                session_id = secrets.randbelow(1 << 16)
        self.cycle.clear()
        self.publication.restart(session_id)
        self.sessions.append(session_id)
        return session_id

    @property
    def silent(self) -> tuple[str, ...]:
        """The channels of which no line carries anything at present."""
        return tuple(
            name
            for name, carriage in zip(CHANNELS, self._carriages, strict=True)
            if carriage.silent
        )

    def delayed(self) -> int:
        """Return how many datagrams the impairment holds back at present."""
        return len(self._delayed)

    def _look_at_lines(self) -> None:
        for channel, carriage in enumerate(self._carriages):
            failures = {line: error for (of, line), error in self.failures.items() if of == channel}
            if sentence := carriage.look(self.unsent[channel], failures):
                self.events.append(sentence)

    def _look_at_objects(self) -> None:
        if self.cycle.failures or self._said:
            found = {key: str(error) for key, error in self.cycle.failures.items()}
            self.events.extend(
                f"snapshot of object {key[0]}/{key[1]} was not sent: {text}"
                for key, text in found.items()
                if self._said.get(key) != text
            )
            self._said = found

    def _flush_channel(self, channel: int, now_ns: int) -> None:
        if not self.publication.pending(channel):
            return
        if self.impair is None and not self._delayed:
            views = self.publication.views(channel)
            for line in range(len(self.lines[channel])):
                self._send_line(channel, line, views)
            self.publication.clear(channel)
            return
        datagrams = self.publication.take(channel)
        for line in range(len(self.lines[channel])):
            arrivals: Sequence[tuple[int, bytes]] = [(now_ns, datagram) for datagram in datagrams]
            if self.impair is not None:
                arrivals = self.impair.pass_through(channel, line, datagrams, now_ns)
            for due_ns, datagram in arrivals:
                # The count keeps equal times in order, and datagrams from being compared.
                self._delayed_count += 1
                heapq.heappush(
                    self._delayed, (due_ns, self._delayed_count, channel, line, datagram)
                )
        self._send_delayed(now_ns)

    def _send_delayed(self, now_ns: int) -> int:
        due: dict[tuple[int, int], list[bytes]] = {}
        count = 0
        while self._delayed and self._delayed[0][0] <= now_ns:
            _, _, channel, line, datagram = heapq.heappop(self._delayed)
            due.setdefault((channel, line), []).append(datagram)
            count += 1
        for (channel, line), datagrams in due.items():
            self._send_line(channel, line, _views_of(datagrams))
        return count

    def _send_line(self, channel: int, line: int, views: DatagramViews) -> None:
        """Send everything, or as much as the queue takes in time; count what is given up."""
        data, offsets, sizes = views
        done = 0
        try:
            for _ in range(SEND_ATTEMPTS):
                done += self.lines[channel][line].send((data, offsets[done:], sizes[done:]))
                if done == len(sizes):
                    return
        except OSError as error:  # one line's trouble is not the other lines'
            self.failures[channel, line] = error
        self.unsent[channel][line] += len(sizes) - done


def datagrams_of(views: DatagramViews) -> list[bytes]:
    """Copy datagrams out of the buffer in which they lie."""
    data, offsets, sizes = views
    return [
        data[offset : offset + size].tobytes()
        for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
    ]


def _views_of(datagrams: list[bytes]) -> DatagramViews:
    sizes = np.fromiter(map(len, datagrams), np.int64, len(datagrams))
    return np.frombuffer(b"".join(datagrams), np.uint8), np.cumsum(sizes) - sizes, sizes
