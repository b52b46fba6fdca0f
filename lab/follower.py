"""A subscriber made of the feed's own parts, which checks all that it is given.

Engine and object gate are the real ones. What a strategy would do with their outputs happens here
in plain Python, and every step is compared with the origin: a state that is not the origin's at
that seqno, a delivery out of order or twice, or a seqno that is neither delivered nor reported
lost raises `Wrong` at once.
"""

import struct
from typing import Any

from udpfast.core.counter import VERDICTS
from udpfast.core.layout import (
    Channel,
    ConnectionScope,
    Kind,
    ObjectStatus,
    RecordFlag,
    SessionReason,
)
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.market.gate import ObjectGate, ObjectOutput
from udpfast.net.bad_network import Arrival

from .origin import Key, Origin, fold, snapshot_state
from .said import admitted, gap_of, session_of

__all__ = ["Follower", "Wrong"]

# Asked of each output: `&` of a flag with another integer takes ten times as long.
_UNGATED, _SNAPSHOT = int(RecordFlag.UNGATED), int(RecordFlag.SNAPSHOT)
_CONNECTION = struct.Struct("<II")
_WRAP = 1 << 32


class Wrong(AssertionError):  # noqa: N818 - it is a finding, not an error of this module
    """The feed gave something that the origin never said."""


class Follower:
    """Feed datagrams to engine and objects; follow their outputs, and check them.

    Parameters
    ----------
    origins : list of Origin
        The publisher's sessions, oldest first.
    objects : dict
        Limits of `ObjectGate`.
    **settings
        Of `FeedPipeline`.
    """

    def __init__(
        self, origins: list[Origin], *, objects: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        self.pipeline = FeedPipeline(**settings)
        self.objects = ObjectGate(**(objects or {}))
        self.upcoming = list(origins)
        self.origin: Origin | None = None
        self.datagrams = 0
        self.delivered = [0, 0]
        self.lost = [0, 0]
        self.gaps: list[tuple[int, int, int, int]] = []  # channel, first, count, reason
        self.sessions: list[tuple[int, int, int]] = []  # old, new, reason
        self.connections: list[tuple[int, int]] = []  # channel, status
        self.disagreements = 0
        self.stale = 0
        self.recovered = 0
        #: What follows the last seqno delivered or lost, per channel; None: nothing yet.
        self.expected: list[int | None] = [None, None]
        self.state: dict[Key, int] = {}
        self.applied: dict[Key, int] = {}

    def accept(self, arrival: Arrival, flags: int = 0) -> str:
        """Give one datagram to the engine, follow what comes out; return the verdict's name."""
        self.datagrams += 1
        verdict = self.pipeline.accept(
            arrival.channel,
            arrival.line,
            arrival.datagram,
            arrival.time_ns,
            arrival.time_ns,
            flags=flags,
        )
        self._drain()
        return VERDICTS[verdict].name

    def run(self, arrivals: list[Arrival], *, tick_ns: int = 1_000_000) -> None:
        """Give many datagrams, and let time pass in ticks between them."""
        tick = arrivals[0].time_ns if arrivals else 0
        accept, drain, expire = self.pipeline.accept, self._drain, self.pipeline.expire
        for time_ns, channel, line, datagram in arrivals:
            while tick < time_ns:
                expire(tick)
                drain()
                tick = min(tick + tick_ns, time_ns)
            accept(channel, line, datagram, time_ns, time_ns)
            self.datagrams += 1
            drain()

    def expire(self, now_ns: int) -> None:
        """Let time pass."""
        self.pipeline.expire(now_ns)
        self._drain()

    def finish(self, now_ns: int) -> None:
        """End the input: holes become gaps."""
        self.pipeline.finish(now_ns)
        self._drain()

    def status(self, key: Key) -> ObjectStatus | None:
        """Return what the gate says of an object."""
        view = self.objects.state(*key)
        return None if view is None else view.status

    def verdicts(self) -> dict[str, int]:
        """Return the sums of all verdicts over all lines (NL0: they add up to the datagrams)."""
        names = [info.name for info in VERDICTS]
        scopes = [scope for name, scope in self.pipeline.counters().items() if "." in name]
        return {name: sum(scope.get(name, 0) for scope in scopes) for name in names}

    def check_accounting(self) -> None:
        """Check NL0, and that the gate gave every message exactly one outcome."""
        if sum(self.verdicts().values()) != self.datagrams:
            raise Wrong(f"{self.datagrams} datagrams, but verdicts {self.verdicts()}")
        counted = self.objects.counters()
        names = (
            "applied",
            "ungated",
            "collected",
            "snapshots_skipped",
            "snapshots_too_old",
            "snapshots_broken",
            "updates_contained",
            "objects_full",
        )
        channels = self.pipeline.counters()
        messages = sum(
            channels[name].get("messages", 0) - channels[name].get("heartbeats", 0)
            for name in ("incremental", "snapshot")
        )
        if sum(counted[name] for name in names) != messages:
            raise Wrong(f"{messages} messages, but outcomes { {n: counted[n] for n in names} }")

    def check_equal(self, keys: list[Key] | None = None, *, live: bool = True) -> None:
        """Check NL2: objects (None: all) are here, equal, and (`live`) said to be LIVE."""
        assert self.origin is not None, "no session was seen"
        for key in self.origin.state if keys is None else keys:
            state = self.origin.state[key]
            if self.state.get(key) != state:
                raise Wrong(
                    f"object {key}: state as of {self.applied.get(key)}, "
                    f"expected {self.origin.last_seqno[key]}; {self.objects.state(*key)}"
                )
            if live and self.status(key) != ObjectStatus.LIVE:
                raise Wrong(f"object {key} is {self.objects.state(*key)}, expected LIVE")

    def check_live_sound(self) -> None:
        """Check that no object which is said to be LIVE misses an update that it should have."""
        expected = self.expected[Channel.INCREMENTAL]
        if self.origin is None or expected is None:
            return
        for key, applied in self.applied.items():
            last = self.origin.last_update_before(key, expected)
            if (
                last is not None
                and 0 < (last - applied) % _WRAP < 1 << 31
                and self.status(key) == ObjectStatus.LIVE
            ):
                raise Wrong(f"object {key} is LIVE as of {applied}, but has an update {last}")

    def _drain(self) -> None:
        for message in self.pipeline.take():
            self._follow(message)
            for output in admitted(self.objects, message):
                self._apply(output)

    def _follow(self, message: FeedMessage) -> None:
        channel = message.channel
        if message.kind is Kind.MESSAGE:
            self._advance(channel, message.seqno, 1)
            self.delivered[channel] += 1
            if self.origin is None or message.session_id != self.origin.session_id:
                raise Wrong(f"message of session {message.session_id} in {self.origin}")
        elif message.kind == Kind.GAP:
            first, last, count, reason, _ = gap_of(message)
            if count == 0 or (last - first + 1) % _WRAP != count:
                raise Wrong(f"gap [{first}, {last}] with count {count}")
            self._advance(channel, first, count)
            self.lost[channel] += count
            self.gaps.append((channel, first, count, reason))
        elif message.kind == Kind.SESSION:
            old, new, reason, *_ = session_of(message)
            self.sessions.append((old, new, reason))
            while self.upcoming and (
                self.origin is None
                or self.origin.session_id != new
                or reason == SessionReason.SAME_ID
            ):
                self.origin = self.upcoming.pop(0)
                if self.origin.session_id == new:
                    break
            self.expected = [None, None]
            self.state.clear()
            self.applied.clear()
        elif message.kind == Kind.CONNECTION:
            status, scope = _CONNECTION.unpack_from(message.payload)
            if scope == ConnectionScope.CHANNEL:
                self.connections.append((channel, status))
        elif message.kind == Kind.DISAGREEMENT:
            self.disagreements += 1

    def _advance(self, channel: int, first: int, count: int) -> None:
        # NL1: delivered seqnos and gaps follow each other without a break and without overlap.
        expected = self.expected[channel]
        if expected is not None and first != expected:
            raise Wrong(f"channel {channel}: {first} came, expected {expected}")
        self.expected[channel] = (first + count) % _WRAP

    def _apply(self, output: ObjectOutput) -> None:
        if output.kind == Kind.STALE:
            self.stale += 1
        elif output.kind == Kind.RECOVERED:
            self.recovered += 1
        if output.kind != Kind.MESSAGE or output.flags & _UNGATED:
            return
        assert self.origin is not None
        key = (output.object_type, output.object_id)
        if output.channel == Channel.SNAPSHOT:
            state, applied = snapshot_state(output.payload), output.last_seqno
        elif output.flags & _SNAPSHOT:
            state, applied = snapshot_state(output.payload), output.seqno
        else:
            state, applied = fold(self.state.get(key, 0), output.payload), output.seqno
        before = self.applied.get(key)
        if before is not None and (applied - before) % _WRAP >= 1 << 31:
            raise Wrong(f"object {key} went back from {before} to {applied}")
        if self.origin.history.get((key, applied)) != state:
            raise Wrong(f"object {key}: the state as of {applied} is not the origin's; {output}")
        self.state[key] = state
        self.applied[key] = applied
