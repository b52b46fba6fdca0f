"""Late joiners against a feed that runs: state first, then the ring, never wrong, never twice.

    udpfast lab latejoin --attaches 1000 --seed 1
    udpfast lab latejoin --attaches 60 --events 20000 --simulate
    udpfast lab latejoin --attaches 200 --capacity 4194304 --stall 2

    feed: recorded market, lossy lines, a restart -> engine -> ring <- image keeper (thread)
                                                                ^
    oracle (reads everything)      joiners (processes): attach, note, leave, attach, ...

Every joiner notes what its sound books hold where its image ended and at places behind, and checks
that records follow each other without hole or repetition, and that each book's first update
continues what the image said. One that stalls is lapped and joins again. The oracle, who was there
from the beginning, then says whether all of that was so; its own books at the end must be those
that were published. Now and then the keeper is ended and another one goes on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import tempfile
import threading
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.replayer import Replayer
from udpfast.agents.market.market_event import MarketSource
from udpfast.agents.market.market_gateway import MarketGateway
from udpfast.agents.market.market_player import MarketPlayer
from udpfast.agents.market.market_recording import MarketRecording
from udpfast.agents.market.market_simulation import SimulatedMarket
from udpfast.cli.options import FiniteRange
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import FeedConfig, ImageConfig, parse_feed
from udpfast.core.agent import AgentRunner
from udpfast.core.layout import OBJECT_STATE, Channel, Kind, RecordFlag, Stream
from udpfast.errors import RingClosedError
from udpfast.feed.transmitter import DatagramViews, Transmitter, datagrams_of
from udpfast.net.bad_network import Arrival, LineFaults, LineMap, network
from udpfast.net.pcap import CAPTURED, CaptureBatch
from udpfast.shm.image import has_image

from .program import memory, program

__all__ = ["Attach", "Check", "judge", "main", "run"]

_MS = 1_000_000
#: A turn of the player in the market's time.
_TURN_NS = 100_000
_STEP = 32
_PRICE_BAND = 0.0025
_SETTLE_NS = 3_000 * _MS
_MARKET = ("data", "market", "binance_20240808")

FAULTS: LineMap = {
    (Channel.INCREMENTAL, 0): LineFaults(loss=0.01, burst_mean=3, reorder=0.005, reorder_depth=4),
    (Channel.INCREMENTAL, 1): LineFaults(
        loss=0.02, burst_mean=20, delay_ns=300_000, duplicate=0.01
    ),
    (Channel.SNAPSHOT, 0): LineFaults(loss=0.05),
}

Digest = dict[str, int]


class Check(NamedTuple):
    """What a joiner's sound books held just before the record with the index `before`."""

    before: int
    digest: Digest


class Attach(NamedTuple):
    """One joiner: how long it took, what it read, what it held."""

    complete_ns: int
    image_records: int
    records: int
    laps: int
    checks: list[Check]


class _Tap:
    """A line that keeps what is sent, with the time of its sending."""

    unreachable = 0
    trouble = ""

    def __init__(self, published: _Published, channel: int, line: int) -> None:
        self.published, self.place, self.carried = published, (channel, line), 0

    def send(self, views: DatagramViews) -> int:
        for datagram in datagrams_of(views):
            self.published.sent.append(Arrival(self.published.now_ns, *self.place, datagram))
        self.carried += len(views[2])
        return len(views[2])


class _Published:
    """A market through a gateway that restarts once: its datagrams, and its books at the end.

    Behind `end_ns` the market is quiet, and the gateway repeats its snapshots.
    """

    def __init__(self, source: MarketSource, events: int, span_ns: int) -> None:
        self.sent: list[Arrival] = []
        self.now_ns = 0
        transmitter = Transmitter(
            [_Tap(self, 0, 0), _Tap(self, 0, 1)], [_Tap(self, 1, 0)], session_id=7
        )
        gateway = MarketGateway(transmitter, source.instruments)
        player = MarketPlayer(
            source, gateway, events_max=events, restart_after_ns=span_ns // 2, speed=1.0
        )
        while not player.finished:
            player.do_work(self.now_ns)
            self.now_ns += max(_TURN_NS, player.wait_ns(self.now_ns) // 2)
        self.end_ns = self.now_ns
        while self.now_ns < self.end_ns + _SETTLE_NS:
            player.do_work(self.now_ns)
            self.now_ns += _MS
        self.books = gateway.books()


def run(
    attaches: int,
    seed: int,
    *,
    events: int,
    market: Path | None,
    capacity_bytes: int = 1 << 24,
    processes: int = 2,
    seconds: float = 20.0,
    stall_s: float = 0.0,
) -> dict[str, Any]:
    """Run one feed with so many attaches; raise AssertionError on the first thing found wrong."""
    source: MarketSource
    if market is None:
        source = SimulatedMarket(seed, instruments=6, events=events)
        span_ns = int(events / 10_000 * 1e9)
    else:
        source = MarketRecording(market, price_band=_PRICE_BAND)
        span_ns = _span_ns(source, events)
    published = _Published(source, events, span_ns)
    arrived = _arrived(published, seed)
    with tempfile.TemporaryDirectory(prefix="udpfast-latejoin-", dir=memory()) as root:
        directory = Path(root) / "feed"
        directory.mkdir(mode=0o700)
        results, oracle, restarts = _play(
            directory, arrived, attaches, seed, capacity_bytes, processes, seconds, stall_s
        )
    records, final = oracle
    found = judge(results, records)
    assert final == published.books, "the oracle's books at the end are not those published"
    times = np.array([attach.complete_ns for attach in results]) / 1e6
    return {
        **found,
        "datagrams": len(arrived),
        "records": len(records),
        "instruments": len(published.books),
        "keeper_restarts": restarts,
        "complete_ms": {
            "p50": round(float(np.percentile(times, 50)), 3),
            "p99": round(float(np.percentile(times, 99)), 3),
            "max": round(float(times.max()), 3),
        },
    }


def _arrived(published: _Published, seed: int) -> list[Arrival]:
    # The network is whole again at the end. A book's snapshot is up to a hundred datagrams: over a
    # line that loses one in twenty a book in doubt might wait for minutes, with nothing wrong.
    end_ns = published.end_ns
    busy = network((sent for sent in published.sent if sent.time_ns < end_ns), FAULTS, seed)
    quiet = network((sent for sent in published.sent if sent.time_ns >= end_ns), {}, seed)
    return sorted(busy + quiet, key=lambda arrival: arrival.time_ns)


def _span_ns(source: MarketSource, events: int) -> int:
    first = last = 0
    for number, event in enumerate(source):
        first = first or event.recv_ns
        last = event.recv_ns
        if number + 1 == events:
            break
    return last - first


def _play(
    directory: Path,
    arrived: list[Arrival],
    attaches: int,
    seed: int,
    capacity_bytes: int,
    processes: int,
    seconds: float,
    stall_s: float,
) -> tuple[list[Attach], tuple[list[Any], dict[str, Any]], int]:
    replayer = Replayer(_config(capacity_bytes), directory)
    keepers = _Keepers(directory, seed)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    shares = [attaches // processes + (n < attaches % processes) for n in range(processes)]
    joiners = [
        context.Process(target=_join_all, args=(directory, share, seed * 1000 + n, stall_s, queue))
        for n, share in enumerate(shares)
    ]
    try:
        for joiner in joiners:
            joiner.start()
        for _ in joiners:
            assert queue.get(timeout=60) == "ready"
        oracle = _Oracle(directory)
        feed = threading.Thread(
            target=_feed, args=(replayer, arrived, oracle, keepers, joiners, seconds)
        )
        feed.start()
        results: list[Attach] = []
        for _ in joiners:
            found = queue.get(timeout=300)
            assert isinstance(found, list), found
            results += found
        feed.join()
        return results, oracle.finish(), keepers.restarts
    finally:
        for joiner in joiners:
            joiner.join(timeout=10)
            joiner.kill()
        keepers.stop()


def _config(capacity_bytes: int) -> FeedConfig:
    def line(name: str) -> dict[str, str]:
        return {"name": name, "address": "127.0.0.1:0"}

    return parse_feed(
        {
            "name": "latejoin",
            "incremental": {"lines": [line("A"), line("B")]},
            "snapshot": {"lines": [line("A")]},
            "ring": {"capacity_bytes": capacity_bytes},
        }
    )


class _Keepers:
    """An image keeper on a thread of its own; ended now and then, and followed by another."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.rng = directory, random.Random(seed)
        self.restarts = 0
        self._start()

    def _start(self) -> None:
        keeper = ImageKeeper(ImageConfig(objects=1024, capacity_bytes=1 << 24), self.directory)
        self.runner = AgentRunner(keeper, idle="sleep")
        self.runner.start()

    def maybe_restart(self) -> None:
        if self.rng.random() < 0.002:
            self.stop()
            self._start()
            self.restarts += 1

    def stop(self) -> None:
        self.runner.stop()
        self.runner.join()


class _Oracle:
    """Every record, from the first one on."""

    def __init__(self, directory: Path) -> None:
        self.reader = Reader(f"ring:{directory}", start="begin", name="oracle")
        self.records: list[Any] = []

    def read(self) -> None:
        # Called by the feed itself between two steps: this reader cannot be lapped.
        while self.reader.wait(0):
            self.records.append(next(self.reader))

    def finish(self) -> tuple[list[Any], dict[str, Any]]:
        books = Books()
        for record in self.records:
            assert record.kind is not Kind.LAPPED
            books.apply(record)
        assert not any(book.stale for book in books.values()), "a book is stale in the end"
        final = {
            f"{exchange}:{symbol}": {"bids": book.bids().tolist(), "asks": book.asks().tolist()}
            for (exchange, symbol), book in books.items()
        }
        return self.records, final


def _feed(
    replayer: Replayer,
    arrived: list[Arrival],
    oracle: _Oracle,
    keepers: _Keepers,
    joiners: list[Any],
    seconds: float,
) -> None:
    # At an even pace, and slower towards the end until every joiner is done.
    batch, channels, lines = _capture(arrived)
    began = time.monotonic()
    steps = range(0, len(arrived), _STEP)
    for number, start in enumerate(steps):
        replayer.replay(batch, channels, lines, start, min(start + _STEP, len(arrived)))
        oracle.read()
        keepers.maybe_restart()
        late = began + seconds * number / len(steps) - time.monotonic()
        if late > 0:
            time.sleep(late)
    while any(joiner.is_alive() for joiner in joiners):
        time.sleep(0.01)
    replayer.finish()
    oracle.read()
    keepers.stop()
    replayer.close()


def _capture(arrived: list[Arrival]) -> tuple[CaptureBatch, Any, Any]:
    headers = np.zeros(len(arrived), CAPTURED)
    sizes = np.array([len(arrival.datagram) for arrival in arrived])
    headers["timestamp_ns"] = [1 + arrival.time_ns for arrival in arrived]
    headers["size"] = sizes
    headers["offset"] = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    channels = np.array([arrival.channel for arrival in arrived], np.uint8)
    lines = np.array([arrival.line for arrival in arrived], np.uint8)
    return CaptureBatch(headers, b"".join(a.datagram for a in arrived)), channels, lines


def _join_all(directory: Path, attaches: int, seed: int, stall_s: float, queue: Any) -> None:
    try:
        rng = random.Random(seed)
        queue.put("ready")
        while not has_image(directory):
            time.sleep(0.001)
        time.sleep(0.2)
        found = []
        for _ in range(attaches):
            time.sleep(rng.uniform(0, 0.02))
            found.append(_join(directory, rng, stall_s))
        queue.put(found)
    except BaseException as failure:
        queue.put(f"{type(failure).__name__}: {failure}")
        raise


def _join(directory: Path, rng: random.Random, stall_s: float) -> Attach:
    began_ns = time.perf_counter_ns()
    with Reader(f"ring:{directory}", image=True, name="joiner") as reader:
        reader._take_for_recorded()
        books = Books(reader)
        applied: dict[int, int] = {}
        image_records = _take_image(reader, books, applied)
        complete_ns = time.perf_counter_ns() - began_ns
        expected = reader.index
        checks = [Check(expected, _digest(books))]
        records = laps = 0
        for _ in range(rng.randrange(4)):
            time.sleep(rng.uniform(0, stall_s))
            wanted, deadline = rng.randrange(1, 200), time.monotonic() + 0.05
            while wanted > 0 and time.monotonic() < deadline:
                try:
                    batch = books.poll(limit=wanted, timeout=0.01)
                except RingClosedError:
                    break
                if batch.lapped:
                    # It joins again from the image, of which this batch is the beginning.
                    laps += 1
                    assert reader.index == expected + batch.lapped, (
                        f"lapped at {expected}, missed {batch.lapped}, goes on at {reader.index}"
                    )
                    applied.clear()
                    _note_image(batch, applied)
                    image_records += len(batch) + _take_image(reader, books, applied)
                    expected = reader.index
                    checks.append(Check(expected, _digest(books)))
                    continue
                indices = batch.headers["index"]
                assert (indices == expected + np.arange(len(batch))).all(), (
                    f"expected records from {expected} on, found {indices}"
                )
                _check_chain(batch, applied)
                expected += len(batch)
                records += len(batch)
                wanted -= len(batch)
            checks.append(Check(expected, _digest(books)))
        return Attach(complete_ns, image_records, records, laps, checks)


def _take_image(reader: Reader, books: Books, applied: dict[int, int]) -> int:
    records = 0
    while reader.joining:
        batch = books.poll(timeout=0)
        assert not batch.lapped, "lapped while it read the image"
        records += len(batch)
        _note_image(batch, applied)
    return records


def _note_image(batch: Any, applied: dict[int, int]) -> None:
    for i, header in enumerate(batch.headers):
        assert header["flags"] & RecordFlag.SNAPSHOT
        if header["kind"] == Kind.RECOVERED:
            said = np.frombuffer(batch.payload(i), OBJECT_STATE)[0]
            applied[int(header["object"])] = int(said["applied"])
        elif header["kind"] == Kind.STALE:
            applied.pop(int(header["object"]), None)


def _check_chain(batch: Any, applied: dict[int, int]) -> None:
    # The next update of an object that the image called sound lies behind what it said.
    for header in batch.headers:
        kind, key = header["kind"], int(header["object"])
        if kind in (Kind.SESSION, Kind.RESTART, Kind.GAP):
            applied.clear()
        elif kind == Kind.BOOK and key in applied:
            if header["stream"] == Stream.INCREMENTAL:
                assert header["number"] > applied[key], (
                    f"object {key}: the image contained {applied[key]}, the next update "
                    f"is {header['number']}"
                )
                applied[key] = int(header["number"])
        elif kind in (Kind.STALE, Kind.RECOVERED):
            applied.pop(key, None)


def _digest(books: Books) -> Digest:
    """Return what each sound book holds."""
    return {
        f"{exchange}:{symbol}": zlib.crc32(book.asks().tobytes(), zlib.crc32(book.bids().tobytes()))
        for (exchange, symbol), book in books.items()
        if not book.stale
    }


def judge(results: list[Attach], records: list[Any]) -> dict[str, Any]:
    """Compare every check with the oracle's books just before the record of that index."""
    checks: dict[int, list[Digest]] = {}
    for attach in results:
        for check in attach.checks:
            checks.setdefault(check.before, []).append(check.digest)
    books = Books()
    compared = sound = in_doubt = 0
    for index, record in [*enumerate(records), (len(records), None)]:
        for digest in checks.get(index, ()):
            expected = _digest(books)
            assert digest == expected, (
                f"at record {index}: expected {sorted(expected.items())}, "
                f"found {sorted(digest.items())}"
            )
            compared += 1
            sound += len(expected)
            in_doubt += len(expected) < len(books)
        if record is not None:
            assert record.index == index
            books.apply(record)
    made = sum(len(attach.checks) for attach in results)
    assert compared == made, f"{made} checks, compared {compared}"
    return {
        "attaches": len(results),
        "checks": compared,
        "books_compared": sound,
        "checks_with_books_in_doubt": in_doubt,
        "image_records": sum(attach.image_records for attach in results),
        "records_followed": sum(attach.records for attach in results),
        "laps": sum(attach.laps for attach in results),
    }


def _market() -> Path | None:
    prefix = Path(os.environ.get("UDPFAST_SHARED", "../shared")).joinpath(*_MARKET)
    return prefix if prefix.with_name(f"{prefix.name}_l2.parquet").exists() else None


@program
@click.option("--attaches", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="The first one.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--events", type=int, default=150_000, show_default=True, help="Of the market.")
@click.option("--seconds", type=FiniteRange(0), default=20.0, help="Of the feed.")
@click.option("--capacity", type=int, default=1 << 24, show_default=True, help="Ring bytes.")
@click.option("--processes", type=int, default=2, show_default=True, help="That attach.")
@click.option(
    "--stall",
    type=FiniteRange(0),
    default=0.0,
    help="Seconds that a joiner reads nothing, at most, between its checks; with a small ring it is"
    " lapped, and joins again.",
)
@click.option("--simulate", is_flag=True, help="A simulated market.")
def main(
    attaches: int,
    seed: int,
    seeds: int,
    events: int,
    seconds: float,
    capacity: int,
    processes: int,
    stall: float,
    simulate: bool,
) -> bool:
    """Run seeds; return whether something was wrong."""
    for each in range(seed, seed + seeds):
        try:
            found = run(
                attaches,
                each,
                events=events,
                market=None if simulate else _market(),
                capacity_bytes=capacity,
                processes=processes,
                seconds=seconds,
                stall_s=stall,
            )
        except AssertionError as wrong:
            click.echo(f"seed {each}: {wrong}")
            return True
        click.echo(json.dumps({"seed": each, **found}))
    return False
