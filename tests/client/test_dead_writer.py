"""Books of a dead writer are in doubt until the next writer has published them anew."""

import asyncio
import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.agents.fanout import Turned
from tests.agents.test_image_keeper import keep
from tests.client.instance import Instance
from tests.waiting import wait_until
from udpfast import Batch, Books, Callbacks, Kind, Latest, Reader, RingClosedError
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import SESSION, ConnectionScope, ConnectionStatus, Stream

BTC = ("binance-usdm", "BTCUSDT")


def live(instance: Instance) -> None:
    """Append a session with one sound book."""
    session = np.array((0, 1, 1, 0, 1, 0, 0, 0), SESSION).tobytes()
    instance.append(Kind.SESSION, session, session=1)
    instance.append(Kind.RECOVERED, bytes(24), object_type=3, object_id=7, session=1)
    instance.book([(10, 1)], [(11, 1)], snapshot=True, stream=1, follows=50)
    instance.ring.flush()


def die(instance: Instance) -> None:
    """Leave ring and names as a killed process leaves them."""
    instance.names_region.close()
    instance.ring.region.close()


def fail(instance: Instance) -> None:
    """Leave ring and names as a feed does that an error ended."""
    instance.names_region.close()
    instance.ring.close(failed=True)


Step = Callable[[], list[Kind]]


def read_until(step: Step, holds: Callable[[list[Kind]], bool]) -> list[Kind]:
    """Read until the records satisfy a condition; return them."""
    found: list[Kind] = []

    def look() -> bool:
        found.extend(step())
        return holds(found)

    wait_until(look)
    return found


def kinds_of(batch: Batch) -> list[Kind]:
    return [Kind(kind) for kind in batch.headers["kind"]]


def by_batch(reader: Reader) -> tuple[Books, Step]:
    books = Books(reader)
    return books, lambda: kinds_of(books.poll(timeout=0.05))


def by_record(reader: Reader) -> tuple[Books, Step]:
    books = Books()

    def step() -> list[Kind]:
        if not reader.wait(0.05):
            return []
        record = next(reader)
        books.apply(record)
        return [record.kind]

    return books, step


def by_event_loop(reader: Reader) -> tuple[Books, Step]:
    books = Books()

    def step() -> list[Kind]:
        if not asyncio.run(reader.arrival(0.05)):
            return []
        batch = reader.poll(timeout=0)
        books.apply_batch(batch)
        return kinds_of(batch)

    return books, step


def by_latest(reader: Reader) -> tuple[Books, Step]:
    latest = Latest(reader)
    return latest.books, lambda: [record.kind for record in latest.poll(timeout=0.05)]


def by_callbacks(reader: Reader) -> tuple[Books, Step]:
    books, found = Books(), list[Kind]()
    strategy = SimpleNamespace(on_other=lambda record: found.append(record.kind))
    callbacks = Callbacks(reader, strategy, books=books)

    def step() -> list[Kind]:
        found.clear()
        callbacks.poll(timeout=0.05)
        return list(found)

    return books, step


def by_iteration(reader: Reader) -> tuple[Books, Step]:
    books = Books()

    def step() -> list[Kind]:
        record = next(reader)
        books.apply(record)
        return [record.kind]

    return books, step


FACES = [by_batch, by_record, by_event_loop, by_latest]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    instance = Instance(tmp_path / "feed")
    yield instance
    instance.close()


def let_another_writer_go_on(
    instance: Instance, capacity: int, reader: Reader, books: Books, step: Step
) -> list[Kind]:
    """Check that the book is in doubt until another writer has published it after its RESTART.

    Return the records up to the RESTART.
    """
    other = Instance(instance.directory, capacity)  # it has said nothing yet
    try:
        found = read_until(step, lambda _: reader.alive)
        for _ in range(10):
            found += step()
            assert books[BTC].stale, found
        other.ring.announce_restart(1)
        other.ring.flush()
        found += read_until(step, lambda more: Kind.RESTART in more)
        assert books[BTC].stale
        live(other)
        read_until(step, lambda _: not books[BTC].stale)
    finally:
        other.close()
    return found


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("capacity", [1 << 20, 1 << 21], ids=["same file", "another file"])
@pytest.mark.parametrize("end", [die, fail])
def test_book_of_a_dead_writer_is_in_doubt_until_restart(
    instance: Instance,
    face: Callable[[Reader], tuple[Books, Step]],
    capacity: int,
    end: Callable[[Instance], None],
) -> None:
    live(instance)
    with Reader(instance.address, start="oldest") as reader:
        books, step = face(reader)
        read_until(step, lambda _: BTC in books and not books[BTC].stale)
        end(instance)
        read_until(step, lambda found: Kind.CONNECTION in found)
        assert reader.state == ("failed" if end is fail else "dead")
        assert books[BTC].stale
        found = let_another_writer_go_on(instance, capacity, reader, books, step)
        assert found.index(Kind.CONNECTION) < found.index(Kind.RESTART)


@pytest.mark.parametrize("face", [*FACES, by_callbacks, by_iteration])
def test_book_of_a_feed_that_ended_is_in_doubt_without_a_record(
    instance: Instance, face: Callable[[Reader], tuple[Books, Step]]
) -> None:
    live(instance)
    with Reader(instance.address, start="oldest") as reader:
        books, step = face(reader)
        found = read_until(step, lambda _: BTC in books and not books[BTC].stale)
        instance.close()
        with contextlib.suppress(RingClosedError, StopIteration):
            found += read_until(step, lambda _: books[BTC].stale)
        assert (reader.state, books[BTC].stale, books[BTC].best()[0]) == ("ended", True, 10)
        assert found == [Kind.SESSION, Kind.RECOVERED, Kind.BOOK]


def test_connection_says_whom_it_is_about(instance: Instance) -> None:
    live(instance)
    with Reader(instance.address) as reader:
        die(instance)
        said = next(reader)
        assert (said.stream, said.data["scope"]) == (Stream.NONE, ConnectionScope.WRITER)


@pytest.mark.parametrize("leave", [Instance.close, die, fail])
def test_image_that_nobody_keeps_up_to_date_is_in_doubt(
    instance: Instance, leave: Callable[[Instance], None]
) -> None:
    live(instance)
    keep(instance).on_stop()
    leave(instance)
    begins = "the reader begins with the values of the records that it left, and then"
    with pytest.warns(RuntimeWarning, match=rf"wrote last at \d{{4}}-.*Z; {begins}"):
        reader = Reader(instance.address, image=True)
    with reader:
        books = Books(reader)
        assert kinds_of(books.poll(timeout=0)) == [Kind.CONNECTION]
        while reader.joining:
            books.poll(timeout=0)
            assert not [book for book in books.values() if not book.stale]
        assert books[BTC].stale and books[BTC].best()[0] == 10
        if leave is Instance.close:
            with pytest.raises(RingClosedError):
                reader.poll(timeout=0)
        else:
            assert len(reader.poll(timeout=0.3)) == 0  # said once


def test_reader_of_the_past_of_an_ended_feed_is_not_warned(instance: Instance) -> None:
    live(instance)
    instance.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Reader(instance.address, start="begin") as reader:
            assert [record.kind for record in reader][-1] is Kind.BOOK
    begins = "the reader begins behind the records that it left, and then ends"
    with pytest.warns(RuntimeWarning, match=f"has ended, and .*; {begins}"):
        reader = Reader(instance.address)
    with reader:
        assert list(reader) == []
    gets = "the reader gets the records that it left, and then ends"
    with pytest.warns(RuntimeWarning, match=f"has ended, and .*; {gets}"):
        reader = Reader(instance.address, start="oldest")
    with reader:
        assert [record.kind for record in reader][-1] is Kind.BOOK


def test_values_of_a_fanout_whose_feed_has_ended_are_in_doubt(instance: Instance) -> None:
    with Turned(instance, last_values=True) as turned:
        live(instance)
        turned.turn()
        with turned.open(image=True) as reader:
            live(instance)
            turned.turn()
            turned.end()
            books = Books()
            for record in reader:
                books.apply(record)
            assert books[BTC].stale and books[BTC].best()[0] == 10
        with turned.open(image=True) as reader:
            books = Books()
            records = turned.rest(reader)
            for record in records:
                books.apply(record)
            assert [record.kind for record in records].count(Kind.CONNECTION) == 1
            assert books[BTC].stale and books[BTC].best()[0] == 10


@pytest.mark.parametrize("next_writer", ["the same", "another"])
def test_silent_fanout_of_another_writer_leaves_the_book_in_doubt(
    instance: Instance, next_writer: str
) -> None:
    live(instance)
    with Turned(instance) as turned, turned.open("?silent_ms=1") as reader:
        books, step = by_batch(reader)
        live(instance)
        turned.turn()
        read_until(step, lambda found: Kind.CONNECTION in found and BTC in books)
        assert books[BTC].stale
        other = instance
        if next_writer == "another":
            die(instance)
            other = Instance(instance.directory)
            other.ring.announce_restart(1)
        other.top(1, 2)
        other.ring.flush()
        turned.turn()
        ready = next(reader)
        books.apply(ready)
        assert (ready.kind, ready.data["status"]) == (Kind.CONNECTION, ConnectionStatus.READY)
        same = next_writer == "the same"
        scope = ConnectionScope.FANOUT if same else ConnectionScope.WRITER
        assert ready.data["scope"] == scope
        assert books[BTC].stale is not same
        books.apply_batch(reader.poll(timeout=1))
        assert books[BTC].stale is not same
        if not same:
            other.close()


def test_reader_that_missed_the_restart_is_not_in_doubt_for_ever(instance: Instance) -> None:
    live(instance)
    with Reader(instance.address, start="oldest") as reader:
        books, step = by_batch(reader)
        read_until(step, lambda _: BTC in books)
        die(instance)
        read_until(step, lambda found: Kind.CONNECTION in found)
        other = Instance(instance.directory)
        other.ring.announce_restart(1)
        while other.ring.position < 2 << 20:
            other.append(Kind.MESSAGE, bytes(1000))
        other.ring.flush()
        read_until(step, lambda _: reader.lapped > 0)
        assert books[BTC].stale
        live(other)
        read_until(step, lambda _: not books[BTC].stale)
        other.close()


def test_reader_that_a_dead_writer_lapped_reads_what_is_left_first(instance: Instance) -> None:
    live(instance)
    with Reader(instance.address, start="oldest") as reader:
        while reader.wait(0):
            next(reader)
        while instance.ring.position < 2 << 20:
            instance.append(Kind.MESSAGE, bytes(1000))
        instance.ring.flush()
        die(instance)
        time.sleep(0.21)  # so long between two looks at the writer
        assert reader.wait(0)
        found = [next(reader).kind for _ in range(2)]
        assert found == [Kind.LAPPED, Kind.MESSAGE]
        found = read_until(lambda: kinds_of(reader.poll(timeout=0)), lambda f: Kind.CONNECTION in f)
        assert set(found[:-1]) <= {Kind.MESSAGE}
        time.sleep(0.21)
        assert not reader.wait(0)


def test_subscriber_of_a_feed_that_failed_is_told_once_and_goes_on_with_the_next(
    instance: Instance,
) -> None:
    live(instance)
    with contextlib.ExitStack() as stack:
        with Turned(instance) as turned:
            reader = stack.enter_context(turned.open())
            books, step = by_batch(reader)
            live(instance)
            turned.turn()
            read_until(step, lambda _: BTC in books)
            fail(instance)
            while turned.fanout.work(monotonic_ns()) == 0:  # until it has told that
                pass
        found = read_until(step, lambda found: Kind.CONNECTION in found)
        assert (found.count(Kind.CONNECTION), reader.state) == (1, "failed")
        assert books[BTC].stale
        assert len(reader.poll(timeout=0.05)) == 0  # it was told again and again, and is said once
        other = Instance(instance.directory)
        other.ring.announce_restart(1)
        with Turned(other) as again:

            def turn() -> list[Kind]:
                again.turn()
                return step()

            assert read_until(turn, lambda kinds: Kind.CONNECTION in kinds)[0] == Kind.CONNECTION
            live(other)  # whether or not it had subscribed when the fan-out sent the RESTART
            read_until(turn, lambda _: not books[BTC].stale)
            assert reader.state == "alive"
        other.close()


@pytest.mark.parametrize("kinds", [None, {Kind.TRADES}])
def test_records_of_a_file_that_came_and_went_are_missing_before_the_next_one_comes(
    instance: Instance, kinds: set[Kind] | None
) -> None:
    live(instance)
    with Reader(instance.address, start="oldest", kinds=kinds) as reader:
        while reader.wait(0):
            next(reader)
        die(instance)
        between = Instance(instance.directory, 1 << 21)  # another size needs another file
        between.book([(12, 1)], [(13, 1)], stream=1)
        between.close()
        after = Instance(instance.directory, 1 << 20)  # quiet yet
        read = reader.index
        assert not reader.wait(0)
        reader._look()  # type: ignore[attr-defined]
        assert reader.wait(0)
        told = next(reader)
        assert (told.kind, told.lapped, reader.lapped) == (Kind.LAPPED, 1, 1)
        assert not reader.wait(0)
        assert reader.index == read + 1
        after.append(Kind.TRADES, bytes(24))
        after.ring.flush()
        assert next(reader).kind is Kind.TRADES
        assert reader.lapped == 1
        after.close()


def test_what_another_log_follows_is_in_doubt_before_that_has_a_record(instance: Instance) -> None:
    live(instance)
    with Reader(instance.address, start="oldest") as reader:
        books = Books(reader)
        read_until(lambda: kinds_of(books.poll(timeout=0)), lambda kinds: Kind.BOOK in kinds)
        assert not books[BTC].stale
        die(instance)
        (instance.directory / "ring").unlink()
        after = Instance(instance.directory, 1 << 20)
        reader._look()  # type: ignore[attr-defined]
        books.poll(timeout=0)
        assert books[BTC].stale and reader.lapped == 1
        after.close()


STUCK_NS = 1_100_000_000


def let_it_be_stuck(instance: Instance, books: Books, step: Step) -> None:
    """Read a sound book; then read that its writer's loop stands still."""
    read_until(step, lambda _: BTC in books and not books[BTC].stale)
    instance.ring.note_current(monotonic_ns() - STUCK_NS)
    read_until(step, lambda found: Kind.CONNECTION in found)


@contextlib.contextmanager
def stuck(instance: Instance) -> Iterator[tuple[Reader, Books, Step]]:
    """Read by batches, until the loop of the writer stands still."""
    live(instance)
    with Reader(instance.address, start="oldest") as reader:
        books, step = by_batch(reader)
        let_it_be_stuck(instance, books, step)
        yield reader, books, step


@pytest.mark.parametrize("face", FACES)
def test_book_of_a_stuck_writer_is_in_doubt_until_its_loop_has_caught_up(
    instance: Instance, face: Callable[[Reader], tuple[Books, Step]]
) -> None:
    live(instance)
    instance.ring.note_current(monotonic_ns())
    with Reader(instance.address, start="oldest") as reader:
        books, step = face(reader)
        let_it_be_stuck(instance, books, step)
        assert (reader.state, books[BTC].stale) == ("stuck", True)
        instance.book([(12, 1)], [(13, 1)], stream=1)  # old by now, like all that it catches up
        instance.ring.flush()
        found = read_until(step, lambda found: Kind.BOOK in found)
        assert Kind.CONNECTION not in found and books[BTC].stale
        # Another stream begins anew: that is old by now, too, and says nothing of this one.
        instance.append(Kind.SESSION, bytes(SESSION.itemsize), stream=2, session=2)
        instance.ring.flush()
        read_until(step, lambda found: Kind.SESSION in found)
        instance.book([(12, 2)], [(13, 2)], stream=1)
        instance.ring.flush()
        read_until(step, lambda found: Kind.BOOK in found)
        assert books[BTC].stale
        instance.book([(12, 2)], [(13, 2)], stream=1)
        instance.ring.flush()
        instance.ring.note_current(monotonic_ns())
        found = read_until(step, lambda found: Kind.CONNECTION in found)
        assert found.index(Kind.BOOK) < found.index(Kind.CONNECTION)
        assert (reader.state, books[BTC].stale) == ("alive", False)


@pytest.mark.parametrize("face", FACES)
def test_lap_does_not_end_the_doubt_of_a_loop_that_catches_up(
    instance: Instance, face: Callable[[Reader], tuple[Books, Step]]
) -> None:
    live(instance)
    instance.ring.note_current(monotonic_ns())
    with Reader(instance.address, start="oldest") as reader:
        books, step = face(reader)
        let_it_be_stuck(instance, books, step)
        end = instance.ring.position + (2 << 20)
        while instance.ring.position < end:
            instance.append(Kind.MESSAGE, bytes(1000))
        instance.ring.flush()
        read_until(step, lambda _: reader.lapped > 0)
        instance.append(Kind.RECOVERED, bytes(24), object_type=3, object_id=7, session=1)
        instance.book([(12, 1)], [(13, 1)], snapshot=True, stream=1, follows=50)
        instance.ring.flush()
        read_until(step, lambda found: Kind.BOOK in found)
        assert books[BTC].stale  # complete, but as old as the loop is behind
        instance.ring.note_current(monotonic_ns())
        read_until(step, lambda found: Kind.CONNECTION in found)
        assert (reader.state, books[BTC].stale) == ("alive", False)


def test_writer_behind_a_stuck_one_ends_the_doubt_though_its_restart_was_missed(
    instance: Instance,
) -> None:
    with stuck(instance) as (reader, books, step):
        die(instance)
        other = Instance(instance.directory)
        other.ring.announce_restart(1)
        while other.ring.position < 3 << 20:
            other.append(Kind.MESSAGE, bytes(1000))
        other.ring.flush()
        read_until(step, lambda _: reader.lapped > 0)
        assert books[BTC].stale
        live(other)
        read_until(step, lambda _: not books[BTC].stale)
        other.close()


@pytest.mark.parametrize("capacity", [1 << 20, 1 << 21], ids=["same file", "another file"])
def test_writer_behind_a_stuck_one_ends_the_doubt_by_its_restart_alone(
    instance: Instance, capacity: int
) -> None:
    with stuck(instance) as (reader, books, step):
        die(instance)
        let_another_writer_go_on(instance, capacity, reader, books, step)


def test_stuck_writer_says_so_in_the_records_scope(instance: Instance) -> None:
    with Reader(instance.address) as reader:
        instance.ring.note_current(monotonic_ns() - STUCK_NS)
        said = next(reader)
        assert (said.stream, said.data["scope"]) == (Stream.NONE, ConnectionScope.LOOP)
        assert said.data["status"] == ConnectionStatus.DISCONNECTED
        instance.ring.note_current(monotonic_ns())
        said = next(reader)
        assert said.data["scope"] == ConnectionScope.LOOP
        assert said.data["status"] == ConnectionStatus.READY


def test_image_of_a_stuck_writer_is_in_doubt_until_its_loop_has_caught_up(
    instance: Instance,
) -> None:
    live(instance)
    keep(instance).on_stop()
    instance.ring.note_current(monotonic_ns() - STUCK_NS)
    with pytest.warns(RuntimeWarning, match="stands still"):
        reader = Reader(instance.address, image=True)
    with reader:
        books = Books(reader)
        assert kinds_of(books.poll(timeout=0)) == [Kind.CONNECTION]
        while reader.joining:
            books.poll(timeout=0)
            assert not [book for book in books.values() if not book.stale]
        instance.ring.note_current(monotonic_ns())
        assert kinds_of(books.poll(timeout=1)) == [Kind.CONNECTION]
        assert not books[BTC].stale


def test_writer_that_never_says_that_it_is_at_work_is_not_stuck(instance: Instance) -> None:
    live(instance)
    with Reader(instance.address) as reader:
        assert reader.state == "alive"
        assert len(reader.poll(timeout=0.5)) == 0
