"""How fast does recorded market data go through the whole engine?

    capture in memory --> windows, objects, decoding, ring [--> books, in Python]      one core
    capture file      --> `udpfast replay`: unpacked, read, replayed, hashed, books    one core

60 s of a recorded market as the protocol carries it, over two lines and a snapshot channel, a
session change included: once clean, once with losses, swaps, duplicates and foreign datagrams. No
sockets: what is left is the work of the product, and the compiled readers' after it.

Usage: udpfast bench run replay [--quick]
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.agents.feed.replay_lines import guess_channels
from udpfast.agents.feed.replayer import Replayer
from udpfast.cli.replay_datagrams import replay_datagrams
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import FeedConfig, parse_feed
from udpfast.core.clock import monotonic_ns
from udpfast.monitor.ledger import ledger_of
from udpfast.net.pcap import CaptureBatch, CaptureReader

from .inputs import recorded
from .loops.hostprobe import pinned
from .result import Row
from .trials import Benchmark, Outcome, Settings, Trials, interleave
from .wire_trial import memory_directory

__all__ = ["BENCHMARK"]

NAME = "replay"
CAPTURES = {"clean": "roq_udp_clean.pcap.gz", "rough": "roq_udp_rough.pcap.gz"}
BASE = "engine"
#: Datagrams between two looks at the ring: what they set free fits into it many times.
STEP = 1024
ROUNDS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """A capture in memory, its datagrams told apart by channel and line.

    Attributes
    ----------
    config : FeedConfig
        Of the feed that it is of.
    parts : list of (batch, channels, lines)
        Without the datagrams that belong to no line.
    expected : (int, int)
        Messages of the incremental channel that a feed must deliver, and lose, by the description
        of the capture.
    """

    path: Path
    channels: dict[str, list[Any]]
    config: FeedConfig
    parts: list[tuple[CaptureBatch, npt.NDArray[np.uint8], npt.NDArray[np.uint8]]]
    expected: tuple[int, int]

    @property
    def datagrams(self) -> int:
        """In all parts."""
        return sum(len(channel) for _, channel, _ in self.parts)


def run(settings: Settings) -> Iterator[Row]:
    """Replay both captures in every way."""
    for name, file in CAPTURES.items():
        path = recorded("wire", "capture", file)
        expected = json.loads(recorded("wire", "capture", "expected.json").read_text())[name]
        recording = load(path, expected_messages(expected))
        variants: dict[str, Callable[[], float | Outcome]] = {
            BASE: partial(replay, settings.cores[1], recording, False),
            "engine and books": partial(replay, settings.cores[1], recording, True),
            "udpfast replay": partial(replay_file, settings.cores[1], recording),
        }
        trials = interleave(
            variants,
            settings,
            label=name,
            rounds=1 if settings.quick else min(settings.rounds, ROUNDS),
            two_cores=False,
        )
        yield from rows(name, recording, trials)


def rows(name: str, recording: Recording, trials: Trials) -> Iterator[Row]:
    """Yield each variant twice: datagrams a second, and messages a second."""
    messages = recording.expected[0]
    for what, share in (("datagrams", 1.0), ("messages", messages / recording.datagrams)):
        for row in trials.rows(
            NAME,
            f"{what}/s",
            {"capture": name, "counted": what},
            base=BASE,
            lower_is_better=False,
        ):
            yield dataclasses.replace(row, values=[value * share for value in row.values])


def expected_messages(expected: dict[str, Any]) -> tuple[int, int]:
    """Return delivered and lost messages as the description of a capture states them."""
    if "messages" in expected:
        return expected["messages"]["incremental"], 0
    return (
        expected["incremental_messages_complete_over_both_lines"],
        expected["messages_lost_on_both_lines"],
    )


def load(path: Path, expected: tuple[int, int]) -> Recording:
    """Read a capture into memory."""
    flows = guess_channels(path)
    parts = []
    with CaptureReader(path) as capture:
        while (batch := capture.read_batch()) is not None:
            parts.append(sort_out(batch, flows))
    config = parse_feed(
        {
            "name": "replay",
            **{
                channel: {
                    "lines": [
                        {"name": chr(65 + i), "address": str(flow)} for i, flow in enumerate(lines)
                    ]
                }
                for channel, lines in flows.items()
            },
        }
    )
    return Recording(path, flows, config, parts, expected)


def sort_out(
    batch: CaptureBatch, flows: dict[str, list[Any]]
) -> tuple[CaptureBatch, npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Keep what belongs to a line; say of each datagram to which."""
    channel = np.full(len(batch.headers), 255, np.uint8)
    line = np.zeros(len(batch.headers), np.uint8)
    for number, name in enumerate(("incremental", "snapshot")):
        for index, flow in enumerate(flows[name]):
            match = batch.headers["destination_port"] == flow.port
            channel[match], line[match] = number, index
    known = channel != 255
    kept = CaptureBatch(np.ascontiguousarray(batch.headers[known]), batch.buffer)
    return kept, channel[known], line[known]


def replay(core: int, recording: Recording, with_books: bool) -> Outcome:
    """Take the capture through the engine; return datagrams per second."""
    with memory_directory() as directory, pinned(core):
        replayer = Replayer(recording.config, directory)
        try:
            with Reader(f"ring:{directory}", start="begin") as reader:
                books = Books(reader)
                levels = 0
                started_ns = monotonic_ns()
                for batch, channel, line in recording.parts:
                    for start in range(0, len(channel), STEP):
                        stop = min(start + STEP, len(channel))
                        replayer.replay(batch, channel, line, start, stop)
                        while with_books and len(taken := reader.poll(timeout=0)):
                            levels += books.apply_batch(taken)
                replayer.finish()
                elapsed_ns = monotonic_ns() - started_ns
                if with_books and (reader.lapped or not levels):
                    raise ValueError(f"expected books, found {levels} updates of them")
            counters = replayer.counters()
        finally:
            replayer.close()
    return Outcome(recording.datagrams * 1e9 / elapsed_ns, verified=verify(recording, counters))


def replay_file(core: int, recording: Recording) -> Outcome:
    """Do what the verb does, from the file to the books; return datagrams per second."""
    with pinned(core):
        started_ns = monotonic_ns()
        found = replay_datagrams(recording.path)
        elapsed_ns = monotonic_ns() - started_ns
    verified = verify(recording, found["counters"])
    return Outcome(recording.datagrams * 1e9 / elapsed_ns, verified=verified)


def verify(recording: Recording, counters: dict[str, dict[str, int]]) -> str:
    """Compare with the description of the capture, and add the ledger up."""
    found = counters["incremental"]["messages"], counters["incremental"]["lost"]
    if found != recording.expected:
        raise ValueError(f"expected {recording.expected} delivered and lost, found {found}")
    if not ledger_of(counters).adds_up:
        raise ValueError("expected verdicts that add up to the datagrams, found a difference")
    return (
        f"{found[0]:,} messages delivered and {found[1]:,} lost, as the capture's description "
        "says; the ledger adds up"
    )


BENCHMARK = Benchmark(
    name=NAME,
    question="How fast does recorded market data go through the whole engine?",
    topology="""
capture in memory --> windows, objects, decoding, ring [--> books, in Python]      one core
capture file      --> `udpfast replay`: unpacked, read, replayed, hashed, books    one core
""",
    run=run,
    seconds=10.0,
)
