"""Row T-N2: somebody else sends datagrams into a live feed.

Bursts of 1, 2, 31 or 45 datagrams, dense or each for itself, of any session, seqno, fragment and
object, on any line of either channel, into feeds of any rate. The publisher knows every payload and
every state: of each burst the live feed may lose little, and what is said to be LIVE in the end
must be what the publisher has.
"""

import random
from collections.abc import Iterator

from udpfast.core.layout import Channel, Kind, ObjectStatus, RecordFlag
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.market.gate import ObjectGate, ObjectOutput
from udpfast.net.bad_network import Arrival

from .follower import Wrong
from .frames import datagram
from .loss_rows import Found
from .origin import Key, Origin, fold, snapshot_state
from .said import admitted
from .traffic import Traffic

__all__ = ["forged"]

_SECOND = 1_000_000_000
_WRAP = 1 << 32
_FORGED = b"forged"
_LOST_MAX = 128
_FORGED_STATE = -1


class _Subscriber:
    """The feed's own parts, and what a strategy would do with their outputs."""

    def __init__(self, lines: tuple[int, int]) -> None:
        self.pipeline = FeedPipeline(lines_incremental=lines[0], lines_snapshot=lines[1])
        self.objects = ObjectGate()
        self.delivered: set[tuple[int, bytes]] = set()  # incremental messages
        self.state: dict[Key, int] = {}
        self.sessions = 0

    def accept(self, arrival: Arrival) -> None:
        now_ns = arrival.time_ns
        self.pipeline.accept(arrival.channel, arrival.line, arrival.datagram, now_ns, now_ns)
        self._follow(self.pipeline.take())
        self.pipeline.expire(now_ns)
        self._follow(self.pipeline.take())

    def run(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self.accept(arrival)

    def _follow(self, messages: list[FeedMessage]) -> None:
        for message in messages:
            if message.kind == Kind.SESSION:
                self.sessions += 1
                self.state.clear()
            elif message.kind == Kind.MESSAGE and message.channel == Channel.INCREMENTAL:
                self.delivered.add((message.seqno, message.payload))
            for output in admitted(self.objects, message):
                if output.kind == Kind.MESSAGE and not output.flags & RecordFlag.UNGATED:
                    key = (output.object_type, output.object_id)
                    self.state[key] = self._applied(key, output.channel, output)

    def _applied(self, key: Key, channel: int, output: ObjectOutput) -> int:
        before = self.state.get(key, 0)
        snapshot = channel == Channel.SNAPSHOT or output.flags & RecordFlag.SNAPSHOT
        if output.payload.startswith(_FORGED):
            return _FORGED_STATE
        if snapshot:
            return snapshot_state(output.payload)
        return before if before == _FORGED_STATE else fold(before, output.payload)


def forged(seed: int, datagrams: int) -> Found:
    """T-N2: each burst costs the live feed little, and no object is LIVE with a wrong state."""
    rng = random.Random(f"forged {seed}")
    lines = rng.randint(1, 8), rng.randint(1, 2)
    rate = rng.choice((1, 10, 100, 1_000, 20_000, 100_000))
    first = rng.choice((1, 5_000, _WRAP - 400, rng.randrange(_WRAP)))
    origin = Origin(rng.randrange(1 << 16), objects=20, seed=seed, first_seqno=first)
    traffic = Traffic(origin, interval_ns=_SECOND // rate, lines=lines)
    subscriber = _Subscriber(lines)
    sent: dict[tuple[int, bytes], int] = {}  # message: burst before it
    _run(traffic, subscriber, sent, 0, [], 400)
    known: list[int] = []
    bursts = max(2, datagrams // 2_000)
    for burst in range(1, bursts + 1):
        size = rng.choice((1, 2, 31, 45))
        arrivals = list(_burst(rng, traffic, size, lines, known))
        behind_ns = arrivals[-1].time_ns - traffic.now_ns
        # Bursts lie apart: what one has left open is given up after 5 ms.
        count = behind_ns // traffic.interval_ns + max(60, min(300, rate * 60), rate // 100)
        _run(traffic, subscriber, sent, burst, arrivals, count)
    # What the last burst left open is given up, or proven, within 20 ms; then all is as before.
    _run(traffic, subscriber, sent, bursts, [], 16 * len(origin.keys) + rate // 50, every=2)
    _run(traffic, subscriber, sent, bursts + 1, [], 16 * len(origin.keys), every=2)
    _check(origin, subscriber, sent, bursts)
    return {"bursts": bursts, "sessions": subscriber.sessions, "rate": rate}


def _run(
    traffic: Traffic,
    subscriber: _Subscriber,
    sent: dict[tuple[int, bytes], int],
    burst: int,
    forgeries: list[Arrival],
    count: int,
    every: int = 5,
) -> None:
    arrivals = traffic.updates(count, snapshot_every=every)
    for arrival in arrivals:
        if arrival.channel == Channel.INCREMENTAL:
            seqno = int.from_bytes(arrival.datagram[8:12], "little")
            sent[seqno, arrival.datagram[16:]] = burst
    subscriber.run(sorted(arrivals + forgeries, key=lambda arrival: arrival.time_ns))


def _burst(
    rng: random.Random, traffic: Traffic, size: int, lines: tuple[int, int], known: list[int]
) -> Iterator[Arrival]:
    # Dense, or each datagram for itself; at the publisher's next message or between two.
    origin = traffic.origin
    dense = rng.random() < 0.6
    time_ns = traffic.now_ns + rng.randrange(traffic.interval_ns * 30)
    pace_ns = rng.choice((0, 1_000, 50_000, 1_200_000))
    channel, line, session_id, seqno = _target(rng, origin, lines, known)
    parts = rng.choice((1, 1, 1, 2, 3))
    for number in range(size):
        if not dense:
            channel, line, session_id, seqno = _target(rng, origin, lines, known)
            parts = rng.choice((1, 1, 2, 256))
        fragment = number % parts if dense else rng.randrange(parts)
        filler = bytes(512) if fragment < parts - 1 else rng.randbytes(rng.randrange(60))
        payload = (_FORGED + filler)[:512]
        key = rng.choice(origin.keys) if rng.random() < 0.7 else (rng.randrange(256), number)
        yield Arrival(
            time_ns + number * pace_ns,
            channel,
            line,
            datagram(
                b"" if parts == 1 and rng.random() < 0.1 else payload,
                session_id=session_id,
                seqno=seqno + (number // parts if dense else 0),
                last_seqno=rng.choice((0, seqno - 1, origin.next_seqno - 1, rng.randrange(_WRAP))),
                object_type=key[0],
                object_id=key[1],
                fragment=fragment,
                fragment_max=parts - 1,
                control=rng.choice((2, 2, 0x12)),
            ),
        )


def _target(
    rng: random.Random, origin: Origin, lines: tuple[int, int], known: list[int]
) -> tuple[int, int, int, int]:
    channel = Channel.INCREMENTAL if rng.random() < 0.7 else Channel.SNAPSHOT
    session_id = origin.session_id
    if rng.random() < 0.4:
        session_id = rng.choice([*known[-5:], rng.randrange(1 << 16)])
        known.append(session_id)
    near = origin.next_seqno if channel == Channel.INCREMENTAL else origin.next_snapshot_seqno
    seqno = rng.choice(
        (
            rng.randrange(_WRAP),
            rng.randrange(1, 100),
            near + rng.randrange(60),
            near + rng.randrange(1, 8_192),
            near + rng.randrange(8_192, 40_000),
            near + rng.randrange(1 << 31),
            near - rng.randrange(1, 400),
            near - rng.randrange(1, 1 << 31),
        )
    )
    return channel, rng.randrange(lines[channel]), session_id, seqno % _WRAP


def _check(
    origin: Origin, subscriber: _Subscriber, sent: dict[tuple[int, bytes], int], bursts: int
) -> None:
    lost = [0] * (bursts + 2)
    for message, burst in sent.items():
        lost[burst] += message not in subscriber.delivered
    if lost[0] or lost[-1] or max(lost) > _LOST_MAX:
        raise Wrong(f"live messages lost by burst: {lost}, expected at most {_LOST_MAX} each")
    for key, state in origin.state.items():
        view = subscriber.objects.state(*key)
        if view is None or view.status != ObjectStatus.LIVE:
            raise Wrong(f"object {key} is {view} in the end, expected LIVE")
        if subscriber.state.get(key) != state:
            found = subscriber.state.get(key)
            raise Wrong(f"object {key} is LIVE with state {found}, expected {state}")
