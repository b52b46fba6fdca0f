"""`Books.catch_up` and `Latest.poll`: books as of the newest record, however many wait."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.agents.fanout import Turned
from tests.agents.test_recorder import drive, recorder_of
from tests.client.fed_composite import FedComposite
from tests.client.instance import Instance
from tests.client.test_join_again import Kept
from tests.waiting import PATIENCE_S, wait_until
from udpfast import Books, Kind, Latest, Reader, RingClosedError
from udpfast.client import history_source
from udpfast.errors import RegionError

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
            return BTC in books and books[BTC].best()[1] == began + 4

        wait_until(catches_up, "all messages in one call")


def write_in(composite: FedComposite) -> None:
    """Write to all inputs; a book's bid is the number of its feed's records before."""
    for feed, symbol in zip(composite.feeds, "LR", strict=True):
        with feed.at_work():
            if not feed.session:
                feed.begin()
                feed.state(Kind.RECOVERED, "ex", symbol)
            for _ in range(5):
                feed.book("ex", symbol, float(feed.number))
    composite.send()
    composite.work()


@WAYS
def test_books_of_a_composite_are_those_of_its_newest_entry(tmp_path: Path, way) -> None:
    composite = FedComposite(tmp_path)

    write_in(composite)
    with Reader(composite.address) as reader:
        books, catch_up = way(reader)
        for _ in range(3):
            assert reader.lag > 0
            catch_up()
            assert reader.lag == 0 and not reader.wait(0)
            for feed, symbol in zip(composite.feeds, "LR", strict=True):
                book = books.at(str(feed.folder))["ex", symbol]
                assert book.best()[0] == feed.number - 1 and not book.stale
            write_in(composite)


def test_lag_of_a_composite_tells_what_is_left_of_all_inputs(tmp_path: Path) -> None:
    composite = FedComposite(tmp_path)
    write_in(composite)
    with Reader(composite.address) as reader:
        assert reader.lag >= 1  # an entry that was not read yet has at least one
        lags = []
        while reader.wait(0):
            next(reader)
            lags.append(reader.lag)
        assert len(lags) > 14 and lags == list(range(len(lags)))[::-1]


@pytest.fixture
def endless(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turned]:
    """A fan-out that the test's readers, once open, never find without another message."""
    plain = zmq.Socket.recv
    messages = count()
    test = threading.current_thread()

    def send(socket: Any) -> None:
        instance.book([(10.0, 1.0)], [], snapshot=True)
        instance.ring.flush()
        turned.turn()
        assert socket.poll(PATIENCE_S * 1000)

    def recv(socket: Any, *args: Any, **options: Any) -> object:
        if socket.type != zmq.SUB or threading.current_thread() is not test:
            return plain(socket, *args, **options)
        assert next(messages) < 2_500, "the feed holds its reader"
        if not socket.poll(0):
            send(socket)
        message = plain(socket, *args, **options)
        send(socket)
        return message

    monkeypatch.setattr(zmq.Socket, "recv", recv)
    with Turned(instance) as turned:
        yield turned


@WAYS
def test_messages_that_come_meanwhile_do_not_hold_the_books(endless: Turned, way) -> None:
    with endless.open(batch=1) as reader:
        _, catch_up = way(reader)
        catch_up()
        assert reader.index


def test_poll_that_does_not_wait_ends_though_messages_come(endless: Turned) -> None:
    with endless.open(kinds=[Kind.TRADES]) as reader:
        assert len(reader.poll(timeout=0)) == 0


def test_feed_of_a_list_does_not_hold_the_others(endless: Turned, rings: list[Instance]) -> None:
    with endless.open(others=[rings[0].address]) as reader:
        books = Books(reader)
        write(rings[0], 99)
        books.catch_up()
        assert books.at(rings[0].address)[BTC].best()[1] == 99.0


@WAYS
def test_journal_that_grows_meanwhile_does_not_hold_the_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way
) -> None:
    instance = Instance(tmp_path / "feed", 1 << 16)
    recorder = recorder_of(instance, tmp_path, segment_bytes=1 << 22)
    looks = count()
    state = history_source.journal_state

    def publish() -> None:
        for number in range(1_000):  # more than the ring holds
            instance.ring.append(Kind.GAP, GAP, published_ns=number)
            if number % 100 == 99:
                instance.ring.flush()
                drive(recorder)

    def look(journal: Path) -> object:
        assert next(looks) < 50, "the feed holds its reader"
        found = state(journal)
        publish()
        return found

    with closing(instance):
        publish()
        addresses = [f"journal:{tmp_path / 'journal'}", instance.address]
        with Reader(addresses, batch=64) as reader:
            publish()
            publish()
            _, catch_up = way(reader)
            monkeypatch.setattr(history_source, "journal_state", look)
            catch_up()
            assert reader.index >= 3_000 and not reader.lapped
        recorder.on_stop()


@WAYS
@pytest.mark.parametrize("end", [None, "never"])
@pytest.mark.parametrize("closed", [True, False])
def test_journal_with_damaged_marks_is_read_to_its_end(tmp_path: Path, way, end, closed) -> None:
    with closing(Instance(tmp_path / "feed")) as instance:
        write(instance, 20)
        recorder = recorder_of(instance, tmp_path)
        drive(recorder)
    directory = tmp_path / "journal"
    with Reader(f"journal:{directory}", batch=4, end=end) as reader:
        if closed:
            recorder.on_stop()
        else:
            recorder.recordings[0].journal.region.close()  # as when it is killed
        with (directory / "journal").open("r+b") as file:
            file.seek(4096 + 128)
            file.write(bytes(256))
        books, catch_up = way(reader)
        lost = pytest.raises(RegionError, match="read up to record 21, but more records may")
        with nullcontext() if closed else lost:
            catch_up()
            if not closed:
                wait_until(catch_up, "its end")  # that it has one is looked for now and then
        assert reader.index == 21
        assert books[BTC].best()[1] == 20.0
        assert books[BTC].stale == (not closed or end == "never")
