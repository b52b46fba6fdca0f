"""Rows T-R1 to T-R3: late snapshots, recovery by last_seqno, and engine against model."""

import random
from typing import Any

from udpfast.core.layout import Channel, Kind, ObjectStatus
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.net.bad_network import LineFaults, LineMap, network

from .follower import Follower, Wrong
from .loss_rows import Found, settle
from .model import FeedModel
from .origin import Origin
from .said import gap_of, session_of
from .traffic import Traffic

__all__ = ["differential", "last_seqno_recovery", "late_snapshots"]

_MS = 1_000_000


def late_snapshots(seed: int, datagrams: int, delay_ns: int = 20 * _MS) -> Found:
    """T-R1: the snapshot channel lags and the incremental one loses: no state goes backwards."""
    origin = Origin(objects=40, seed=seed)
    traffic, follower = Traffic(origin, interval_ns=100_000), Follower([origin])
    for key in origin.keys:
        origin.update(key)  # before we join
    sent = traffic.updates(datagrams * 3 // 4, snapshot_every=3)
    late = LineFaults(delay_ns=delay_ns // 2, jitter_ns=delay_ns // 2)
    faults: LineMap = {
        (Channel.SNAPSHOT, 0): late,
        (Channel.INCREMENTAL, 0): LineFaults(loss=0.005),
    }
    arrived = network(sent, faults, seed)
    follower.run(arrived)
    traffic.pause(delay_ns)
    settle(traffic, follower)
    return {
        "datagrams": follower.datagrams,
        "gaps": len(follower.gaps),
        "stale": follower.stale,
        "recovered": follower.recovered,
    }


def last_seqno_recovery(seed: int, datagrams: int, hit: int = 10, objects: int = 1000) -> Found:
    """T-R2: a gap hits some objects; the others recover by their next update alone."""
    origin = Origin(objects=objects, seed=seed)
    traffic, follower = Traffic(origin), Follower([origin])
    for key in origin.keys:
        follower.run(traffic.message(origin.update(key, snapshot=True)))
    lost = origin.rng.sample(origin.keys, hit)
    for key in lost:
        traffic.message(origin.update(key))  # never arrives
    order = list(origin.keys)
    origin.rng.shuffle(order)
    for key in order:
        follower.run(traffic.message(origin.update(key)))
    traffic.pause(6 * _MS)
    follower.expire(traffic.now_ns)
    stale = [key for key in origin.keys if follower.status(key) != ObjectStatus.LIVE]
    if sorted(stale) != sorted(lost) or follower.stale != hit:
        raise Wrong(f"{hit} objects were hit, {len(stale)} are not LIVE: {stale[:9]}")
    recovered = follower.objects.counters()["recovered_chain"]
    settle(traffic, follower)
    return {"hit": hit, "stale": len(stale), "recovered_chain": recovered}


def differential(seed: int, datagrams: int) -> Found:
    """T-R3: random faults and settings; engine and model say the same, and states converge."""
    rng = random.Random(seed)
    settings: dict[str, Any] = {
        "out_of_order_max_interval": rng.choice((1, 3, 16, 200, 8192)),
        "lost_packet_wait_ns": rng.choice((100_000, _MS, 5 * _MS)),
        "on_gap": rng.choice(("keep_all", "latest_run")),
        "session_adopt_datagrams": rng.choice((1, 2, 3)),
    }
    lines = rng.choice((1, 2))
    faults = {(channel, line): _faults(rng) for channel in (0, 1) for line in range(lines)}
    ids = rng.sample(range(1, 65536), rng.choice((1, 1, 2)))
    origins = [
        Origin(
            session_id,
            objects=8,
            seed=seed + number,
            first_seqno=rng.choice((1, 1000, (1 << 32) - 50)),
        )
        for number, session_id in enumerate(ids)
    ]
    engine = FeedPipeline(lines_incremental=lines, lines_snapshot=lines, **settings)
    model = FeedModel(**settings)
    follower = Follower(origins, lines_incremental=lines, lines_snapshot=lines, **settings)
    used, now_ns, now = 0, 1_000_000_000, 0
    for number, origin in enumerate(origins):
        traffic = Traffic(origin, start_ns=now_ns, lines=(lines, lines))
        sent = traffic.updates(max(50, datagrams // len(ids) // lines), snapshot_every=4)
        arrived = network(sent, faults, seed + number)
        for time_ns, channel, line, data in arrived:
            for tick in range(now + 50_000 if now else time_ns, time_ns, 50_000):
                _expire(engine, model, tick)
            now = time_ns
            engine.accept(channel, line, data, now, now)
            messages = engine.take()
            model.accept(channel, line, data, now)
            engine.expire(now)
            model.expire(now)
            _compare(messages + engine.take(), model, now)
            used += 1
        follower.run(arrived)
        pause_ns = (20 if seed % 2 else 200) * _MS  # lines that are alive at its end, or not
        now_ns = max(traffic.now_ns, arrived[-1].time_ns if arrived else 0) + pause_ns
    traffic.pause(now_ns - traffic.now_ns)
    settle(traffic, follower)
    return {"datagrams": used, "delivered": sum(follower.delivered), "gaps": len(follower.gaps)}


def _faults(rng: random.Random) -> LineFaults:
    # The ranges of TigerBeetle's simulator: loss 0 to 30 %, replay 0 to 50 %.
    return LineFaults(
        loss=rng.choice((0.0, 0.01, 0.1, 0.3)),
        burst_mean=rng.choice((0, 0, 5, 50)),
        duplicate=rng.choice((0.0, 0.01, 0.5)),
        duplicate_delay_ns=rng.choice((0, 30_000, 2 * _MS)),
        reorder=rng.choice((0.0, 0.1, 0.5)),
        reorder_depth=rng.choice((0, 2, 15, 40)),
        delay_ns=rng.choice((0, 0, 300_000)),
    )


def _expire(engine: FeedPipeline, model: FeedModel, now_ns: int) -> None:
    engine.expire(now_ns)
    model.expire(now_ns)
    _compare(engine.take(), model, now_ns)


def _compare(messages: list[FeedMessage], model: FeedModel, now_ns: int) -> None:
    came: list[tuple[str, int, int, int, int, bytes]] = []
    for message in messages:
        if message.kind == Kind.MESSAGE:
            came.append(
                (
                    "message",
                    message.channel,
                    message.session_id,
                    message.seqno,
                    message.seqno,
                    message.payload,
                )
            )
        elif message.kind == Kind.GAP:
            first, last = gap_of(message)[:2]
            came.append(("gap", message.channel, message.session_id, first, last, b""))
        elif message.kind == Kind.SESSION:
            old, new = session_of(message)[:2]
            came.append(("session", message.channel, new, old, new, b""))
    expected = model.take()
    # The channels are independent: within one call, either may come first.
    came.sort(key=lambda item: item[1])
    expected.sort(key=lambda item: item[1])
    if came != expected:
        raise Wrong(
            f"at {now_ns}: engine {[item[:5] for item in came]}, "
            f"model {[item[:5] for item in expected]}"
        )
