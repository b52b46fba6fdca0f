"""Does `udpfast wire` see a line as well as a ping-pong in C does?

    core A: sockperf | udpfast sender -- 127.0.0.1 --> core B: sockperf server | listener

Half of a round trip at p50, all ends spinning. sockperf sends its next message when the last one is
back; udpfast sends at planned times, and counts from those, so that it also sees what delays it.
sockperf has no stamps of the kernel. udpfast asks for those of both ends unless told otherwise:
they are what its one-way times are made of, and they cost.

Usage: udpfast bench run wire [--quick]
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from udpfast.probe import Sender

from .peers import sockperf
from .result import Row
from .trials import Benchmark, Outcome, Settings, interleave

__all__ = ["BENCHMARK"]

PEER = "sockperf ping-pong"
BARE, STAMPED = "udpfast wire, no stamps", "udpfast wire, kernel stamps"
STAMPS = {BARE: "none", STAMPED: "auto"}
GOALS = {BARE: "P38: <= 1.1"}
PAYLOAD = 64
RATE_PER_S = 10_000
SECONDS = 0.5
WAIT_S = 60.0


def run(settings: Settings) -> Iterator[Row]:
    """Measure all of them in turns."""
    turns = {name: partial(half_round_trip, settings, stamps) for name, stamps in STAMPS.items()}
    if sockperf.version():
        turns[PEER] = partial(ping_pong, settings)
    else:
        settings.note("sockperf skipped: not installed (apt-get install sockperf)")
    trials = interleave(turns, settings, label=f"{PAYLOAD} B")
    yield from trials.rows(
        "wire",
        "ns",
        {"size": sockperf.FRAME_SIZE + PAYLOAD, "rate": RATE_PER_S},
        base=PEER if sockperf.version() else "",
        goals=GOALS,
        lower_is_better=True,
        versions={PEER: sockperf.version()},
        less={PEER: "C on both ends; ping-pong, not open loop; no stamps, no loss, no order"},
    )


def ping_pong(settings: Settings) -> Outcome:
    """Return sockperf's median."""
    found = sockperf.ping_pong(settings.cores, PAYLOAD)
    return Outcome(found.latency["p50"], verified=f"{found.round_trips:,} observations, none lost")


def half_round_trip(settings: Settings, timestamps: str) -> Outcome:
    """Return half of our median, from planned times; the listener is a process of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{free.getsockname()[1]}"
    asked = ["--core", str(settings.cores[1]), "--timestamps", timestamps]
    listener = subprocess.Popen(
        [sys.executable, "-m", "udpfast", "wire", "listen", where, *asked],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with Sender(
            {"line": where},
            rate_per_s=RATE_PER_S,
            size_bytes=sockperf.FRAME_SIZE + PAYLOAD,
            seconds=SECONDS,
            timestamps=timestamps,
            core=settings.cores[0],
        ) as sender:
            sender.connect(WAIT_S)
            line = sender.run().lines["line"]
    finally:
        listener.kill()
        listener.wait()
    returned = 0 if line.returned is None else int(line.returned.sum())
    if returned != len(line.sent):
        raise RuntimeError(f"expected {len(line.sent):,} echoes, found {returned:,}")
    verified = f"{returned:,} round trips, none lost"
    return Outcome(line.percentiles("round_trip")["p50"] / 2, verified=verified)


BENCHMARK = Benchmark(
    name="wire",
    question="Does `udpfast wire` see a line as well as a ping-pong in C does?",
    topology="""
core A: sockperf | udpfast sender -- 127.0.0.1 --> core B: sockperf server | listener
""",
    run=run,
    seconds=30.0,
)
