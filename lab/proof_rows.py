"""Row T-V4: what proves a numbering, for every framing, counted in datagrams.

Datagrams have 1 to 60 messages, as many as the framing lets them. Senders restart with or without
loss, old datagrams are replayed, one datagram is forged, lost messages are sent again and flagged
so, and a feed joins two lines in the middle of a session. Every message tells its run and number.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from udpfast.core.layout import SESSION, Kind, SessionReason
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.net.bad_network import Arrival
from udpfast.wire.facts import Numbers
from udpfast.wire.framing import Framing

from .follower import Wrong
from .framings import Sent, build
from .loss_rows import Found

__all__ = ["PROVEN", "proofs"]

#: Each framing, and what befalls it.
PROVEN = (
    *(
        (framing, what)
        for framing in ("cme_mdp3", "moldudp64", "iex_tp", "cboe_pitch", "miax_mach", "nyse_xdp")
        for what in ("restart", "replayed", "forged", "joined")
    ),
    ("nyse_xdp", "sent again"),
    ("siac_cta", "sent again"),
)

_MS = 1_000_000
_SECOND = 1_000_000_000
_BEGAN_NS = 10**18
_TOLD = struct.Struct("<4sIQ")
_STREAMS = {"iex_tp": (0x8004, 1), "cboe_pitch": (1,), "siac_cta": (65,)}
_NOTICED = 128  # datagrams


@dataclass(frozen=True, slots=True)
class _Datagram:
    time_ns: int
    run: int
    first: int
    count: int
    data: bytes


class _Sender:
    # One line's datagrams, of any number of messages each.

    def __init__(self, framing: str, rng: random.Random) -> None:
        self.framing = framing
        self.rng = rng
        self.several = Framing(framing).facts.numbers is Numbers.MESSAGES
        self.widest = rng.choice((1, 8, 17, 30, 60)) if self.several else 1
        self.steady = rng.random() < 0.5
        self.interval_ns = rng.choice((20_000, _MS, 100 * _MS))

    def run(self, run: int, first: int, count: int, began_ns: int) -> Iterator[_Datagram]:
        """Yield so many datagrams, as they are sent."""
        number, time_ns = first, began_ns
        for _ in range(count):
            taken = self.widest if self.steady else self.rng.randint(1, self.widest)
            yield _Datagram(time_ns, run, number, taken, self.data(run, number, taken, time_ns))
            number += taken
            time_ns += int(self.interval_ns * self.rng.uniform(0.8, 1.2))

    def data(self, run: int, first: int, count: int, time_ns: int) -> bytes:
        """Return one datagram; without messages a heartbeat."""
        messages = tuple(_TOLD.pack(b"told", run, first + i) for i in range(count))
        session: bytes | int = b"SESSION   " if self.framing == "moldudp64" else 7
        stream = _STREAMS.get(self.framing, ())
        return build(self.framing, Sent(first, messages, stream, session, time_ns))


@dataclass
class _Receiver:
    framing: str
    lines: int = 1
    pipeline: FeedPipeline = field(init=False)
    sessions: list[tuple[int, int, int]] = field(default_factory=list)
    delivered: list[list[tuple[int, int]]] = field(default_factory=list)
    lost: list[set[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pipeline = FeedPipeline(
            framing=self.framing, lines_incremental=self.lines, lines_snapshot=0, streams=2
        )

    def take(self, arrival: Arrival) -> None:
        """Take a datagram."""
        now_ns = arrival.time_ns
        self.pipeline.accept(0, arrival.line, arrival.datagram, now_ns, now_ns)
        self._out(self.pipeline.take())
        self.pipeline.expire(now_ns)
        self._out(self.pipeline.take())

    def finish(self, now_ns: int) -> None:
        """End the input."""
        self.pipeline.finish(now_ns)
        self._out(self.pipeline.take())

    def _out(self, messages: list[FeedMessage]) -> None:
        for message in messages:
            if message.kind is Kind.SESSION:
                said = np.frombuffer(message.payload, SESSION, 1)[0]
                self.sessions.append(
                    (int(said["reason"]), int(said["first_number"]), int(said["unseen"]))
                )
                self.delivered.append([])
                self.lost.append(set())
            elif message.kind is Kind.GAP:
                first, last = struct.unpack_from("<QQ", message.payload)
                if last - first < 1 << 20:
                    self.lost[-1].update(range(first, last + 1))
            elif message.kind is Kind.MESSAGE:
                place = bytes(message.payload).find(b"told")
                _, run, number = _TOLD.unpack_from(message.payload, place)
                if number != message.number:
                    raise Wrong(f"message {number} of run {run} came as {message.number}")
                self.delivered[-1].append((run, number))

    def all(self) -> list[tuple[int, int]]:
        """Return what was delivered, in whichever session."""
        return [one for session in self.delivered for one in session]


def proofs(seed: int, datagrams: int, framing: str, what: str) -> Found:
    """T-V4: one framing, and what befalls it."""
    rng = random.Random(f"{what} {framing} {seed}")
    sender = _Sender(framing, rng)
    count = min(300, max(120, datagrams // 20))
    cases = {
        "restart": _restart,
        "replayed": _replayed,
        "forged": _forged,
        "joined": _joined,
        "sent again": _sent_again,
    }
    return cases[what](rng, sender, count)


def _arrival(one: _Datagram, late_ns: int = 0, line: int = 0) -> Arrival:
    return Arrival(one.time_ns + late_ns, 0, line, one.data)


def _restart(rng: random.Random, sender: _Sender, count: int) -> Found:
    loss = rng.choice((0, 0.01, 0.05, 0.1))
    pause_ns = rng.choice((0, 20 * sender.interval_ns, 2 * _SECOND))
    old = list(sender.run(0, 1, count, _BEGAN_NS))
    new = list(sender.run(1, 1, 400, old[-1].time_ns + sender.interval_ns + pause_ns))
    receiver = _Receiver(sender.framing)
    needed = 0
    brought: set[int] = set()
    for one in old + new:
        if rng.random() < loss and one is not old[0]:
            continue
        receiver.take(_arrival(one))
        if one.run:
            needed += len(receiver.sessions) == 1
            brought.update(range(one.first, one.first + one.count))
    receiver.finish(new[-1].time_ns)
    if [reason for reason, *_ in receiver.sessions[1:]] != [SessionReason.SAME_ID]:
        raise Wrong(f"sessions {receiver.sessions}, {needed} datagrams of the new run")
    if needed > _NOTICED:
        raise Wrong(f"noticed after {needed} datagrams")
    _, first, unseen = receiver.sessions[1]
    # The first ones that a publisher numbers from 1, and that were lost, are unseen, too.
    if unseen not in (first - min(brought), first - 1):
        raise Wrong(f"first {first}, unseen {unseen}, {min(brought)} came first")
    numbers = {number for run, number in receiver.delivered[1] if run == 1}
    missing = {number for number in brought if number >= first} - numbers
    if missing or len(numbers) != len(receiver.delivered[1]):
        raise Wrong(f"{len(missing)} came and were not delivered, from {min(missing, default=0)}")
    return {"needed": needed, "unseen": unseen, "loss": loss}


def _sound(receiver: _Receiver, sent: list[_Datagram]) -> None:
    # Nothing but what was sent came out, once.
    if len(receiver.sessions) != 1 or receiver.lost[0]:
        raise Wrong(f"sessions {receiver.sessions}, {len(receiver.lost[0])} lost")
    numbers = [number for _, number in receiver.all()]
    due = [one.first + i for one in sent for i in range(one.count)]
    if numbers != due[len(due) - len(numbers) :] or not numbers:
        raise Wrong(f"{len(numbers)} delivered of {len(due)}, or in another order")


def _replayed(rng: random.Random, sender: _Sender, count: int) -> Found:
    # The sender goes on for longer than the replay: if it were silent, datagrams from further back
    # than the feed remembers would look like a restart.
    sent = list(sender.run(0, 1, count + 45, _BEGAN_NS))
    at = rng.randrange(60, count - 10)
    begin = rng.randrange(at - 45)
    time_ns = sent[at].time_ns + rng.randrange(sender.interval_ns)
    again = [
        Arrival(time_ns + i * 20_000, 0, 0, one.data) for i, one in enumerate(sent[begin:][:45])
    ]
    receiver = _Receiver(sender.framing)
    for arrival in sorted([*map(_arrival, sent), *again], key=lambda one: one.time_ns):
        receiver.take(arrival)
    receiver.finish(sent[-1].time_ns)
    _sound(receiver, sent)
    return {"replayed": len(again), "widest": sender.widest}


def _forged(rng: random.Random, sender: _Sender, count: int) -> Found:
    sent = list(sender.run(0, 1, count, _BEGAN_NS))
    at = rng.randrange(20, count - 10)
    taken = rng.choice((2, 60)) if sender.several else 1
    behind = max(1, sent[at].first // 3)
    taken = min(taken, max(1, sent[at].first - behind))
    first = rng.choice((behind, sent[at].first + 1_000_000))
    data = sender.data(9, first, taken, sent[at].time_ns)
    forged = Arrival(sent[at].time_ns + 1, 0, 0, data)
    receiver = _Receiver(sender.framing)
    for arrival in sorted([*map(_arrival, sent), forged], key=lambda one: one.time_ns):
        receiver.take(arrival)
    receiver.finish(sent[-1].time_ns)
    _sound(receiver, sent)
    return {"forged": taken}


def _joined(rng: random.Random, sender: _Sender, count: int) -> Found:
    # Both lines bring the same, the second one later by up to 40 datagrams.
    sent = list(sender.run(0, 100_001, count, _BEGAN_NS))
    lag_ns = min(50 * _MS, rng.randrange(1, 40) * sender.interval_ns)
    arrivals = [_arrival(one, lag_ns * line, line) for one in sent for line in range(2)]
    arrivals.sort(key=lambda one: one.time_ns)
    join_ns = sent[0].time_ns + lag_ns + rng.randrange(lag_ns)
    receiver = _Receiver(sender.framing, lines=2)
    for arrival in arrivals:
        if arrival.time_ns >= join_ns:
            receiver.take(arrival)
    receiver.finish(arrivals[-1].time_ns)
    if len(receiver.sessions) != 1:
        raise Wrong(f"sessions {receiver.sessions}")
    numbers = [number for _, number in receiver.all()]
    if sorted(set(numbers)) != numbers:
        raise Wrong("a message came twice")
    return {"lag_ns": lag_ns, "widest": sender.widest}


def _sent_again(rng: random.Random, sender: _Sender, count: int) -> Found:
    # Some datagrams in a row are lost; later, while the feed is quiet, they are sent again.
    sent = list(sender.run(0, 1, count, _BEGAN_NS))
    at = rng.randrange(20, count - 90)
    again_at = at + 45 + rng.randrange(40)
    pause_ns = rng.choice((0, 50 * _MS, 1500 * _MS))
    receiver = _Receiver(sender.framing)
    for place, one in enumerate(sent):
        late_ns = 0
        if place > again_at:
            late_ns = pause_ns + 45 * 20_000
        if not at <= place < at + 45:
            receiver.take(_arrival(one, late_ns))
        if place == again_at:
            for i, lost in enumerate(sent[at : at + 45]):
                flagged = _flagged(sender.framing, lost.data)
                receiver.take(Arrival(one.time_ns + pause_ns + i * 20_000, 0, 0, flagged))
    receiver.finish(sent[-1].time_ns + pause_ns + _SECOND)
    if len(receiver.sessions) != 1:
        raise Wrong(f"sessions {receiver.sessions}")
    numbers = {number for _, number in receiver.all()}
    if numbers & receiver.lost[0] or len(numbers) != len(receiver.all()):
        raise Wrong(f"{len(numbers & receiver.lost[0])} came, and were said to be lost")
    everything = sum(one.count for one in sent)
    if len(numbers) + len(receiver.lost[0]) != everything:
        raise Wrong(f"{len(numbers)} delivered, {len(receiver.lost[0])} lost of {everything}")
    return {"sent_again": 45, "lost": len(receiver.lost[0])}


def _flagged(framing: str, data: bytes) -> bytes:
    place, value = {"nyse_xdp": (2, 13), "siac_cta": (4, ord("V"))}[framing]
    return data[:place] + bytes((value,)) + data[place + 1 :]
