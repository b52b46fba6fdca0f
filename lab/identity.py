"""Identity: the same answer about an object, a name and a number on every path. From seeds.

    udpfast lab identity --seeds 100 --seed 1

A publisher here has objects that share a symbol, name none, or names that are too long, take
another symbol in mid-session, begin with last_seqno 0 at any distance from a wrap, carry messages
with and without snapshots, and levels of any number: NaN, infinite, zero, negative. Its datagrams
go with losses through the whole engine; the records are then read by every way there is: one by
one, in batches, by `Latest`, through the image at several moments, and out of an export. Checked:

- a book that is not stale equals the dictionaries that the publisher keeps of its object, and no
  other object goes by its name;
- all ways agree about every book, and about whether it is stale.

A seed that fails prints the one command that repeats it.
"""

import math
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lab.program import memory
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.replayer import Replayer
from udpfast.client.books import Books
from udpfast.client.conflate import Latest
from udpfast.client.reader import Reader
from udpfast.config import ImageConfig, parse_feed
from udpfast.core.layout import Channel
from udpfast.market.book import OrderBook
from udpfast.net.pcap import CAPTURED, CaptureBatch
from udpfast.payload.roq.encode import encode_book, encode_top_of_book

from .follower import Wrong
from .frames import datagrams, heartbeat
from .program import by_seeds

__all__ = ["main", "run"]

_WRAP = 1 << 32
_TYPE = 3
_SESSION_ID = 7
_PRICES = (1.0, 2.0, 3.0, -1.0, 0.0, -0.0, 1e308, math.inf, -math.inf, math.nan)
_QUANTITIES = (1.0, 2.5, -3.0, 0.0, -0.0, math.inf, math.nan)
_LONG = "N" * 125

Name = tuple[str | None, str | None]
Levels = list[tuple[float, float]]
Sides = tuple[dict[float, float], dict[float, float]]


@dataclass
class _Instrument:
    """An object as its publisher has it."""

    object_id: int
    name: Name
    sides: Sides = field(default_factory=lambda: ({}, {}))
    last_seqno: int = 0
    #: NaN came since its last snapshot without one: nobody can hold what it holds.
    refused: bool = False
    begun: bool = False

    def apply(self, sides: tuple[Levels, Levels], snapshot: bool) -> None:
        """Take an update in, level by level."""
        if snapshot:
            self.sides = ({}, {})
            self.refused = False
        for known, levels in zip(self.sides, sides, strict=True):
            for price, quantity in levels:
                if math.isnan(price) or math.isnan(quantity):
                    self.refused = True
                elif quantity == 0:
                    known.pop(price, None)
                else:
                    known[price] = quantity


def _content(book: OrderBook) -> tuple[list[list[float]], list[list[float]]]:
    return book.bids().tolist(), book.asks().tolist()


class _Market:
    """A seed's publisher, and the datagrams that are left of what it sent."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        start = rng.choice((1, 1, 1_000, _WRAP - 20, _WRAP - 200, _WRAP - (1 << 24) + 50))
        self.seqno = start
        self.snapshot_seqno = 1
        names: list[Name] = [
            ("ex", "A"),
            ("ex", "B"),
            ("ex", "A"),  # as the first one
            ("ex", ""),
            ("", "A"),
            ("ex", _LONG + "0"),
            ("ex", _LONG + "1"),
            ("ex", "C"),
            (None, "C"),
            ("ex", "N" * 119),
        ]
        rng.shuffle(names)
        self.instruments = [
            _Instrument(number, name) for number, name in enumerate(names[: rng.choice((2, 4, 10))])
        ]
        self.odd = rng.choice((0.0, 0.02, 0.3))  # numbers that are odd
        self.sent: list[tuple[int, bytes]] = []  # channel, datagram

    def levels(self) -> Levels:
        """Return some levels."""
        rng = self.rng

        def number(values: tuple[float, ...]) -> float:
            return rng.choice(values) if rng.random() < self.odd else float(rng.randrange(1, 9))

        def quantity() -> float:
            return 0.0 if rng.random() < 0.2 else number(_QUANTITIES)

        return [(number(_PRICES), quantity()) for _ in range(rng.choice((0, 1, 2, 6)))]

    def turn(self) -> None:
        """Publish something."""
        rng = self.rng
        each = rng.choice(self.instruments)
        chance = rng.random()
        if chance < 0.02:
            each.name = ("ex", rng.choice("ABCD"))
            self.book(each, snapshot=True)
        elif chance < 0.25 and each.begun:
            self.top(each)
        elif chance < 0.5:
            self.snapshot(rng.choice(self.instruments))
        else:
            self.book(each, snapshot=rng.random() < 0.05)

    def book(self, each: _Instrument, snapshot: bool) -> None:
        """Publish an update of a book, or all of it, incrementally."""
        sides = self.levels(), self.levels()
        each.apply(sides, snapshot)
        each.begun = True
        payload = encode_book(
            *each.name, bids=sides[0], asks=sides[1], update_type=1 if snapshot else 2
        )
        self._send(each, payload, snapshot)

    def top(self, each: _Instrument) -> None:
        """Publish what has no snapshots, of an object that has."""
        self._send(each, encode_top_of_book(*each.name, 1.0, 2.0, 3.0, 4.0), False)

    def snapshot(self, each: _Instrument) -> None:
        """Publish a book on the snapshot channel; one that was never updated is empty."""
        bids, asks = ([*side.items()] for side in each.sides)
        if each.refused:  # what the publisher has cannot be said without it
            bids.append((math.nan, 1.0))
        payload = encode_book(*each.name, bids=bids, asks=asks, update_type=1)
        seqno, self.snapshot_seqno = self.snapshot_seqno, self.snapshot_seqno + 1
        self._hand_on(Channel.SNAPSHOT, each, payload, seqno, True)

    def pause(self) -> None:
        """Publish heartbeats, a millisecond apart, until a hole before them is said."""
        for _ in range(10):
            data = heartbeat(session_id=_SESSION_ID, seqno=self.seqno % _WRAP)
            self.sent.append((int(Channel.INCREMENTAL), data))
            self.seqno += 1

    def _send(self, each: _Instrument, payload: bytearray, snapshot: bool) -> None:
        seqno = self.seqno % _WRAP
        self.seqno += 1
        self._hand_on(Channel.INCREMENTAL, each, payload, seqno, snapshot)
        each.last_seqno = seqno

    def _hand_on(
        self, channel: Channel, each: _Instrument, payload: bytearray, seqno: int, snapshot: bool
    ) -> None:
        self.sent += [
            (int(channel), data)
            for data in datagrams(
                bytes(payload),
                session_id=_SESSION_ID,
                seqno=seqno,
                last_seqno=each.last_seqno,
                object_type=_TYPE,
                object_id=each.object_id,
                snapshot=snapshot,
            )
        ]

    def check(self, books: Books) -> None:
        """Check that what is not stale is true, where nothing is on its way."""
        for name, book in books.items():
            owners = [each for each in self.instruments if each.name == name]
            if book.stale:
                continue
            if len(owners) != 1:
                raise Wrong(f"{name} is sound, and {len(owners)} objects go by it")
            each = owners[0]
            sides = [
                sorted(([price, quantity] for price, quantity in side.items()), reverse=reverse)
                for side, reverse in zip(each.sides, (True, False), strict=True)
            ]
            if list(_content(book)) != sides or each.refused:
                raise Wrong(f"{name} is {_content(book)}, expected {sides}, {each}")


class _Readers:
    """Every way to read the ring of one instance."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"ring:{directory}"
        self.one_by_one = Reader(self.address, start="begin")
        self.in_batches = Reader(self.address, start="begin")
        self.latest = Latest(Reader(self.address, start="begin"))
        self.keeper = ImageKeeper(
            ImageConfig(enabled=True, objects=64, capacity_bytes=1 << 20), directory
        )
        self.keeper.on_start()
        self.by_record, self.by_batch = Books(), Books(self.in_batches)

    def settle(self) -> None:
        """Read all that is there."""
        while self.one_by_one.wait(0):
            self.by_record.apply(next(self.one_by_one))
        while len(self.by_batch.poll(timeout=0)):
            pass
        self.latest.poll(timeout=0)

    def compare(self) -> None:
        """Check that all ways agree."""
        while self.keeper.work(1 << 62):
            pass
        self.keeper.publish()
        with Reader(self.address, image=True) as reader:
            joined = Books(reader)
            while reader.joining or len(joined.poll(timeout=0)):
                joined.poll(timeout=0)
        others = {"batches": self.by_batch, "latest": self.latest.books, "image": joined}
        for way, books in others.items():
            for name, book in self.by_record.items():
                other = books.get(name)
                if other is None and way == "image" and book.stale:
                    continue  # of a name that no object goes by any more
                if other is None or other.stale != book.stale:
                    raise Wrong(f"{way}: {name} is {other}, stale in records {book.stale}")
                if not book.stale and _content(other) != _content(book):
                    raise Wrong(f"{way}: {name} is {_content(other)}, records {_content(book)}")
            if books.contested != self.by_record.contested:
                raise Wrong(f"{way}: {books.contested} names, {self.by_record.contested} contested")

    def close(self) -> None:
        """Let go of everything."""
        for reader in (self.one_by_one, self.in_batches, self.latest.reader):
            reader.close()
        self.keeper.on_stop()


def run(seed: int) -> dict[str, int]:
    """Run one seed; raise `Wrong` if two ways differ, or one says what is not true."""
    root = Path(tempfile.mkdtemp(prefix="udpfast-identity-", dir=memory()))
    try:
        return _run(random.Random(seed), root / "feed")
    finally:
        shutil.rmtree(root)


def _run(rng: random.Random, directory: Path) -> dict[str, int]:
    directory.mkdir(mode=0o700)
    lines = [{"lines": [{"name": "A", "address": f"127.0.0.1:{port}"}]} for port in (9001, 9002)]
    channels = dict(zip(("incremental", "snapshot"), lines, strict=True))
    replayer = Replayer(
        parse_feed({"name": "identity", **channels, "ring": {"names": 64}}), directory
    )
    readers = _Readers(directory)
    market = _Market(rng)
    loss = rng.choice((0.0, 0.03, 0.2))
    now_ns, used = 1_000_000, 0
    try:
        for turn in range(60):
            for _ in range(rng.choice((1, 5, 20))):
                market.turn()
            quiet = turn % 6 == 5
            if quiet:
                # Long enough for what was lost to be said, and everything to be recovered.
                market.pause()
                for _ in range(3):
                    for each in market.instruments:
                        market.snapshot(each)
                for each in market.instruments:
                    if each.begun:
                        market.top(each)
                        market.snapshot(each)
            sent, market.sent = market.sent, []
            kept = [one for one in sent if quiet or rng.random() >= loss]
            now_ns = _replay(replayer, kept, now_ns)
            used += len(kept)
            readers.settle()
            if quiet:
                market.check(readers.by_record)
                readers.compare()
        replayer.finish()
        readers.settle()
        found = replayer.counters()["feed"]
        return {"datagrams": used, "records": found["records"], "stale": found["stale"]}
    finally:
        readers.close()
        replayer.close()


def _replay(replayer: Replayer, sent: list[tuple[int, bytes]], now_ns: int) -> int:
    headers = np.zeros(len(sent), CAPTURED)
    offset = 0
    for header, (_, data) in zip(headers, sent, strict=True):
        now_ns += 1_000_000
        header["timestamp_ns"], header["offset"], header["size"] = now_ns, offset, len(data)
        offset += len(data)
    batch = CaptureBatch(headers, b"".join(data for _, data in sent))
    channels = np.array([channel for channel, _ in sent], np.uint8)
    replayer.replay(batch, channels, np.zeros(len(sent), np.uint8), 0, len(sent))
    return now_ns


main = by_seeds(__name__, run, 100)
