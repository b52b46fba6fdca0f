"""What do decoding, a book and the encoder cost per message?

    one core, no socket: payloads in memory --> verify, decode, intern --> update in memory
                                                update --> book of 1,000 levels --> top 10, numpy

The loops run in C without the GIL (`udpfast.testing.micro`); "to numpy" and "flatbuffers (PyPI)"
are calls from Python: the same payload, the same values, one with all offsets verified.

Run it with `udpfast bench run decode`; `python -m bench.micro.instructions` counts instructions.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from udpfast.core.layout import Kind
from udpfast.market.decode import Decoder
from udpfast.market.names import NameTable
from udpfast.market.updates import LEVEL, UPDATE_DTYPES
from udpfast.testing.micro import Loop

from .decode_ways import book_event, decode_loops, deep_book, other_loops
from .peers import flatbuffers_reader as peer
from .result import Row
from .trials import Benchmark, Settings, Unavailable, interleave

__all__ = ["BENCHMARK"]

PEER = "flatbuffers (PyPI)"
TO_NUMPY = "to numpy"
HEADER_SIZE = UPDATE_DTYPES[Kind.BOOK].itemsize
GOALS = {
    "book of 10": "P17: <= 40 ns",
    "book, 10 levels set": "P18: <= 250 ns",
    "top 10 as numpy": "P18: <= 150 ns",
}


def run(settings: Settings) -> Iterator[Row]:
    """Measure decoding, then books and the rest, then the way to numpy beside its peer."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {settings.cores[1]})
    count = 5_000 if settings.quick else 50_000
    try:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            yield from loops(settings, "decode", decode_loops(), count, "book of 10, general path")
            others = other_loops(Path(folder))
            yield from loops(settings, "operations", others, count, "")
        yield from top_rows(settings, count // 5)
        yield from peer_rows(settings, count // 250)
    finally:
        os.sched_setaffinity(0, before)


def loops(
    settings: Settings, label: str, chosen: dict[str, Loop], count: int, base: str
) -> Iterator[Row]:
    """Let the loops take turns."""
    variants: dict[str, Callable[[], float]] = {}
    for name, loop in chosen.items():
        loop.run(count // 10)  # untimed: caches and branches as in the rounds
        variants[name] = partial(_per_operation, loop, count)
    trials = interleave(variants, settings, label=label, two_cores=False)
    yield from trials.rows(
        "decode", "ns/message", {}, base=base, goals=GOALS, verified="each did what it had to"
    )


def _per_operation(loop: Loop, count: int) -> float:
    return loop.run(count) / count


def _per_call(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - start) / count


def top_rows(settings: Settings, count: int) -> Iterator[Row]:
    """Time the ten best levels as an array, called from Python."""
    book = deep_book()
    assert book.bids(10)[:, 0].tolist() == [100.0 - 0.5 * rank for rank in range(10)]
    variants = {"top 10 as numpy": partial(_per_call, partial(book.bids, 10), count)}
    trials = interleave(variants, settings, label="top", two_cores=False)
    yield from trials.rows(
        "decode", "ns/call", {"levels": 1000}, goals=GOALS, verified="the ten best, in order"
    )


def peer_rows(settings: Settings, count: int) -> Iterator[Row]:
    """Compare with the official Python runtime: the same ten levels out of the same bytes."""
    payload = book_event(random.Random(1), 10)
    decoder = Decoder(NameTable())

    into = np.zeros(1024, np.uint8)
    assert decoder.decode_into(payload, into) == Kind.BOOK
    rows = into[HEADER_SIZE:][: 10 * LEVEL.itemsize].view(LEVEL)
    wanted = np.column_stack((rows["price"], rows["quantity"])).tolist()

    def by_peer() -> float:
        try:
            found = peer.read_book(payload)
        except ImportError:
            raise Unavailable("not installed (pip install flatbuffers)") from None
        assert [list(level) for level in found] == wanted
        return _per_call(partial(peer.read_book, payload), count)

    call = partial(decoder.decode_into, payload, into)
    variants = {TO_NUMPY: partial(_per_call, call, 50 * count), PEER: by_peer}
    trials = interleave(variants, settings, label="to numpy", two_cores=False)
    yield from trials.rows(
        "decode",
        "ns/call",
        {"levels": 10},
        base=TO_NUMPY,
        goals={PEER: "P17: >= 100"},
        verified="both read the same values",
        versions={PEER: peer.version()} if PEER in trials.variants else {},
        less={PEER: peer.LESS},
    )


BENCHMARK = Benchmark(
    name="decode",
    question="What do decoding, a book and the encoder cost per message?",
    topology="""
one core, nothing sent: payload --> verify, decode, intern --> update --> book --> top 10
""",
    run=run,
    seconds=15.0,
)
