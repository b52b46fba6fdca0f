"""Row T-N1: a publisher restarts and keeps its session id, or does not restart at all.

The generator does what a peer and a network may do, and shares nothing with the code under test:
one to eight lines that speak, are silent, die early or come late, before and behind the restart,
each for itself; heartbeats between nothing and all; any old number; any rate; loss, copies,
reordering, fragments; a snapshot channel or none. Each payload says which numbering it is of, so
that the oracle knows the truth of every message that comes out.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from udpfast.core.layout import Channel, Kind, SessionReason
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.net.bad_network import Arrival

from .follower import Wrong
from .frames import datagrams, heartbeat
from .loss_rows import Found
from .said import SaidSession, gap_of, session_of

__all__ = ["same_id_corners"]

_SESSION_ID = 7
_SECOND = 1_000_000_000
_WRAP = 1 << 32
_HEADER_SIZE = 16

#: Datagrams of the new numbering until SESSION is said; four times as many where datagrams are
#: lost, doubled or reordered. Heartbeats with numbers that the old numbering had, too, but that
#: this line had not brought of it, do not count until no line can be behind any more: they are,
#: byte for byte and in their order, what a slower line brings.
_NOTICED = 128
_NOTICED_WITH_FAULTS = 512
_NOTICED_NS = 120_000_000

#: Heartbeats alone prove a restart when so many come: the numbers of a replay look the same. Where
#: fewer come before the old numbering's end is reached, it goes on behind them for all we know.
_HEARTBEATS_MIN = 64

#: So many datagrams of what may be a restart are held, of each line; `unseen` counts the others.
_HELD = 128

#: Ahead by less, numbers that begin anew behind the wrap are a loss that ended there, for all that
#: the wire says: nothing but a gap is seen, and every object is in doubt.
_LOOKS_LIKE_LOSS = 8_192


@dataclass
class _Faults:
    loss: float = 0.0
    copies: float = 0.0
    reorder: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.loss or self.copies or self.reorder)


@dataclass
class _Stream:
    """One numbering of one channel: what is sent, by the time at which it is."""

    name: bytes
    rng: random.Random
    first: int
    count: int
    start_ns: int
    interval_ns: int
    heartbeats: float
    fragmented: float
    channel: Channel = Channel.INCREMENTAL
    sent: list[tuple[int, list[bytes]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(self.count):
            seqno = (self.first + number) % _WRAP
            if self.rng.random() < self.heartbeats:
                parts = [heartbeat(session_id=_SESSION_ID, seqno=seqno)]
            else:
                payload = self.payload(seqno)
                if self.rng.random() < self.fragmented:
                    payload = payload.ljust(self.rng.randint(513, 1500), b".")
                parts = datagrams(
                    payload,
                    session_id=_SESSION_ID,
                    seqno=seqno,
                    object_type=3,
                    object_id=self.rng.randrange(50),
                )
            self.sent.append((self.start_ns + number * self.interval_ns, parts))

    def payload(self, seqno: int) -> bytes:
        """Return how the payload of a message begins."""
        return b"%s %d|" % (self.name, seqno)

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.count * self.interval_ns

    def arrivals(self, line: int, begin: int, end: int, faults: _Faults) -> Iterator[Arrival]:
        """Yield what one line brings of the messages [begin, end)."""
        rng, step_ns = self.rng, self.interval_ns
        for time_ns, parts in self.sent[begin:end]:
            for part in parts:
                if rng.random() < faults.loss:
                    continue
                late_ns = rng.randint(1, 4) * step_ns if rng.random() < faults.reorder else 0
                yield Arrival(time_ns + late_ns, self.channel, line, part)
                if rng.random() < faults.copies:
                    copy_ns = time_ns + rng.randint(0, 4) * step_ns
                    yield Arrival(copy_ns, self.channel, line, part)


def _span(rng: random.Random, count: int, *, whole: bool) -> tuple[int, int]:
    # Which part of a numbering a line brings: all, nothing, the beginning, the end.
    how = "whole" if whole else rng.choice(("whole", "silent", "dies", "late"))
    cut = rng.choice((rng.randint(1, 40), rng.randint(1, count)))
    return {"whole": (0, count), "silent": (0, 0), "dies": (0, cut), "late": (cut, count)}[how]


def _spans(rng: random.Random, count: int, lines: int) -> list[tuple[int, int]]:
    # One line brings all of a numbering, or two of them a part each; the others whatever they do.
    spans = [_span(rng, count, whole=False) for _ in range(lines)]
    first, second = rng.randrange(lines), rng.randrange(lines)
    cut = rng.randint(1, count)
    spans[first] = (0, cut)
    spans[second] = (max(0, cut - rng.choice((0, 1, 20))), count) if second != first else (0, count)
    return spans


def _faults(rng: random.Random) -> _Faults:
    if rng.random() < 0.5:
        return _Faults()
    return _Faults(
        loss=rng.choice((0, 0.01, 0.05)),
        copies=rng.choice((0, 0.05, 0.2, rng.uniform(0, 0.2))),
        reorder=rng.choice((0, 0.05, 0.2, rng.uniform(0, 0.2))),
    )


def _heartbeats(rng: random.Random) -> float:
    return rng.choice((0, 0.02, 0.1, 0.5, 0.9, 0.98, 1, rng.random()))


def _old_last(rng: random.Random) -> int:
    # From 100 to 2^32 - 1, near every power of two.
    while True:
        last = min(_WRAP - 1, int(2 ** rng.uniform(6.7, 32)) + rng.randint(-2, 2))
        if rng.random() < 0.3:
            last = rng.randrange(100, _WRAP)
        if last >= 100 and _WRAP - last > _LOOKS_LIKE_LOSS:
            return last


class _Oracle:
    """Follows what the feed says, with the truth at hand."""

    def __init__(self, lines: int, snapshot_lines: int) -> None:
        self.pipeline = FeedPipeline(lines_incremental=lines, lines_snapshot=snapshot_lines)
        self.sessions: list[SaidSession] = []
        self.expected: list[int | None] = [None, None]
        self.delivered: dict[int, bytes] = {}
        self.before: dict[int, bytes] = {}
        self.lost: set[int] = set()

    def accept(self, arrival: Arrival) -> None:
        now_ns = arrival.time_ns
        self.pipeline.accept(arrival.channel, arrival.line, arrival.datagram, now_ns, now_ns)
        self._follow(self.pipeline.take())

    def expire(self, now_ns: int) -> None:
        self.pipeline.expire(now_ns)
        self._follow(self.pipeline.take())

    def finish(self, now_ns: int) -> None:
        self.pipeline.finish(now_ns)
        self._follow(self.pipeline.take())

    def _follow(self, messages: list[FeedMessage]) -> None:
        for message in messages:
            if message.kind == Kind.SESSION:
                self.sessions.append(session_of(message))
                self.expected = [None, None]
                self.before = self.delivered
                self.delivered = {}
                self.lost.clear()
            elif message.kind == Kind.MESSAGE:
                self._go(message.channel, message.seqno, 1)
                if message.channel == Channel.INCREMENTAL:
                    self.delivered[message.seqno] = message.payload
            elif message.kind == Kind.GAP:
                first, _, count, *_ = gap_of(message)
                self._go(message.channel, first, count)
                if message.channel == Channel.INCREMENTAL and count < 1 << 16:
                    self.lost.update((first + i) % _WRAP for i in range(count))

    def _go(self, channel: int, first: int, count: int) -> None:
        if self.expected[channel] not in (None, first):
            raise Wrong(f"channel {channel}: {first} came, expected {self.expected[channel]}")
        self.expected[channel] = (first + count) % _WRAP


def same_id_corners(seed: int, datagrams: int, restart: bool = True) -> Found:
    """T-N1: a restart is said in time, once, and loses nothing; without one nothing is said."""
    return (_restart if restart else _no_restart)(seed, datagrams)


def _restart(seed: int, datagrams: int) -> Found:
    rng = random.Random(f"restart {seed}")
    lines = rng.randint(1, 8)
    interval_ns = _SECOND // rng.choice((1, 10, 100, 1_000, 20_000, 100_000))
    heartbeats = _heartbeats(rng)
    fragmented = rng.choice((0, 0, 0.2, 1))
    faults = _faults(rng)
    last = _old_last(rng)
    count = min(last, rng.choice((60, 400, max(500, datagrams // 20))))
    old = _Stream(
        b"old", rng, last - count + 1, count, _SECOND, interval_ns, heartbeats, fragmented
    )
    pause_ns = rng.choice((0, interval_ns, 20 * interval_ns, 5 * _SECOND))
    begin_ns = old.end_ns + pause_ns
    new = _Stream(b"new", rng, 1, 900, begin_ns, interval_ns, heartbeats, fragmented)
    snapshots = rng.randint(0, 2)
    arrivals: list[Arrival] = []
    for stream in (old, new):
        for line, span in enumerate(_spans(rng, stream.count, lines)):
            arrivals += stream.arrivals(line, *span, faults)
    for line in range(snapshots):
        channel = Channel.SNAPSHOT
        arrivals += _Stream(b"old", rng, 500, count, _SECOND, interval_ns, 0, 0, channel).arrivals(
            line, 0, count, faults
        )
        arrivals += _Stream(
            b"new", rng, 1, new.count, begin_ns, interval_ns, 0, 0, channel
        ).arrivals(line, 0, new.count, faults)
    arrivals.sort(key=lambda arrival: arrival.time_ns)
    return _run_restart(arrivals, old, new, _Oracle(lines, snapshots), faults)


@dataclass(slots=True)
class _Seen:
    # What came of two numberings until, and after, the new one was noticed.
    old: range  # seqnos of the old one
    end_ns: int  # when it ended
    came: dict[int, int] = field(default_factory=dict)  # new: seqno, and how often it came
    before: set[int] = field(default_factory=set)  # new: seqnos that came before it was noticed
    heard: set[tuple[int, int]] = field(default_factory=set)  # old: line and seqno
    brought: list[int] = field(default_factory=lambda: [0] * 8)  # new: until noticed, by line
    needed: int = 0  # new: what should have been enough, until it was noticed
    told: set[tuple[int, int]] = field(default_factory=set)  # new: what repeats `heard`
    spoke: bool = False  # something of the new one was new to the receiver
    came_through: bool = False  # it began where the old one might have gone on

    def note_new(self, arrival: Arrival, seqno: int, *, waiting: bool) -> None:
        """Take a datagram of the new numbering; `waiting`: that was not noticed before it."""
        repeated = (arrival.line, seqno) in self.heard
        self.came[seqno] = self.came.get(seqno, 0) + 1
        if seqno >= self.old.stop and not self.spoke and len(self.told) < _HEARTBEATS_MIN:
            self.came_through = True
        self.spoke = self.spoke or len(arrival.datagram) > _HEADER_SIZE or seqno not in self.old
        if repeated:  # a copy of it tells nothing more
            self.told.add((arrival.line, seqno))
        if waiting:
            late = arrival.time_ns - self.end_ns > _NOTICED_NS
            self.needed += self.spoke or late or repeated
            self.before.add(seqno)
            self.brought[arrival.line] += 1


def _run_restart(
    arrivals: list[Arrival], old: _Stream, new: _Stream, oracle: _Oracle, faults: _Faults
) -> Found:
    new_bytes = {part for _, parts in new.sent for part in parts}
    seen = _Seen(range(old.first, old.first + old.count), old.end_ns)
    for arrival in arrivals:
        is_new = arrival.channel == 0 and arrival.time_ns >= new.start_ns
        is_new = is_new and arrival.datagram in new_bytes
        waiting = len(oracle.sessions) < 2
        oracle.accept(arrival)
        oracle.expire(arrival.time_ns)
        seqno = int.from_bytes(arrival.datagram[8:12], "little")
        if arrival.channel == 0 and not is_new:
            seen.heard.add((arrival.line, seqno))
        if is_new:
            seen.note_new(arrival, seqno, waiting=waiting)
        elif waiting and len(oracle.sessions) > 1:
            raise Wrong(f"a datagram of the old numbering caused {oracle.sessions}")
    oracle.finish(arrivals[-1].time_ns + _SECOND)
    if seen.came_through and not oracle.sessions[1:]:
        return {"needed": 0, "unseen": 0, "datagrams": len(arrivals)}
    unseen = _check_session(oracle, new, seen, faults)
    return {"needed": seen.needed, "unseen": unseen, "datagrams": len(arrivals)}


def _check_session(oracle: _Oracle, new: _Stream, seen: _Seen, faults: _Faults) -> int:
    # The new numbering was noticed in time, and from its beginning on. Messages not seen of it.
    needed, begin = seen.needed, min(seen.before, default=0)
    if len(oracle.sessions) != 2:
        raise Wrong(f"sessions {oracle.sessions}, expected 2; {needed} datagrams of the new one")
    _, _, reason, first, unseen = oracle.sessions[1]
    if reason != SessionReason.SAME_ID:
        raise Wrong(f"session {oracle.sessions[1]}, expected SAME_ID")
    allowed = _NOTICED_WITH_FAULTS if faults else _NOTICED
    if needed > allowed:
        raise Wrong(f"noticed after {needed} datagrams, expected at most {allowed}")
    if unseen != first - begin:
        raise Wrong(f"first {first}, unseen {unseen}; {begin} was the first that came")
    all_held = max(seen.brought) <= _HELD
    if not faults and all_held and first != begin:
        raise Wrong(f"{begin} came, and {first} was the first that is delivered")
    _check_content(oracle, new, seen.came, first, punctual=not faults.reorder and all_held)
    return unseen


def _check_content(
    oracle: _Oracle, new: _Stream, came: dict[int, int], first: int, *, punctual: bool
) -> None:
    for seqno, payload in oracle.delivered.items():
        if payload and not payload.startswith(new.payload(seqno)):
            raise Wrong(f"{seqno} is {payload[:20]!r}, which is not of the new numbering")
    parts = {new.first + number: len(parts) for number, (_, parts) in enumerate(new.sent)}
    for seqno, count in came.items():
        if seqno >= first and seqno not in oracle.delivered and seqno not in oracle.lost:
            raise Wrong(f"{seqno} came {count} times, and is neither delivered nor reported lost")
        lost = seqno >= first and seqno in oracle.lost
        if punctual and parts[seqno] == 1 and lost:
            raise Wrong(f"{seqno} came in time, and was reported lost")


def _no_restart(seed: int, datagrams: int) -> Found:
    rng = random.Random(f"no restart {seed}")
    lines = rng.randint(1, 8)
    interval_ns = _SECOND // rng.choice((1, 10, 100, 1_000, 20_000, 100_000))
    heartbeats = _heartbeats(rng)
    faults = _faults(rng)
    count = max(300, min(3_000, datagrams // 5))
    first = rng.choice((1, 5_000, _WRAP - count // 2, rng.randrange(_WRAP)))
    live = _Stream(
        b"live", rng, first, count, _SECOND, interval_ns, heartbeats, rng.choice((0, 0.2))
    )
    arrivals: list[Arrival] = []
    always = rng.randrange(lines)
    replayed = []
    for line in range(lines):
        span = _span(rng, count, whole=line == always)
        skew_ns = 0 if line == always else rng.choice((0, 100_000, 5_000_000, 50_000_000))
        # A line that brings heartbeats twice in their order, the second time when the others have
        # ended, says byte for byte what a restart says.
        if skew_ns == 0 or heartbeats < 0.8:
            replayed.append(line)
        arrivals += [
            arrival._replace(time_ns=arrival.time_ns + skew_ns)
            for arrival in live.arrivals(line, *span, faults)
        ]
    arrivals += _replays(rng, live, replayed)
    snapshots = rng.randint(0, 2)
    for line in range(snapshots):
        stream = _Stream(
            b"live", rng, 500, count, _SECOND, interval_ns, 0, 0, channel=Channel.SNAPSHOT
        )
        arrivals += stream.arrivals(line, 0, count, faults)
    arrivals.sort(key=lambda arrival: arrival.time_ns)
    oracle = _Oracle(lines, snapshots)
    for arrival in arrivals:
        oracle.accept(arrival)
        oracle.expire(arrival.time_ns)
    oracle.finish(arrivals[-1].time_ns + _SECOND)
    if len(oracle.sessions) != 1:
        raise Wrong(f"sessions {oracle.sessions}, expected one")
    for seqno, payload in oracle.delivered.items():
        if payload and not payload.startswith(live.payload(seqno)):
            raise Wrong(f"{seqno} is {payload[:20]!r}")
    return {"datagrams": len(arrivals), "delivered": len(oracle.delivered)}


def _replays(rng: random.Random, live: _Stream, lines: list[int]) -> Iterator[Arrival]:
    # Captures of the live feed, brought again while it goes on, at speeds of their own.
    for _ in range(rng.randrange(4)):
        at = rng.randrange(50, live.count - 40)  # behind this message of the live feed
        size = rng.choice((1, 31, 45, 400))
        begin = rng.randrange(max(1, at - size))
        pace_ns = rng.choice((1_000, 50_000, 1_200_000, live.interval_ns))
        time_ns, line = live.sent[at][0] + 1, rng.choice(lines)
        for _, parts in live.sent[begin : min(at, begin + size)]:
            for part in parts:
                time_ns += pace_ns
                if time_ns < live.sent[-20][0]:  # it goes on behind
                    yield Arrival(time_ns, Channel.INCREMENTAL, line, part)
