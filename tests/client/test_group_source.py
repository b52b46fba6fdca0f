"""A group as one stream: the order of publication, and each feed's names and doubts."""

import contextlib

import numpy as np
import pytest

from tests.client.instance import Instance
from udpfast import Books
from udpfast.archive.groups import GroupFeed, GroupFile
from udpfast.client.reader import Reader
from udpfast.core.layout import GAP, Kind
from udpfast.errors import ConfigError


@pytest.fixture
def group(tmp_path, monkeypatch):
    """Return a function that makes a group of instances and returns them."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def make(*names, capacity_bytes=1 << 20):
            made = [Instance(tmp_path / name, capacity_bytes) for name in names]
            for each in made:
                stack.callback(each.close)
            file = stack.enter_context(contextlib.closing(GroupFile("us")))
            file.write(GroupFeed(name, f"ring:{name}", "running") for name in names)
            return made

        yield make


def test_records_of_all_feeds_come_in_the_order_of_publication_with_names_of_their_own(group):
    one, two, three = group("one", "two", "three")
    two.names.intern("something else")
    with Reader("group:us") as reader:
        for turn in range(3):  # their clocks count together
            for feed, symbol in ((one, "A"), (two, "B"), (three, "C")):
                feed.top(turn, turn + 1, symbol=symbol)
        found = [(record.published_ns, record.symbol, reader.origin) for record in take(reader, 9)]
    assert [stamp for stamp, _, _ in found] == sorted(stamp for stamp, _, _ in found)
    assert {(symbol, origin) for _, symbol, origin in found} == {
        ("A", "ring:one"), ("B", "ring:two"), ("C", "ring:three")
    }  # fmt: skip


def test_a_gap_of_one_feed_puts_no_book_of_another_in_doubt(group):
    one, two = group("one", "two")
    books = Books()
    with Reader("group:us") as reader:
        for feed in (one, two):
            feed.book(bids=[(1.0, 2.0)], asks=[(3.0, 4.0)], snapshot=True)
        one.append(Kind.GAP, np.zeros((), GAP).tobytes(), session=1)
        kept = [books.apply(record) for record in take(reader, 3)]
    assert [book.stale for book in kept if book is not None] == [True, False]


def test_a_feed_that_laps_its_reader_says_so_and_the_others_lose_nothing(group):
    fast, slow = group("fast", "slow", capacity_bytes=1 << 16)
    with Reader("group:us", start="begin") as reader:
        for feed in (fast, slow):
            feed.top(1, 2)
        assert next(reader).kind == Kind.TOP_OF_BOOK and reader.origin == "ring:fast"
        for number in range(2000):
            fast.top(number, number + 1)
        slow.top(3, 4)
        fast.close()
        slow.close()
        found = [(reader.origin, record) for record in reader]
    tops = [origin for origin, record in found if record.kind == Kind.TOP_OF_BOOK]
    lapped = [record.data["missed"] for _, record in found if record.kind == Kind.LAPPED]
    assert tops.count("ring:slow") == 2
    assert len(lapped) == 1 and lapped[0] + tops.count("ring:fast") == 2000


def test_a_group_without_one_of_its_rings_is_refused_by_its_name(group, tmp_path):
    group("one")
    with contextlib.closing(GroupFile("eu")) as file:
        file.write([GroupFeed("one", "ring:one"), GroupFeed("missing", "ring:missing")])
        with pytest.raises(FileNotFoundError, match="no ring 'missing'"):
            Reader("group:eu")


def test_an_unknown_group_and_an_image_are_refused(group):
    group("one")
    with pytest.raises(FileNotFoundError, match="no group 'su'"):
        Reader("group:su")
    with pytest.raises(ConfigError, match="image must be False for a group"):
        Reader("group:us", image=True)


def take(reader, count):
    """Yield so many records, which are there; `reader.origin` is that of the latest."""
    return (next(reader) for _ in range(count))
