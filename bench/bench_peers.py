"""How fast do messages reach a Python program, beside what one would use instead?

    core A: publisher process --> zmq | LCM | iceoryx2 | zenoh | DDS --> core B: subscriber process
    core A: ring writer       --> shared memory ------> core B: Reader.poll | for record in reader
    core A: load generator    --> UDP, 127.0.0.1 -----> core B: feed loop, ring, Reader.poll

Publisher, loop and strategy do not fit on two cores, so ours is measured in two hops: the ring
alone, as a strategy in its own process sees it, and all of the way from a socket, where feed
loop and strategy take turns in one thread. Messages of peers are `bytes`; ours are numpy batches,
or an object per record. Latency is open loop, from the time at which a message was due.

Run it with `udpfast bench run peers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Protocol

from .partner import Partner, PartnerError
from .peer_chain import ChainEnds
from .peer_trial import PeerEnds
from .peers import dds, iceoryx, lcm_udpm, pyzmq_ipc, sockperf, zenoh_tcp
from .peers.face import Peer, installed
from .result import Row
from .ring_trial import ring_latency, ring_throughput
from .trials import Benchmark, Outcome, Settings, Trials, interleave

__all__ = ["BENCHMARK", "PEERS"]

PEERS: tuple[Peer, ...] = (
    pyzmq_ipc.PEER,
    lcm_udpm.PEER,
    iceoryx.PEER,
    zenoh_tcp.PEER,
    dds.PEER,
)
ZMQ, LCM = pyzmq_ipc.PEER.variant, lcm_udpm.PEER.variant
ICEORYX, ZENOH, DDS = iceoryx.PEER.variant, zenoh_tcp.PEER.variant, dds.PEER.variant
POLL, ITERATE = "udpfast ring, poll", "udpfast ring, iterate"
CHAIN, TRAINS = "udpfast UDP", "udpfast UDP, trains"
WAYS = {POLL: "Python poll", ITERATE: "Python iterate"}
SIZES = (64, 256)
RATE = 10_000
LATENCY_MESSAGES = 2_000
RING_MESSAGES = {POLL: 500_000, ITERATE: 100_000}
CHAIN_MESSAGES = {CHAIN: 50_000, TRAINS: 200_000}

#: Base of the ratios -> what is set against it, with the goal of the ratio.
GOALS_THROUGHPUT: dict[str, dict[str, str]] = {
    ZMQ: {ITERATE: "P13: >= 5", POLL: "P13: >= 30"},
    LCM: {CHAIN: "", TRAINS: "P14: >= 8"},
    ICEORYX: {POLL: "P14: >= 8"},
    ZENOH: {POLL: "P14: >= 3"},
    DDS: {POLL: "P14: >= 30"},
}
GOALS_LATENCY: dict[str, dict[str, str]] = {
    POLL: {ZMQ: "P10: >= 50", ITERATE: "", ICEORYX: "", ZENOH: "", DDS: ""},
    CHAIN: {LCM: "P14: >= 6"},
}
LESS = {peer.variant: peer.less for peer in PEERS} | {
    POLL: "the ring alone: no network",
    ITERATE: "the ring alone: no network",
}


class Ends(Protocol):
    """Both ends of something that carries messages."""

    def throughput(self, messages: int) -> Outcome:
        """Return messages per second."""

    def latency(self, messages: int, rate: float) -> Outcome:
        """Return the latencies at a rate."""

    def close(self) -> None:
        """Close both."""


class RingEnds:
    """The ring: a partner writes, this process reads."""

    def __init__(self, cores: tuple[int, int], size: int, way: str) -> None:
        """Start the writer's process."""
        self.partner = Partner(cores[0])
        self.core = cores[1]
        self.size = size
        self.way = way

    def throughput(self, messages: int) -> Outcome:
        """Write at full speed, never more than half a ring ahead."""
        return ring_throughput(self.partner, self.core, self.way, messages, self.size)

    def latency(self, messages: int, rate: float) -> Outcome:
        """Write on a schedule."""
        return ring_latency(self.partner, self.core, self.way, rate, messages, self.size)

    def close(self) -> None:
        """End the writer's process."""
        self.partner.close()


def run(settings: Settings) -> Iterator[Row]:
    """Measure throughput, then latency, at both sizes; a quick look takes the first one."""
    for size in SIZES[: 1 if settings.quick else None]:
        with ExitStack() as stack:
            ends = open_all(settings, size, stack)
            yield from throughput(settings, ends, size)
            yield from latency(settings, ends, size)
        if sockperf.version():
            yield from half_round_trip(settings, size)
    if not sockperf.version():
        settings.note("sockperf skipped: not installed (apt-get install sockperf)")


def open_all(settings: Settings, size: int, stack: ExitStack) -> dict[str, Ends]:
    """Open what is installed, each in processes of its own; say what is not."""
    makes: dict[str, Callable[[], Ends]] = {
        name: partial(RingEnds, settings.cores, size, way) for name, way in WAYS.items()
    }
    makes[CHAIN] = partial(ChainEnds, settings.cores, size, trains=False)
    makes[TRAINS] = partial(ChainEnds, settings.cores, size, trains=True)
    for peer in PEERS:
        if installed(peer):
            makes[peer.variant] = partial(PeerEnds, peer, settings.cores, size)
        elif size == SIZES[0]:
            settings.note(f"{peer.variant} skipped: not installed (pip install {peer.package})")
    ends: dict[str, Ends] = {}
    for name, make in makes.items():
        settings.progress(f"{size} B: opening {name}")
        try:
            ends[name] = make()
        except PartnerError as error:
            settings.fail(f"{size} B, {name} could not be opened: {error}")
        else:
            stack.callback(ends[name].close)
    return ends


def throughput(settings: Settings, ends: Mapping[str, Ends], size: int) -> Iterator[Row]:
    """Compare messages per second."""
    counts = {peer.variant: peer.messages for peer in PEERS} | RING_MESSAGES | CHAIN_MESSAGES
    part = 5 if settings.quick else 1
    trials = interleave(
        {name: partial(end.throughput, counts[name] // part) for name, end in ends.items()},
        settings,
        label=f"throughput, {size} B",
    )
    yield from compare(trials, "messages/s", {"size": size}, GOALS_THROUGHPUT, False)


def latency(settings: Settings, ends: Mapping[str, Ends], size: int) -> Iterator[Row]:
    """Compare the way of a message at a fixed rate."""
    messages = LATENCY_MESSAGES // (4 if settings.quick else 1)
    trials = interleave(
        {
            name: partial(end.latency, messages, RATE)
            for name, end in ends.items()
            if name != TRAINS  # there are no bursts
        },
        settings,
        label=f"latency, {size} B",
    )
    yield from compare(trials, "ns", {"size": size, "rate": RATE}, GOALS_LATENCY, True)


def compare(
    trials: Trials,
    unit: str,
    parameters: Mapping[str, int | float | str],
    goals: Mapping[str, Mapping[str, str]],
    lower_is_better: bool,
) -> Iterator[Row]:
    """Yield each variant once for each base that it is set against, or alone."""
    compared = {name for base in goals for name in (base, *goals[base])}
    alone = [name for name in trials.variants if name not in compared]
    versions = {peer.variant: peer.version for peer in PEERS}
    shown: set[str] = set()
    for base, own in [*goals.items(), *((name, {}) for name in alone)]:
        names = [name for name in (base, *own) if name in trials.variants]
        chosen = Trials(tuple(names), trials.kept, trials.dropped)
        for row in chosen.rows(
            "peers",
            unit,
            parameters,
            base=base,
            goals=own,
            lower_is_better=lower_is_better,
            versions=versions,
            less=LESS,
        ):
            key = f"{row.variant} {row.placement}"
            if row.variant != base or key not in shown:
                yield row
            shown.add(key)


def half_round_trip(settings: Settings, size: int) -> Iterator[Row]:
    """Show sockperf's ping-pong, which has no rate: half of a round trip at a time."""
    seen: list[sockperf.PingPong] = []

    def turn() -> Outcome:
        found = sockperf.ping_pong(settings.cores, size)
        seen.append(found)
        return Outcome(
            found.latency["p50"], verified=f"{found.round_trips:,} observations, none lost"
        )

    trials = interleave({"sockperf": turn}, settings, label=f"{size} B", rounds=2)
    for row in trials.rows(
        "peers",
        "ns",
        {"size": size, "rate": "ping-pong"},
        versions={"sockperf": sockperf.version()},
        less={"sockperf": sockperf.LESS},
    ):
        yield replace(row, latency=seen[-1].latency)


BENCHMARK = Benchmark(
    name="peers",
    question="How fast do messages reach a Python program, beside what one would use instead?",
    topology="""
core A: publisher process --> zmq | LCM | iceoryx2 | zenoh | DDS --> core B: subscriber process
core A: ring writer       --> shared memory ------> core B: Reader.poll | for record in reader
core A: load generator    --> UDP, 127.0.0.1 -----> core B: feed loop, ring, Reader.poll
""",
    run=run,
    seconds=108.0,
)
