"""What does receiving cost beyond the bare kernel?

    core A                      core B (this process's main thread, pinned)
    burst sender --127.0.0.1--> socket queue --> C recvmmsg | udpfast: receive .. ring | Python

A burst is queued first, then the receiver takes it out, and only that is timed: one sender is
slower than any of the receivers, so a run at full speed would measure the sender. All variants
take turns within every round. "udpfast" is the production loop (`agents/feed/subscriber`) on an
instance of its own: receive, parse, verdict, window, objects, ring, drop counting.

Run it with `udpfast bench run drain`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from udpfast.net.line import LineAddress, ReceiveOptions, open_receiver

from .drain_trains import Train, books, fragments, in_order, swapped
from .drain_ways import ADDRESS, QUEUE_BYTES, BurstWay, FeedWay, FloorWay, ReceiverWay, expect
from .loops.drainload import BurstSender
from .loops.hostprobe import pinned
from .peers import python_udp
from .peers.floor import FloorError, load_floor
from .result import Row
from .trials import Benchmark, Outcome, Settings, Trials, Unavailable, interleave

__all__ = ["BENCHMARK"]

BASE = "C recvmmsg 64"
OURS = "udpfast"
BURST = 512
LONG_QUEUE = 20_000
#: A burst takes a quarter of a millisecond to drain: cheap, so there are more rounds than asked.
ROUNDS_FACTOR = 3

GOALS: dict[str, str | Mapping[str, str]] = {
    OURS: {"NEAR": "P1: <= 1.15", "FAR": "P1: <= 1.3"},
    f"{OURS}, kernel stamps": "P2: <= 1.35",
    f"{OURS}, books decoded": "P3: <= 1.25",
    f"{OURS}, 256 fragments": "P4: <= 1.25",
    f"{OURS}, UDP_GRO": "P7: <= 0.35",
    f"{OURS}, 256 fragments, UDP_GRO": "P7: <= 0.35",
}
GOALS_OWN = {
    f"{OURS}, 1 % swapped": "P5: <= 1.1",
    f"{OURS}, two lines": "P5: <= 1.1",
}
GOALS_PYTHON = {"recv_into + struct": "P6: >= 1.5", "uvloop": "P6: >= 2.3", "asyncio": "P6: >= 6"}
LESS_FLOOR = "no parsing, no order, no gaps, no objects, no ring"
LESS = {
    BASE: LESS_FLOOR,
    "C recv": LESS_FLOOR,
    "C recvmmsg 64, kernel stamps": LESS_FLOOR,
    "C recvmmsg 64, UDP_GRO": LESS_FLOOR,
    f"{OURS} receive only": LESS_FLOOR,
    **dict.fromkeys(GOALS_PYTHON, python_udp.LESS),
}

#: Makes one way of receiving; called once, before the rounds.
Make = Callable[[], BurstWay]


class PythonWay(BurstWay):
    """What Python offers: socket.recv_into, asyncio, uvloop."""

    verified = FloorWay.verified

    def __init__(self, name: str, bursts: BurstSender, train: Train, count: int) -> None:
        """Open a socket, and the event loop if it is one."""
        super().__init__(bursts, train, count, False)
        self.method: python_udp.PythonDrain = python_udp.drain_recv_into
        self.loop: python_udp.EventLoopDrain | None = None
        if name in ("asyncio", "uvloop"):
            try:
                self.loop = python_udp.EventLoopDrain(python_udp.new_loop(name))
            except ImportError:
                raise Unavailable(f"not installed (pip install {name})") from None
            self.method = self.loop
        options = ReceiveOptions(rcvbuf_bytes=QUEUE_BYTES, timestamps="none")
        self.socket: socket.socket = open_receiver(LineAddress(ADDRESS), options)[0]
        self.connect(self.socket.getsockname())

    def drain(self, datagrams: int) -> int:
        """Drain in Python."""
        elapsed_ns, count, checksum = self.method(self.socket, datagrams)
        expect("datagrams", datagrams, count)
        expect("sum of seqnos", self.train.checksum, checksum)
        return elapsed_ns

    def close(self) -> None:
        """Close socket and loop too."""
        super().close()
        self.socket.close()
        if self.loop is not None:
            self.loop.close()


def run(settings: Settings) -> Iterator[Row]:
    """Measure bursts of both sizes, then books, then the long queue."""
    bursts = BurstSender(settings.cores[0])
    count = 3 if settings.quick else 5
    try:
        with pinned(settings.cores[1]):
            for size in (80, 528):
                yield from drain_bursts(settings, bursts, size, count)
            yield from drain_books(settings, bursts, count)
            for size in (80,) if settings.quick else (80, 528):
                yield from drain_long_queue(settings, bursts, size)
    finally:
        bursts.close()


def drain_bursts(
    settings: Settings, bursts: BurstSender, size: int, count: int, burst: int = BURST
) -> Iterator[Row]:
    """Compare all that is ours with the bare kernel."""
    feed = partial(feed_way, bursts, count)
    plain = partial(in_order, size, burst)
    makes: dict[str, Make] = {
        BASE: partial(floor_way, "recvmmsg", bursts, plain, count),
        "C recv": partial(floor_way, "recv", bursts, plain, count),
        "C recvmmsg 64, kernel stamps": partial(floor_way, "stamps", bursts, plain, count),
        f"{OURS} receive only": lambda: ReceiverWay(bursts, plain(), count),
        OURS: partial(feed, plain),
        f"{OURS}, kernel stamps": partial(feed, plain, receive={"timestamps": "kernel"}),
        f"{OURS}, 1 % swapped": partial(feed, partial(swapped, size, burst)),
        f"{OURS}, two lines": partial(feed, plain, lines=2),
        "C recvmmsg 64, UDP_GRO": partial(floor_way, "gro", bursts, plain, count),
        f"{OURS}, UDP_GRO": partial(feed, plain, receive={"gro": True}),
    }
    if size == 528:
        train = partial(fragments, burst)
        makes[f"{OURS}, 256 fragments"] = partial(feed, train)
        makes[f"{OURS}, 256 fragments, UDP_GRO"] = partial(feed, train, receive={"gro": True})
    trials = measure(makes, settings, f"{size} B", rounds(settings))
    parameters = {"size": size, "queued": burst}
    against_floor = tuple(name for name in makes if name not in GOALS_OWN)
    yield from rows(trials, against_floor, parameters, BASE, GOALS)
    yield from rows(trials, tuple(GOALS_OWN), parameters, OURS, GOALS_OWN)


def drain_books(
    settings: Settings, bursts: BurstSender, count: int, burst: int = BURST
) -> Iterator[Row]:
    """Compare verifying and decoding books of ten levels with the bare kernel."""
    size = books(burst).size
    plain = partial(in_order, size, burst)
    makes: dict[str, Make] = {
        BASE: partial(floor_way, "recvmmsg", bursts, partial(books, burst), count),
        OURS: partial(feed_way, bursts, count, plain),
        f"{OURS}, books decoded": partial(feed_way, bursts, count, partial(books, burst)),
    }
    trials = measure(makes, settings, f"books of {size} B", rounds(settings))
    yield from rows(trials, tuple(makes), {"size": size, "queued": burst}, BASE, GOALS)


def drain_long_queue(
    settings: Settings, bursts: BurstSender, size: int, queued: int = LONG_QUEUE
) -> Iterator[Row]:
    """Compare what Python programs use today with all of ours: how many times our time."""
    plain = partial(in_order, size, queued)
    makes: dict[str, Make] = {
        OURS: partial(feed_way, bursts, 1, plain),
        BASE: partial(floor_way, "recvmmsg", bursts, plain, 1),
    }
    for name in GOALS_PYTHON:
        makes[name] = partial(python_way, name, bursts, plain)
    trials = measure(makes, settings, f"{queued} of {size} B", settings.rounds)
    parameters = {"size": size, "queued": queued}
    yield from rows(trials, tuple(makes), parameters, OURS, GOALS_PYTHON)


def feed_way(
    bursts: BurstSender, count: int, train: Callable[[], Train], **options: object
) -> BurstWay:
    """Return the product's loop on an instance of its own."""
    return FeedWay(bursts, train(), count, **options)  # type: ignore[arg-type]


def floor_way(mode: str, bursts: BurstSender, train: Callable[[], Train], count: int) -> BurstWay:
    """Return the C floor, if there is a compiler."""
    try:
        return FloorWay(load_floor(), mode, bursts, train(), count)
    except FloorError as reason:
        raise Unavailable(str(reason)) from None


def python_way(name: str, bursts: BurstSender, train: Callable[[], Train]) -> BurstWay:
    """Return one of Python's ways; one burst per trial."""
    return PythonWay(name, bursts, train(), 1)


def measure(makes: Mapping[str, Make], settings: Settings, label: str, rounds: int) -> Trials:
    """Make every way, let them take turns, and give back what they hold."""
    with ExitStack() as stack:
        variants: dict[str, Callable[[], Outcome]] = {}
        for name, make in makes.items():
            try:
                way = make()
            except Unavailable as reason:
                settings.note(f"{name} left out: {reason}")
                continue
            stack.callback(way.close)
            variants[name] = partial(turn, way)
            turn(way)  # untimed: pages, caches and branches as in the rounds
        return interleave(variants, settings, label=label, rounds=rounds)


def turn(way: BurstWay) -> Outcome:
    """Take one trial."""
    return Outcome(way.trial(), verified=way.verified)


def rounds(settings: Settings) -> int:
    """Return how many rounds of bursts to take."""
    return settings.rounds * (1 if settings.quick else ROUNDS_FACTOR)


def rows(
    trials: Trials,
    names: tuple[str, ...],
    parameters: Mapping[str, int | float | str],
    base: str,
    goals: Mapping[str, str | Mapping[str, str]],
) -> Iterator[Row]:
    """Yield the rows of some of the variants."""
    chosen = Trials(tuple(name for name in trials.variants if name in names))
    chosen.kept, chosen.dropped = trials.kept, trials.dropped
    versions = {name: python_udp.version(name) for name in GOALS_PYTHON}
    yield from chosen.rows(
        "drain", "ns/datagram", parameters, base=base, goals=goals, versions=versions, less=LESS
    )


BENCHMARK = Benchmark(
    name="drain",
    question="What does receiving cost beyond the bare kernel?",
    topology="""
core A                      core B
burst sender --127.0.0.1--> socket queue --> C recvmmsg | udpfast: receive .. ring | Python
first: fill the queue       then, timed: take everything out of it
""",
    run=run,
    seconds=45.0,
)
