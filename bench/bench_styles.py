"""What does a record cost in each style of strategy, and how soon does an event loop wake?

    recorded market --> engine --> ring --> one style after the other, from the first record on
    core A: writer that takes turns --> ring --> core B: asyncio, asleep in between
                                        \\---> core B: spinning; 8 asyncio beside it, on A or C

Every style does the same: it adds up the seqnos of all BOOK records. The iteration is the base.
Then an event loop's way from a record's due time to the task that waited for it, beside a loop that
a plain pipe wakes; what a sleeping reader costs the writer's turn; what an idle feed costs the
reader; and what it costs a spinning reader that others sleep beside it.

Usage: udpfast bench run styles [--quick]
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.agents.feed.replayer import Replayer
from udpfast.client.callbacks import Callbacks
from udpfast.client.conflate import Latest
from udpfast.client.reader import Reader
from udpfast.client.record import ReadRecord
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import Kind
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH

from .bench_replay import expected_messages, load
from .inputs import recorded
from .loops.hostprobe import pinned
from .loops.style_loop import sum_batches, sum_books
from .result import Row
from .trials import Benchmark, Outcome, Settings, Unavailable, interleave
from .wakes import beside, waking
from .wire_trial import memory_directory

__all__ = ["BENCHMARK"]

NAME = "styles"
BASE = "iterator"
CAPTURE = "roq_udp_clean.pcap.gz"
STEP = 1024

Sum = tuple[int, int]


def run(settings: Settings) -> Iterator[Row]:
    """Measure what a record costs, then what waking costs, then what it costs those who spin."""
    yield from records(settings)
    yield from waking(settings)
    yield from beside(settings)


# --- a record in each style -------------------------------------------------------------------


def records(settings: Settings) -> Iterator[Row]:
    """Read the same recorded market in every style."""
    path = recorded("wire", "capture", CAPTURE)
    expected = json.loads(recorded("wire", "capture", "expected.json").read_text())["clean"]
    recording = load(path, expected_messages(expected))
    with memory_directory() as directory:
        replayer = Replayer(recording.config, directory)
        for batch, channel, line in recording.parts:
            for start in range(0, len(channel), STEP):
                replayer.replay(batch, channel, line, start, min(start + STEP, len(channel)))
        replayer.finish()
        replayer.close()
        with RingCursor.attach(directory, "begin", payload_hash=PAYLOAD_HASH) as cursor:
            known = sum_books(cursor)
        trials = interleave(
            {
                style: partial(one_style, settings.cores[1], directory, read, known)
                for style, read in STYLES.items()
            },
            settings,
            label="per record",
            two_cores=False,
        )
        yield from trials.rows(
            NAME, "ns/record", {"capture": "clean", "records": known[0]}, base=BASE, less=LESS
        )


def one_style(core: int, directory: Path, read: Callable[[Any], Sum], known: Sum) -> Outcome:
    """Read all of a closed ring; return ns per record."""
    with pinned(core):
        if read is arrow:
            pyarrow_table({})  # imported before it is timed
        if read is numba:
            numba_loop()  # compiled before it is timed
        with attach(directory, read) as source:
            started_ns = monotonic_ns()
            found = read(source)
            elapsed_ns = monotonic_ns() - started_ns
    if read is conflated:
        if found[0] != known[0]:
            raise ValueError(f"expected {known[0]} records read or superseded, found {found[0]}")
        verified = f"{known[0]:,} records handed out or superseded"
    elif found[1] != known[1]:
        raise ValueError(f"expected the sum {known[1]}, found {found[1]}")
    else:
        verified = f"the sum over {known[0]:,} records is that of the compiled loop"
    return Outcome(elapsed_ns / known[0], verified=verified)


def attach(directory: Path, read: Callable[[Any], Sum]) -> Any:
    """Open what a style reads from, at the beginning of the recorded ring."""
    if read is cython:
        return RingCursor.attach(directory, "begin", limit=4096, payload_hash=PAYLOAD_HASH)
    kinds = Kind.BOOK if read is filtered else None
    return Reader(f"ring:{directory}", start="begin", idle="spin", kinds=kinds)


def iterator(reader: Reader) -> Sum:
    """Let each record be an object."""
    total = 0
    for record in reader:
        if record.kind is Kind.BOOK:
            total += record.number
    return 0, total


def filtered(reader: Reader) -> Sum:
    """Let books, and doubts, alone be objects."""
    return iterator(reader)


def callbacks(reader: Reader) -> Sum:
    """Have a method called for books."""
    strategy = Adding()
    Callbacks(reader, strategy).run()
    return 0, strategy.total


class Adding:
    """A strategy with one method."""

    def __init__(self) -> None:
        self.total = 0

    def on_book(self, record: ReadRecord) -> None:
        """Add its seqno."""
        self.total += record.number


def batches(reader: Reader, add: Callable[[Any], int]) -> int:
    """Add up batch by batch."""
    total = 0
    while reader.wait():
        total += add(reader.poll(timeout=0).headers)
    return total


def poll_numpy(reader: Reader) -> Sum:
    """Select and add columns."""
    return 0, batches(
        reader, lambda headers: int(headers["number"][headers["kind"] == Kind.BOOK].sum())
    )


def arrow(reader: Reader) -> Sum:
    """Make a table of every field of every book, its levels included."""
    total = 0
    while reader.wait():
        table = pyarrow_table(reader.poll(timeout=0).table(Kind.BOOK))
        total += int(table["number"].to_numpy().sum())
    return 0, total


def pyarrow_table(table: Any) -> Any:
    """Hand it to pyarrow."""
    try:
        import pyarrow
    except ImportError as missing:
        raise Unavailable("pyarrow is not installed") from missing
    return pyarrow.table(table)


def conflated(reader: Reader) -> Sum:
    """Take the newest of each object."""
    latest = Latest(reader, keep=())
    count = sum(1 for _ in latest)
    return count + latest.superseded, 0


def loop(reader: Reader) -> Sum:
    """Iterate in an event loop."""

    async def read() -> int:
        total = 0
        async for record in reader:
            if record.kind is Kind.BOOK:
                total += record.number
        return total

    return 0, asyncio.run(read())


def cython(cursor: RingCursor) -> Sum:
    """Follow with a cursor in a compiled loop."""
    return sum_books(cursor)


def cython_batches(reader: Reader) -> Sum:
    """Take a reader's batches in a compiled loop."""
    return sum_batches(reader)


def numba(reader: Reader) -> Sum:
    """Loop over each batch's headers in a function that Numba compiled."""
    return 0, batches(reader, numba_loop())


@cache
def numba_loop() -> Callable[[Any], int]:
    """Compile the loop, once."""
    try:
        import numba
    except ImportError as missing:
        raise Unavailable("numba is not installed") from missing
    from udpfast.core.layout import RECORD

    book = int(Kind.BOOK)

    def add(headers: Any) -> int:
        total = 0
        for i in range(len(headers)):
            if headers[i]["kind"] == book:
                total += headers[i]["number"]
        return total

    compiled: Callable[[Any], int] = numba.njit(add)
    empty = np.zeros(1, RECORD)
    empty.flags.writeable = False
    compiled(empty)
    return compiled


STYLES: dict[str, Callable[[Any], Sum]] = {
    BASE: iterator,
    "iterator, kinds=BOOK": filtered,
    "callbacks, on_book": callbacks,
    "async for": loop,
    "poll + numpy": poll_numpy,
    "poll + Arrow": arrow,
    "conflated, books kept": conflated,
    "Numba over batches": numba,
    "Cython, next_batch": cython_batches,
    "Cython cursor": cython,
}
LESS = {"Cython cursor": "no names, no entry among the readers"}


BENCHMARK = Benchmark(
    name=NAME,
    question="What does a record cost in each style, and how soon does an event loop wake?",
    topology="""
recorded market --> engine --> ring --> one style after the other, from the first record on
core A: writer that takes turns --> ring --> core B: asyncio, asleep in between
                                    \\---> core B: spinning; 8 asyncio beside it, on A or C
""",
    run=run,
    seconds=60.0,
)
