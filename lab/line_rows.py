"""Rows T-A1 to T-A4: two lines that lose, die, disagree, and race."""

import random

from udpfast.core.layout import Channel
from udpfast.net.bad_network import Arrival, LineFaults, LineMap, network

from .follower import Follower, Wrong
from .loss_rows import Found, settle
from .origin import Origin
from .traffic import Traffic

__all__ = ["complementary_loss", "disagreeing_lines", "dying_line", "race"]

_MS = 1_000_000


def complementary_loss(
    seed: int, datagrams: int, loss_a: float = 0.01, loss_b: float = 0.01, skew_ns: int = 0
) -> Found:
    """T-A1: what is not delivered is what both lines lost, and nothing else."""
    origin = Origin(objects=50, seed=seed)
    traffic = Traffic(origin, lines=(2, 1))
    follower = Follower([origin], lines_incremental=2, lost_packet_wait_ns=skew_ns + 5 * _MS)
    sent = traffic.updates(datagrams // 2, snapshot_every=10)
    arrived = network(
        sent,
        {
            (Channel.INCREMENTAL, 0): LineFaults(loss=loss_a),
            (Channel.INCREMENTAL, 1): LineFaults(loss=loss_b, delay_ns=skew_ns),
        },
        seed,
    )
    follower.run(arrived)
    traffic.pause(skew_ns)
    settle(traffic, follower, skew_ns + 6 * _MS)
    came = {_seqno(arrival) for arrival in arrived if arrival.channel == 0}
    lost = {_seqno(arrival) for arrival in sent if arrival.channel == 0} - came
    lost -= {seqno for seqno in lost if seqno < min(came)}
    reported = {
        first + at
        for channel, first, count, _ in follower.gaps
        for at in range(count)
        if channel == 0
    }
    if reported != lost:
        raise Wrong(f"lost on both {sorted(lost)[:9]}, reported {sorted(reported)[:9]}")
    return {"lost_on_both": len(lost), "gaps": len(follower.gaps), "datagrams": follower.datagrams}


def dying_line(seed: int, datagrams: int, skew_ns: int = 2 * _MS) -> Found:
    """T-A2: A dies and comes back again and again, a third line joins: no gap while B is clean."""
    origin = Origin(objects=50, seed=seed)
    traffic = Traffic(origin, lines=(3, 1))
    follower = Follower([origin], lines_incremental=3, lost_packet_wait_ns=skew_ns + 5 * _MS)
    sent = traffic.updates(max(3000, datagrams // 3), snapshot_every=10)
    start, span = sent[0].time_ns, sent[-1].time_ns - sent[0].time_ns
    cycle = span // 20
    alive = [
        arrival
        for arrival in sent
        if not (
            arrival.channel == 0
            and arrival.line == 0
            and (arrival.time_ns - start) % cycle > cycle * 5 // 6
        )
        and not (arrival.channel == 0 and arrival.line == 2 and arrival.time_ns - start < span // 2)
    ]
    faults: LineMap = {(Channel.INCREMENTAL, 1): LineFaults(delay_ns=skew_ns)}
    follower.run(network(alive, faults, seed))
    traffic.pause(skew_ns)
    settle(traffic, follower, skew_ns + 6 * _MS)
    if follower.gaps:
        raise Wrong(f"gaps {follower.gaps[:5]}")
    return {"datagrams": follower.datagrams, "delivered": follower.delivered[0]}


def disagreeing_lines(seed: int, datagrams: int) -> Found:
    """T-A3: B's bytes differ now and then: the first copy counts, each difference is told."""
    rng = random.Random(seed)
    origin = Origin(objects=20, seed=seed)
    traffic = Traffic(origin, lines=(2, 1))
    follower = Follower([origin], lines_incremental=2)
    different = 0
    arrivals = []
    for sent in traffic.updates(max(200, datagrams // 2)):
        arrival = sent
        if arrival.line == 1 and rng.random() < 0.05:
            changed = bytearray(arrival.datagram)
            changed[rng.randrange(16, len(changed))] ^= 1
            arrival = arrival._replace(datagram=bytes(changed))
            different += 1
        arrivals.append(arrival)
    follower.run(arrivals)
    settle(traffic, follower)
    counted = follower.pipeline.counters()["incremental"].get("disagreements", 0)
    if not follower.disagreements == counted == different:
        raise Wrong(f"{different} differ, {follower.disagreements} told, {counted} counted")
    return {"different": different, "told": follower.disagreements}


def race(seed: int, datagrams: int) -> Found:
    """T-A4: injected leads: wins and lead times per line are exact."""
    rng = random.Random(seed)
    origin = Origin(objects=20, seed=seed)
    traffic = Traffic(origin, lines=(2, 1), interval_ns=100_000)
    follower = Follower([origin], lines_incremental=2)
    wins, leads = [0, 0], [0, 0]
    arrivals = []
    sent = traffic.updates(max(100, datagrams // 2))
    for first, second in zip(sent[::2], sent[1::2], strict=True):
        winner, lead_ns = rng.randrange(2), rng.randrange(1, 50_000)
        wins[winner] += 1
        leads[winner] += lead_ns
        later = second.time_ns + lead_ns
        arrivals += [first._replace(line=winner), Arrival(later, 0, 1 - winner, second.datagram)]
    follower.run(arrivals)
    for line in (0, 1):
        counted = follower.pipeline.counters()[f"incremental.{line}"]
        found = (counted.get("wins", 0), counted.get("leads", 0), counted.get("lead_ns", 0))
        if found != (wins[line], wins[line], leads[line]):
            raise Wrong(
                f"line {line}: wins, leads, lead_ns {found}, "
                f"expected {(wins[line], wins[line], leads[line])}"
            )
    follower.check_accounting()
    return {"pairs": sum(wins), "wins_a": wins[0], "lead_ns": sum(leads)}


def _seqno(arrival: Arrival) -> int:
    return int.from_bytes(arrival.datagram[8:12], "little")
