"""A reader with an image that is lapped joins again: state, then the ring, nothing lost unsaid."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases import nightly
from tests.client.instance import Instance, small_image
from tests.client.ring_market import CAPACITIES
from tests.client.test_late_books import ALWAYS, FeedMarket, sound, take
from udpfast import Books, Callbacks, FormatError, Kind, Latest, Reader, RecordFlag
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.core.layout import RECORD, SESSION

CAPACITY = 1 << 16


class Kept:
    """An instance with a book, and the keeper of its image."""

    def __init__(self, directory: Path) -> None:
        self.instance = Instance(directory, CAPACITY)
        session = np.zeros((), SESSION)
        session["new_id"] = 1
        self.instance.append(Kind.SESSION, session.tobytes(), session=1)
        self.instance.append(
            Kind.RECOVERED, bytes(24), object_type=3, object_id=7, stream=1, session=1
        )
        self.instance.book([(10.0, 1.0)], [(11.0, 1.0)], snapshot=True, stream=1)
        self.instance.ring.flush()
        self.keeper = ImageKeeper(small_image(), directory)
        self.keeper.on_start()
        self.keep()
        self.quantity = 1

    @property
    def address(self) -> str:
        return self.instance.address

    def keep(self) -> None:
        while self.keeper.work(ALWAYS):
            pass
        self.keeper.publish()

    def go_on(self, updates: int = 1, kept: bool = True) -> None:
        """Change the book; more than 400 times laps whoever does not read meanwhile."""
        for _ in range(updates):
            self.quantity += 1
            self.instance.book([(10.0, float(self.quantity))], [], follows=self.instance.number)
            if self.instance.number % 50 == 0:
                self.instance.ring.flush()
                if kept:
                    self.keep()
        self.instance.ring.flush()
        if kept:
            self.keep()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path / "feed")
    yield kept
    kept.keeper.on_stop()
    kept.instance.close()


def bid(books: Books) -> float | None:
    """Return the quantity of the book's bid; None if it is in doubt."""
    book = books["binance-usdm", "BTCUSDT"]
    return None if book.stale else float(book.best()[1])


def read_state(reader: Reader, books: Books) -> None:
    while reader.joining:
        books.poll(timeout=0)


def test_lapped_reader_gets_the_state_from_the_image_and_goes_on_behind_it(kept: Kept) -> None:
    with Reader(kept.address, image=True) as reader:
        books = Books(reader)
        read_state(reader, books)
        before = reader.index
        book = books["binance-usdm", "BTCUSDT"]
        kept.go_on(1_000)
        lapped = next(reader)
        books.apply(lapped)
        assert lapped.kind is Kind.LAPPED
        assert lapped.index == before
        assert lapped.data["missed"] == reader.lapped == reader.index - before
        assert reader.joining
        assert bid(books) is None
        while reader.joining:
            record = next(reader)
            books.apply(record)
            assert record.flags & RecordFlag.SNAPSHOT
            assert record.index < reader.index
        assert bid(books) == kept.quantity
        assert books["binance-usdm", "BTCUSDT"] is book
        kept.go_on(2)
        assert books.poll(timeout=0).headers["index"].tolist() == [
            reader.index - 2,
            reader.index - 1,
        ]
        assert bid(books) == kept.quantity
        assert reader.lapped == lapped.data["missed"]


def test_batch_that_begins_the_state_says_how_many_were_missed(kept: Kept) -> None:
    with Reader(kept.address, image=True) as reader:
        books = Books(reader)
        read_state(reader, books)
        for lap in range(1, 4):
            before = reader.index
            kept.go_on(1_000)
            batch = books.poll(timeout=0)
            assert batch.lapped == reader.index - before
            assert (batch.headers["flags"] & RecordFlag.SNAPSHOT).all()
            read_state(reader, books)
            assert bid(books) == kept.quantity, lap


def test_reader_waits_for_a_keeper_that_is_behind(kept: Kept) -> None:
    with Reader(kept.address, image=True) as reader:
        books = Books(reader)
        read_state(reader, books)
        before = reader.index
        kept.go_on(1_000, kept=False)
        assert len(books.poll(timeout=0)) == 0  # it never blocks
        assert reader.joining
        assert reader.index == before
        kept.go_on(500)  # the keeper is lapped, too; its book is in doubt
        assert books.poll(timeout=0).lapped == reader.index - before
        read_state(reader, books)
        assert bid(books) is None


def test_reader_goes_on_without_an_image_that_does_not_come(
    kept: Kept,
) -> None:
    with Reader(kept.address, image=True) as reader:
        books = Books(reader)
        read_state(reader, books)
        before = reader.index
        kept.go_on(1_000, kept=False)
        with pytest.warns(RuntimeWarning, match="has already overwritten the records"):
            batch = books.poll(timeout=10)
        assert batch.lapped == reader.index - len(batch) - before
        assert reader.lapped == batch.lapped
        assert not (batch.headers["flags"] & RecordFlag.SNAPSHOT).any()
        assert bid(books) is None
        kept.go_on(1_000)  # the next lap is another occasion
        kept.keep()
        assert books.poll(timeout=0).lapped


def test_reader_that_was_lapped_in_a_file_that_was_replaced_waits_for_no_image(kept: Kept) -> None:
    # The next writer's RESTART, which empties the books, comes behind what this file has.
    with Reader(kept.address, image=True) as reader:
        books = Books(reader)
        read_state(reader, books)
        kept.go_on(1_000)
        kept.keeper.on_stop()
        kept.instance.names_region.close()
        kept.instance.ring.region.close()
        kept.instance = Instance(kept.instance.directory, 2 * CAPACITY)
        kept.instance.ring.announce_restart(now_ns=1)
        kept.instance.ring.flush()
        kept.keeper = ImageKeeper(small_image(), kept.instance.directory)
        kept.keeper.on_start()
        kept.keep()
        batches = [books.poll(timeout=0) for _ in range(2)]
        assert sum(batch.lapped > 0 for batch in batches) == 1
        assert not reader.joining
        assert books.poll(timeout=10).headers["kind"][0] == Kind.RESTART


def test_reader_without_an_image_is_lapped_as_ever(kept: Kept) -> None:
    with Reader(kept.address) as reader:
        books = Books(reader)
        kept.go_on(1_000)
        batch = books.poll(timeout=0)
        assert batch.lapped
        assert not (batch.headers["flags"] & RecordFlag.SNAPSHOT).any()


def test_callbacks_and_latest_join_again(kept: Kept) -> None:
    class Strategy:
        def __init__(self) -> None:
            self.said: list[Kind] = []

        def on_other(self, record: object) -> None:
            self.said.append(record.kind)  # type: ignore[attr-defined]

    with Reader(kept.address, image=True) as called, Reader(kept.address, image=True) as other:
        strategy = Strategy()
        callbacks = Callbacks(called, strategy, books=Books())
        latest = Latest(other)
        while called.joining:
            callbacks.poll(timeout=0)
        while other.joining:
            latest.poll(timeout=0)
        del strategy.said[:]
        kept.go_on(1_000)
        callbacks.poll(timeout=0)
        found = latest.poll(timeout=0)
        while called.joining:
            callbacks.poll(timeout=0)
        while other.joining:
            latest.poll(timeout=0)
        assert strategy.said[0] is found[0].kind is Kind.LAPPED
        assert callbacks.books is not None
        assert bid(callbacks.books) == bid(latest.books) == kept.quantity


def test_group_of_feeds_joins_again_where_one_was_lapped(tmp_path: Path) -> None:
    from udpfast.client.merged_source import Member, MergedSource
    from udpfast.client.source import open_source

    feeds = [Kept(tmp_path / name) for name in "ab"]
    members = [
        Member(
            open_source(
                feed.address, start=None, batch=4096, buffer_bytes=None, timeout=0.0, name="",
                image=True,
            ),
            feed.address, place,
        )
        for place, feed in enumerate(feeds, 1)
    ]  # fmt: skip
    with Reader(MergedSource(members, 4096), name="both") as reader:
        books = Books(reader)
        read_state(reader, books)
        feeds[1].go_on(1_000)
        feeds[0].go_on(1)
        while len(books.poll(timeout=0)):
            pass
        for feed in feeds:
            assert bid(books.at(feed.address)) == feed.quantity
    for feed in feeds:
        feed.keeper.on_stop()
        feed.instance.close()


class Watched(FeedMarket):
    """A market with its image, and books of one who misses no record."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, seed)
        self.keeper = ImageKeeper(small_image(), self.instance.directory)
        self.keeper.on_start()
        self.always, self.books = Reader(self.address, start="begin"), Books()
        self.unseen_bytes = 0

    def look(self) -> None:
        self.unseen_bytes = 0
        self.instance.ring.flush()
        while self.keeper.work(ALWAYS):
            pass
        self.keeper.publish()
        take(self.always, self.books)
        assert not self.always.lapped

    def _append(self, kind: Kind, payload: bytes, flags: int = 0, **fields: Any) -> None:
        super()._append(kind, payload, flags, **fields)
        self.unseen_bytes += RECORD.itemsize + len(payload)
        # Now and then, and before the smallest ring would lap those who miss nothing.
        if self.rng.random() < 0.02 or self.unseen_bytes > min(CAPACITIES) // 4:
            self.look()

    def close(self) -> None:
        self.always.close()
        self.keeper.on_stop()
        super().close()


def follow(reader: Reader, books: Books) -> int:
    """Read all there is; return how often it was lapped. No record comes twice or is left out."""
    laps, expected = 0, reader.index
    while True:
        joining = reader.joining
        batch = reader.poll(timeout=0)
        if not len(batch):
            return laps
        with contextlib.suppress(FormatError):
            books.apply_batch(batch)
        if batch.lapped:
            laps, joining = laps + 1, True
            assert reader.index == expected + batch.lapped
        if joining:
            assert (batch.headers["flags"] & RecordFlag.SNAPSHOT).all()
        else:
            assert (batch.headers["index"] == expected + np.arange(len(batch))).all()
        expected = reader.index


@pytest.mark.parametrize("first", [0, *nightly(10, 20)])
def test_reader_that_is_lapped_again_and_again_has_the_books_of_one_who_is_not(
    tmp_path: Path, first: int
) -> None:
    laps = believed = 0
    for seed in range(first, first + 10):
        rng = random.Random(seed)
        market = Watched(tmp_path / str(seed), seed)
        market.look()
        reader = Reader(market.address, image=True)
        books = Books()
        for _ in range(40):
            market.go_on(restarts=False)
            market.look()
            if rng.random() < 0.3:
                laps += follow(reader, books)
                known = sound(market.books)
                assert sound(books) == known, f"seed {seed}"
                believed += len(known)
        reader.close()
        market.close()
    assert laps > 20
    assert believed > 20
