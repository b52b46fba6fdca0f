"""Books: which records change them, and when they are stale."""

import contextlib
import itertools
import math
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.instance import Instance
from tests.waiting import PATIENCE_S
from udpfast import Books, Kind, OrderBook, Reader, RecordFlag
from udpfast.archive.feed_settings import write_feed
from udpfast.client import missing_book
from udpfast.config import parse_feed
from udpfast.core.layout import (
    CONNECTION,
    GAP,
    OBJECT_STATE,
    SESSION,
    ConnectionScope,
    ConnectionStatus,
    GapReason,
)
from udpfast.errors import FormatError, similar
from udpfast.market.updates import BOOK, ORDER, ORDERS

BTC = ("binance-usdm", "BTCUSDT")
ETH = ("binance-usdm", "ETHUSDT")
SNAPSHOT_CHANNEL = 1


class Feed:
    """Appends records as a subscriber does, and applies them to books, one by one or in batches."""

    def __init__(self, instance: Instance, by_batch: bool) -> None:
        self.instance = instance
        self.by_batch = by_batch
        self.reader = Reader(instance.address)
        self.books = Books(self.reader)

    def settle(self) -> None:
        """Apply all appended records."""
        while len(batch := self.reader.poll(timeout=0)):
            self.books.apply_batch(batch)

    def apply(self) -> None:
        """Apply the record that was appended last."""
        if self.by_batch:
            self.books.apply_batch(self.reader.poll(1))
        else:
            self.books.apply(next(self.reader))

    def book(self, price: float, **fields: object) -> None:
        self.instance.book([(price, 1.0)], [(price + 1, 1.0)], **fields)  # type: ignore[arg-type]
        self.apply()

    def snapshot(self, price: float, **fields: object) -> None:
        self.book(price, snapshot=True, **fields)

    def session(self, session_id: int = 1) -> None:
        payload = np.zeros((), SESSION)
        payload["new_id"] = session_id
        self.instance.append(Kind.SESSION, payload.tobytes(), session=session_id)
        self.apply()

    def gap(self, stream: int = 0, reason: int = 0) -> None:
        payload = np.zeros((), GAP)
        payload["reason"] = reason
        self.instance.append(Kind.GAP, payload.tobytes(), session=1, stream=stream)
        self.apply()

    def state(
        self, kind: Kind, follows: int, object_id: int = 7, object_type: int = 3, session: int = 1
    ) -> None:
        """Append STALE or RECOVERED, caused by a message that follows the one with that number."""
        payload = np.zeros((), OBJECT_STATE)
        payload["object"] = object_type << 16 | object_id
        self.instance.append(
            kind, payload.tobytes(), session=session, object_type=object_type,
            object_id=object_id, follows=follows,
        )  # fmt: skip
        self.apply()

    def begin(self, number: int = 10) -> OrderBook:
        """Append a session with one sound book."""
        self.session()
        self.state(Kind.RECOVERED, follows=0)
        self.snapshot(100.0, number=number)
        return self.books[BTC]


@pytest.fixture(params=[False, True], ids=["records", "batches"])
def feed(instance: Instance, request: pytest.FixtureRequest) -> Feed:
    return Feed(instance, request.param)


def bid(book: OrderBook) -> float:
    return book.best()[0]


def lap(feed: Feed) -> None:
    """Overwrite records that the reader has not read, and let it report them."""
    for _ in range(12):
        feed.instance.append(Kind.MESSAGE, bytes(100_000), session=1)
    if feed.by_batch:
        batch = feed.reader.poll(1)
        assert batch.lapped > 0
        feed.books.apply_batch(batch)
    else:
        while feed.books.apply(record := next(feed.reader)) or record.kind is not Kind.LAPPED:
            pass
    feed.settle()


def test_book_after_recovered_and_snapshot_is_sound(feed: Feed) -> None:
    book = feed.begin()
    assert not book.stale
    assert book.best() == (100.0, 1.0, 101.0, 1.0)
    feed.book(100.5, number=11, follows=10)
    assert bid(book) == 100.5
    assert len(book.bids()) == 2


def test_another_writer_behind_a_lost_way_is_sound_only_once_that_way_is_back(feed: Feed) -> None:
    feed.begin()
    said = np.zeros((), CONNECTION)
    said["scope"] = ConnectionScope.FANOUT
    for status in (ConnectionStatus.DISCONNECTED, ConnectionStatus.READY):
        said["status"] = status
        feed.instance.append(Kind.CONNECTION, said.tobytes())
        feed.apply()
        if status == ConnectionStatus.DISCONNECTED:
            feed.instance.append(Kind.RESTART)
            feed.apply()
            book = feed.begin()
            assert (book.stale, bid(book)) == (True, 100.0)
    assert (book.stale, bid(book)) == (False, 100.0)


def test_books_refuse_the_records_of_another_address(feed: Feed, tmp_path: Path) -> None:
    book = feed.begin()
    other = Feed(Instance(tmp_path / "other"), feed.by_batch)
    other.books = feed.books
    with pytest.raises(ValueError, match=r"these books are of ring:.*: ring:.*other needs Books"):
        other.begin()
    assert not book.stale
    other.instance.close()


def test_books_begin_anew_with_another_reader_of_their_address(feed: Feed) -> None:
    book = feed.begin()
    feed.instance.book([(101.0, 1.0)], [(102.0, 1.0)], follows=10)  # nobody reads it
    feed.instance.ring.flush()
    feed.reader.close()
    feed.reader = Reader(feed.instance.address)
    feed.book(102.0, follows=11)
    assert book.stale
    feed.snapshot(103.0)
    assert not book.stale


def test_books_are_found_by_exchange_and_symbol(feed: Feed) -> None:
    book = feed.begin()
    feed.state(Kind.RECOVERED, follows=0, object_id=8)
    feed.snapshot(5.0, symbol="ETHUSDT", object_id=8)
    assert list(feed.books) == [BTC, ETH]
    assert feed.books[BTC] is book
    assert bid(feed.books[ETH]) == 5.0
    assert BTC in feed.books
    assert feed.books.get(("x", "y")) is None
    assert len(feed.books) == len(feed.books.items()) == 2
    with pytest.raises(KeyError):
        feed.books["x", "y"]
    assert repr(feed.books) == "<Books: 2, 0 stale>"


def test_gap_makes_all_stale_and_a_continued_chain_recovers(feed: Feed) -> None:
    book = feed.begin()
    feed.gap()
    assert book.stale
    feed.state(Kind.RECOVERED, follows=10)
    assert not book.stale
    feed.book(100.5, number=15, follows=10)
    assert not book.stale
    assert bid(book) == 100.5


def test_gap_of_the_snapshot_channel_says_nothing_about_books(feed: Feed) -> None:
    book = feed.begin()
    feed.gap(stream=SNAPSHOT_CHANNEL)
    assert not book.stale


def test_snapshots_numbered_anew_make_all_stale(feed: Feed) -> None:
    book = feed.begin()
    feed.gap(stream=SNAPSHOT_CHANNEL, reason=GapReason.ANEW)
    assert book.stale
    feed.state(Kind.RECOVERED, follows=14)
    feed.snapshot(200.0, number=3, follows=14, stream=SNAPSHOT_CHANNEL)
    assert not book.stale
    assert bid(book) == 200.0


def test_recovered_by_a_newer_snapshot_waits_for_it(feed: Feed) -> None:
    book = feed.begin()
    feed.gap()
    feed.state(Kind.RECOVERED, follows=14)
    assert book.stale  # the book has the state of number 10
    feed.snapshot(200.0, number=3, follows=14, stream=SNAPSHOT_CHANNEL)
    assert not book.stale
    assert bid(book) == 200.0
    feed.gap()
    feed.state(Kind.RECOVERED, follows=14)
    assert not book.stale  # the snapshot includes what RECOVERED refers to


def test_stale_then_recovered_waits_for_its_snapshot(feed: Feed) -> None:
    book = feed.begin()
    feed.state(Kind.STALE, follows=12)
    assert book.stale
    assert bid(book) == 100.0
    feed.state(Kind.RECOVERED, follows=14)
    assert book.stale
    feed.snapshot(200.0, number=3, follows=14, stream=SNAPSHOT_CHANNEL)
    assert not book.stale
    feed.book(201.0, number=16, follows=14, flags=RecordFlag.RELEASED)
    assert bid(book) == 201.0


def test_snapshot_that_the_feed_does_not_believe_leaves_the_book_stale(feed: Feed) -> None:
    book = feed.begin()
    feed.gap()
    feed.snapshot(150.0, number=3, follows=14, stream=SNAPSHOT_CHANNEL)
    assert book.stale
    assert bid(book) == 150.0
    feed.state(Kind.RECOVERED, follows=14)
    assert not book.stale


def test_first_snapshot_without_recovered_is_in_doubt(feed: Feed) -> None:
    feed.session()
    feed.snapshot(100.0, stream=SNAPSHOT_CHANNEL)
    assert feed.books[BTC].stale


def test_first_update_of_a_session_seen_from_its_start_begins_a_book(feed: Feed) -> None:
    feed.session()
    feed.state(Kind.RECOVERED, follows=0)
    feed.book(100.0, number=3, follows=0)
    assert not feed.books[BTC].stale


def test_state_of_another_object_of_the_symbol_changes_nothing(feed: Feed) -> None:
    book = feed.begin()
    feed.state(Kind.STALE, follows=12, object_type=4)
    assert not book.stale
    feed.gap()
    feed.state(Kind.RECOVERED, follows=10, object_type=4)
    assert book.stale


def test_session_empties_all_books_and_numbers_objects_anew(feed: Feed) -> None:
    btc = feed.begin()
    feed.session(2)
    assert btc.stale
    assert btc.levels == (0, 0)
    feed.state(Kind.RECOVERED, follows=0)
    feed.snapshot(5.0, symbol="ETHUSDT", session=2)  # with the former id of BTCUSDT
    assert btc.stale
    assert not feed.books[ETH].stale
    feed.state(Kind.RECOVERED, follows=0, object_id=8)
    feed.snapshot(300.0, session=2, object_id=8)
    assert feed.books[BTC] is btc
    assert bid(btc) == 300.0
    assert not btc.stale


def test_session_noticed_by_its_id_alone_empties_all_books(feed: Feed) -> None:
    btc = feed.begin()
    feed.snapshot(5.0, symbol="ETHUSDT", session=2, object_id=8)
    assert btc.stale
    assert btc.levels == (0, 0)


def test_restart_of_the_writer_empties_all_books(feed: Feed) -> None:
    book = feed.begin()
    feed.instance.ring.announce_restart(1)
    feed.settle()
    assert book.stale
    assert book.levels == (0, 0)


def test_reader_that_joins_late_knows_a_book_from_its_snapshot_on(feed: Feed) -> None:
    feed.book(100.0, number=50, follows=49)
    book = feed.books[BTC]
    assert book.stale
    assert math.isnan(bid(book))
    feed.snapshot(101.0, follows=50)
    assert not book.stale


def test_late_reader_does_not_take_a_first_update_for_a_beginning(feed: Feed) -> None:
    feed.book(100.0, number=50, follows=0)
    assert feed.books[BTC].stale


def test_lapped_reader_is_stale_until_each_snapshot(feed: Feed) -> None:
    book = feed.begin()
    lap(feed)
    assert book.stale
    feed.state(Kind.RECOVERED, follows=10)
    assert book.stale
    feed.book(102.0, number=31_000, follows=10)
    assert book.stale
    feed.snapshot(103.0, number=31_001)
    assert not book.stale


@pytest.mark.parametrize("joined", ["lapped", "late"])
def test_snapshot_is_not_believed_while_the_feed_may_be_in_doubt(feed: Feed, joined: str) -> None:
    # A gap was among the records that this reader missed: the feed passes on a snapshot of the
    # object, and still does not know whether a lost update is newer.
    if joined == "lapped":
        feed.begin()
        lap(feed)
    feed.snapshot(150.0, number=3, follows=14, stream=SNAPSHOT_CHANNEL)
    book = feed.books[BTC]
    assert bid(book) == 150.0
    assert book.stale
    feed.book(149.0, number=15, follows=14, flags=RecordFlag.RELEASED)  # collected before
    feed.book(1.0, number=16, flags=RecordFlag.UNGATED, symbol="ETHUSDT")
    assert book.stale
    feed.state(Kind.RECOVERED, follows=15)
    assert not book.stale
    assert len(book.bids()) == 2


@pytest.mark.parametrize("kind", [Kind.BOOK, Kind.MESSAGE])
def test_late_reader_believes_a_snapshot_once_the_feed_passes_an_update(
    feed: Feed, kind: Kind
) -> None:
    feed.snapshot(150.0, number=3, follows=14, stream=SNAPSHOT_CHANNEL)
    assert feed.books[BTC].stale
    if kind is Kind.BOOK:
        feed.book(149.0, number=15, follows=14)
    else:
        feed.instance.append(kind, b"x", object_type=3, object_id=7, session=1, follows=14)
        feed.apply()
    assert not feed.books[BTC].stale


def test_ungated_books_are_known_by_snapshots_alone(feed: Feed) -> None:
    feed.session()
    feed.snapshot(100.0, flags=RecordFlag.UNGATED)
    book = feed.books[BTC]
    assert not book.stale
    feed.gap()
    feed.book(101.0, flags=RecordFlag.UNGATED)
    assert book.stale
    feed.snapshot(102.0, flags=RecordFlag.UNGATED)
    assert not book.stale


def test_ungated_books_of_one_object_are_told_apart_by_symbol(feed: Feed) -> None:
    frame = {"object_type": 0, "object_id": 0, "flags": RecordFlag.UNGATED}
    feed.session()
    feed.snapshot(100.0, symbol="BTCUSDT", **frame)
    feed.snapshot(200.0, symbol="ETHUSDT", **frame)
    feed.book(101.0, symbol="BTCUSDT", **frame)
    feed.book(201.0, symbol="ETHUSDT", **frame)
    assert {key: (bid(book), book.stale) for key, book in feed.books.items()} == {
        BTC: (101.0, False),
        ETH: (201.0, False),
    }
    feed.gap()
    feed.snapshot(102.0, symbol="BTCUSDT", **frame)
    assert [book.stale for book in feed.books.values()] == [False, True]


def test_object_that_names_another_symbol_leaves_its_book_stale(feed: Feed) -> None:
    book = feed.begin(number=10)
    feed.snapshot(200.0, symbol="ETHUSDT", number=11, follows=10)
    assert book.stale
    assert not feed.books[ETH].stale


@pytest.mark.parametrize("symbol", ["ETHUSDT", ""])
def test_book_that_its_object_left_is_empty_and_has_nothing_when_the_object_returns(
    feed: Feed, symbol: str
) -> None:
    book = feed.begin(number=10)
    update = feed.instance.update(BOOK, BTC[0], symbol or "x", update_type=2)
    update["symbol_id"] = update["symbol_id"] if symbol else 0
    frame = {"session": 1, "object_type": 3, "object_id": 7, "follows": 10}
    feed.instance.append(Kind.BOOK, update.tobytes(), number=11, **frame)
    feed.apply()
    assert (book.stale, len(book.bids()), len(book.asks())) == (True, 0, 0)
    feed.book(101.0, number=12, follows=11)
    assert (book.stale, len(book.bids())) == (True, 0)
    feed.snapshot(102.0, number=13, follows=12)
    assert (book.stale, bid(book)) == (False, 102.0)


def test_object_that_named_a_symbol_nobody_knows_has_its_book_back_by_a_snapshot(
    feed: Feed,
) -> None:
    book = feed.begin(number=10)
    unknown = feed.instance.update(BOOK, BTC[0], BTC[1], update_type=1, symbol_id=63)
    feed.instance.append(
        Kind.BOOK, unknown.tobytes(), number=11, follows=10,
        session=1, object_type=3, object_id=7,
    )  # fmt: skip
    feed.apply()
    assert book.stale
    feed.book(101.0, number=12, follows=11)
    assert book.stale
    feed.snapshot(102.0, number=13, follows=12)
    assert not book.stale


def test_update_without_symbol_is_counted(feed: Feed) -> None:
    feed.instance.append(Kind.BOOK, bytes(96), session=1)
    feed.apply()
    assert feed.books.unnamed == 1
    assert len(feed.books) == 0


def test_book_payload_shorter_than_it_says_is_refused(feed: Feed) -> None:
    feed.instance.append(Kind.BOOK, b"short", session=1)
    with pytest.raises(FormatError, match="takes at least 88 bytes, found 5"):
        feed.apply()


@pytest.mark.parametrize("whose", ["of a book", "of nobody knows which"])
def test_book_that_could_not_take_an_update_is_stale_and_the_rest_is_applied(
    feed: Feed, whose: str
) -> None:
    book = feed.begin()
    feed.state(Kind.RECOVERED, follows=0, object_id=8)
    feed.snapshot(5.0, symbol="ETHUSDT", object_id=8, number=11)
    update = feed.instance.update(BOOK, *BTC, bid_count=9, row_count=9)  # and no level
    payload = update.tobytes() if whose == "of a book" else b"short"
    frame = {"object_type": 3, "object_id": 7, "session": 1}
    feed.instance.append(Kind.BOOK, payload, number=12, follows=10, **frame)
    feed.instance.book([(6.0, 1.0)], [], "ETHUSDT", object_id=8, number=13, follows=11)
    if feed.by_batch:
        with pytest.raises(FormatError):
            feed.books.apply_batch(feed.reader.poll())
    else:
        with pytest.raises(FormatError):
            feed.books.apply(next(feed.reader))
        feed.books.apply(next(feed.reader))
    assert book.stale
    other = feed.books[ETH]
    assert other.stale == (whose != "of a book")
    assert bid(other) == (5.0 if other.stale else 6.0)


def test_many_objects_keep_their_books_apart(feed: Feed) -> None:
    count = 60  # more entries than the table has before it grows
    feed.session()
    for number in range(count):
        feed.state(Kind.RECOVERED, follows=0, object_id=number)
        feed.snapshot(float(number), symbol=f"S{number}", object_id=number, number=100 + number)
    feed.gap()
    for number in range(0, count, 2):
        feed.state(Kind.RECOVERED, follows=100 + number, object_id=number)
    for number in range(count):
        book = feed.books["binance-usdm", f"S{number}"]
        assert book.stale == (number % 2 == 1)
        assert bid(book) == number


def test_books_of_which_the_next_are_fetched_ahead_are_kept_as_one_by_one(tmp_path: Path) -> None:
    count = 700  # enough for batches to prefetch
    seeded = random.Random(9)
    instance = Instance(tmp_path / "many", 1 << 22, names=1024)
    feed = Feed(instance, by_batch=True)
    singles = Reader(instance.address)
    feed.session()
    for number in range(count):
        feed.state(Kind.RECOVERED, follows=0, object_id=number)
        feed.snapshot(100.0, symbol=f"S{number}", object_id=number)
    contained = {number: instance.contained[1, 3 << 16 | number] for number in range(count)}
    for number in (seeded.randrange(count) for _ in range(3_000)):
        frame = {"object_id": number, "follows": contained[number]}
        contained[number] = instance.number + 1
        if seeded.random() < 0.02:
            update = instance.update(BOOK, "binance-usdm", f"S{number}", bid_count=9)
            instance.append(Kind.BOOK, update.tobytes(), object_type=3, session=1, **frame)
        else:
            price = float(seeded.randrange(50, 100))
            instance.book([(price, 2.0)], [(200 - price, 3.0)], f"S{number}", **frame)
    while len(batch := feed.reader.poll(timeout=0)):
        with contextlib.suppress(FormatError):
            feed.books.apply_batch(batch)
    expected, refused = Books(singles), 0  # counts damaged updates of known books
    for record in itertools.islice(singles, instance.number):
        try:
            expected.apply(record)
        except FormatError:
            refused += 1
    assert refused > 0
    assert len(feed.books) == count
    for name, book in expected.items():
        assert feed.books[name].stale == book.stale, name
        assert feed.books[name].bids().tolist() == book.bids().tolist()
        assert feed.books[name].asks().tolist() == book.asks().tolist()
    instance.close()


def test_apply_says_which_book_was_updated(instance: Instance) -> None:
    books = Books()
    with Reader(instance.address) as reader:
        instance.top(1.0, 2.0)
        assert books.apply(next(reader)) is None
        instance.book([(1.0, 1.0)], [], snapshot=True)
        assert books.apply(next(reader)) is books[BTC]


def test_poll_without_a_reader_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="needs a reader"):
        Books().poll()


def test_books_of_an_address_are_refused() -> None:
    with pytest.raises(TypeError, match="reader must be a Reader, was 'ring:deribit'"):
        Books("ring:deribit")  # type: ignore[arg-type]


def test_poll_applies_and_returns_the_batch(instance: Instance) -> None:
    with Reader(instance.address) as reader:
        books = Books(reader)
        instance.book([(1.0, 1.0)], [], snapshot=True)
        assert len(books.poll(timeout=PATIENCE_S)) == 1
        assert bid(books[BTC]) == 1.0


def test_book_that_refused_a_level_is_stale_until_its_next_snapshot(feed: Feed) -> None:
    book = feed.begin()
    feed.book(math.nan, number=11, follows=10)
    assert book.levels_refused == 2
    assert book.stale
    feed.book(100.5, number=12, follows=11)
    assert book.stale
    feed.snapshot(101.0, number=13, follows=12)
    assert not book.stale


def test_books_without_a_name_table_are_not_merged(feed: Feed) -> None:
    (feed.instance.directory / "names").unlink()
    feed.reader = Reader(feed.instance.address)
    feed.session()
    feed.snapshot(100.0)
    feed.snapshot(5.0, symbol="ETHUSDT", object_id=8)
    assert len(feed.books) == 0
    assert feed.books.unnamed == 2


def test_books_of_exchanges_that_had_no_room_in_the_names_are_not_merged(feed: Feed) -> None:
    feed.session()
    feed.state(Kind.RECOVERED, follows=0)
    for object_id in (7, 8):
        update = feed.instance.update(BOOK, "", "BTCUSDT", exchange_id=0, update_type=1)
        feed.instance.append(
            Kind.BOOK, update.tobytes(), session=1, object_type=3, object_id=object_id
        )
        feed.apply()
    assert len(feed.books) == 0
    assert feed.books.unnamed == 2


def test_second_object_of_a_symbol_puts_its_name_in_doubt(feed: Feed) -> None:
    book = feed.begin(number=10)
    feed.state(Kind.RECOVERED, follows=0, object_id=8)
    feed.snapshot(200.0, object_id=8, number=11)
    assert feed.books[BTC] is book
    assert (book.stale, feed.books.contested, len(feed.books)) == (True, 1, 1)
    feed.book(100.5, number=12, follows=10)
    feed.book(200.5, object_id=8, number=13, follows=11)
    assert book.bids().tolist() == [[100.5, 1.0], [100.0, 1.0]], "of the first alone"
    assert book.stale
    assert repr(feed.books) == "<Books: 1, 1 stale, 1 contested>"


@pytest.mark.parametrize("leaves", [7, 8])
def test_name_is_no_longer_contested_when_one_object_is_left(feed: Feed, leaves: int) -> None:
    book = feed.begin(number=10)
    feed.state(Kind.RECOVERED, follows=0, object_id=8)
    feed.snapshot(200.0, object_id=8, number=11)
    last = {7: 10, 8: 11}
    feed.snapshot(5.0, symbol="ETHUSDT", object_id=leaves, number=12, follows=last[leaves])
    stays = 15 - leaves
    assert feed.books[BTC] is book
    assert (book.stale, feed.books.contested) == (False, 0)
    assert bid(book) == (100.0 if stays == 7 else 200.0)
    assert not feed.books[ETH].stale
    feed.book(300.0, object_id=stays, number=13, follows=last[stays])
    assert (bid(book), book.stale) == (300.0, False)


def test_many_objects_of_one_symbol_are_told_apart_until_the_next_session(feed: Feed) -> None:
    book = feed.begin()
    for object_id in range(8, 40):
        feed.state(Kind.RECOVERED, follows=0, object_id=object_id)
        feed.snapshot(float(object_id), object_id=object_id)
    assert (book.stale, bid(book), feed.books.contested) == (True, 100.0, 1)
    feed.session(2)
    assert feed.books.contested == 0
    feed.state(Kind.RECOVERED, follows=0, session=2)
    feed.snapshot(7.0, session=2, object_id=9)
    assert feed.books[BTC] is book
    assert (book.stale, bid(book)) == (True, 7.0), "the feed has not said yet that it is sure"


def test_object_that_stops_naming_its_symbol_leaves_its_book_stale(feed: Feed) -> None:
    book = feed.begin(number=10)
    update = feed.instance.update(BOOK, *BTC, update_type=2)
    update["symbol_id"] = 0
    frame = {"session": 1, "object_type": 3, "object_id": 7, "follows": 10}
    feed.instance.append(Kind.BOOK, update.tobytes(), number=11, **frame)
    feed.apply()
    assert (book.stale, feed.books.unnamed) == (True, 1)


@pytest.mark.parametrize("by_batch", [False, True])
def test_books_of_several_addresses_keep_a_state_of_each(
    instance: Instance, tmp_path: Path, by_batch: bool
) -> None:
    other = Instance(tmp_path / "other")
    with Reader([instance.address, other.address], start="begin") as reader:
        books = Books(reader)
        for number in range(4):
            for each, price in ((instance, 100.0), (other, 200.0)):
                each.book([(price + number, 1.0)], [], snapshot=number == 0)
                each.book([(price - number, 1.0)], [], "ETHUSDT", number == 0, object_id=8)
            instance.book([(1.0 + number, 1.0)], [], "ONE", snapshot=number == 0, object_id=9)
        for _ in range(4 * 5):
            if by_batch:
                books.poll(1, timeout=PATIENCE_S)
            else:
                books.apply(next(reader))
        one, two = books.at(instance.address), books.at(other.address)
        assert (bid(one[BTC]), bid(two[BTC])) == (103.0, 203.0)
        assert [len(each[ETH].bids()) for each in (one, two)] == [4, 4]
        assert not any(book.stale for each in (one, two) for book in each.values())
        key = ("binance-usdm", "ONE")
        assert books[key] is one[key]
        assert (bid(books[key]), books[key].stale) == (4.0, False)
        assert books[BTC].stale, "which of the two?"
        assert set(books) == {BTC, ETH, key}
        assert books.contested == 2
        with pytest.raises(KeyError):
            books.at("ring:nowhere")
    other.close()


def order_row(number: int, side: int, price: float, priority: int, action: int = 1) -> np.ndarray:
    row = np.zeros(1, ORDER)
    row["order_id"], row["side"], row["price"] = str(number).encode(), side, price
    row["quantity"], row["priority"], row["action"] = 10 * number, priority, action
    return row


def append_orders(feed: Feed, *rows: np.ndarray, whole: bool = False) -> None:
    update = feed.instance.update(ORDERS, *BTC, row_count=len(rows))
    payload = update.tobytes() + b"".join(row.tobytes() for row in rows)
    flags = RecordFlag.UNGATED | (RecordFlag.SNAPSHOT if whole else 0)
    feed.instance.append(Kind.ORDERS, payload, flags, session=1, object_type=4, object_id=9)
    feed.apply()


def test_orders_stand_in_the_queues_of_their_prices(feed: Feed) -> None:
    feed.begin()
    rows = [order_row(1, 1, 9.5, 30), order_row(2, 1, 9.5, 10), order_row(3, 2, 10.5, 5)]
    append_orders(feed, *rows, order_row(4, 1, 9.25, 1), whole=True)
    orders = feed.books.orders(*BTC)
    assert not orders.stale
    assert orders.bids()["order_id"].tolist() == [b"2", b"1", b"4"]
    assert orders.bid_levels().tolist() == [(9.5, 30.0, 2), (9.25, 40.0, 1)]
    assert orders.ask_levels(1).tolist() == [(10.5, 30.0, 1)]
    assert orders.place(1) == ("bid", 9.5, 10.0, 1, 20.0)
    append_orders(feed, order_row(2, 1, 9.5, 10, action=3), order_row(4, 1, 9.5, 31, action=2))
    assert orders.bids()["order_id"].tolist() == [b"1", b"4"]
    assert orders.place("4").orders_before == 1
    handed_out = orders.bids(1)[0]["order_id"]  # numpy.bytes_
    assert handed_out in orders and orders.place(handed_out).orders_before == 0
    with pytest.raises(KeyError, match="no order 2"):
        orders.place(2)


def test_orders_are_in_doubt_behind_a_gap_until_all_of_them_come(feed: Feed) -> None:
    feed.begin()
    append_orders(feed, order_row(1, 1, 9.5, 1), whole=True)
    orders = feed.books.orders(*BTC)
    feed.gap()
    assert orders.stale
    append_orders(feed, order_row(2, 1, 9.5, 2), whole=True)
    assert (orders.stale, len(orders), 2 in orders) == (False, 1, True)
    feed.session(2)
    assert (orders.stale, len(orders)) == (True, 0)


def test_orders_and_book_of_one_ungated_object_end_their_own_doubt_alone(feed: Feed) -> None:
    frame = {"object_type": 4, "object_id": 9}
    feed.session()
    feed.snapshot(100.0, flags=RecordFlag.UNGATED, **frame)
    append_orders(feed, order_row(1, 1, 9.5, 1), whole=True)
    book, orders = feed.books[BTC], feed.books.orders(*BTC)
    feed.gap()
    append_orders(feed, order_row(2, 1, 9.5, 2), whole=True)
    assert (book.stale, orders.stale) == (True, False)
    feed.book(101.0, flags=RecordFlag.UNGATED, **frame)
    assert (book.stale, book.best()[0]) == (True, 101.0)
    feed.gap()
    feed.snapshot(102.0, flags=RecordFlag.UNGATED, **frame)
    assert (book.stale, orders.stale) == (False, True)
    append_orders(feed, order_row(3, 1, 9.5, 3), whole=True)
    assert (book.stale, orders.stale) == (False, False)
    said = feed.instance.update(OBJECT_STATE, *BTC, object=4 << 16 | 9)
    feed.instance.append(Kind.STALE, said.tobytes(), RecordFlag.UNGATED, session=1, **frame)
    feed.apply()
    assert (book.stale, orders.stale) == (True, True)


def test_object_that_stops_naming_its_symbol_leaves_its_orders_stale(feed: Feed) -> None:
    feed.session()
    feed.state(Kind.RECOVERED, follows=0, object_id=9, object_type=4)
    frame = {"session": 1, "object_type": 4, "object_id": 9}
    row = order_row(1, 1, 9.5, 1)
    update = feed.instance.update(ORDERS, *BTC, row_count=1)
    payload = update.tobytes() + row.tobytes()
    feed.instance.append(Kind.ORDERS, payload, RecordFlag.SNAPSHOT, number=10, **frame)
    feed.apply()
    orders = feed.books.orders(*BTC)
    assert not orders.stale
    update["symbol_id"] = 0
    payload = update.tobytes() + row.tobytes()
    feed.instance.append(Kind.ORDERS, payload, number=11, follows=10, **frame)
    feed.apply()
    assert (orders.stale, feed.books.unnamed) == (True, 1)


def test_instruments_have_what_is_kept_of_each_and_its_doubt(feed: Feed) -> None:
    assert feed.books.instruments() == []
    feed.session()
    append_orders(feed, order_row(1, 1, 9.5, 1), order_row(2, 2, 10.5, 1), whole=True)
    assert feed.books.instruments() == [(*BTC, None, 0, 0, False, 2)]
    feed.begin()
    append_orders(feed, order_row(1, 1, 9.5, 1), order_row(2, 2, 10.5, 1), whole=True)
    assert feed.books.instruments() == [(*BTC, False, 1, 1, False, 2)]
    feed.gap()
    assert feed.books.instruments() == [(*BTC, True, 1, 1, True, 2)]


def test_orders_that_nobody_published_are_said_to_need_a_setting(feed: Feed) -> None:
    with pytest.raises(KeyError, match=r"books\.orders = true"):
        feed.books.orders("binance-usdm", "XRPUSDT")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "BTCUSDT",
            r"be \(exchange, symbol\), was 'BTCUSDT'; did you mean \('binance-usdm', 'BTCU",
        ),
        (
            ("binance-usdm", "BTCUSD"),
            r"no book of .*; did you mean \('binance-usdm', 'BTCUSDT'\)\?",
        ),
        (
            ("BTCUSDT", "binance-usdm"),
            r"no book of .* did you mean \('binance-usdm', 'BTCUSDT'\)\?",
        ),
        (("binance", "BTCUSDT"), r"no book of .* did you mean \('binance-usdm', 'BTCUSDT'\)\?"),
        (("okx", "BTCUSDT"), r"no book of .* did you mean \('binance-usdm', 'BTCUSDT'\)\?"),
        (("x", "y"), r"no book of \('x', 'y'\) among 1"),
        (7, r"a book's key must be \(exchange, symbol\), was 7"),
    ],
)
def test_missing_book_names_similar_ones(feed: Feed, key: object, said: str) -> None:
    feed.begin()
    with pytest.raises(KeyError, match=said):
        feed.books[key]  # type: ignore[index]
    assert feed.books.get(key) is None  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (("binance-usdm", "BTCUSD"), "among those of 1; did you mean ('binance-usdm', 'BTCUSDT')?"),
        (("binance-usdm", "ETHUSDT"), "among those of 1: none were read so far"),
        (("x", "y"), "no orders of ('x', 'y') among those of 1"),
    ],
)
def test_missing_orders_do_not_blame_the_settings_of_a_feed_that_has_some(
    feed: Feed, key: tuple[str, str], said: str
) -> None:
    append_orders(feed, order_row(1, 1, 9.5, 1), whole=True)
    feed.instance.book([], [], symbol="ETHUSDT", object_id=8)
    feed.apply()
    with pytest.raises(KeyError, match=re.escape(said)):
        feed.books.orders(*key)


def test_missing_orders_do_not_blame_the_settings_that_ask_for_them(feed: Feed) -> None:
    books = Books(feed.reader)
    with pytest.raises(KeyError, match=r"a feed publishes them with books.orders = true"):
        books.orders("nasdaq", "AAPL")
    tables = {
        "name": "itch",
        "wire": {"framing": "moldudp64", "payload": "itch"},
        "streams": {"lines": [{"name": "A", "address": "127.0.0.1:1"}]},
        "books": {"orders": True},
    }
    write_feed(parse_feed(tables), feed.instance.directory)
    with pytest.raises(KeyError, match=r"its feed has books.orders = true .* stock directory"):
        books.orders("nasdaq", "AAPL")


def test_missing_book_of_no_books_says_that_none_was_read() -> None:
    with pytest.raises(KeyError, match=r"there is no book yet, because no update of one was read"):
        Books()["binance", "BTCUSDT"]


@pytest.mark.parametrize(
    ("key", "near"),
    [
        (("okex", "OPT-19998X"), "('okx', 'OPT-19998')"),
        ("OPT-00017X", "('okx', 'OPT-00017')"),
        (("okx", "OPR-19998"), "('okx', 'OPT-"),
        (("okx", "OPT-00017"), "('deribit', 'OPT-00017')"),
    ],
)
def test_missing_book_among_many_is_compared_with_few(
    monkeypatch: pytest.MonkeyPatch, key: object, near: str
) -> None:
    compared = []

    def counted(word: str, known: Iterable[str], *args: Any) -> list[str]:
        names = list(known)
        compared.append(len(names))
        return similar(word, names, *args)

    monkeypatch.setattr(missing_book, "similar", counted)
    venue = "deribit" if near.startswith("('d") else "okx"
    books: Any = dict.fromkeys((venue, f"OPT-{n:05}") for n in range(20_000))
    assert near in missing_book.missing_book(books, key)
    assert max(compared, default=0) <= 250
