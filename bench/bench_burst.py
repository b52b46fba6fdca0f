"""What do real bursts do to latency and loss, beside the same rate evenly spaced?

    core A: paced sender, at the times of a capture -- 127.0.0.1, 1 or 2 lines --> core B: feed
    core A: the same messages, evenly spaced        -- 127.0.0.1, 1 or 2 lines --> core B: feed

The payloads are our own, the times are an exchange's: a feed with lines A and B keeps their skew.
Silence longer than 0.1 ms is cut to that, because nothing is left to be worked off by then; what
is closer together keeps its distance to the nanosecond. Latencies count from the time at which
the first copy of a message was due. Losses are counted, and are part of the answer.

Usage: udpfast bench run burst [--quick]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from .inputs import recorded
from .partner import Partner
from .result import Row
from .schedule import Schedule, capture_schedule, even_schedule
from .trials import Benchmark, Outcome, Settings, interleave
from .wire_trial import wire_trial

__all__ = ["BENCHMARK"]

NAME = "burst"
CAPTURES = {
    "cme_mdp3_v1.6_ab": "cme_mdp3_v1.6_ab.pcapng.gz",
    "miax_mach_tom_v1.9": "miax_mach_tom_v1.9.pcap.gz",
}
PAUSE_MAX_NS = 100_000
MESSAGES_MAX = 5_000
MESSAGE_BYTES = 256
EVEN, BURSTS = "evenly spaced", "as captured"
ROUNDS = 7


def run(settings: Settings) -> Iterator[Row]:
    """Send each capture's schedule, and the same messages evenly, in turns."""
    with Partner(settings.cores[0]) as partner:
        for name, file in CAPTURES.items():
            bursts = capture_schedule(
                recorded("data", "pcap", file),
                PAUSE_MAX_NS,
                MESSAGES_MAX // (4 if settings.quick else 1),
            )
            rate = bursts.messages / bursts.seconds
            even = even_schedule(rate, bursts.messages, bursts.lines_total)
            trials = interleave(
                {
                    EVEN: partial(send, partner, settings.cores[1], even),
                    BURSTS: partial(send, partner, settings.cores[1], bursts),
                },
                settings,
                label=name,
                rounds=min(settings.rounds, ROUNDS),
            )
            yield from trials.rows(
                NAME,
                "ns",
                {"capture": name, "lines": bursts.lines_total, "rate": round(rate)},
                base=EVEN,
            )


def send(partner: Partner, core: int, schedule: Schedule) -> Outcome:
    """Take one turn; what was lost is said, what was published must be right."""
    found = wire_trial(partner, core, schedule, MESSAGE_BYTES)
    missing = found.sent - found.published
    if found.wrong > found.lost or missing != found.lost:
        raise ValueError(
            f"expected every message in order or reported as lost, found {missing} missing, "
            f"{found.lost} reported, {found.wrong} wrong"
        )
    return Outcome(
        float(found.histogram.percentile(50.0)),
        found.histogram,
        f"{found.sent:,} sent = {found.published:,} in the ring, in order + {found.lost:,} lost "
        f"({found.kernel_drops:,} datagrams dropped by the kernel)",
    )


BENCHMARK = Benchmark(
    name=NAME,
    question="What do real bursts do to latency and loss, beside the same rate evenly spaced?",
    topology="""
core A: paced sender, at the times of a capture -- 127.0.0.1, 1 or 2 lines --> core B: feed
core A: the same messages, evenly spaced        -- 127.0.0.1, 1 or 2 lines --> core B: feed
""",
    run=run,
    seconds=20.0,
)
