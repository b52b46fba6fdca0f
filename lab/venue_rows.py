"""Row T-V1: a network's faults against feeds of venues, whether datagrams or messages are numbered.

A sender's two lines carry the same messages, each line packs them in its own way where numbers
count messages. Every message tells its run and its number, so that all that comes out can be
checked: in order, once, the bytes that were sent; and what never came is said, no more, no less.
"""

import itertools
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from udpfast.core.counter import VERDICTS
from udpfast.core.layout import SESSION, Kind
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.net.bad_network import Arrival, LineFaults, network
from udpfast.wire.facts import Numbers
from udpfast.wire.framing import Framing

from .follower import Wrong
from .framings import Sent, build
from .loss_rows import Found

__all__ = ["FAULTS", "VENUES", "venue"]

#: Numbers of datagrams, of messages; with sessions, and without.
VENUES = ("cme_mdp3", "eurex_eobi", "moldudp64", "iex_tp", "nyse_xdp", "cboe_pitch")
FAULTS = {
    "loss": LineFaults(loss=0.1),
    "burst": LineFaults(loss=0.1, burst_mean=30),
    "reorder": LineFaults(reorder=0.1, reorder_depth=6),
    "duplicate": LineFaults(duplicate=0.3, duplicate_delay_ns=300_000),
    "restart": LineFaults(loss=0.05),
    "wrap": LineFaults(loss=0.05),
}
_STEP_NS = 20_000
#: A run with so many datagrams that contradict what was accepted fills no hole of it any more, and
#: a datagram that contradicts it never does. Until then nothing tells whose a message is that fits
#: into one (docs/protocol.md, 3).
_ESTABLISHED = 4
_WAIT_NS = 5_000_000
_BEFORE_WRAP = 40
_STREAMS = {"iex_tp": (0x8004, 1), "eurex_eobi": (1, 2), "cboe_pitch": (1,)}


def venue(seed: int, datagrams: int, framing: str = "iex_tp", fault: str = "loss") -> Found:
    """T-V1: one fault, one framing, two lines."""
    rng = random.Random(f"{seed} {framing} {fault}")
    sender = _Sender(framing, rng, wraps=fault == "wrap")
    sent: list[Arrival] = []
    runs = 3 if fault == "restart" else 1
    for run in range(runs):
        sent += sender.run(run, max(200, datagrams // (2 * runs)))
    arrived = network(sent, FAULTS[fault], seed)
    receiver = _Receiver(framing)
    for arrival in arrived:
        receiver.take(arrival, sender.content[arrival.datagram])
    receiver.finish()
    brought = [sender.content[arrival.datagram] for arrival in arrived]
    return {"datagrams": len(arrived), **receiver.check(brought)}


class _Sender:
    # Messages of runs of a sender, and their datagrams on two lines.

    def __init__(self, framing: str, rng: random.Random, wraps: bool) -> None:
        facts = Framing(framing).facts
        self.each = facts.numbers is Numbers.MESSAGES
        self.bits = facts.number_bits
        self.skips_zero = facts.skips_zero
        self.first = (1 << 32) - _BEFORE_WRAP if wraps else 1
        self.named = framing == "moldudp64"
        self.content: dict[bytes, list[tuple[int, int]]] = {}
        self._framing = framing
        self._rng = rng
        self._now_ns = 10**18

    def run(self, run: int, count: int) -> list[Arrival]:
        """Return what both lines send of one run: so many numbers."""
        self._now_ns += _STEP_NS
        began_ns = self._now_ns
        found = [one for line in range(2) for one in self._line(run, count, line, began_ns)]
        found.sort(key=lambda arrival: arrival.time_ns)
        self._now_ns = began_ns + (count + 1) * _STEP_NS
        return found

    def _line(self, run: int, count: int, line: int, began_ns: int) -> Iterator[Arrival]:
        at = 0
        while at < count:
            taken = min(self._rng.choice((1, 1, 2, 5)), count - at) if self.each else 1
            numbers = [self.first + at + i for i in range(taken)]
            # As late as its last message is there.
            time_ns = began_ns + (at + taken) * _STEP_NS + line * 1_000
            session = f"{run:>10}".encode() if self.named else 7
            messages = tuple(_told(run, number) for number in numbers)
            on_wire = self._on_wire(numbers[0])
            stream = _STREAMS.get(self._framing, ())
            data = build(self._framing, Sent(on_wire, messages, stream, session, time_ns))
            self.content[data] = [(run, number) for number in numbers]
            yield Arrival(time_ns, 0, line, data)
            at += taken

    def _on_wire(self, number: int) -> int:
        highest = (1 << self.bits) - 1
        return (number - 1) % highest + 1 if self.skips_zero else number & highest


def _told(run: int, number: int) -> bytes:
    return struct.pack("<4sIQ", b"told", run, number)


@dataclass(slots=True)
class _Numbering:
    first: int
    unseen: int
    discarded_before: int
    after: int  # so many datagrams
    run: int = -1
    numbers: list[int] = field(default_factory=list)
    gaps: set[int] = field(default_factory=set)


class _Receiver:
    # A feed, and what came out of it by numbering.

    def __init__(self, framing: str) -> None:
        self.pipeline = FeedPipeline(
            framing=framing,
            lines_incremental=2,
            lines_snapshot=0,
            window=1 << 12,
            streams=2,
            lost_packet_wait_ns=_WAIT_NS,
        )
        self.numberings: list[_Numbering] = []
        self.datagrams = 0
        self._now_ns = 0
        self._accepted: set[tuple[int, int]] = set()  # messages of runs, in time for their gaps
        self._contradicting: dict[tuple[int, int], int] = {}  # datagrams of a run, by line
        self._may_fill: set[tuple[int, int]] = set()  # messages that may be of the run before

    def take(self, arrival: Arrival, messages: list[tuple[int, int]]) -> None:
        """Take a datagram with messages of a run; what waited too long is given up before."""
        self._now_ns = max(self._now_ns, arrival.time_ns)
        self.pipeline.expire(self._now_ns)
        self._out()
        self._weigh(arrival.line, messages)
        self.pipeline.accept(0, arrival.line, arrival.datagram, arrival.time_ns, self._now_ns)
        self.datagrams += 1
        self._out()

    def finish(self) -> None:
        """End the input."""
        self.pipeline.finish(self._now_ns)
        self._out()

    def _out(self) -> None:
        for message in self.pipeline.take():
            if message.kind is Kind.SESSION:
                said = np.frombuffer(message.payload, SESSION, 1)[0]
                self.numberings.append(
                    _Numbering(
                        int(said["first_number"]),
                        int(said["unseen"]),
                        int(said["discarded"]),
                        self.datagrams,
                    )
                )
            elif message.kind is Kind.GAP:
                first, last = struct.unpack_from("<QQ", message.payload)
                self._order(first)
                self.numberings[-1].gaps.update(range(first, last + 1))
            elif message.kind is Kind.MESSAGE:
                self._message(message)

    def _message(self, message: FeedMessage) -> None:
        place = bytes(message.payload).find(b"told")
        _, run, number = struct.unpack_from("<4sIQ", message.payload, place)
        numbering = self.numberings[-1]
        self._order(message.number)
        if numbering.run not in (-1, run) and (run, number) not in self._may_fill:
            raise Wrong(f"{run}:{number} came in the numbering of run {numbering.run}")
        if numbering.run == -1:
            numbering.run = run
        if number != message.number:
            raise Wrong(f"message {number} of run {run} came as {message.number}")
        numbering.numbers.append(number)

    def _weigh(self, line: int, messages: list[tuple[int, int]]) -> None:
        # What a datagram tells of the current numbering: that it is of it, or contradicts it, or
        # has only what may fill its holes.
        run = messages[0][0]
        if not self.numberings or run <= self.numberings[-1].run:
            gaps = self.numberings[-1].gaps if self.numberings else set()
            self._accepted.update(one for one in messages if one[1] not in gaps)
            return
        before = run - 1
        if any((before, number) in self._accepted for _, number in messages):
            place = (run, line)
            self._contradicting[place] = self._contradicting.get(place, 0) + 1
        elif max(self._contradicting.get((run, i), 0) for i in range(2)) < _ESTABLISHED:
            self._may_fill.update(messages)

    def _order(self, number: int) -> None:
        # What comes next is behind all that was delivered or given up.
        numbering = self.numberings[-1]
        expected = numbering.first + len(numbering.numbers) + len(numbering.gaps)
        if number != expected:
            raise Wrong(f"{number} came where {expected} was next")

    def check(self, came: list[list[tuple[int, int]]]) -> Found:
        """Compare with what each datagram brought: runs, and their numbers."""
        brought: dict[int, set[int]] = {}
        for run, number in itertools.chain.from_iterable(came):
            brought.setdefault(run, set()).add(number)
        lines = [one for name, one in self.pipeline.counters().items() if "." in name]
        verdicts = sum(one[info.name] for one in lines for info in VERDICTS)
        units = self.datagrams + sum(one["units_more"] for one in lines)
        if verdicts != units:
            raise Wrong(f"{units} units, {verdicts} verdicts")
        if [one.run for one in self.numberings] != sorted(brought):
            raise Wrong(f"runs {[one.run for one in self.numberings]} of {sorted(brought)}")
        left = [*(one.discarded_before for one in self.numberings[1:]), 0]
        for numbering, discarded in zip(self.numberings, left, strict=True):
            numbers = brought[numbering.run]
            if numbering.gaps & numbers:
                raise Wrong(
                    f"run {numbering.run}: {min(numbering.gaps & numbers)} came, and was "
                    "reported lost"
                )
            until = numbering.first + len(numbering.numbers) + len(numbering.gaps)
            behind = sum(number >= until for number in numbers)
            if behind > discarded:
                raise Wrong(f"run {numbering.run}: {behind} behind {until}, {discarded} discarded")
            # What no line had brought of its beginning by then is known to nobody.
            known = min(
                number
                for run, number in itertools.chain.from_iterable(came[: numbering.after])
                if run == numbering.run
            )
            # Senders number from 1: what all lines lost before is unseen, too.
            unseen = (numbering.first - known, numbering.first - 1)
            if numbering.run and numbering.unseen not in unseen:
                raise Wrong(
                    f"run {numbering.run} begins at {numbering.first}, {numbering.unseen} unseen "
                    f"from {known} on"
                )
        return {
            "messages": sum(len(one.numbers) for one in self.numberings),
            "lost": sum(len(one.gaps) for one in self.numberings),
            "unseen": sum(one.unseen for one in self.numberings[1:]),
        }
