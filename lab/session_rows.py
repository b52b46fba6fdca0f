"""Rows T-S1 to T-S4, T-D2 and T-I1: restarts, spoofed sessions, replays, silence."""

import random

from udpfast.core.layout import Channel, ConnectionStatus, SessionReason
from udpfast.net.bad_network import Arrival, LineFaults, LineMap, network

from .follower import Follower, Wrong
from .frames import datagram
from .loss_rows import Found, settle
from .origin import Origin
from .traffic import Traffic

__all__ = ["flaps", "inactivity", "replay", "restarts", "same_session", "skewed_restarts"]

_MS = 1_000_000
_SECOND = 1_000_000_000
_SENDER_REFUSED = 2  # DATAGRAM_SENDER_REFUSED


def restarts(seed: int, datagrams: int, loss: float = 0.01) -> Found:
    """T-S1: restarts at random phases, 0 to 3 s apart: one reset each, objects cleared."""
    rng = random.Random(seed)
    count = max(3, datagrams // 150)
    ids = rng.sample(range(1, 65536), count)
    origins = [
        Origin(session_id, objects=20, seed=seed + number, payload_max=900)
        for number, session_id in enumerate(ids)
    ]
    follower = Follower(origins)
    now_ns = _SECOND
    for origin in origins:
        traffic = Traffic(origin, start_ns=now_ns)
        sent = traffic.updates(rng.randint(20, 160), snapshot_every=5)
        follower.run(network(sent, LineFaults(loss=loss), rng.randrange(1 << 30)))
        now_ns = traffic.now_ns + rng.randrange(3 * _SECOND)
    settle(traffic, follower)
    seen = [new for _, new, _ in follower.sessions]
    if seen != ids:
        raise Wrong(f"{len(seen)} sessions, expected {count}: {seen[:5]} ..")
    return {"restarts": count, "sessions": len(seen), "datagrams": follower.datagrams}


def skewed_restarts(seed: int, datagrams: int, skew_ns: int = 5 * _MS) -> Found:
    """T-S2: line B still brings the old session while A has the new one: one reset each."""
    count = 4
    origins = [Origin(100 + number, objects=20, seed=seed + number) for number in range(count)]
    follower = Follower(
        origins, lines_incremental=2, lost_packet_wait_ns=skew_ns + 5 * _MS, window=8192
    )
    sent: list[Arrival] = []
    now_ns = _SECOND
    for origin in origins:
        traffic = Traffic(origin, start_ns=now_ns, lines=(2, 1))
        sent += traffic.updates(max(500, datagrams // count // 2), snapshot_every=10)
        now_ns = traffic.now_ns
    faults: LineMap = {(Channel.INCREMENTAL, 1): LineFaults(delay_ns=skew_ns)}
    follower.run(network(sent, faults, seed))
    traffic.pause(skew_ns)
    settle(traffic, follower)
    if [new for _, new, _ in follower.sessions] != [origin.session_id for origin in origins]:
        raise Wrong(f"sessions {follower.sessions}, expected {count}")
    if follower.lost != [0, 0]:
        raise Wrong(f"lost {follower.lost} in {follower.gaps[:5]}, expected nothing")
    return {"sessions": count, "datagrams": follower.datagrams}


def same_session(seed: int, datagrams: int, old_seqno: int = 1000) -> Found:
    """T-S3: a restarted publisher draws the same id: noticed within 32 datagrams."""
    old = Origin(7, objects=20, seed=seed, first_seqno=old_seqno - 200, first_snapshot_seqno=500)
    new = Origin(7, objects=20, seed=seed + 1)
    traffic = Traffic(old)
    follower = Follower([old, new])
    follower.run(traffic.updates(200, snapshot_every=5))
    after = Traffic(new, start_ns=traffic.now_ns + _SECOND)
    needed = 0
    while len(follower.sessions) == 1:
        follower.run(after.updates(1))
        needed += 1
        if needed > 40:
            raise Wrong(f"old seqno {old_seqno}: not noticed after {needed} datagrams")
    if follower.sessions[-1] != (7, 7, SessionReason.SAME_ID) or needed > 32:
        raise Wrong(f"old seqno {old_seqno}: {follower.sessions[-1]} after {needed} datagrams")
    settle(after, follower)
    if len(follower.sessions) != 2:
        raise Wrong(f"{len(follower.sessions)} sessions, expected 2")
    return {"old_seqno": old_seqno, "needed": needed}


def flaps(seed: int, datagrams: int, own_source: bool = True) -> Found:
    """T-S4: a spoofed datagram with a random session each 10 ms, among 1,000 messages/s."""
    rng = random.Random(seed)
    origin = Origin(5, objects=20, seed=seed)
    traffic, follower = Traffic(origin, interval_ns=_MS), Follower([origin])
    follower.run(traffic.updates(20, snapshot_every=2))
    spoofed = 0
    for _ in range(max(10, datagrams // 12)):
        follower.run(traffic.updates(10, snapshot_every=10))
        forged = datagram(
            rng.randbytes(40),
            session_id=rng.randrange(6, 65536),
            seqno=rng.getrandbits(32),
            object_type=3,
        )
        follower.accept(
            Arrival(traffic.now_ns, rng.randrange(2) if own_source else 0, 0, forged),
            flags=0 if own_source else _SENDER_REFUSED,
        )
        spoofed += 1
    settle(traffic, follower)
    verdicts = follower.verdicts()
    alarm = (
        verdicts["session_pending"] + verdicts["session_foreign"] + verdicts["session_retired"]
        if own_source
        else verdicts["sender_refused"]
    )
    if len(follower.sessions) != 1 or alarm != spoofed:
        raise Wrong(f"{spoofed} spoofed: {len(follower.sessions)} sessions, alarm {alarm}")
    return {"spoofed": spoofed, "alarm": alarm, "datagrams": follower.datagrams}


def replay(seed: int, datagrams: int, how: str = "same_session") -> Found:
    """T-D2: an old capture is replayed into the live session: nothing of it is delivered.

    `how`: "same_session", "retired" (of an earlier session), "unlisted" (from another sender).
    """
    before = Origin(4, objects=20, seed=seed + 1)
    origin = Origin(5, objects=20, seed=seed)
    follower = Follower([before, origin])
    old = Traffic(before)
    capture = old.updates(datagrams // 3, snapshot_every=10)
    follower.run(capture)
    traffic = Traffic(origin, start_ns=old.now_ns + _SECOND)
    recorded = traffic.updates(datagrams // 3, snapshot_every=10)
    follower.run(recorded)
    if how != "retired":
        capture = recorded
    traffic.pause(3600 * _SECOND)
    follower.run(traffic.updates(10))
    known = follower.verdicts()  # a snapshot that came before its session was believed is foreign
    # One live message for each ten of the capture: a replay alone cannot be told from a restart.
    for place in range(0, len(capture), 10):
        for arrival in capture[place : place + 10]:
            follower.accept(
                arrival._replace(time_ns=traffic.now_ns),
                flags=_SENDER_REFUSED if how == "unlisted" else 0,
            )
        follower.run(traffic.updates(1, snapshot_every=1))
    if follower.delivered[0] != before.incremental_messages + origin.incremental_messages:
        raise Wrong(f"delivered {follower.delivered}")
    settle(traffic, follower)
    if len(follower.sessions) != 2 or follower.lost != [0, 0]:
        raise Wrong(f"sessions {follower.sessions}, gaps {follower.gaps[:5]}")
    verdicts = follower.verdicts()
    names = {
        "same_session": ("duplicate", "replay", "late"),
        "retired": ("session_retired", "session_foreign"),
        "unlisted": ("sender_refused",),
    }
    alarm = sum(verdicts[name] - known[name] for name in names[how])
    if alarm != len(capture):
        raise Wrong(f"{len(capture)} replayed, counted {alarm}: {verdicts}")
    return {"replayed": len(capture), "alarm": alarm}


def inactivity(seed: int, datagrams: int) -> Found:
    """T-I1: silence of 9.9 and 10.1 s, heartbeats only, and only refused datagrams."""
    origin = Origin(5, objects=5, seed=seed)
    traffic, follower = Traffic(origin), Follower([origin])
    follower.run(traffic.updates(10, snapshot_every=2))
    start = [(0, int(ConnectionStatus.READY)), (1, int(ConnectionStatus.READY))]
    _expect(follower, start)
    follower.run(traffic.heartbeats(30, _SECOND), tick_ns=100 * _MS)
    _expect(follower, [*start, (1, ConnectionStatus.DISCONNECTED)])
    known = list(follower.connections)
    traffic.pause(9_900 * _MS)
    follower.expire(traffic.now_ns)
    _expect(follower, known)
    follower.run(traffic.updates(1))
    traffic.pause(10_100 * _MS)
    refused = datagram(b"x", session_id=5, seqno=1)
    for _ in range(30):
        follower.accept(Arrival(traffic.now_ns, 0, 0, refused), flags=_SENDER_REFUSED)
        follower.expire(traffic.now_ns)
        traffic.pause(_SECOND)
    _expect(follower, [*known, (0, ConnectionStatus.DISCONNECTED)])
    follower.run(traffic.updates(2))
    _expect(follower, [*known, (0, ConnectionStatus.DISCONNECTED), (0, ConnectionStatus.READY)])
    settle(traffic, follower)
    return {"transitions": len(follower.connections)}


def _expect(follower: Follower, connections: list[tuple[int, int]]) -> None:
    if follower.connections != connections:
        raise Wrong(f"connections {follower.connections}, expected {connections}")
