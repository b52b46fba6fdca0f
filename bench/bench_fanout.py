"""Do readers of a ring slow its writer?

    core A: writer, 64 records in a run, 100,000/s --> ring --> core B: 1, 2, 4 or 8 strategies,
                                                                each a process, polls, then sleeps

All readers share one core here and sleep between polls, as strategies do that cannot have a core
each. What counts is the writer: the time that a run of 64 records takes it. Nobody reads at all
in the variant "no reader". The readers prove that they were there: each has read every record.

Usage: udpfast bench run fanout [--quick]
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.client.reader import Reader
from udpfast.errors import RingClosedError

from .loops.ring_hop import note_batch, write_bursts
from .partner import Partner
from .result import Row
from .ring_trial import close_ring, open_ring
from .trials import Benchmark, Outcome, Settings, interleave
from .wire_trial import memory_directory

__all__ = ["BENCHMARK"]

NAME = "fanout"
READERS = (1, 2, 4, 8)
BASE = "1 reader"
RUN_RECORDS = 64
RATE = 100_000
SECONDS = 0.3
SIZE = 64


def run(settings: Settings) -> Iterator[Row]:
    """Measure the writer with more and more readers, in turns."""
    seconds = SECONDS / 3 if settings.quick else SECONDS
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(Partner(settings.cores[0]))
        readers = [stack.enter_context(Partner(settings.cores[1])) for _ in range(max(READERS))]
        for reader in readers:  # all of them import at the same time
            reader.start(get_ready)
        for reader in readers:
            reader.result()
        variants: dict[str, Callable[[], float | Outcome]] = {
            ("no reader" if count == 0 else f"{count} reader{'s' * (count > 1)}"): partial(
                fan_out, writer, readers[:count], seconds
            )
            for count in (0, *READERS)
        }
        trials = interleave(variants, settings)
        yield from trials.rows(
            NAME,
            "ns/record",
            {"size": SIZE, "rate": RATE},
            base=BASE,
            goals={f"{READERS[-1]} readers": "P16: <= 1.1"},
        )


def fan_out(writer: Partner, readers: list[Partner], seconds: float) -> Outcome:
    """Let the writer write while the readers read; return ns per record, the median run's."""
    bursts = int(seconds * RATE / RUN_RECORDS)
    records = bursts * RUN_RECORDS
    with memory_directory() as directory:
        writer.call(open_ring, str(directory))
        for reader in readers:
            reader.start(read_sleeping, str(directory))
        try:
            await_readers(directory, len(readers))
            took_ns = writer.call(write_runs, bursts)
        finally:
            writer.call(close_ring)
        found = [reader.result() for reader in readers]
    for seen, wrong, lapped in found:
        if (seen, wrong, lapped) != (records, 0, 0):
            raise ValueError(
                f"expected {records:,} records in order, found {seen:,}, {wrong} wrong, "
                f"{lapped} missed"
            )
    verified = f"{records:,} written, every one read in order by each of {len(found)}"
    return Outcome(float(np.median(took_ns)) / RUN_RECORDS, verified=verified)


def await_readers(directory: Path, count: int) -> None:
    """Wait until so many readers have attached."""
    while len(list(directory.glob("readers/*"))) < count:
        time.sleep(0.001)


# --- what partners do -------------------------------------------------------------------------


def get_ready(state: dict[str, Any]) -> None:
    """Have everything imported."""


def write_runs(state: dict[str, Any], bursts: int) -> Any:
    """Write runs of records at fixed distances; return what each took, in ns."""
    period_ns = RUN_RECORDS * 1_000_000_000 // RATE
    return write_bursts(state["ring"], bursts, RUN_RECORDS, period_ns, SIZE)


def read_sleeping(state: dict[str, Any], directory: str) -> tuple[int, int, int]:
    """Read to the end, sleeping between polls; return records seen, wrong ones, missed ones."""
    seen = wrong = 0
    with Reader(f"ring:{directory}", idle="sleep", start="begin") as reader:
        with contextlib.suppress(RingClosedError):
            while True:
                batch = reader.poll()
                wrong += note_batch(batch, 0, None, seen)
                seen += len(batch)
        return seen, wrong, reader.lapped


BENCHMARK = Benchmark(
    name=NAME,
    question="Do readers of a ring slow its writer?",
    topology="""
core A: writer, 64 records in a run, 100,000/s --> ring --> core B: 1, 2, 4 or 8 strategies,
                                                            each a process, polls, then sleeps
""",
    run=run,
    seconds=22.0,
)
