"""Several addresses as one stream: one order for any batch size, each record with its names."""

import random

import numpy as np
import pytest

import udpfast
from tests.agents.test_recorder import drive, recorder_of
from tests.client.instance import Instance
from tests.waiting import PATIENCE_S, wait_until
from udpfast import Books
from udpfast.client.reader import Reader
from udpfast.core.layout import OBJECT_STATE, SESSION, Kind, RecordFlag
from udpfast.errors import ConfigError
from udpfast.log.journal import Journal
from udpfast.log.ring import Ring
from udpfast.market.updates import LAYOUTS, PAYLOAD_HASH

SEGMENT = 1 << 18


def journal_of(directory, stamps):
    """Make a journal of messages published at these times, with their numbers as contents."""
    with Journal.open(directory, LAYOUTS, segment_bytes=SEGMENT, durable=False) as journal:
        for number, stamp in enumerate(stamps):
            journal.append(Kind.MESSAGE, number.to_bytes(2, "little") * 50, published_ns=stamp)
    return f"journal:{directory}"


@pytest.mark.parametrize("batch", [1, 7, 4096])
def test_journals_are_merged_in_the_order_of_publication(tmp_path, batch):
    draw = random.Random(1)
    stamps = [sorted(draw.randrange(1000) for _ in range(size)) for size in (3000, 500, 0, 1200)]
    addresses = [journal_of(tmp_path / str(i), times) for i, times in enumerate(stamps)]
    expected = sorted(
        (stamp, place, number)
        for place, times in enumerate(stamps)
        for number, stamp in enumerate(times)
    )
    found = []
    with Reader(addresses, batch=batch) as reader:
        for record in reader:
            place = addresses.index(reader.origin)
            number = int.from_bytes(record.payload[:2], "little")
            assert bytes(record.payload) == number.to_bytes(2, "little") * 50
            assert record.index == number
            found.append((record.published_ns, place, number))
        assert reader.lag == 0
    assert found == expected


def test_records_of_one_source_stay_in_their_order_when_its_clock_steps_back(tmp_path):
    addresses = [
        journal_of(tmp_path / "a", [10, 20, 5, 30]),
        journal_of(tmp_path / "b", [15, 25]),
    ]
    with Reader(addresses) as reader:
        assert [record.published_ns for record in reader] == [10, 15, 20, 5, 25, 30]


def test_batches_are_of_one_source_each(tmp_path):
    addresses = [journal_of(tmp_path / "a", range(100)), journal_of(tmp_path / "b", [49, 50])]
    runs = []
    with Reader(addresses) as reader:
        while reader.wait(timeout=0):
            batch = reader.poll(timeout=0)
            runs.append((reader.origin, batch.headers["published_ns"].tolist()))
    assert runs == [
        (addresses[0], list(range(50))),
        (addresses[1], [49]),
        (addresses[0], [50]),
        (addresses[1], [50]),
        (addresses[0], list(range(51, 100))),
    ]


def test_journals_are_merged_from_a_time_to_a_time(tmp_path):
    begin_ns = 10**18
    stamps = range(begin_ns, begin_ns + 100)
    addresses = [journal_of(tmp_path / each, stamps) for each in "ab"]
    with Reader(addresses, start=begin_ns + 40, end=begin_ns + 50) as reader:
        assert [record.published_ns - begin_ns for record in reader] == [
            n for n in range(40, 50) for _ in "ab"
        ]


@pytest.mark.parametrize("history", [False, True], ids=["ring", "history"])
def test_ring_removed_under_its_feed_is_said_once_and_the_others_go_on(rings, tmp_path, history):
    one, two = rings
    one.book([(1.0, 2.0)], [(9.0, 4.0)], "A", True, object_id=1)
    two.book([(1.0, 2.0)], [(9.0, 4.0)], "B", True, object_id=1)
    recorder = recorder_of(one, tmp_path) if history else None
    if recorder:
        drive(recorder)
        recorder.on_stop()
    addresses = [one.address, two.address, *[f"journal:{tmp_path / 'journal'}"] * history]
    with Reader(addresses, start="begin") as reader:
        books = Books(reader)
        for _ in range(2):
            books.apply(next(reader))
        (one.directory / "ring").unlink()
        kinds = []
        for number in range(3):  # its feed lives, and writes what nobody can read any more
            one.top(number, number + 1)
            one.ring.flush()
            two.top(number, number + 1)
            reader._look()
            while reader.wait(0):
                record = next(reader)
                books.apply(record)
                kinds.append((reader.origin, record.kind))
        assert [kind for origin, kind in kinds if origin == one.address][-1] == Kind.CONNECTION
        assert kinds.count((one.address, Kind.CONNECTION)) == 1
        assert kinds.count((two.address, Kind.TOP_OF_BOOK)) == 3
        stale = {symbol: book.stale for (_, symbol), book in books.items()}
        assert stale == {"A": True, "B": False}
        with Ring.create(one.directory, 1 << 20, PAYLOAD_HASH) as ring:  # a feed is there again
            ring.announce_restart(99)
            ring.append(Kind.MESSAGE, b"later")
            ring.flush()
            reader._look()
            again = []
            while Kind.MESSAGE not in again:
                again += [int(kind) for kind in reader.poll(timeout=PATIENCE_S).headers["kind"]]
            assert again[-2:] == [Kind.RESTART, Kind.MESSAGE]
        one.close()
        two.close()
        assert {record.kind for record in reader} <= {Kind.CONNECTION, Kind.LAPPED}


@pytest.fixture
def rings(tmp_path):
    """Return two instances, closed at the end."""
    rings = Instance(tmp_path / "one"), Instance(tmp_path / "two")
    yield rings
    for each in rings:
        each.close()


def test_rings_are_read_together_with_names_of_their_own(rings):
    one, two = rings
    two.names.intern("something else")
    with Reader([one.address, two.address], start="begin") as reader:
        assert len(reader.poll(timeout=0)) == 0
        two.top(1, 2, symbol="LATE")
        assert next(reader).symbol == "LATE" and reader.origin == two.address
        one.top(1, 2, symbol="FIRST")  # published at the same time as the first of the other
        two.top(3, 4, symbol="SECOND")
        found = [(next(reader).symbol, reader.origin) for _ in range(2)]
        assert found == [("FIRST", one.address), ("SECOND", two.address)]
        assert reader.lag == 0
        one.close()
        two.top(5, 6, symbol="AFTER")
        two.close()
        (_, after), *ends = [(reader.origin, record) for record in reader]
        assert after.symbol == "AFTER"
        assert {record.kind for _, record in ends} == {udpfast.Kind.CONNECTION}
        assert sorted(origin for origin, _ in ends) == sorted([one.address, two.address])
        with pytest.raises(udpfast.RingClosedError):
            reader.poll(timeout=0)


def test_records_in_hand_outlive_that_their_source_goes_on_elsewhere(tmp_path):
    one, two = Instance(tmp_path / "one", 1 << 14), Instance(tmp_path / "two")
    recorder = recorder_of(one, tmp_path)

    def publish(ring, *stamps):
        for stamp in stamps:
            ring.append(Kind.MESSAGE, b"%08d" % stamp, published_ns=stamp)
        ring.flush()

    publish(one.ring, 1)
    drive(recorder)
    publish(one.ring, 20, 21)
    publish(two.ring, 10)
    addresses = [one.address, f"journal:{tmp_path / 'journal'}", two.address]
    with Reader(addresses, start="begin") as reader:
        assert [next(reader).published_ns for _ in range(2)] == [1, 10]  # 20 and 21 are in hand
        drive(recorder)
        one.ring.region.close()
        with Ring.create(one.directory, 1 << 13, PAYLOAD_HASH) as ring:
            for stamp in range(30, 430, 20):  # the ring has only the last of them
                publish(ring, *range(stamp, stamp + 20))
                drive(recorder)
            found = []
            while 429 not in found:
                reader._look()  # as a busy reader does by the clock
                assert reader.wait(PATIENCE_S)
                record = next(reader)
                found += [record.published_ns] if record.kind is Kind.MESSAGE else []
            assert found == [20, 21, *range(30, 430)] and reader.lapped == 0
            recorder.on_stop()
    one.close()
    two.close()


def test_live_ring_and_journal_are_read_with_kinds(rings, tmp_path):
    one, _ = rings
    kept = journal_of(tmp_path / "kept", [2001, 2003])
    for number in range(3):
        one.top(number, number + 1)
        one.append(Kind.MESSAGE, b"raw")
    one.close()
    with pytest.warns(RuntimeWarning, match="has ended"):
        reader = Reader([one.address, kept], start="begin", kinds=Kind.MESSAGE)
    with reader:
        found = [(record.published_ns, reader.origin) for record in reader]
    assert found.pop()[1] == one.address  # that it has ended
    assert found == [(2001, kept), (2002, one.address), (2003, kept)] + [
        (stamp, one.address) for stamp in (2004, 2006)
    ]


def test_composite_says_what_is_missing(rings):
    one, two = rings
    with Reader([one.address, two.address]) as reader:
        for _ in range(30_000):  # comes round
            one.append(Kind.MESSAGE, bytes(100))
        two.append(Kind.MESSAGE, b"x")
        one.ring.flush()
        one.close()
        two.close()
        lapped = [record.lapped for record in reader if record.kind is Kind.LAPPED]
        assert len(lapped) == 1 and lapped[0] == reader.lapped > 0


def test_books_of_a_journal_beside_a_feed_that_ended_stay_as_it_left_them(tmp_path):
    recorded, live = Instance(tmp_path / "a", 1 << 22), Instance(tmp_path / "b", 1 << 22)
    for one, symbol in ((recorded, "A"), (live, "B")):
        one.book([(10.0, 1.0)], [], symbol, flags=RecordFlag.UNGATED, snapshot=True)
        one.ring.flush()
    recorder = recorder_of(recorded, tmp_path)
    drive(recorder)
    recorder.on_stop()
    recorded.close()
    with Reader([f"journal:{tmp_path / 'journal'}", live.address], start="begin") as reader:
        live.close()
        books = Books()
        for record in reader:
            books.apply(record)
        assert {symbol: book.stale for (_, symbol), book in books.items()} == {
            "A": False,
            "B": True,
        }


def test_books_of_two_sources_with_equal_numbers_are_never_mixed(rings):
    feeds = [(rings[0], "BTC", 100.0), (rings[1], "ETH", 7.0)]
    session = np.zeros((), SESSION).tobytes()
    with Reader([one.address for one, _, _ in feeds]) as reader:
        books, held = Books(reader), {one.address: Books() for one, _, _ in feeds}
        for ring, symbol, price in feeds:
            ring.append(Kind.SESSION, session, session=1)
            fields = {"object_type": 3, "object_id": 7, "session": 1, "follows": 0}
            ring.append(Kind.RECOVERED, np.zeros((), OBJECT_STATE).tobytes(), **fields)
            ring.book([(price, 1.0)], [(price + 1, 1.0)], symbol, snapshot=True, follows=0)
        for step in range(1, 4):
            for ring, symbol, price in feeds:
                ring.book([(price - step, 1.0)], [], symbol)
        while len(batch := books.poll(timeout=0)):
            held[reader.origin].apply_batch(batch)
            for own in held.values():
                for key, right in own.items():
                    assert books[key].stale or books[key].bids().tolist() == right.bids().tolist()
        for ring, symbol, price in feeds:
            ((key, book),) = held[ring.address].items()
            assert key[1] == symbol and not book.stale
            assert book.bids()[:, 0].tolist() == [price - step for step in range(4)]


@pytest.mark.parametrize("dead", [0, 1])
def test_dead_writer_of_one_address_leaves_the_books_of_the_others_sound(rings, dead):
    living = rings[1 - dead]
    with Reader([one.address for one in rings]) as reader:
        books = Books(reader)
        for number, one in enumerate(rings):
            one.book([(100.0, 1.0)], [(101.0, 1.0)], f"S{number}", snapshot=True)
        while len(books.poll(timeout=0)):
            pass
        assert [book.stale for book in books.values()] == [False, False]
        rings[dead].ring.region.close()  # unsaid, as when it is killed
        wait_until(lambda: len(books.poll(timeout=0)), "word that it is dead")
        assert reader.origin == rings[dead].address and reader.alive
        assert books.at(rings[dead].address)["binance-usdm", f"S{dead}"].stale
        living.book([(99.0, 1.0)], [], f"S{1 - dead}")
        books.poll(timeout=0)
        book = books.at(living.address)["binance-usdm", f"S{1 - dead}"]
        assert not book.stale and book.bids()[:, 0].tolist() == [100.0, 99.0]
        assert books.at(rings[dead].address)["binance-usdm", f"S{dead}"].stale


def test_composite_refuses_what_it_cannot_do(rings, tmp_path):
    one, two = rings
    for addresses, options in (
        ([], {}),
        ([one.address, one.address], {}),
        ([one.address, "nowhere:x"], {}),
        ([one.address, two.address], {"image": True}),
        ([one.address, two.address], {"start": "2026-08-21T09:30Z"}),
    ):
        with pytest.raises(ConfigError):
            Reader(addresses, **options)
    with pytest.raises(FileNotFoundError):
        Reader([one.address, f"journal:{tmp_path}/nothing"])
    with Reader([one.address, two.address]) as reader:
        reader.close()
        assert reader.closed
        with pytest.raises(ValueError, match="closed"):
            reader.poll(timeout=0)


def test_misspelt_name_is_said_of_all_sources_of_a_list(tmp_path):
    first, second = Instance(tmp_path / "first"), Instance(tmp_path / "second")
    first.top(1, 2, symbol="BTC")
    second.top(1, 2, symbol="ETH")
    second.ring.flush()
    recorder = recorder_of(first, tmp_path)
    drive(recorder)
    addresses = [f"journal:{tmp_path / 'journal'}", second.address]
    for order in (addresses, addresses[::-1]):
        with pytest.warns(UserWarning, match="symbol .*'BTX'; published are BTC, ETH"):
            Reader(order, symbols=["BTC", "BTX"]).close()
        with Reader(order, symbols=["BTC", "ETH"], start="oldest") as reader:
            assert sorted(next(reader).symbol or "" for _ in range(2)) == ["BTC", "ETH"]
    recorder.on_stop()
    first.close()
    second.close()
