"""A composite whose order log loses its end: all readers end with the same records."""

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bus.drive import T0, lead, send
from tests.cases import nightly
from tests.client.test_composite_source import Composite
from udpfast.bus.merger import ORDER_BACK, ORDER_ENTRY
from udpfast.client.reader import Reader
from udpfast.client.record import ReadRecord
from udpfast.core.layout import Kind


class Changing(Composite):
    """A composite whose logs lose their ends, as if a host without these were promoted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sent = [0, 0]

    def send(self, input_: int, count: int = 1) -> None:
        """Let an app send into an input; its messages are all different."""
        send(self.seqs[input_], self.sent[input_] + 1, count)
        self.sent[input_] += count

    def order(self) -> None:
        """Order all records that are there."""
        while self.work():
            pass

    def lose_order(self, position: int) -> None:
        """Let the order log lose its entries from a position on."""
        order = self.kept["order"].store
        order.cut(position)
        self.now_ns += 1_000_000
        self.node.sequencer = lead(order, self.now_ns, T0 + self.now_ns, promoted=True)
        self.begin()
        self.kept["order"].tell()

    def lose_input(self, input_: int, position: int, sent: int) -> None:
        """Let an input lose its records from a position on; `sent` messages are before it."""
        kept = self.kept["ab"[input_]]
        kept.store.cut(position)
        self.seqs[input_] = lead(kept.store, promoted=True)
        self.sent[input_] = sent
        kept.tell()

    def first_entry(self) -> int:
        """Return the position of the first entry of the order log."""
        log = self.kept["order"].store.log
        record = next(log.records(0, log.end, kinds=1 << Kind.ORDER))
        return int.from_bytes(record[8:16], "little")

    def end(self, name: str = "order") -> int:
        """Return the end of a log."""
        return int(self.kept[name].store.end)


class Held:
    """The records that a reader has of a composite, without those that were taken back.

    `began` has the records before the place where it began to read.
    """

    def __init__(self, reader: Reader, began: list[tuple[str, bytes]] | None = None) -> None:
        self.reader = reader
        self.records = list(began or [])
        self.backs: list[tuple[str, int]] = []

    def look(self, most: int = 1 << 60) -> "Held":
        """Read the records that are there, up to a maximum."""
        while most > 0 and self.reader.wait(0):
            record = next(self.reader)
            name = self.reader.origin.rpartition("/")[2]
            most -= 1
            if record.kind is not Kind.ROLLBACK:
                self.records.append((name, bytes(record)))
                continue
            count = int(record.data["records"])
            self.backs.append((name, count))
            own = [at for at, (whose, _) in enumerate(self.records) if whose == name]
            assert 0 < count <= len(own), "more was taken back than the reader had"
            for at in reversed(own[-count:]):
                gone = int.from_bytes(self.records[at][1][16:24], "little")
                assert gone >= record.index, "the ROLLBACK says from which record on"
                del self.records[at]
        return self


def late(both: Composite) -> list[tuple[str, bytes]]:
    """Return the records of a reader that begins now."""
    with Reader(both.address) as reader:
        return Held(reader).look().records


def whole(both: Composite, name: str) -> list[bytes]:
    """Return all records of an input."""
    log = both.kept[name].store.log
    return [record[: int.from_bytes(record[:4], "little")]
            for record in log.records(0, log.end)]  # fmt: skip


def check(both: Changing, held: Held) -> None:
    """Compare with a reader that begins now, and with the inputs."""
    expected = late(both)
    assert held.records == expected
    for name in "ab":
        assert [record for whose, record in expected if whose == name] == whole(both, name)


def begin(folder: Path) -> tuple[Changing, int]:
    """Return a composite, and a position in its order log with entries on both sides."""
    both = Changing(folder)
    both.send(0, 3)
    both.order()
    both.send(1, 2)
    both.order()
    place = both.end()
    return both, place


def more(both: Changing) -> None:
    """Add two entries, of five and four records."""
    both.send(0, 5)
    both.order()
    both.send(1, 4)
    both.order()


def test_reader_is_told_of_each_input_what_the_order_lost(tmp_path: Path) -> None:
    both, place = begin(tmp_path)
    more(both)
    with Reader(both.address) as reader:
        held = Held(reader).look()
        both.lose_order(place)
        held.look()
        assert sorted(held.backs) == [("a", 5), ("b", 4)]
        both.send(1, 2)
        both.order()
        held.look()
        check(both, held)
        assert sorted(held.backs) == [("a", 5), ("b", 4)]


def test_reader_that_was_behind_is_told_of_what_it_read_alone(tmp_path: Path) -> None:
    both, place = begin(tmp_path)
    before = len(late(both))
    more(both)
    for count in (1, before - 1, before, before + 1, before + 5, before + 6):
        folder = tmp_path / str(count)
        both, place = begin(folder)
        more(both)
        with Reader(both.address, batch=1) as reader:
            held = Held(reader).look(count)
            assert len(held.records) == count
            both.lose_order(place)
            held.look()
            assert sum(taken for _, taken in held.backs) == max(count - before, 0)
            both.order()
            held.look()
            check(both, held)


def test_reader_does_not_wait_for_what_a_lost_entry_took(tmp_path: Path) -> None:
    both, place = begin(tmp_path)
    a = both.end("a")
    both.send(0, 5)
    both.merger.work(50_000_000, 1_700_000_000_050_000_000)
    both.kept["order"].tell()
    with Reader(both.address, batch=1) as reader:
        held = Held(reader).look(2)
        both.lose_input(0, a, 3)  # nobody has what the entry takes, and no entry says so
        both.lose_order(place)
        both.send(1, 3)
        both.now_ns = 60_000_000
        both.order()
        held.look()
        check(both, held)


@pytest.mark.parametrize("first", ["order", "input"])
def test_reader_of_an_order_and_an_input_that_lost_their_ends(tmp_path: Path, first: str) -> None:
    both, place = begin(tmp_path)
    a = both.end("a")
    both.send(0, 5)
    both.order()
    both.send(1, 4)
    both.order()
    with Reader(both.address) as reader:
        held = Held(reader).look()
        losses: list[Callable[[], None]] = [
            lambda: both.lose_order(place), lambda: both.lose_input(0, a, 3)
        ]  # fmt: skip
        for lose in losses if first == "order" else reversed(losses):
            lose()
            held.look()
        both.send(0, 7)
        both.order()
        held.look()
        check(both, held)
        assert sum(count for name, count in held.backs if name == "b") == 4


def test_reader_goes_back_where_the_order_said_again_that_an_input_lost_records(
    tmp_path: Path,
) -> None:
    both, _ = begin(tmp_path)
    a = both.end("a")
    both.send(0, 5)
    both.order()
    place = both.end()
    with Reader(both.address) as reader:
        held = Held(reader).look()
        both.lose_input(0, a, 3)
        both.send(0, 2)
        both.order()  # says that the input lost records, and takes others
        both.send(1, 1)
        both.order()
        held.look()
        both.lose_order(place)
        both.send(1, 1)
        held.look()
        both.order()
        held.look()
        check(both, held)


def test_order_that_loses_its_end_twice_in_a_row(tmp_path: Path) -> None:
    both, place = begin(tmp_path)
    more(both)
    between = both.end()
    more(both)
    with Reader(both.address) as reader, Reader(both.address) as other:
        held, seldom = Held(reader).look(), Held(other).look()
        both.lose_order(between)
        assert sorted(held.look().backs) == [("a", 5), ("b", 4)]
        both.lose_order(place)
        assert sorted(held.look().backs) == [("a", 5), ("a", 5), ("b", 4), ("b", 4)]
        both.order()
        both.lose_order(place)
        both.send(0, 2)
        both.order()
        check(both, held.look())
        check(both, seldom.look())


@pytest.mark.parametrize("start", ["tail", "position", "inside"])
def test_reader_that_began_behind_the_loss_is_told_of_what_was_before(
    tmp_path: Path, start: str
) -> None:
    both, place = begin(tmp_path)
    both.send(0, 5)
    both.order()
    inside = both.end()
    had = late(both)
    both.send(1, 4)
    both.order()
    where = {"tail": "tail", "position": ("position", both.end()), "inside": ("position", inside)}
    with Reader(both.address, start=where[start]) as reader:
        held = Held(reader, had if start == "inside" else late(both))
        if start == "inside":
            held.look()
        both.lose_order(place)
        held.look()
        assert sorted(held.backs) == [("a", 5), ("b", 4)]
        both.order()
        check(both, held.look())


def test_reader_that_began_behind_what_an_input_lost_is_told_of_it(tmp_path: Path) -> None:
    both, _ = begin(tmp_path)
    a = both.end("a")
    both.send(0, 5)
    both.order()
    with Reader(both.address, start="tail") as reader:
        held = Held(reader, late(both))
        both.lose_input(0, a, 3)
        both.order()
        both.send(0, 2)
        both.order()
        held.look()
        assert held.backs == [("a", 5)]
        check(both, held)


def test_reader_of_an_order_that_lost_all_of_its_entries(tmp_path: Path) -> None:
    both, _ = begin(tmp_path)
    first = both.first_entry()
    with Reader(both.address) as reader, Reader(both.address, start="tail") as other:
        held, begun = Held(reader).look(), Held(other, late(both))
        both.lose_order(first)
        assert len(held.look().records) == 0
        assert len(begun.look().records) == 0
        both.send(1, 3)
        both.order()
        check(both, held.look())
        check(both, begun.look())


def test_filter_leaves_out_records_but_no_rollback(tmp_path: Path) -> None:
    both, place = begin(tmp_path)
    more(both)
    with Reader(both.address, kinds=[Kind.SENDER]) as reader:

        def all_there() -> list[ReadRecord]:
            # A wait also ends with a batch of which no record passes the filter.
            return [next(reader) for _ in range(20) if reader.wait(0)]

        assert Kind.BUS not in {record.kind for record in all_there()}
        both.lose_order(place)
        told = [record for record in all_there() if record.kind is Kind.ROLLBACK]
        assert sorted(int(record.data["records"]) for record in told) == [4, 5]


class History:
    """A composite with random events from a seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.both, _ = begin(folder)
        self._marks: list[tuple[int, list[int], list[int]]] = []
        self._mark()

    def _mark(self) -> None:
        both = self.both
        self._marks.append((both.end(), [both.end("a"), both.end("b")], list(both.sent)))

    def step(self) -> None:
        """Let one random event happen."""
        chance, both = self.chance, self.both
        what = chance.random()
        if what < 0.6:
            both.send(chance.randrange(2), chance.randrange(1, 9))
        elif what < 0.85:
            both.order()
            self._mark()
        elif what < 0.95:
            del self._marks[chance.randrange(1, len(self._marks) + 1) :]
            both.lose_order(self._marks[-1][0])
        else:
            _, ends, sent = chance.choice(self._marks)
            at = chance.randrange(2)
            both.lose_input(at, ends[at], sent[at])
            self._marks = [mark for mark in self._marks if mark[1][at] <= ends[at]]
            if chance.random() < 0.5:
                both.order()


@pytest.mark.parametrize("seed", [*range(12), *nightly(*range(12, 40))])
def test_readers_hold_what_a_later_one_reads_whatever_was_lost(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    both, chance = history.both, history.chance
    with ExitStack() as readers:

        def follow(start: str, batch: int, had: list[tuple[str, bytes]] | None = None) -> Held:
            reader = Reader(both.address, start=start, batch=batch)
            return Held(readers.enter_context(reader), had)

        followers = [follow("begin", 1024), follow("begin", 3)]

        def look() -> None:
            for each in followers:
                each.look()

        for turn in range(60):
            history.step()
            if turn % 15 == 5:
                both.order()  # else one that begins now waits, and has less than is ordered
                followers.append(follow("tail", 64, late(both)))
            for each in followers:
                if chance.random() < 0.4:
                    each.look(chance.choice([1, 5, 1 << 60]))
        both.send(0)
        both.order()
        look()
        for each in followers:
            check(both, each)


def test_reader_is_told_that_it_misses_what_a_lost_entry_had_taken_back(tmp_path: Path) -> None:
    both, _ = begin(tmp_path)
    store = both.kept["a"].store
    a, index = store.end, store.log.end_index
    both.send(0, 5)
    both.order()
    place = both.end()
    with Reader(both.address) as reader:
        held = Held(reader).look()
        back = ORDER_ENTRY.pack(0, ORDER_BACK, a, store.end, index, 5)
        epoch, _ = store.lineage.at(a - 1)
        assert both.node.sequencer.order(back, epoch, both.now_ns, T0 + both.now_ns)
        both.kept["order"].tell()
        held.look()
        assert held.backs == [("a", 5)]
        both.lose_order(
            place
        )  # the input has these records still: they were taken back for nothing
        both.send(0, 2)
        both.order()
        batch = reader.poll(timeout=5)
        assert (batch.lapped, len(batch)) == (5, 2)
        assert batch.headers["index"].tolist() == [index + 5, index + 6]
