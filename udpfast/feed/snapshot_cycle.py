"""When which object's snapshot goes out: the snapshot channel's round (docs/protocol.md, 5).

A round begins every `interval_ns` and carries each object once. Its datagrams leave at
`rate_per_s` at most, within a message too: one book of 256 datagrams at once would overflow a
receive buffer of the usual size. A round that takes longer than the interval is followed at once
by the next one. An object whose state cannot be had or sent is passed over, counted and said; the
round goes on.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from udpfast.feed.publication import Publication

__all__ = ["SnapshotCycle", "SnapshotSource", "SnapshotState"]

#: Most datagrams that leave at one call, however long ago the one before was: 64 of them take
#: 80 KiB of a receive buffer.
BURST_DATAGRAMS = 64


class SnapshotState(NamedTuple):
    """An object's encoded state, and which of its incremental messages it contains."""

    payload: bytes | bytearray
    last_seqno: int
    stamp_offset: int = -1


#: Asked at the object's turn for its state as it is then; None: nothing to publish this time.
SnapshotSource = Callable[[], SnapshotState | None]


class SnapshotCycle:
    """The round over all objects that have a snapshot.

    Parameters
    ----------
    publication : Publication
        Into whose snapshot channel the datagrams go.
    interval_ns : int
        Between the beginnings of two rounds, at least.
    rate_per_s : int
        Datagrams per second at most.

    Attributes
    ----------
    rounds : int
        Begun so far.
    refused : int
        Snapshots that were due and did not go out: the source raised, or gave what is no message.
    failures : dict of (object_type, object_id) to Exception
        Why an object's last turn was refused; only those of which it was.
    """

    def __init__(self, publication: Publication, *, interval_ns: int, rate_per_s: int) -> None:
        if interval_ns < 1 or rate_per_s < 1:
            raise ValueError(
                f"interval_ns and rate_per_s must be at least 1, were {interval_ns} and "
                f"{rate_per_s}"
            )
        self.rounds = 0
        self.refused = 0
        self.failures: dict[tuple[int, int], Exception] = {}
        self._publication = publication
        self._interval_ns = interval_ns
        self._datagram_ns = max(1, 1_000_000_000 // rate_per_s)
        self._sources: dict[tuple[int, int], SnapshotSource] = {}
        self._queue: deque[tuple[int, int]] = deque()
        self._next_round_ns: int | None = None
        self._paid_ns = -(1 << 63)  # up to when the datagrams sent are paid for

    def put(self, object_type: int, object_id: int, source: SnapshotSource) -> None:
        """Let an object take part from the next round on, or replace its source."""
        self._sources[object_type, object_id] = source

    def remove(self, object_type: int, object_id: int) -> bool:
        """Let an object take part no more; return whether it did. What has begun is sent whole."""
        self.failures.pop((object_type, object_id), None)
        return self._sources.pop((object_type, object_id), None) is not None

    def clear(self) -> None:
        """Forget all objects and the round under way; the next round begins at once."""
        self._sources.clear()
        self.failures.clear()
        self._queue.clear()
        self._next_round_ns = None

    def work(self, now_ns: int, utc_offset_ns: int = 0) -> int:
        """Put the datagrams that are due into the publication's send queue.

        Parameters
        ----------
        now_ns : int
            Monotonic.
        utc_offset_ns : int
            What makes a send time of `now_ns`: UNIX minus monotonic.

        Returns
        -------
        int
            How many datagrams, at most 64.
        """
        if not self._queue and not self._publication.snapshot_open and not self._begin(now_ns):
            return 0
        self._paid_ns = max(self._paid_ns, now_ns - BURST_DATAGRAMS * self._datagram_ns)
        allowed = (now_ns - self._paid_ns) // self._datagram_ns
        done = 0
        while done < allowed and (
            self._publication.snapshot_open or self._open_next(now_ns, utc_offset_ns)
        ):
            done += self._publication.continue_snapshot(allowed - done, now_ns=now_ns)
        self._paid_ns += done * self._datagram_ns
        return done

    def _begin(self, now_ns: int) -> bool:
        if not self._sources:
            return False
        if self._next_round_ns is not None and now_ns < self._next_round_ns:
            return False
        self._queue.extend(self._sources)
        self._next_round_ns = now_ns + self._interval_ns
        self.rounds += 1
        return True

    def _open_next(self, now_ns: int, utc_offset_ns: int) -> bool:
        while self._queue:
            key = self._queue.popleft()
            if key not in self._sources:
                continue
            try:
                begun = self._begin_snapshot(key, now_ns, utc_offset_ns)
            except Exception as error:  # one object's trouble is not the others'
                self.refused += 1
                self.failures[key] = error
                continue
            self.failures.pop(key, None)
            if begun:
                return True
        return False

    def _begin_snapshot(self, key: tuple[int, int], now_ns: int, utc_offset_ns: int) -> bool:
        state = self._sources[key]()
        if state is None:
            return False
        self._publication.begin_snapshot(
            state.payload,
            *key,
            last_seqno=state.last_seqno,
            now_ns=now_ns,
            stamp_offset=state.stamp_offset,
            stamp_ns=now_ns + utc_offset_ns,
        )
        return True
