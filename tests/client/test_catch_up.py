"""`Books.catch_up` and `Latest.poll`: books as of the newest record, however many wait."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agents.fanout import Turned
from tests.client.instance import Instance
from tests.client.test_join_again import Kept
from tests.waiting import wait_until
from udpfast import Books, Kind, Latest, Reader, RingClosedError

BTC = ("binance-usdm", "BTCUSDT")
GAP = bytes(24)


def by_books(reader: Reader) -> tuple[Books, Callable[[], object]]:
    books = Books(reader)
    return books, books.catch_up


def by_latest(reader: Reader) -> tuple[Books, Callable[[], object]]:
    latest = Latest(reader)
    return latest.books, lambda: latest.poll(timeout=0)


WAYS = pytest.mark.parametrize("way", [by_books, by_latest])


@pytest.fixture
def rings(tmp_path: Path) -> Iterator[list[Instance]]:
    rings = [Instance(tmp_path / name) for name in ("one", "two")]
    yield rings
    for each in rings:
        each.close()


def write(instance: Instance, updates: int) -> None:
    """Append a book and updates of its bid; the last one has the quantity `updates`."""
    instance.book([(10.0, 0.5)], [(11.0, 1.0)], snapshot=True)
    for number in range(updates):
        instance.book([(10.0, number + 1.0)], [], follows=instance.number)
    instance.ring.flush()


def test_one_poll_leaves_a_book_as_of_its_last_record(instance: Instance) -> None:
    write(instance, 9)
    with Reader(instance.address, start="begin", batch=4) as reader:
        books = Books(reader)
        assert len(books.poll()) == 4
        assert books[BTC].best()[1] == 3.0 and not books[BTC].stale
        assert repr(books) == "<Books: 1, 0 stale, 6 records behind>"
        assert "1 books, 0 stale, 6 records behind" in books._repr_html_()
        assert books.catch_up() == 6
        assert repr(books) == "<Books: 1, 0 stale>"
    assert repr(books) == "<Books: 1, 0 stale>"


@WAYS
def test_book_is_that_of_the_newest_record(instance: Instance, way) -> None:
    write(instance, 9)
    with Reader(instance.address, start="begin", batch=2) as reader:
        books, catch_up = way(reader)
        catch_up()
        assert books[BTC].best()[1] == 9.0 and not books[BTC].stale
        instance.append(Kind.TOP_OF_BOOK, bytes(400))
        instance.append(Kind.TOP_OF_BOOK, bytes(400))
        instance.append(Kind.GAP, GAP)
        instance.ring.flush()
        catch_up()
        assert books[BTC].stale


def test_number_of_records_is_told_and_the_end_raises(instance: Instance) -> None:
    write(instance, 9)
    with Reader(instance.address, start="begin", batch=4) as reader:
        books = Books(reader)
        assert [books.catch_up(), books.catch_up()] == [10, 0]
        instance.top(1.0, 2.0)
        instance.ring.close()
        assert books.catch_up() == 1
        with pytest.raises(RingClosedError):
            books.catch_up()
    with pytest.raises(ValueError, match="needs a reader"):
        Books().catch_up()


@WAYS
@pytest.mark.parametrize("far", [0, 1])
def test_numbers_of_several_feeds_are_not_compared(rings: list[Instance], way, far: int) -> None:
    for _ in range(500):
        rings[far].top(1.0, 2.0)  # its indices are far from the other's
    rings[far].ring.flush()
    with Reader([one.address for one in rings], batch=4) as reader:
        books, catch_up = way(reader)
        for one in rings:
            write(one, 99)
        catch_up()
        assert [books.at(one.address)[BTC].best()[1] for one in rings] == [99.0, 99.0]


@WAYS
def test_state_of_an_image_is_read_with_what_came_since(tmp_path: Path, way) -> None:
    kept = Kept(tmp_path / "feed")
    with Reader(kept.address, image=True, batch=1) as reader:
        kept.go_on(50, kept=False)
        books, catch_up = way(reader)
        catch_up()
        assert books[BTC].best()[1] == kept.quantity and not books[BTC].stale
        kept.go_on(1_000)
        catch_up()
        assert reader.lapped and not reader.joining
        assert books[BTC].best()[1] == kept.quantity and not books[BTC].stale
    with Reader(kept.address, image=True, batch=1) as reader:  # nothing came since
        books, catch_up = way(reader)
        catch_up()
        assert not reader.joining
        assert books[BTC].best()[1] == kept.quantity and not books[BTC].stale
    kept.keeper.on_stop()
    kept.instance.close()


@WAYS
def test_what_a_socket_holds_is_read_whatever_is_known_of_the_ring(instance: Instance, way) -> None:
    with Turned(instance) as turned, turned.open() as reader, turned.open() as beside:
        books, catch_up = way(reader)

        def catches_up() -> bool:
            began = instance.ring.index
            for number in range(5):
                instance.book([(10.0, began + number)], [(11.0, 1.0)], snapshot=True)
                turned.turn()  # a message each
            while beside.index < began + 5:
                beside.poll()
            catch_up()
            return books[BTC].best()[1] == began + 4

        wait_until(catches_up, "all messages in one call")
