"""Streams of one feed: losses and sessions of one stream do not affect objects of the others.

Two streams as in TOPS and DEEP, or two of many channels: each object belongs to one stream. Every
reader agrees: books from records and from batches, a reader that begins with the image, and C.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.client.instance import Instance, small_image
from udpfast import Books, Kind, Reader, RecordFlag
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.core.layout import GAP, LAPPED, OBJECT_STATE, SESSION, Stream

LEFT, RIGHT = 2, 3
NAMES = {LEFT: "LEFT", RIGHT: "RIGHT"}


class Feed:
    """A feed of two streams; all readers are asked for every book."""

    def __init__(self, directory: Path) -> None:
        self.instance = Instance(directory)
        self.keeper = ImageKeeper(small_image(), directory)
        self.keeper.on_start()
        self.readers = [Reader(self.instance.address, start="begin") for _ in range(2)]
        self.books = [Books(), Books()]
        self.applied = 0

    def close(self) -> None:
        self.keeper.on_stop()
        for reader in self.readers:
            reader.close()
        self.instance.close()

    def session(self, stream: int, session: int = 1) -> None:
        payload = np.zeros((), SESSION)
        payload["new_id"] = payload["first_number"] = session
        self.instance.append(Kind.SESSION, payload.tobytes(), stream=stream, session=session)

    def gap(self, stream: int) -> None:
        self.instance.append(Kind.GAP, np.zeros((), GAP).tobytes(), stream=stream, session=1)

    def book(self, stream: int, price: float, *, whole: bool = False, symbol: str = "") -> None:
        self.instance.book(
            [(price, 1.0)], [(price + 1, 1.0)], symbol=symbol or NAMES[stream], snapshot=whole,
            flags=RecordFlag.UNGATED, stream=stream, object_type=0, object_id=stream,
        )  # fmt: skip

    def lapped(self) -> None:
        """Report missing records, as a relay does; a SESSION may be among them."""
        self.instance.append(Kind.LAPPED, np.zeros((), LAPPED).tobytes(), stream=Stream.NONE)

    def both(self) -> None:
        for stream in NAMES:
            self.session(stream)
            self.book(stream, 10.0 * stream, whole=True)

    def known(self) -> list[dict[str, float]]:
        """Return, by reader, the best bids of the sound books."""
        while len(batch := self.readers[0].poll(timeout=0)):
            self.books[0].apply_batch(batch)
        while self.applied < self.instance.number:
            self.books[1].apply(next(self.readers[1]))
            self.applied += 1
        self.instance.ring.flush()
        self.keeper.work(1 << 62)
        with Reader(self.instance.address, image=True) as late:
            joined = Books(late)
            while len(joined.poll(timeout=0)):
                pass
            return [
                {name[1]: book.best()[0] for name, book in books.items() if not book.stale}
                for books in (*self.books, joined)
            ]

    def knows(self, **sound: float) -> None:
        assert self.known() == [sound] * 3


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    feed = Feed(tmp_path / "feed")
    yield feed
    feed.close()


def test_gap_of_a_stream_puts_only_its_own_books_in_doubt(feed: Feed) -> None:
    feed.both()
    feed.knows(LEFT=20.0, RIGHT=30.0)
    feed.gap(LEFT)
    feed.knows(RIGHT=30.0)
    feed.book(RIGHT, 31.0)
    feed.knows(RIGHT=31.0)
    feed.book(LEFT, 21.0, whole=True)
    feed.knows(LEFT=21.0, RIGHT=31.0)
    feed.gap(RIGHT)
    feed.knows(LEFT=21.0)


def test_gap_of_streams_that_were_refused_puts_no_book_in_doubt(feed: Feed) -> None:
    feed.session(Stream.INCREMENTAL)
    feed.book(Stream.INCREMENTAL, 10.0, whole=True, symbol="A")
    feed.gap(Stream.NONE)
    feed.knows(A=10.0)


def test_session_of_a_stream_empties_only_its_own_books(feed: Feed) -> None:
    feed.both()
    feed.session(LEFT, 2)
    feed.knows(RIGHT=30.0)
    feed.book(LEFT, 21.0)  # a change of nothing
    feed.knows(RIGHT=30.0)
    feed.book(LEFT, 22.0, whole=True)
    feed.knows(LEFT=22.0, RIGHT=30.0)
    assert [[*books] for books in feed.books] == [[("binance-usdm", "LEFT"),
                                                   ("binance-usdm", "RIGHT")]] * 2  # fmt: skip


def test_gap_before_a_session_is_not_one_of_the_session(feed: Feed) -> None:
    feed.both()
    feed.gap(LEFT)
    feed.session(LEFT, 2)
    feed.book(LEFT, 22.0, whole=True)
    feed.book(LEFT, 23.0)
    feed.knows(LEFT=23.0, RIGHT=30.0)


@pytest.mark.parametrize("stream", [Stream.INCREMENTAL, LEFT])
def test_word_on_an_object_begins_a_session_whose_record_was_missed(
    feed: Feed, stream: int
) -> None:
    channel = Stream.SNAPSHOT if stream == Stream.INCREMENTAL else stream
    own = {"object_type": 3, "object_id": 7}

    def recovered(session: int) -> None:
        word = np.zeros((), OBJECT_STATE).tobytes()
        feed.instance.append(Kind.RECOVERED, word, stream=stream, session=session, **own)

    def snapshot(session: int, price: float) -> None:
        levels = [(price, 1.0)], [(price + 1, 1.0)]
        feed.instance.book(*levels, symbol="A", snapshot=True, stream=channel, session=session)

    feed.session(stream)
    recovered(1)
    snapshot(1, 10.0)
    feed.knows(A=10.0)
    feed.lapped()
    recovered(2)
    snapshot(2, 20.0)
    feed.knows(A=20.0)
    # Objects of the previous session are no longer sound.
    feed.lapped()
    feed.instance.append(Kind.MESSAGE, b"x", stream=stream, session=3, object_type=3, object_id=8)
    feed.knows()
    assert all(book.best()[0] != book.best()[0] for books in feed.books for book in books.values())


def test_symbol_of_two_streams_is_nobodys_until_one_is_left(feed: Feed) -> None:
    feed.both()
    feed.book(LEFT, 25.0, whole=True, symbol="RIGHT")
    feed.knows(LEFT=20.0)
    feed.session(RIGHT, 2)
    feed.knows(LEFT=20.0, RIGHT=25.0)


def test_symbol_that_moves_with_a_session_has_its_new_stream_s_book(feed: Feed) -> None:
    feed.both()
    feed.session(RIGHT, 2)
    feed.book(LEFT, 25.0, whole=True, symbol="RIGHT")
    feed.knows(LEFT=20.0, RIGHT=25.0)
    feed.gap(RIGHT)
    feed.knows(LEFT=20.0, RIGHT=25.0)
    feed.gap(LEFT)
    feed.knows()


def test_many_streams_have_their_own_doubts(feed: Feed) -> None:
    streams = range(2, 140)
    for stream in streams:
        feed.session(stream)
        feed.book(stream, float(stream), whole=True, symbol="S2")
    feed.knows()  # all of one name
    for stream in streams[1:]:
        feed.session(stream, 2)
    feed.knows(S2=2.0)
    feed.gap(139)
    feed.knows(S2=2.0)
