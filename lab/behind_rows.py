"""Row T-L6: lines further behind than holes wait, of a publisher that never begins anew.

What the first line loses is given up before the others bring it. Then they send numbers that the
feed is past, whose bytes it does not know, while the first line pauses or goes on: as a publisher
would that began anew, but for each of these lines only goes on from where it was.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from udpfast.core.layout import Kind
from udpfast.feed.pipeline import FeedPipeline
from udpfast.net.bad_network import Arrival
from udpfast.wire.facts import Numbers
from udpfast.wire.framing import Framing

from .follower import Wrong
from .framings import Sent, build
from .loss_rows import Found
from .said import session_of

__all__ = ["BEHIND", "lines_behind"]

BEHIND = ("roq", "cme_mdp3", "moldudp64", "iex_tp", "nyse_xdp", "cboe_pitch", "miax_mach")

_MS = 1_000_000
_BEGAN_NS = 10**18
_TOLD = struct.Struct("<4sQ")
_STREAMS = {"iex_tp": (0x8004, 1), "cboe_pitch": (1,)}
_COUNT = 800  # datagrams of a trial


def lines_behind(seed: int, datagrams: int, framing: str = "roq") -> Found:
    """T-L6: no numbering but the one that there is, and no message twice."""
    rng = random.Random(f"behind {seed} {framing}")
    found = {"trials": 0, "datagrams": 0, "messages": 0}
    while found["datagrams"] < datagrams:
        network = _Network.draw(rng)
        arrivals = network.bring(rng, list(_sent(rng, framing, network.rate)))
        found["trials"] += 1
        found["datagrams"] += len(arrivals)
        found["messages"] += _receive(rng, framing, network, arrivals)
    return dict(found)


@dataclass(slots=True)
class _Network:
    # Each line with its delay, and what it loses: here and there, and all of some spans of time.
    rate: int
    behind_ns: list[int]
    loss: list[float]
    wait_ns: int
    outages: list[tuple[int, int, int]] = field(default_factory=list)

    @classmethod
    def draw(cls, rng: random.Random) -> "_Network":
        rate = int(10 ** rng.uniform(2, 5))
        span_ns = _COUNT * 1_000 * _MS // rate
        lines = rng.choice((2, 2, 2, 3))
        behind_ns = [0, *(rng.randrange(min(span_ns // 3, 100 * _MS)) for _ in range(lines - 1))]
        drawn = cls(
            rate,
            behind_ns,
            [rng.choice((0.0, 0.01, 0.1, 0.3, 0.4)), *(rng.choice((0.0, 0.0, 0.1)),) * (lines - 1)],
            min(max(behind_ns) // rng.choice((2, 3, 6)), 5 * _MS),
        )
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            at = rng.randrange(span_ns)
            line = rng.choice((0, 0, 0, lines - 1))
            drawn.outages.append((line, at, at + rng.randrange(min(100 * _MS, span_ns // 3))))
        return drawn

    def bring(self, rng: random.Random, sent: list[tuple[int, bytes]]) -> list[Arrival]:
        arrivals = [
            Arrival(at_ns + self.behind_ns[line] + rng.randrange(20_000), 0, line, data)
            for at_ns, data in sent
            for line in range(len(self.loss))
            if rng.random() >= self.loss[line] and not self._is_out(line, at_ns - _BEGAN_NS)
        ]
        return sorted(arrivals, key=lambda arrival: arrival.time_ns)

    def _is_out(self, line: int, at_ns: int) -> bool:
        return any(out == line and first <= at_ns < end for out, first, end in self.outages)


def _sent(rng: random.Random, framing: str, rate: int) -> Iterator[tuple[int, bytes]]:
    # At an even pace or in bursts, with pauses.
    each = Framing(framing).facts.numbers is Numbers.MESSAGES
    widest = rng.choice((1, 2, 5, 20, 60)) if not framing.startswith("roq") else 1
    bursts = rng.random() < 0.3
    heartbeats = rng.choice((0, 0, 0.2)) if framing == "roq" else 0
    session: bytes | int = f"{7:>10}".encode() if framing == "moldudp64" else 7
    at_ns, number = _BEGAN_NS, rng.choice((1, 1_000))
    for _ in range(_COUNT):
        count = rng.randint(widest // 2 + 1, widest)
        messages = tuple(_TOLD.pack(b"told", number + i if each else number) for i in range(count))
        if rng.random() < heartbeats:
            messages = ()
        stream = _STREAMS.get(framing, ())
        yield at_ns, build(framing, Sent(number, messages, stream, session, at_ns))
        number += count if each else 1
        at_ns += 10**9 // rate if not bursts else rng.choice((2_000,) * 9 + (10 * 10**9 // rate,))
        at_ns += rng.randrange(300 * _MS) if rng.random() < 1 / _COUNT else 0


def _receive(rng: random.Random, framing: str, network: _Network, arrivals: list[Arrival]) -> int:
    # Returns how many messages came out.
    pipeline = FeedPipeline(
        framing=framing,
        lines_incremental=len(network.loss),
        lines_snapshot=0,
        window=rng.choice((1_024, 8_192)),
        streams=2,
        lost_packet_wait_ns=network.wait_ns,
    )
    tick_ns = max(20_000, network.wait_ns // 4)
    sessions, delivered = 0, 0
    next_number = -1
    now_ns = _BEGAN_NS
    for arrival in arrivals:
        while now_ns + tick_ns < arrival.time_ns:
            now_ns += tick_ns
            pipeline.expire(now_ns)
        now_ns = arrival.time_ns
        messages = pipeline.take()
        pipeline.accept(0, arrival.line, arrival.datagram, now_ns, now_ns)
        for message in messages + pipeline.take():
            if message.kind is Kind.SESSION:
                sessions += 1
                if sessions > 1:
                    raise Wrong(f"one numbering, but the feed says {session_of(message)}")
            elif message.kind is Kind.MESSAGE:
                if message.number < next_number:
                    raise Wrong(f"{message.number} follows {next_number - 1}")
                next_number = message.number + 1
                delivered += 1
    return delivered
