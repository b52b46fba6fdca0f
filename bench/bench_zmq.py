"""What does the ZeroMQ fan-out cost beside plain pyzmq?

    core A: pyzmq PUB            --> ipc | tcp --> core B: pyzmq SUB, bytes
    core A: ring writer, fan-out --> ipc | tcp --> core B: Reader("zmq:..."), batches or records

The same payload on both ways. The record that ours carries has a header of 64 bytes besides: kind,
times, number, the publisher's frame. Latency is open loop, one message at a time.

Usage: udpfast bench run zmq [--quick]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from .bench_peers import Ends
from .peer_trial import PeerEnds
from .peers import pyzmq_ipc, pyzmq_tcp
from .result import Row
from .trials import Benchmark, Settings, interleave
from .zmq_trial import FanoutEnds

__all__ = ["BENCHMARK"]

NAME = "zmq"
SIZES = (64, 256)
RATE = 10_000
LATENCY_MESSAGES = 2_000
PLAIN_MESSAGES = 50_000
OUR_MESSAGES = {"poll": 500_000, "iterate": 200_000}
#: Scheme of the socket -> its peer.
PEERS = {"ipc": pyzmq_ipc.PEER, "tcp": pyzmq_tcp.PEER}


def run(settings: Settings) -> Iterator[Row]:
    """Measure throughput, then latency; a quick look takes the first size."""
    for size in SIZES[: 1 if settings.quick else None]:
        for scheme, peer in PEERS.items():
            with ExitStack() as stack:
                ends: dict[str, Ends] = {peer.variant: PeerEnds(peer, settings.cores, size)}
                stack.callback(ends[peer.variant].close)
                counts = {peer.variant: PLAIN_MESSAGES}
                for way, messages in OUR_MESSAGES.items():
                    name = f"udpfast {scheme}, {way}"
                    counts[name] = messages
                    ends[name] = FanoutEnds(settings.cores, size, scheme, way)
                    stack.callback(ends[name].close)
                yield from compare(settings, ends, counts, size, peer.variant, peer.version)


def compare(
    settings: Settings,
    ends: dict[str, Ends],
    counts: dict[str, int],
    size: int,
    base: str,
    version: str,
) -> Iterator[Row]:
    """Yield the rows of one size on one kind of socket."""
    part = 5 if settings.quick else 1
    goal = size == SIZES[0] and base == PEERS["ipc"].variant
    trials = interleave(
        {name: partial(end.throughput, counts[name] // part) for name, end in ends.items()},
        settings,
        label=f"throughput, {base}, {size} B",
    )
    yield from trials.rows(
        NAME,
        "messages/s",
        {"size": size},
        base=base,
        goals={name: "P15: >= 2.5" for name in ends if name != base and goal},
        lower_is_better=False,
        versions={base: version},
        less={base: "no header, no number, no gap told"},
    )
    trials = interleave(
        {name: partial(end.latency, LATENCY_MESSAGES // part, RATE) for name, end in ends.items()},
        settings,
        label=f"latency, {base}, {size} B",
    )
    yield from trials.rows(
        NAME,
        "ns",
        {"size": size, "rate": RATE},
        base=base,
        goals={name: "P15: <= 1.1" for name in ends if name != base and goal},
        versions={base: version},
        less={base: "no header, no number, no gap told"},
    )


BENCHMARK = Benchmark(
    name=NAME,
    question="What does the ZeroMQ fan-out cost beside plain pyzmq?",
    topology="""
core A: pyzmq PUB            --> ipc | tcp --> core B: pyzmq SUB, bytes
core A: ring writer, fan-out --> ipc | tcp --> core B: Reader("zmq:..."), batches or records
""",
    run=run,
    seconds=75.0,
)
