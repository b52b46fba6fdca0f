"""How fast is a day of single orders replayed, with books?

    capture --> `udpfast replay`: windows, decoder, books, ring, hash, a reader's books   one core

ITCH in MoldUDP64, 30 messages a datagram, 8,000 stocks, about 90,000 orders alive. A trial replays
all of it and a thirtieth: the difference, in time of the processor, is what a day goes on with
once everything is there. Nor does the whole need more memory than that.

Usage: udpfast bench run day [--quick]
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from udpfast.cli.replay_datagrams import Description, replay_datagrams
from udpfast.config import parse_feed

from .bench_replay import Recording, verify
from .loops.book_cost import OrderFlow
from .loops.hostprobe import pinned
from .result import Row
from .trials import Benchmark, Settings, interleave
from .wire_trial import memory_directory

__all__ = ["BENCHMARK"]

NAME = "day"
STOCKS, LIVE, EACH = 8_000, 90_000, 30
#: Datagrams behind the opening, of a quick run and of a whole one.
DATAGRAMS = (9_000, 60_000)
STEP = 10_000
GROUP, PORT = "239.1.2.3", 26_400
GROWTH_MAX_MIB = 32
ROUNDS = 5


def run(settings: Settings) -> Iterator[Row]:
    """Replay the whole and the part in turns."""
    datagrams = DATAGRAMS[0 if settings.quick else 1]
    core = settings.cores[1]
    with memory_directory() as directory:
        whole = record(directory / "whole.pcap", datagrams)
        part = record(directory / "part.pcap", datagrams // 30)
        growth = memory_growth(partial(take, core, whole), partial(take, core, part))
        yield from interleave(
            {"udpfast replay": partial(rate, core, whole, part)},
            settings,
            rounds=1 if settings.quick else min(settings.rounds, ROUNDS),
            two_cores=False,
        ).rows(
            NAME,
            "messages/s",
            {"messages": whole.expected[0]},
            goals={"udpfast replay": "P35: >= 5000000 messages/s"},
            lower_is_better=False,
            verified=f"the whole took {growth:.0f} MiB more memory than a thirtieth",
        )


def take(core: int, recording: Recording) -> float:
    """Do what the verb does; return the seconds of the processor that it took."""
    began = time.process_time()
    with pinned(core):
        found = replay_datagrams(recording.path, Description(recording.config))
    verify(recording, found["counters"])
    return time.process_time() - began


def rate(core: int, whole: Recording, part: Recording) -> float:
    """Return messages per second of the processor, of those that the whole has more."""
    return (whole.expected[0] - part.expected[0]) / (take(core, whole) - take(core, part))


def memory_growth(whole: Callable[[], object], part: Callable[[], object]) -> float:
    """Return how many MiB more the whole takes at its peak.

    Raises
    ------
    ValueError
        They are many: something of each message is kept.
    """
    growth = peak_mib(whole) - peak_mib(part)
    if growth > GROWTH_MAX_MIB:
        raise ValueError(f"expected memory that stays as it is, it grew by {growth:.0f} MiB")
    return max(growth, 0.0)


def record(path: Path, datagrams: int) -> Recording:
    """Write a capture of an opening and so many datagrams."""
    flow = OrderFlow(STOCKS, LIVE, 0)
    number = 1 + LIVE
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65_535, 1))
        file.write(frames(np.asarray(flow.opening(EACH)), 0))
        for first in range(0, datagrams, STEP):
            count = min(STEP, datagrams - first)
            file.write(frames(np.asarray(flow.burst(count, EACH, number)), LIVE // EACH + first))
            number += count * EACH
    config = parse_feed(
        {
            "name": NAME,
            "wire": {"framing": "moldudp64", "payload": "itch"},
            "incremental": {"lines": [{"name": "A", "address": f"{GROUP}:{PORT}"}]},
            "books": {"orders": False, "orders_max": 2 * LIVE},
        }
    )
    return Recording(path, {}, config, [], (number - 1, 0))


def frames(rows: npt.NDArray[np.uint8], first: int) -> bytes:
    """Return datagrams as frames of a pcap file, 20 us apart."""
    count, size = rows.shape
    head = bytes.fromhex("01005e010203") + bytes(6) + b"\x08\x00"
    head += struct.pack(">BBHHHBBH", 0x45, 0, 28 + size, 0, 0, 1, 17, 0)
    head += bytes([10, 0, 0, 1]) + bytes(map(int, GROUP.split(".")))
    head += struct.pack(">HHHH", 5_000, PORT, 8 + size, 0)
    made = np.zeros((count, 16 + len(head) + size), np.uint8)
    due_ns = 20_000 * (first + np.arange(count))
    fields = made[:, :16].view("<u4").reshape(count, 4)
    fields[:, 0] = 1_700_000_000 + due_ns // 10**9
    fields[:, 1] = due_ns % 10**9
    fields[:, 2:] = len(head) + size
    made[:, 16 : 16 + len(head)] = np.frombuffer(head, np.uint8)
    made[:, 16 + len(head) :] = rows
    return made.tobytes()


def peak_mib(work: Callable[[], object]) -> float:
    """Return the most memory that this process had while it worked."""
    Path("/proc/self/clear_refs").write_text("5")
    work()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


BENCHMARK = Benchmark(
    name=NAME,
    question="How fast is a day of single orders replayed, with books?",
    topology="""
capture --> `udpfast replay`: windows, decoder, books, ring, hash, a reader's books   one core
""",
    run=run,
    seconds=60.0,
)
