"""What does AF_XDP save, on the receiving core and on the way?

    namespace a, core A                  namespace b, core B
    burst or paced sender -- veth pair --> C recvmmsg | udpfast over a socket | udpfast over AF_XDP

First bursts of 512 are queued and only their receiving is timed, all of the loop included
(receive, check headers and checksums, parse, order, objects, ring). Then latency, open loop, from
when a message was due to its record in the ring. Copy mode: veth has no zero copy. On veth the
kernel's part of the work is done on the sender's core; on a network card it is the driver's.

Needs root, iproute2 and veth. Usage: udpfast bench run xdp [--quick]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from .bench_drain import Make, measure
from .drain_trains import in_order
from .loops.drainload import BurstSender
from .loops.hostprobe import pinned
from .namespaces import wire
from .partner import Partner
from .result import Row
from .schedule import even_schedule
from .trials import Benchmark, Outcome, Settings, interleave
from .xdp_ways import VethFeedWay, VethFloorWay, probe, veth_latency

__all__ = ["BENCHMARK"]

BASE = "C recvmmsg 64"
SOCKET = "udpfast, socket"
MODES = {SOCKET: "", "udpfast, AF_XDP generic": "generic", "udpfast, AF_XDP native": "native"}
BURST = 512
RATE_PER_S = 20_000
MESSAGES = 10_000
GOALS_DRAIN = dict.fromkeys(list(MODES)[1:], "P8: <= 0.15")
GOALS_LATENCY = dict.fromkeys(list(MODES)[1:], "P8: <= 0.9")
LESS: Mapping[str, str] = {BASE: "no parsing, no order, no gaps, no objects, no ring"}


def run(settings: Settings) -> Iterator[Row]:
    """Measure bursts of both sizes, then latency."""
    probe()
    with pinned(settings.cores[1]):
        for size in (80, 528):
            yield from drain(settings, size)
    yield from latency(settings)


def drain(settings: Settings, size: int) -> Iterator[Row]:
    """Compare nanoseconds per datagram on the receiving core."""
    bursts = BurstSender(settings.cores[0])
    count = 3 if settings.quick else 9
    try:
        makes: dict[str, Make] = {
            BASE: lambda: VethFloorWay(bursts, in_order(size, BURST), count),
            **{name: partial(feed_way, bursts, size, count, mode) for name, mode in MODES.items()},
        }
        trials = measure(makes, settings, f"{size} B", settings.rounds)
    finally:
        bursts.close()
    yield from trials.rows(
        "xdp",
        "ns/datagram",
        {"size": size, "queued": BURST},
        base=BASE,
        goals=GOALS_DRAIN,
        less=LESS,
    )


def feed_way(bursts: BurstSender, size: int, count: int, mode: str) -> VethFeedWay:
    """Return the product's loop on a veth pair of its own."""
    return VethFeedWay(bursts, in_order(size, BURST), count, mode)


def latency(settings: Settings) -> Iterator[Row]:
    """Compare the way from a message's due time to its record in the ring."""
    messages = MESSAGES // 4 if settings.quick else MESSAGES
    schedule = even_schedule(RATE_PER_S, messages)
    variants: dict[str, partial[Outcome]] = {}
    with ExitStack() as stack:
        for name, mode in MODES.items():
            link = stack.enter_context(wire())
            with link.inside(link.a):  # the partner's process begins in this thread's namespace
                partner = stack.enter_context(Partner(settings.cores[0]))
            variants[name] = partial(
                veth_latency, link, partner, settings.cores[1], schedule, 64, mode
            )
        trials = interleave(variants, settings, label=f"{RATE_PER_S:,}/s")
    yield from trials.rows(
        "xdp",
        "ns",
        {"size": 80, "rate": RATE_PER_S},
        base=SOCKET,
        goals=GOALS_LATENCY,
    )


BENCHMARK = Benchmark(
    name="xdp",
    question="What does AF_XDP save, on the receiving core and on the way?",
    topology="""
namespace a, core A                  namespace b, core B
burst or paced sender -- veth pair --> C recvmmsg | udpfast over a socket | udpfast over AF_XDP
""",
    run=run,
    seconds=42.0,
)
