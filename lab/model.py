"""The slow, obvious model of window and sessions: docs/protocol.md in plain Python.

Datagrams are put in order with dictionaries and lists: it knows no speed, no limits of memory,
and no engine. The model of the object rules is `pseudocode`; `origin` knows every true state.
"""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["FeedModel", "ModelOutput"]

_WRAP = 1 << 32
_NS_PER_S = 1_000_000_000
_HELD = 128  # datagrams of one line
_HEADER = struct.Struct("<BBBBHHII")


def _seqno(data: bytes) -> int:
    return int(_HEADER.unpack_from(data)[6])


def _place_of(data: bytes) -> tuple[int, int]:
    # For comparisons near each other: seqnos that wrap lie behind those before.
    return (_seqno(data) + (1 << 31)) % _WRAP, data[1]


class ModelOutput(NamedTuple):
    """`message` (seqno, payload), `gap` (first, last) or `session` (old id, new id)."""

    what: str
    channel: int
    session_id: int
    first: int
    last: int
    payload: bytes = b""


@dataclass
class _Partial:
    fragment_max: int
    first_ns: int
    fragments: dict[int, bytes] = field(default_factory=dict)
    came_ns: dict[int, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        return len(self.fragments) == self.fragment_max + 1

    @property
    def payload(self) -> bytes:
        return b"".join(self.fragments[number] for number in sorted(self.fragments))

    def passed_ns(self) -> int | None:
        """Return when a fragment behind the first missing one came; None: none did."""
        missing = next(i for i in range(self.fragment_max + 1) if i not in self.fragments)
        return min((ns for i, ns in self.came_ns.items() if i > missing), default=None)


@dataclass
class _Channel:
    # Seqnos are unwrapped: plain integers that may exceed 2^32.
    accepted: int | None = None  # the last one delivered or lost
    pending: dict[int, _Partial] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    line_highest: dict[int, int] = field(default_factory=dict)
    line_heard_ns: dict[int, int] = field(default_factory=dict)
    went_on_ns: list[int] = field(default_factory=list)  # when anything new came

    def silence_ns(self, line: int, now_ns: int, pause_ns: int) -> int:
        """Return how long the channel went on without a line.

        Of a time in which no line brought anything new, so much counts at most.
        """
        silence, until_ns = 0, now_ns
        heard_ns = self.line_heard_ns[line]
        for since_ns in reversed(self.went_on_ns):
            silence += max(0, min(until_ns, since_ns + pause_ns) - max(since_ns, heard_ns))
            if since_ns <= heard_ns:
                break
            until_ns = since_ns
        return silence


@dataclass
class _HeldSnapshots:
    # Snapshots that one line brought of a session that is not the current one.
    session_id: int
    datagrams: list[bytes] = field(default_factory=list)
    spoke: bool = True  # the line brought nothing of the current session since


class FeedModel:
    """Order, gaps, reassembly and sessions of one feed, one datagram after the other.

    Parameters
    ----------
    out_of_order_max_interval, lost_packet_wait_ns, on_gap, session_adopt_datagrams,
    stale_session_grace_ns, line_dead_ns, inactivity_timeout_ns
        As of the feed (docs/protocol.md).
    """

    def __init__(
        self,
        *,
        out_of_order_max_interval: int = 8192,
        lost_packet_wait_ns: int = 5_000_000,
        on_gap: str = "keep_all",
        session_adopt_datagrams: int = 1,
        stale_session_grace_ns: int = 7_200_000_000_000,
        line_dead_ns: int = 100_000_000,
        inactivity_timeout_ns: int = 10_000_000_000,
    ) -> None:
        self.interval = out_of_order_max_interval
        self.wait_ns = lost_packet_wait_ns
        self.latest_run = on_gap == "latest_run"
        self.adopt = session_adopt_datagrams
        self.grace_ns = stale_session_grace_ns
        self.line_dead_ns = line_dead_ns
        self.silence_ns = inactivity_timeout_ns
        self.session_id: int | None = None
        self.retired: dict[int, int] = {}
        self.candidates: dict[int, list[bytes]] = {}
        self.candidate_ns: dict[int, int] = {}
        self.snapshots: dict[int, _HeldSnapshots] = {}
        self.channels = (_Channel(), _Channel())
        self.outputs: list[ModelOutput] = []

    def take(self) -> list[ModelOutput]:
        """Return what came out since the last call."""
        outputs, self.outputs = self.outputs, []
        return outputs

    def accept(self, channel: int, line: int, data: bytes, now_ns: int) -> str:
        """Follow one datagram; return "used" or why it is dropped."""
        if len(data) < 16:
            return "too_short"
        if len(data) > 528:
            return "too_long"
        fragment, fragment_max = data[1], data[2]
        if fragment > fragment_max:
            return "fragment_beyond_max"
        if fragment < fragment_max and len(data) != 528:
            return "short_fragment"
        session_id = _HEADER.unpack_from(data)[5]
        if session_id != self.session_id:
            if channel == 1:
                self._hold_snapshot(line, session_id, data, now_ns)
                return "session_foreign"
            if now_ns - self.retired.get(session_id, -self.grace_ns) < self.grace_ns:
                return "session_retired"
            return self._candidate(line, session_id, data, now_ns)
        if channel == 1 and line in self.snapshots:
            self.snapshots[line].spoke = False
        self.candidates.pop(line, None)
        verdict = self._place(channel, line, data, now_ns)
        self._count(channel, now_ns)
        return verdict

    def expire(self, now_ns: int) -> None:
        """Let time pass: holes that waited long enough become gaps."""
        self._open(now_ns)
        for number, channel in enumerate(self.channels):
            while (due_ns := self._due_ns(channel)) is not None and due_ns <= now_ns:
                self._decide(number, channel, all_holes=self.latest_run)

    def _hold_snapshot(self, line: int, session_id: int, data: bytes, now_ns: int) -> None:
        if now_ns - self.retired.get(session_id, -self.grace_ns) < self.grace_ns:
            return
        held = self.snapshots.get(line)
        if held is None or held.session_id != session_id:
            held = self.snapshots[line] = _HeldSnapshots(session_id)
        if not held.datagrams or data != held.datagrams[-1]:
            held.spoke = True
            held.datagrams.append(data)

    def _place_snapshots(self, session_id: int, now_ns: int) -> None:
        # What the snapshot channel brought of the session before it was known.
        given = [
            (line, data)
            for line, held in self.snapshots.items()
            if held.session_id == session_id and held.spoke
            for data in held.datagrams[-_HELD:]
        ]
        self.snapshots.clear()
        if given:
            middle = _seqno(given[0][1])
            given.sort(key=lambda item: (_seqno(item[1]) - middle + (1 << 31)) % _WRAP)
            for line, data in given:
                self._place(1, line, data, now_ns)
            self._count(1, now_ns)

    def _candidate(self, line: int, session_id: int, data: bytes, now_ns: int) -> str:
        held = self.candidates.setdefault(line, [])
        if held and _HEADER.unpack_from(held[0])[5] != session_id:
            held.clear()
        if held and (data == held[-1] or _place_of(data) == max(map(_place_of, held))):
            return "session_pending"  # a copy says nothing new
        held.append(data)
        if len(held) == 1:
            self.candidate_ns[line] = now_ns
        if len(held) < self.adopt and self.session_id is not None:
            return "session_pending"
        if self._waits_for_lines(session_id, self.candidate_ns[line], now_ns):
            return "session_pending"
        self._adopt(session_id, data, now_ns)
        return "used"

    def _waits_for_lines(self, session_id: int, since_ns: int, now_ns: int) -> bool:
        # Whether a live line may still bring what lies before the session's first number.
        if self.session_id is None or now_ns - since_ns >= min(self.wait_ns, _NS_PER_S):
            return False
        into = {
            line: held
            for line, held in self.candidates.items()
            if _HEADER.unpack_from(held[0])[5] == session_id
        }
        if any(_seqno(data) <= 1 for held in into.values() for data in held):
            return False
        channel = self.channels[0]
        return any(
            line not in into and self._is_alive(channel, line, now_ns)
            for line in channel.line_heard_ns
        )

    def _open(self, now_ns: int) -> None:
        # A proven session that waited for other lines waits no longer.
        for line, held in list(self.candidates.items()):
            since_ns = self.candidate_ns[line]
            if len(held) >= self.adopt and now_ns - since_ns >= min(self.wait_ns, _NS_PER_S):
                self._adopt(_HEADER.unpack_from(held[0])[5], held[-1], now_ns)
                return

    def _adopt(self, session_id: int, data: bytes, now_ns: int) -> None:
        # Nothing is lost: what other lines brought of it counts too, and the oldest is the base.
        given = [
            (at, datagram)
            for at, datagrams in self.candidates.items()
            for datagram in datagrams
            if _HEADER.unpack_from(datagram)[5] == session_id
        ]
        given.sort(key=lambda item: (_seqno(item[1]) - _seqno(data) + (1 << 31)) % _WRAP)
        self.candidates.clear()
        if self.session_id is not None:
            self.retired[self.session_id] = now_ns
        self.outputs.append(ModelOutput("session", 0, session_id, self.session_id or 0, session_id))
        self.session_id = session_id
        self.channels = (_Channel(), _Channel())
        for at, datagram in given:
            self._place(0, at, datagram, now_ns)
        self._count(0, now_ns)
        self._place_snapshots(session_id, now_ns)

    def _place(self, number: int, line: int, data: bytes, now_ns: int) -> str:
        channel = self.channels[number]
        _, fragment, fragment_max, _, _, _, wire_seqno, _ = _HEADER.unpack_from(data)
        if channel.accepted is None:
            channel.accepted = _WRAP + wire_seqno - 1
        distance = (wire_seqno - channel.accepted) % _WRAP
        seqno = channel.accepted + (distance if distance < 1 << 31 else distance - _WRAP)
        channel.line_highest[line] = max(seqno, channel.line_highest.get(line, seqno))
        channel.line_heard_ns[line] = now_ns
        verdict = "used"
        if seqno <= channel.accepted:
            verdict = "late" if seqno in channel.lost else "duplicate"
        else:
            partial = channel.pending.setdefault(seqno, _Partial(fragment_max, now_ns))
            if partial.fragment_max != fragment_max:
                return "fragment_max_changed"
            if fragment in partial.fragments:
                verdict = "duplicate"
            else:
                partial.fragments[fragment] = data[16:]
                partial.came_ns[fragment] = now_ns
                channel.went_on_ns.append(now_ns)
        self._deliver(number, channel)
        return verdict

    def _count(self, number: int, now_ns: int) -> None:
        channel = self.channels[number]
        assert channel.accepted is not None
        slowest = self._slowest_line(channel, now_ns)
        if channel.pending and slowest > channel.accepted + self.interval:
            # Every live line went beyond: all holes are decided that all of them have passed.
            self._decide(number, channel, all_holes=self.latest_run)
            while channel.pending and channel.accepted < slowest:
                self._decide(number, channel, all_holes=False)

    def _slowest_line(self, channel: _Channel, now_ns: int) -> int:
        return min(
            channel.line_highest[line]
            for line in channel.line_heard_ns
            if self._is_alive(channel, line, now_ns)
        )

    def _is_alive(self, channel: _Channel, line: int, now_ns: int) -> bool:
        return channel.silence_ns(line, now_ns, self.line_dead_ns // 8) <= self.line_dead_ns

    def _due_ns(self, channel: _Channel) -> int | None:
        # When the first hole is lost: a wait after anything from behind it came. Of a message whose
        # rest is not there, and nothing behind it, after the silence.
        if not channel.pending:
            return None
        assert channel.accepted is not None
        due = channel.accepted + 1
        seen = [partial.first_ns for seqno, partial in channel.pending.items() if seqno > due]
        if due in channel.pending:
            passed_ns = channel.pending[due].passed_ns()
            seen += [] if passed_ns is None else [passed_ns]
        if not seen:
            return max(channel.pending[due].came_ns.values()) + self.silence_ns
        return min(seen) + self.wait_ns

    def _decide(self, number: int, channel: _Channel, *, all_holes: bool) -> None:
        assert channel.accepted is not None
        if self.latest_run and all_holes:
            whole = sorted(seqno for seqno, partial in channel.pending.items() if partial.whole)
            highest = max(channel.pending)
            head = highest
            if channel.pending[highest].whole:
                while head - 1 in whole:
                    head -= 1
            self._lose(number, channel, head - 1 if head in whole else self._part_end(channel))
        else:
            self._lose(number, channel, self._hole_end(channel))
            while all_holes and any(partial.whole for partial in channel.pending.values()):
                self._lose(number, channel, self._hole_end(channel))

    @staticmethod
    def _hole_end(channel: _Channel) -> int:
        whole = [seqno for seqno, partial in channel.pending.items() if partial.whole]
        return min(whole) - 1 if whole else max(channel.pending)

    @staticmethod
    def _part_end(channel: _Channel) -> int:
        # The newest is not whole yet: what lies before it is lost, itself may still complete.
        return max(channel.pending) - 1 if len(channel.pending) > 1 else max(channel.pending)

    def _lose(self, number: int, channel: _Channel, last: int) -> None:
        assert channel.accepted is not None
        assert self.session_id is not None
        first = channel.accepted + 1
        if last >= first:
            channel.lost.update(range(first, last + 1))
            self.outputs.append(
                ModelOutput("gap", number, self.session_id, first % _WRAP, last % _WRAP)
            )
            channel.accepted = last
        for seqno in [seqno for seqno in channel.pending if seqno <= last]:
            del channel.pending[seqno]
        self._deliver(number, channel)

    def _deliver(self, number: int, channel: _Channel) -> None:
        assert channel.accepted is not None
        assert self.session_id is not None
        while True:
            partial = channel.pending.get(channel.accepted + 1)
            if partial is None or not partial.whole:
                return
            channel.accepted += 1
            del channel.pending[channel.accepted]
            seqno = channel.accepted % _WRAP
            self.outputs.append(
                ModelOutput("message", number, self.session_id, seqno, seqno, partial.payload)
            )
