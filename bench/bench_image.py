"""How long does a late reader wait for the complete state, and what does keeping it cost the feed?

    core A: image keeper --> image of N objects --> core B: Reader(image=True) to its last record
    core B: recorded market --> engine --> ring --> core A: image keeper, or nobody

Attaching is measured from the call of `Reader` until every record of the image was handed out in
batches, or is applied to `Books`; beside it a reader that begins with the ring's tail and knows
nothing. Objects are books of 20 levels a side. The feed takes recorded datagrams at 200,000/s,
in steps of 64, and flat out; only the time of those steps counts. On a host with two cores the
keeper's work may share one with the feed's (NEAR): its share of the processor is seen there too.

Usage: udpfast bench run image [--quick]
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.replayer import Replayer
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import ImageConfig
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import OBJECT_STATE, SESSION, Kind, RecordFlag
from udpfast.log.ring import Ring
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import BOOK, LEVEL, PAYLOAD_HASH
from udpfast.shm.names import create_names, names_table

from .bench_replay import STEP, Recording, expected_messages, load, verify
from .inputs import recorded
from .loops.hostprobe import pinned
from .partner import Partner
from .result import Row
from .trials import Benchmark, Outcome, Settings, interleave
from .wire_trial import memory_directory

__all__ = ["BENCHMARK"]

NAME = "image"
OBJECTS = (6, 100, 1_000, 10_000)
LEVELS = 20
NAMES_OFFSET = 4096
ROUNDS = 9
RATES = (200_000, 0)
PACED_STEP = 64
CAPTURE = "roq_udp_clean.pcap.gz"


def run(settings: Settings) -> Iterator[Row]:
    """Measure attaching for each number of objects, then the feed with and without a keeper."""
    for objects in OBJECTS[:2] if settings.quick else OBJECTS:
        with memory_directory() as directory, filled(directory, objects):
            yield from attaching(directory, objects, settings)
    yield from feeding(settings)


def attaching(directory: Path, objects: int, settings: Settings) -> Iterator[Row]:
    """Measure from the call until the state is complete."""
    variants: dict[str, Callable[[], float | Outcome]] = {
        "tail": partial(attach, settings.cores[1], directory, 0, "tail"),
        "image": partial(attach, settings.cores[1], directory, objects, "batches"),
        "image and books": partial(attach, settings.cores[1], directory, objects, "books"),
    }
    trials = interleave(
        variants,
        settings,
        label=f"attach, {objects} objects",
        rounds=min(settings.rounds, ROUNDS),
        two_cores=False,
    )
    yield from trials.rows(
        NAME,
        "ns",
        {"objects": objects, "levels": 2 * LEVELS},
        base="tail",
        less={"tail": "knows no object"},
    )


def attach(core: int, directory: Path, objects: int, way: str) -> Outcome:
    """Attach once; return the time until all is known."""
    with pinned(core):
        started_ns = monotonic_ns()
        with Reader(f"ring:{directory}", image=way != "tail") as reader:
            books = Books(reader)
            found = 0
            while reader.joining:
                batch = reader.poll(timeout=0)
                found += int((batch.headers["kind"] == Kind.BOOK).sum())
                if way == "books":
                    books.apply_batch(batch)
            elapsed_ns = monotonic_ns() - started_ns
    if found != objects or (way == "books" and any(book.stale for book in books.values())):
        raise ValueError(f"expected {objects} sound books, found {found}")
    return Outcome(elapsed_ns, verified=f"{found:,} books in the image, all sound")


@contextlib.contextmanager
def filled(directory: Path, objects: int) -> Iterator[None]:
    """Have a ring, names, and the image of so many books in a directory."""
    region = create_names(directory / "names", name_table_size(objects + 1))
    names = NameTable(names_table(region), capacity=objects + 1)
    region.mark_ready()
    exchange = names.intern("exchange")
    config = ImageConfig(objects=max(16, objects), capacity_bytes=1 << 28, interval_ms=0)
    with Ring.create(directory, 1 << 26, PAYLOAD_HASH) as ring, region:
        ring.append(Kind.SESSION, np.zeros((), SESSION).tobytes(), session=1)
        for number in range(objects):
            state, update = np.zeros((), OBJECT_STATE), book(exchange, names.intern(f"S{number}"))
            ring.append(Kind.RECOVERED, state.tobytes(), **place(number))
            ring.append(Kind.BOOK, update, RecordFlag.SNAPSHOT, **place(number))
        ring.flush()
        keeper = ImageKeeper(config, directory)
        keeper.on_start()
        while keeper.work(0):
            pass
        keeper.on_stop()
        yield


def place(number: int) -> dict[str, int]:
    """Return where the message of an object stands."""
    return {"session": 1, "object": number, "number": number + 1}


def book(exchange_id: int, symbol_id: int) -> bytes:
    """Return a snapshot of one book."""
    update, rows = np.zeros((), BOOK), np.zeros(2 * LEVELS, LEVEL)
    update["exchange_id"], update["symbol_id"], update["update_type"] = exchange_id, symbol_id, 1
    update["bid_count"] = update["ask_count"] = LEVELS
    update["row_count"] = 2 * LEVELS
    rows["price"][:LEVELS] = 100.0 - np.arange(LEVELS)
    rows["price"][LEVELS:] = 101.0 + np.arange(LEVELS)
    rows["quantity"] = 1.0
    return update.tobytes() + rows.tobytes()


def feeding(settings: Settings) -> Iterator[Row]:
    """Measure the feed's own cost without and with a keeper on the other core."""
    described = json.loads(recorded("wire", "capture", "expected.json").read_text())["clean"]
    recording = load(recorded("wire", "capture", CAPTURE), expected_messages(described))
    # A ring that holds all of it: a keeper without a core of its own is late, and not lapped.
    ring = replace(recording.config.ring, capacity_bytes=1 << 28)
    recording = dataclasses.replace(recording, config=replace(recording.config, ring=ring))
    with Partner(settings.cores[0]) as partner:
        for rate in RATES:
            variants: dict[str, Callable[[], float | Outcome]] = {
                "feed alone": partial(feed, settings.cores[1], recording, rate, None),
                "feed, keeper": partial(feed, settings.cores[1], recording, rate, partner),
            }
            trials = interleave(
                variants,
                settings,
                label=f"feed, {rate or 'flat out'}",
                rounds=min(settings.rounds, ROUNDS),
            )
            yield from trials.rows(
                NAME, "ns/datagram", {"rate": rate or "flat out"}, base="feed alone"
            )


def feed(core: int, recording: Recording, rate: int, partner: Partner | None) -> Outcome:
    """Take the capture through the engine; return its ns per datagram."""
    step = PACED_STEP if rate else STEP
    elapsed_ns = due_ns = 0
    with memory_directory() as directory, pinned(core):
        replayer = Replayer(recording.config, directory)
        try:
            if partner is not None:
                partner.call(start_keeper, directory)
            for batch, channel, line in recording.parts:
                for start in range(0, len(channel), step):
                    stop = min(start + step, len(channel))
                    while (began_ns := monotonic_ns()) < due_ns:
                        pass
                    replayer.replay(batch, channel, line, start, stop)
                    elapsed_ns += monotonic_ns() - began_ns
                    due_ns = (due_ns or began_ns) + step * 1_000_000_000 // rate if rate else 0
            replayer.finish()
            verified = verify(recording, replayer.counters())
            records = replayer.counters()["feed"]["records"]
        finally:
            replayer.close()
        if partner is not None:
            index, lapped = partner.call(end_keeper)
            if index != records or lapped:
                raise ValueError(
                    f"expected a keeper that read {records} records, found {index}, "
                    f"of which it missed {lapped}"
                )
            verified += f"; the keeper read all {records:,} records"
    return Outcome(elapsed_ns / recording.datagrams, verified=verified)


def start_keeper(state: dict[str, Any], directory: Path) -> None:
    """Run a keeper in this process."""
    state["keeper"] = ImageKeeper(ImageConfig(), directory)
    state["runner"] = AgentRunner(state["keeper"], idle="sleep")
    state["runner"].start()


def end_keeper(state: dict[str, Any]) -> tuple[int, int]:
    """Wait until the keeper has read everything; return its index, and what it missed."""
    state["runner"].join(300.0)
    return state["keeper"].index, state["keeper"].lapped


BENCHMARK = Benchmark(
    name=NAME,
    question="How long does a late reader wait for the state, and what does it cost the feed?",
    topology="""
core A: image keeper --> image of N objects --> core B: Reader(image=True) to its last record
core B: recorded market --> engine --> ring --> core A: image keeper, or nobody
""",
    run=run,
    seconds=30.0,
)
