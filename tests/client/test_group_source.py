"""A group as one stream: the order of publication, and each feed's names and doubts."""

import contextlib

import numpy as np
import pytest

from tests.client.instance import Instance, small_image
from udpfast import Books
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.archive.groups import GroupFeed, GroupFile
from udpfast.client.reader import Reader
from udpfast.core.layout import GAP, Kind, RecordFlag
from udpfast.errors import ImageError
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH


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


def test_images_of_all_feeds_come_before_what_is_published_later(group, tmp_path):
    feeds = one, two = group("one", "two")
    two.names.intern("something else")  # ids of one mean other names in the other
    for number in range(3):
        for feed, symbol in ((one, "A"), (two, "B")):
            feed.book([(1.0 + number, 2.0)], [(9.0, 4.0)], symbol, not number, object_id=1)
    for feed in feeds:
        feed.ring.flush()
    keepers = [ImageKeeper(small_image(), tmp_path / name) for name in ("one", "two")]
    for keeper in keepers:
        keeper.on_start()
        keeper.work(10**12)
    with Reader("group:us", image=True, batch=1) as reader:
        assert reader.joining
        two.book([(5.0, 5.0)], [], "B", object_id=1)
        two.ring.flush()
        books, joined, order = Books(), [], []
        while reader.lag or reader.joining:
            record = next(reader)
            books.apply(record)
            if record.kind == Kind.BOOK:
                order.append((reader.origin, bool(record.flags & RecordFlag.SNAPSHOT)))
            joined.append(reader.joining)
        assert order == [("ring:one", True), ("ring:two", True), ("ring:two", False)]
        assert joined[0] and not joined[-1]
        assert reader.lag == 0
    bids = {symbol: book.bids().tolist() for (_, symbol), book in books.items()}
    assert {symbol: len(rows) for symbol, rows in bids.items()} == {"A": 3, "B": 4}
    assert not any(book.stale for book in books.values())
    for keeper in keepers:
        keeper.on_stop()


def test_books_of_a_feed_that_ended_are_in_doubt_while_the_others_go_on(group):
    one, two = group("one", "two")
    with Reader("group:us") as reader:
        books = Books(reader)
        for feed, symbol in ((one, "A"), (two, "B")):
            feed.book([(1.0, 2.0)], [(9.0, 4.0)], symbol, True, object_id=1)
            feed.ring.flush()
        while len(books.poll(timeout=0)):
            pass
        sound = {symbol: not book.stale for (_, symbol), book in books.items()}
        assert sound == {"A": True, "B": True}
        one.close()
        kinds = [kind for _ in range(3) for kind in books.poll(timeout=0).headers["kind"]]
        assert kinds == [Kind.CONNECTION]  # said once
        sound = {symbol: not book.stale for (_, symbol), book in books.items()}
        assert sound == {"A": False, "B": True}


@pytest.mark.parametrize("start", [None, "oldest"])
@pytest.mark.parametrize("again", [True, False], ids=["left", "closed"])
def test_a_feed_that_is_started_again_is_joined_again(group, again, start):
    one, two = group("one", "two")
    with Reader("group:us", start=start) as reader:
        for feed in (one, two):
            feed.top(1, 2)
        assert len(list(take(reader, 2))) == 2
        one.ring.close(again=again)
        reader._look()
        found = list(take(reader, 1))
        assert [record.kind for record in found] == [Kind.CONNECTION]
        two.top(3, 4)
        assert [record.kind for record in take(reader, 1)] == [Kind.TOP_OF_BOOK]
        with Ring.create(one.directory, 1 << 20, PAYLOAD_HASH) as ring:
            assert ring.restarted
            ring.announce_restart(99)
            ring.append(Kind.MESSAGE, b"later")
            reader._look()
            kinds = [(reader.origin, record.kind) for record in take(reader, 3)]
            assert kinds == [
                ("ring:one", Kind.CONNECTION), ("ring:one", Kind.RESTART),
                ("ring:one", Kind.MESSAGE),
            ]  # fmt: skip
            assert (reader.lapped, reader.lag) == (0, 0)


def test_a_feed_that_is_started_again_is_joined_again_while_the_others_never_pause(group):
    one, two = group("one", "two")
    with Reader("group:us", batch=1) as reader:
        one.ring.close()
        for number in range(4_000):
            two.top(number, number + 1)
        with Ring.create(one.directory, 1 << 20, PAYLOAD_HASH) as ring:
            ring.announce_restart(99)
            kinds = [next(reader).kind for _ in range(2_500)]
    assert Kind.RESTART in kinds


def test_a_group_with_a_feed_that_keeps_no_image_is_refused_by_its_reason(group):
    group("one")
    with pytest.raises(ImageError, match="image"):
        Reader("group:us", image=True)


def test_an_unknown_group_is_refused(group):
    group("one")
    with pytest.raises(FileNotFoundError, match="no group 'su'"):
        Reader("group:su")


def take(reader, count):
    """Yield so many records, which are there; `reader.origin` is that of the latest."""
    return (next(reader) for _ in range(count))


def test_frames_of_a_group_say_which_feed_a_row_is_of(group):
    pyarrow = pytest.importorskip("pyarrow")
    one, two = group("one", "two")
    with Reader("group:us") as reader:
        for feed, symbol in ((one, "A"), (two, "B"), (one, "C")):
            feed.top(1.0, 2.0, symbol=symbol)
        batches = []
        while reader.wait(0):
            batches.append(reader.poll(timeout=0).copy())
    rows = [row for batch in batches for row in pyarrow.table(batch).to_pylist()]
    assert [(row["feed"], row["symbol"]) for row in rows] == [
        ("one", "A"), ("two", "B"), ("one", "C")
    ]  # fmt: skip
