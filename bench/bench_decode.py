"""What do decoding, a book and the encoder cost per message?

    one core, no socket: payloads in memory --> verify, decode, intern --> update in memory
                                                update --> book of 1,000 levels --> top 10, numpy

The loops run in C without the GIL (`bench.loops.micro`); "to numpy" and "flatbuffers (PyPI)"
are calls from Python: the same payload, the same values, one with all offsets verified.

Run it with `udpfast bench run decode`; `python -m bench.micro.instructions` counts instructions.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.core.layout import Kind
from udpfast.market.names import NameTable
from udpfast.market.updates import ROW_DTYPES, UPDATE_DTYPES
from udpfast.payload.roq.decode import Decoder

from .decode_ways import Operation, decode_loops, deep_book, hot_payloads, kind_loops, other_loops
from .peers import flatbuffers_reader as peer
from .result import Row
from .trials import Benchmark, Settings, Unavailable, interleave

__all__ = ["BENCHMARK"]

PEER = "flatbuffers (PyPI)"
TO_NUMPY = "to numpy"
PAIR = ("price", "quantity")
HEADER_SIZES = {kind: dtype.itemsize for kind, dtype in UPDATE_DTYPES.items()}
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
            others = kind_loops() | other_loops(Path(folder))
            yield from loops(settings, "operations", others, count, "")
        yield from top_rows(settings, count // 5)
        yield from peer_rows(settings, count // 250)
    finally:
        os.sched_setaffinity(0, before)


def loops(
    settings: Settings, label: str, chosen: dict[str, Operation], count: int, base: str
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


def _per_operation(loop: Operation, count: int) -> float:
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
    """Compare with the official Python runtime: the same numbers out of the same bytes."""
    yield from peer_row(settings, count, Kind.BOOK, "book of 10", peer.read_book)
    yield from peer_row(settings, count, Kind.TOP_OF_BOOK, "top of book", peer.read_top_of_book)
    yield from peer_row(settings, count, Kind.TRADES, "one trade", peer.read_trades)


def peer_row(
    settings: Settings, count: int, kind: Kind, name: str, read: Callable[[bytes], Any]
) -> Iterator[Row]:
    """Compare reading one kind of update, called from Python."""
    payload = bytes(hot_payloads()[name][0])
    decoder = Decoder(NameTable())
    into = np.zeros(1024, np.uint8)
    assert decoder.decode_into(payload, into) == kind
    wanted = numbers(kind, into)

    def by_peer() -> float:
        try:
            found = np.array(read(payload))
        except ImportError:
            raise Unavailable("not installed (pip install flatbuffers)") from None
        assert found.tolist() == wanted
        return _per_call(partial(read, payload), count)

    call = partial(decoder.decode_into, payload, into)
    variants: dict[str, Callable[[], float]] = {
        TO_NUMPY: partial(_per_call, call, 50 * count),
        PEER: by_peer,
    }
    trials = interleave(variants, settings, label=f"{name} to numpy", two_cores=False)
    yield from trials.rows(
        "decode",
        "ns/call",
        {"payload": name},
        base=TO_NUMPY,
        goals={PEER: "P17: >= 100"} if kind == Kind.BOOK else {},
        verified="both read the same values",
        versions={PEER: peer.version()} if PEER in {t.variant for t in trials.kept} else {},
        less={PEER: peer.LESS},
    )


def numbers(kind: Kind, into: np.ndarray[Any, np.dtype[np.uint8]]) -> list[Any]:
    """Return what the peer reads, out of a decoded update."""
    header = into[: HEADER_SIZES[kind]].view(UPDATE_DTYPES[kind])[0]
    if kind == Kind.TOP_OF_BOOK:
        return [header[f"{side}_{what}"] for side in ("bid", "ask") for what in PAIR]
    dtype = ROW_DTYPES[kind]
    start, count = HEADER_SIZES[kind], int(header["row_count"])
    rows = into[start : start + count * dtype.itemsize].view(dtype)
    found: list[Any] = np.column_stack([rows[what] for what in PAIR]).tolist()
    return found


BENCHMARK = Benchmark(
    name="decode",
    question="What do decoding, a book and the encoder cost per message?",
    topology="""
one core, nothing sent: payload --> verify, decode, intern --> update --> book --> top 10
""",
    run=run,
    seconds=15.0,
)
