"""Row T-L5: thin lines, whose large messages take longer than a hole is waited for.

Each line is a queue with a width and a delay. The sender pauses anywhere, a line pauses anywhere,
and any datagram may be lost. What the feed must say follows from one rule: a part is missing from
when something behind it came on any line, and is lost once that was `_WAIT_NS` ago.
"""

import bisect
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from udpfast.core.layout import GapReason, Kind
from udpfast.feed.pipeline import FeedMessage, FeedPipeline

from .follower import Wrong
from .frames import datagram
from .framings import Sent, build
from .loss_rows import Found
from .said import gap_of

__all__ = ["thin_lines"]

_MS = 1_000_000
_WAIT_NS = 5 * _MS
_SILENCE_NS = 10_000 * _MS
_WIDTHS = (1_000_000, 10_000_000, 100_000_000)  # bits a second
_DELAYS_MS = (4.0, 6.5, 30.0, 80.0)
_NEVER = 1 << 62
_SESSION = 7

#: A number, and a fragment of it.
_Part = tuple[int, int]


@dataclass(slots=True)
class _Told:
    # One datagram, and what it tells: all parts before `behind` have been sent.
    data: bytes
    parts: list[_Part]
    behind: _Part


@dataclass(slots=True)
class _Truth:
    # When each part came, and when it was first known to be missing.
    came: dict[_Part, int] = field(default_factory=dict)
    passed: list[tuple[_Part, int]] = field(default_factory=list)
    heard: dict[int, int] = field(default_factory=dict)  # of a number, when its latest part came

    def note(self, told: _Told, now_ns: int) -> None:
        for part in told.parts:
            if part not in self.came:
                self.came[part] = now_ns
                self.heard[part[0]] = now_ns
        if not self.passed or told.behind > self.passed[-1][0]:
            self.passed.append((told.behind, now_ns))

    def due_ns(self, parts: list[_Part], tick_ns: int) -> tuple[int, int]:
        """Return when a message of these parts must be given up, at the earliest and the latest.

        One of which a part came just after it was due may be either; so it has a span.
        """
        sure = early = _NEVER
        for part in parts:
            place = bisect.bisect(self.passed, (part, _NEVER))
            seen = self.passed[place][1] if place < len(self.passed) else _NEVER
            came = self.came.get(part, _NEVER)
            if came > seen + _WAIT_NS:
                early = min(early, seen + _WAIT_NS)
            if came > seen + _WAIT_NS + tick_ns:
                sure = min(sure, seen + _WAIT_NS)
        return early, sure


def thin_lines(seed: int, datagrams: int, framing: str = "roq", loss: float = 0.0) -> Found:
    """T-L5: what is given up is what was lost, when it had been missed for the wait."""
    rng = random.Random(f"thin {seed} {framing} {loss}")
    found = {"messages": 0, "lost": 0, "datagrams": 0}
    while found["datagrams"] < datagrams:
        for name, count in _trial(rng, framing, loss).items():
            found[name] += count
    return dict(found)


def _trial(rng: random.Random, framing: str, loss: float) -> dict[str, int]:
    lines = rng.choice((1, 2, 2))
    timed = list(_roq(rng) if framing == "roq" else _units(rng, framing))
    arrivals = _network(rng, timed, lines, loss)
    feed = _Feed(framing, lines)
    truth = _Truth()
    for now_ns, line, told in arrivals:
        feed.wait_until(now_ns)
        truth.note(told, now_ns)
        feed.accept(line, told.data, now_ns)
    feed.wait_until(feed.now_ns + _WAIT_NS + 2 * _MS)
    feed.skip_to(feed.now_ns + _SILENCE_NS)
    numbers: dict[int, list[_Part]] = {}
    for _, told in timed:
        for part in told.parts:
            numbers.setdefault(part[0], []).append(part)
    feed.check(numbers, truth)
    return {
        "messages": len(numbers),
        "lost": len(feed.lost),
        "datagrams": len(arrivals),
    }


def _roq(rng: random.Random) -> Iterator[tuple[int, _Told]]:
    # A sender's datagrams with their times: messages of 1 to 256 fragments.
    now_ns = 10**9
    rate = rng.choice((100, 1_000, 20_000))
    for number in range(1, rng.randrange(30, 150)):
        now_ns += _pause(rng, rate)
        count = rng.choice((1, 1, 1, 1, 1, 2, 3, rng.randrange(1, 257)))
        for at in range(count):
            size = 512 if at < count - 1 else rng.randrange(1, 513)
            data = datagram(
                bytes((number & 255,)) * size, session_id=_SESSION, seqno=number,
                fragment=at, fragment_max=count - 1,
            )  # fmt: skip
            part = (number, at)
            yield now_ns, _Told(data, [part], part)
            now_ns += _pause(rng, 1 << 40)


def _units(rng: random.Random, framing: str) -> Iterator[tuple[int, _Told]]:
    # Datagrams of up to 1,400 bytes, several messages in each; a heartbeat names the next number.
    now_ns = 10**9
    rate = rng.choice((100, 1_000, 20_000))
    number = 1
    for _ in range(rng.randrange(30, 300)):
        now_ns += _pause(rng, rate)
        count = rng.choice((0, 1, 1, 2, 5, 30)) if number > 1 else 1
        size = 1_300 // max(1, count) - 16
        messages = tuple(bytes((at & 255,)) * size for at in range(number, number + count))
        sent = Sent(number, messages, (), f"{_SESSION:>10}".encode(), now_ns)
        parts = [(at, 0) for at in range(number, number + count)]
        yield now_ns, _Told(build(framing, sent), parts, (number, 0))
        number += count


def _pause(rng: random.Random, rate: int) -> int:
    if rng.random() < 0.003:
        return int(rng.uniform(1, 500) * _MS)
    return int(rng.expovariate(rate) * 1e9)


def _network(
    rng: random.Random, timed: list[tuple[int, _Told]], lines: int, loss: float
) -> list[tuple[int, int, _Told]]:
    # (time, line, datagram) in the order of arrival. The first datagram of all arrives: what came
    # before the first one that a receiver sees is another row's business.
    arrivals = []
    for line in range(lines):
        width, delay_ns = rng.choice(_WIDTHS), int(rng.choice(_DELAYS_MS) * _MS)
        free_ns = 0
        for place, (sent_ns, told) in enumerate(timed):
            if rng.random() < 0.0005:
                free_ns = max(free_ns, sent_ns) + int(rng.uniform(1, 500) * _MS)
            free_ns = max(free_ns, sent_ns) + (len(told.data) + 42) * 8 * 10**9 // width
            if place == 0 or rng.random() >= loss:
                arrivals.append((free_ns + delay_ns, line, told))
    arrivals.sort(key=lambda arrival: arrival[0])
    return arrivals


class _Feed:
    # A feed that is looked at every `_TICK_NS`, and what came out of it, with the time.

    _TICK_NS = _MS // 2

    def __init__(self, framing: str, lines: int) -> None:
        self.pipeline = FeedPipeline(
            framing=framing, streams=2, lines_incremental=lines, lines_snapshot=0,
            slab_cells=1 << 15 if framing == "roq" else None,
            lost_packet_wait_ns=_WAIT_NS, inactivity_timeout_ns=_SILENCE_NS,
        )  # fmt: skip
        self.now_ns = 0
        self.delivered: set[int] = set()
        self.lost: dict[int, tuple[int, int, int]] = {}  # number -> when, waited, reason
        self.sessions = 0

    def wait_until(self, now_ns: int) -> None:
        while self.now_ns and self.now_ns + self._TICK_NS < now_ns:
            self.now_ns += self._TICK_NS
            self.pipeline.expire(self.now_ns)
            self._take()

    def skip_to(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.pipeline.expire(now_ns)
        self._take()

    def accept(self, line: int, data: bytes, now_ns: int) -> None:
        self.now_ns = now_ns
        self.pipeline.expire(now_ns)
        self._take()
        self.pipeline.accept(0, line, data, now_ns, now_ns)
        self._take()

    def _take(self) -> None:
        for message in self.pipeline.take():
            if message.kind is Kind.MESSAGE:
                self.delivered.add(message.number)
            elif message.kind is Kind.SESSION:
                self.sessions += 1
            elif message.kind is Kind.GAP:
                self._note_gap(message)

    def _note_gap(self, message: FeedMessage) -> None:
        gap = gap_of(message)
        for number in range(gap.first, gap.last + 1):
            self.lost[number] = (self.now_ns, gap.waited_ns, gap.reason)

    def check(self, numbers: dict[int, list[_Part]], truth: _Truth) -> None:
        if self.sessions != 1:
            raise Wrong(f"{self.sessions} sessions of one")
        first = min(number for number, _ in truth.came)
        known = max(behind[0] for behind, _ in truth.passed)
        for number, parts in numbers.items():
            if number < first:
                continue
            whole = all(part in truth.came for part in parts)
            early, sure = truth.due_ns(parts, self._TICK_NS)
            if number in self.lost:
                self._check_lost(number, early, truth)
            elif number in self.delivered:
                if not whole or sure != _NEVER:
                    raise Wrong(f"{number} is delivered, though lost at {sure}")
            elif whole or number <= known:
                raise Wrong(f"{number} is neither delivered nor lost")

    def _check_lost(self, number: int, due_ns: int, truth: _Truth) -> None:
        when, waited, reason = self.lost[number]
        if reason != GapReason.TIME:
            raise Wrong(f"{number} is lost for reason {reason}")
        if due_ns == _NEVER and when < truth.heard[number] + _SILENCE_NS:
            raise Wrong(f"{number} is lost at {when}, though nothing was behind it")
        if due_ns != _NEVER and not 0 <= when - due_ns <= _MS:
            raise Wrong(f"{number} is lost {when - due_ns} ns after it was due")
        if due_ns != _NEVER and waited < _WAIT_NS:
            raise Wrong(f"{number} is lost, but waited {waited} ns only")
