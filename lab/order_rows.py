"""Rows T-O1 to T-O3, T-F1 and T-F2: reordering, the two criteria, fragments good and hostile."""

import random

from udpfast.core.layout import GapReason, Kind
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.net.bad_network import Arrival

from .follower import Follower, Wrong
from .frames import FRAGMENT_SIZE, datagram, datagrams
from .loss_rows import Found
from .origin import Origin
from .said import gap_of
from .traffic import Traffic

__all__ = [
    "criteria",
    "fragments",
    "hostile_fragments",
    "onixs_example",
    "reorder",
]

_MS = 1_000_000


def reorder(seed: int, datagrams: int, depth: int = 16, window: int = 8192) -> Found:
    """T-O1: single datagrams come `depth` places late; only beyond the window is that a loss."""
    origin = Origin(objects=50, seed=seed)
    traffic = Traffic(origin, interval_ns=1000)
    follower = Follower([origin], window=window, lost_packet_wait_ns=10**12)
    moves = max(2, datagrams // (2 * depth + 2))
    sent = traffic.updates(moves * (2 * depth + 2) + 2)
    order = list(range(len(sent)))
    for move in range(moves):
        place = 1 + move * (2 * depth + 2)
        order.insert(place + depth, order.pop(place))
    follower.run(
        [Arrival(sent[at].time_ns, 0, 0, sent[number].datagram) for at, number in enumerate(order)]
    )
    verdicts = follower.verdicts()
    gaps, late = len(follower.gaps), verdicts["late"] + verdicts["replay"]
    expected = 0 if depth < window else moves
    if gaps != expected or late != expected:
        raise Wrong(f"depth {depth}: {gaps} gaps and {late} late, expected {expected}")
    follower.check_accounting()
    return {"depth": depth, "moved": moves, "gaps": gaps, "late": late}


def onixs_example(seed: int, datagrams: int, on_gap: str = "keep_all") -> Found:
    """T-O2: last accepted 1000, pending 1002, 1005, 1007, 1008."""
    engine = FeedPipeline(on_gap=on_gap, out_of_order_max_interval=100)
    said = []
    for at, seqno in enumerate((1000, 1002, 1005, 1007, 1008)):
        said += _said(_feed(engine, _single(seqno), at))
    engine.expire(5 * _MS + 10)
    said += _said(engine.take())
    expected: list[int | tuple[int, int]] = [1000, (1001, 1006), 1007, 1008]
    if on_gap == "keep_all":
        expected = [1000, (1001, 1001), 1002, (1003, 1004), 1005, (1006, 1006), 1007, 1008]
    if said != expected:
        raise Wrong(f"{on_gap}: {said}, expected {expected}")
    disregarded = engine.counters()["incremental"].get("disregarded", 0)
    if disregarded != (2 if on_gap == "latest_run" else 0):
        raise Wrong(f"{on_gap}: {disregarded} disregarded")
    return {"outputs": len(said), "disregarded": disregarded}


def criteria(seed: int, datagrams: int, wait_ms: int = 5, interval: int = 16) -> Found:
    """T-O3: whichever criterion is met first decides; a datagram comes each millisecond."""
    engine = FeedPipeline(
        lost_packet_wait_ns=wait_ms * _MS, out_of_order_max_interval=interval, window=8192
    )
    _feed(engine, _single(100), 0)
    for number in range(1, wait_ms + interval + 3):
        came = _feed(engine, _single(101 + number), number * _MS)
        engine.expire(number * _MS)
        gaps = [gap_of(message) for message in came + engine.take() if message.kind == Kind.GAP]
        if gaps:
            break
    # 101 is lost. Datagram n has seqno 101 + n and comes at n ms; the hole is seen at 1 ms.
    by_count, by_time = interval, 1 + wait_ms
    if not gaps or number != min(by_count, by_time):
        raise Wrong(
            f"wait {wait_ms} ms, interval {interval}: gap at {number} ms, expected "
            f"{min(by_count, by_time)}"
        )
    reason = gaps[0][3]
    allowed = {GapReason.COUNT} if by_count < by_time else {GapReason.TIME}
    if by_count != by_time and reason not in allowed:
        raise Wrong(f"wait {wait_ms} ms, interval {interval}: reason {reason}")
    return {"wait_ms": wait_ms, "interval": interval, "decided_ms": number, "reason": reason}


def fragments(seed: int, datagrams: int, loss: float = 0.01, at_once: int = 64) -> Found:
    """T-F1: many fragmented messages interleaved at random; each is exact, or absent."""
    rng = random.Random(seed)
    engine = FeedPipeline(lost_packet_wait_ns=_MS)
    exact = absent = used = 0
    seqno, now_ns = 1, 0
    _feed(engine, _single(0), 0)
    while used < datagrams:
        payloads = {seqno + n: rng.randbytes(_size(rng)) for n in range(at_once)}
        parts = [part for number, payload in payloads.items() for part in _message(number, payload)]
        rng.shuffle(parts)
        kept = [part for part in parts if rng.random() >= loss]
        whole = {
            number
            for number in payloads
            if sum(_seqno(part) == number for part in kept)
            == sum(_seqno(part) == number for part in parts)
        }
        messages = [message for part in kept for message in _feed(engine, part, now_ns)]
        seqno += at_once + 1
        now_ns += 2 * _MS
        messages += _feed(engine, _single(seqno - 1), now_ns)
        engine.expire(now_ns + 2 * _MS)
        messages += engine.take()
        came = {
            message.seqno: message.payload for message in messages if message.kind == Kind.MESSAGE
        }
        del came[seqno - 1]
        if set(came) != whole or any(came[number] != payloads[number] for number in whole):
            raise Wrong(f"messages {sorted(set(came) ^ whole)} differ near seqno {seqno}")
        exact, absent, used = exact + len(whole), absent + at_once - len(whole), used + len(kept)
    return {"datagrams": used, "exact": exact, "absent": absent}


def hostile_fragments(seed: int, datagrams: int) -> Found:
    """T-F2: wrong fragments among good ones: counted by reason, never part of a message."""
    rng = random.Random(seed)
    engine = FeedPipeline(session_adopt_datagrams=2)
    given: dict[str, int] = {}
    total = came = 0
    for seqno in range(max(20, datagrams // 8)):
        payload = bytes([seqno % 251 + 1]) * rng.choice((1, 511, 512, 513, 1024, 1500))
        good = _message(seqno, payload)
        bad = _hostile(rng, seqno, len(good))
        for reason, _ in bad:
            given[reason] = given.get(reason, 0) + 1
        parts = good[:1] + [part for _, part in bad] + good[1:]
        total += len(parts)
        for message in (message for part in parts for message in _feed(engine, part, seqno)):
            if message.kind == Kind.MESSAGE:
                came += 1
                if message.payload != payload:
                    raise Wrong(f"seqno {seqno}: {len(message.payload)} other bytes")
            elif message.kind == Kind.GAP:
                raise Wrong(f"seqno {seqno}: {gap_of(message)}")
        if came != seqno + 1:
            raise Wrong(f"seqno {seqno} was not delivered")
    counted = engine.counters()["incremental.0"]
    for reason, count in given.items():
        if counted.get(reason, 0) != count:
            raise Wrong(f"{reason}: {count} given, counted {counted}")
    return {"datagrams": total, "delivered": came, **given}


def _feed(engine: FeedPipeline, data: bytes, now_ns: int) -> list[FeedMessage]:
    engine.accept(0, 0, data, now_ns, now_ns)
    return engine.take()


def _hostile(rng: random.Random, seqno: int, parts: int) -> list[tuple[str, bytes]]:
    poison = b"\xee" * FRAGMENT_SIZE
    found = [
        ("fragment_beyond_max", datagram(poison, seqno=seqno, fragment=5, fragment_max=4)),
        ("too_long", datagram(poison + b"\xee", seqno=seqno + 1)),
        ("short_fragment", datagram(poison[:100], seqno=seqno + 1, fragment_max=1)),
        ("too_short", datagram(seqno=seqno)[: rng.randrange(16)]),
        ("session_pending", datagram(poison, seqno=seqno, session_id=2 + seqno % 1000)),
    ]
    if parts > 1:
        found.append(
            (
                "fragment_max_changed",
                datagram(poison, seqno=seqno, fragment=1, fragment_max=parts + 1, object_type=3),
            )
        )
    return rng.sample(found, rng.randint(1, len(found)))


def _size(rng: random.Random) -> int:
    count = rng.choice((1, 2, 2, 3, 3, 4, 5, 16))
    return FRAGMENT_SIZE * (count - 1) + rng.randint(1, FRAGMENT_SIZE)


def _message(seqno: int, payload: bytes) -> list[bytes]:
    return datagrams(payload, seqno=seqno, object_type=3)


def _single(seqno: int) -> bytes:
    return datagram(b"x", seqno=seqno, object_type=3)


def _seqno(data: bytes) -> int:
    return int.from_bytes(data[8:12], "little")


def _said(messages: list[FeedMessage]) -> list[int | tuple[int, int]]:
    said: list[int | tuple[int, int]] = []
    for message in messages:
        if message.kind == Kind.MESSAGE:
            said.append(message.seqno)
        elif message.kind == Kind.GAP:
            said.append(gap_of(message)[:2])
    return said
