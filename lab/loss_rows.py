"""Rows T-L1 to T-L4 and T-D1, T-W1: loss, bursts, silence, duplicates, and the wrap."""

from udpfast.core.layout import Channel
from udpfast.net.bad_network import Arrival, LineFaults, network

from .follower import Follower, Wrong
from .origin import Origin
from .traffic import Traffic

__all__ = [
    "burst_loss",
    "duplicates",
    "settle",
    "snapshot_loss",
    "tail_loss",
    "uniform_loss",
    "wrap",
]

_SNAPSHOT_EVERY = 10
_WRAP = 1 << 32

#: What a row found: numbers by name.
Found = dict[str, int | float]


def settle(traffic: Traffic, follower: Follower, wait_ns: int = 6_000_000) -> None:
    """Let the faults stop: a wait and one snapshot cycle later every object must be equal (NL2).

    One more cycle, and every object must also be said to be LIVE: a snapshot proves that an
    object was not hit only once it is known to be newer than the gap.
    """
    follower.run(traffic.updates(1, snapshot_every=1))  # shows what was lost last
    traffic.pause(wait_ns)
    follower.expire(traffic.now_ns)
    for live in (False, True):
        known = list(traffic.origin.state)  # one that begins now may miss this cycle
        follower.run(traffic.cycle())
        traffic.pause(wait_ns)
        follower.expire(traffic.now_ns)
        follower.check_equal(known, live=live)
        follower.check_live_sound()
    follower.check_accounting()


def uniform_loss(seed: int, datagrams: int, loss: float = 0.01) -> Found:
    """T-L1: independent loss on one line of each channel."""
    origin = Origin(objects=100, seed=seed, payload_max=600)
    traffic, follower = Traffic(origin), Follower([origin])
    sent = traffic.updates(datagrams * 9 // 13, snapshot_every=_SNAPSHOT_EVERY)
    arrived = network(sent, LineFaults(loss=loss), seed)
    follower.run(arrived)
    follower.check_live_sound()
    settle(traffic, follower)
    _check_lost_exactly(sent, arrived, follower)
    return _found(follower)


def burst_loss(seed: int, datagrams: int, loss: float = 0.01, burst_mean: float = 100) -> Found:
    """T-L2: Gilbert-Elliott bursts; one gap for each burst of each channel."""
    origin = Origin(objects=100, seed=seed)
    traffic, follower = Traffic(origin), Follower([origin])
    sent = traffic.updates(datagrams * 10 // 11, snapshot_every=_SNAPSHOT_EVERY)
    arrived = network(sent, LineFaults(loss=loss, burst_mean=burst_mean), seed)
    follower.run(arrived)
    settle(traffic, follower)
    _check_lost_exactly(sent, arrived, follower)
    return _found(follower)


def tail_loss(seed: int, datagrams: int) -> Found:
    """T-L3: the last message before a silence is lost; a heartbeat shows it, the wait decides."""
    wait_ns, tick_ns = 5_000_000, 1_000_000
    longest = 0
    origin = Origin(objects=10, seed=seed)
    traffic, follower = Traffic(origin), Follower([origin], lost_packet_wait_ns=wait_ns)
    for _ in range(max(1, datagrams // 30)):
        follower.run(traffic.updates(20))
        traffic.updates(1)  # never arrives
        shown = traffic.heartbeats(1, 1_000_000_000)
        follower.run(shown, tick_ns=tick_ns)
        gaps = len(follower.gaps)
        now_ns = shown[-1].time_ns
        while len(follower.gaps) == gaps:
            now_ns += tick_ns
            follower.expire(now_ns)
            if now_ns - shown[-1].time_ns > wait_ns + tick_ns:
                raise Wrong(f"no gap {now_ns - shown[-1].time_ns} ns after the heartbeat")
        longest = max(longest, now_ns - shown[-1].time_ns)
        traffic.pause(now_ns - traffic.now_ns + tick_ns)
    follower.check_accounting()
    return {**_found(follower), "longest_ns": longest}


def snapshot_loss(seed: int, datagrams: int, loss: float = 0.5, objects: int = 1000) -> Found:
    """T-L4: join late while the snapshot channel loses; cycles until all objects are equal."""
    origin = Origin(objects=objects, seed=seed)
    traffic = Traffic(origin)
    for key in origin.keys:
        origin.update(key)  # before we join
    follower = Follower([origin])
    follower.run(traffic.updates(10))
    limit = {0.1: 5, 0.5: 17, 0.9: 110}[loss]
    for cycle in range(1, limit + 1):
        arrived = network(
            traffic.cycle(), {(Channel.SNAPSHOT, 0): LineFaults(loss=loss)}, seed * 1000 + cycle
        )
        follower.run(arrived)
        traffic.pause(6_000_000)  # the last holes become gaps
        follower.expire(traffic.now_ns)
        if all(follower.state.get(key) == state for key, state in origin.state.items()):
            follower.check_equal(live=False)
            follower.check_accounting()
            return {**_found(follower), "cycles": cycle, "limit": limit}
    raise Wrong(f"not all objects are equal after {limit} cycles at {loss:.0%} loss")


def duplicates(seed: int, datagrams: int, part: float = 0.1, delay_ns: int = 0) -> Found:
    """T-D1: nothing is delivered twice, and the counters are exact."""
    origin = Origin(objects=100, seed=seed, payload_max=600)
    traffic, follower = Traffic(origin), Follower([origin])
    sent = traffic.updates(datagrams * 9 // 13, snapshot_every=_SNAPSHOT_EVERY)
    arrived = network(sent, LineFaults(duplicate=part, duplicate_delay_ns=delay_ns), seed)
    follower.run(arrived)
    verdicts = follower.verdicts()
    extra = verdicts["duplicate"] + verdicts["late"] + verdicts["replay"]
    if extra != len(arrived) - len(sent):
        raise Wrong(f"{len(arrived) - len(sent)} datagrams came twice, counted {extra}")
    if follower.delivered != [origin.incremental_messages, origin.snapshot_messages]:
        raise Wrong(f"delivered {follower.delivered}")
    settle(traffic, follower)
    return _found(follower)


def wrap(seed: int, datagrams: int, start: int = _WRAP - 100) -> Found:
    """T-W1: both numberings wrap under loss, reordering and fragments."""
    origin = Origin(
        objects=20, seed=seed, first_seqno=start, first_snapshot_seqno=start + 50, payload_max=1500
    )
    traffic, follower = Traffic(origin), Follower([origin])
    # The base is certain: a publisher that numbers from 0 makes last_seqno 0 mean two things.
    follower.run(traffic.updates(1))
    sent = traffic.updates(max(400, datagrams // 3), snapshot_every=3)
    arrived = network(sent, LineFaults(loss=0.02, reorder=0.2, reorder_depth=12), seed)
    follower.run(arrived)
    settle(traffic, follower)
    if min(origin.next_seqno, origin.next_snapshot_seqno) >= start % _WRAP > 0:
        raise Wrong("the numbering did not wrap: more datagrams are needed")
    return _found(follower)


def _check_lost_exactly(sent: list[Arrival], arrived: list[Arrival], follower: Follower) -> None:
    # Without reordering, what was not delivered is what lost a datagram, in one gap per run.
    for channel in (0, 1):
        parts: dict[int, int] = {}
        for arrival in sent:
            if arrival.channel == channel:
                parts[_seqno(arrival.datagram)] = parts.get(_seqno(arrival.datagram), 0) + 1
        for arrival in arrived:
            if arrival.channel == channel:
                parts[_seqno(arrival.datagram)] -= 1
        fragmented = any(arrival.datagram[2] for arrival in sent)
        missing = [left > 0 for left in parts.values()]
        # What came before the first datagram that arrived was never known.
        begin = next((place for place, left in enumerate(parts.values()) if left == 0), 0)
        runs = sum(
            now and not before
            for before, now in zip(missing[begin:], missing[begin + 1 :], strict=False)
        )
        gaps = [gap for gap in follower.gaps if gap[0] == channel]
        lost = sum(missing[begin:])
        # A message of which a part came may wait longer than its lost neighbour: two gaps.
        gaps_max = lost if fragmented else runs
        gaps_max = max(gaps_max, runs) + 1
        if not runs - 1 <= len(gaps) <= gaps_max or abs(follower.lost[channel] - lost) > begin + 1:
            raise Wrong(
                f"channel {channel}: {lost} lost in {runs} runs, reported "
                f"{follower.lost[channel]} in {len(gaps)} gaps"
            )


def _seqno(datagram: bytes) -> int:
    return int.from_bytes(datagram[8:12], "little")


def _found(follower: Follower) -> Found:
    return {
        "datagrams": follower.datagrams,
        "delivered": sum(follower.delivered),
        "lost": sum(follower.lost),
        "gaps": len(follower.gaps),
        "stale": follower.stale,
        "recovered": follower.recovered,
    }
