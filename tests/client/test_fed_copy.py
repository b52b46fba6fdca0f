"""The copy of a composite of feeds' stores has their names, sessions and books."""

import errno
import json
import random
import struct
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from click.testing import CliRunner

from tests.bus.drive import MS, T0
from tests.cases import nightly
from tests.client.fed_composite import FEEDS, FedComposite, FedStore
from tests.export.test_composite import read
from udpfast import Books, Kind, Reader
from udpfast.archive.bus_files import copy_directory
from udpfast.archive.copied_sessions import copied_input, copied_session
from udpfast.archive.store_names import StoreNames
from udpfast.cli.main import cli
from udpfast.client.composite_copy import CompositeCopy
from udpfast.core.layout import Stream
from udpfast.export.exporter import Exporter
from udpfast.export.scan import Scan
from udpfast.export.wanted import Wanted

#: Instruments of both feeds, and of one of them.
SAME, OWN = ("x", "BTC"), {"left": ("x", "ETH"), "right": ("y", "BTC")}


def market(both: FedComposite, seed: int = 1, turns: int = 40) -> None:
    """Let feeds and an app write in turns: books, tops, doubts, sessions, restarts, new names."""
    chance = random.Random(seed)
    for turn in range(turns):
        both.send(chance.randrange(1, 4))
        for feed, name in zip(both.feeds, FEEDS, strict=True):
            with feed.at_work():
                if not feed.session or chance.random() < 0.1:
                    begin(feed, name)
                for _ in range(chance.randrange(1, 12)):
                    write(feed, name, chance)
                if chance.random() < 0.2:
                    feed.top("z", f"{name}-{turn}", turn)
        both.work()


def begin(feed: FedStore, name: str) -> None:
    feed.restart()
    feed.begin()
    for number, names in enumerate((SAME, OWN[name])):
        feed.state(Kind.RECOVERED, *names, number)
        feed.book(*names, 100 * feed.session + number, number)


def write(feed: FedStore, name: str, chance: random.Random) -> None:
    number = chance.randrange(2)
    names = (SAME, OWN[name])[number]
    what = chance.random()
    if what < 0.05:
        feed.say(Kind.GAP, first=feed.number, last=feed.number + 1)
    elif what < 0.1:
        feed.state(Kind.STALE, *(names if chance.random() < 0.5 else ("", "")), number)
    elif what < 0.3:
        feed.state(Kind.RECOVERED, *names, number)
        feed.book(*names, chance.randrange(1000), number)
    elif what < 0.8:
        feed.book(*names, chance.randrange(1000), number, snapshot=False)
    else:
        feed.top(*names, chance.randrange(1000))


def finish(both: FedComposite, directory: Path | None = None, **options: Any) -> Path:
    """Copy all records; return the directory."""
    options = {"segment_bytes": 1 << 20} | options  # read to its end by each that opens it
    with CompositeCopy(str(both.folder / "order"), directory, **options) as copying:
        while copying.turn():
            pass
        assert copying.lapped == 0
        return copying.journal.directory


def records(address: str, **wanted: Any) -> list[Any]:
    found = []
    with Reader(address, start="begin", **wanted) as reader:
        while reader.wait(0):
            found.append((reader.origin, next(reader)))
    return [(origin, record) for origin, record in found if record.kind is not Kind.ORDER]


def told(found: list[Any]) -> list[Any]:
    """Return what a record keeps in a copy: its owner, its names, its content without ids."""
    rows = []
    for origin, record in found:
        content = record.data.copy() if record.data is not None else bytes(record.payload)
        if record.kind in (Kind.STALE, Kind.RECOVERED, Kind.BOOK, Kind.TOP_OF_BOOK):
            content["exchange_id"] = content["symbol_id"] = 0
        times = () if record.stream == Stream.NONE else (record.received_ns,)
        rows.append((origin, record.kind, record.exchange, record.symbol, record.number,
                     record.stream, record.object, record.published_ns, times,
                     bytes(content)))  # fmt: skip
    return rows


def books_of(address: str) -> Books:
    books = Books()
    with Reader(address, start="begin") as reader:
        while reader.wait(0):
            books.apply(next(reader))
    return books


def content(books: Books) -> dict[Any, Any]:
    return {name: (book.stale, book.bids().tolist()) for name, book in books.items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> FedComposite:
    made = FedComposite(tmp_path_factory.mktemp("fed"))
    market(made)
    finish(made)
    return made


def copy_of(both: FedComposite) -> str:
    return f"journal:{copy_directory(both.folder / 'order')}"


def test_records_of_feeds_are_theirs_with_their_names(both: FedComposite) -> None:
    found = records(copy_of(both))
    assert told(found) == told(records(both.address))
    assert {record.symbol for _, record in found} > {"BTC", "ETH", None}
    for origin, record in found:
        at = copied_input(record.session)
        assert at is not None and origin == f"store:{both.folder / ('orders', *FEEDS)[at]}"
    # One session of one input is one session of the copy, and no other one.
    direct = records(both.address)
    assert [copied_session(record.session) for _, record in found] == [
        record.session for _, record in direct
    ]
    pairs = {(origin, one.session, two.session)
             for (origin, one), (_, two) in zip(direct, found, strict=True)}  # fmt: skip
    assert len(pairs) == len({pair[2] for pair in pairs}) == len({pair[:2] for pair in pairs}) > 6


def test_reader_of_a_copy_filters_by_names(both: FedComposite) -> None:
    wanted = {"kinds": "TOP_OF_BOOK", "symbols": "BTC", "exchanges": "x"}
    found = [each for each in records(copy_of(both), **wanted)
             if each[1].kind is Kind.TOP_OF_BOOK]  # fmt: skip
    direct = [each for each in records(both.address, **wanted)
              if each[1].kind is Kind.TOP_OF_BOOK]  # fmt: skip
    assert told(found) == told(direct)
    assert {origin.rpartition("/")[2] for origin, _ in found} == set(FEEDS)


@pytest.mark.parametrize("seed", [0, 1, 2, *nightly(*range(3, 8))])
def test_books_over_a_copy_are_those_over_each_input(tmp_path: Path, seed: int) -> None:
    both = FedComposite(tmp_path)
    market(both, seed, turns=10)
    found = books_of(f"journal:{finish(both)}")
    assert content(found) == content(books_of(both.address))
    for name in FEEDS:
        own = books_of(f"store:{tmp_path / name}")
        assert content(found.at(str(tmp_path / name))) == content(own)
        assert set(own) == {SAME, OWN[name]}
    assert found[SAME].stale and found.contested == 1  # which of the two is meant, nobody knows


def test_copy_that_was_killed_is_the_same_with_tables_that_grew(tmp_path: Path) -> None:
    both = FedComposite(tmp_path, capacity=1 << 15)
    chance = random.Random(3)
    killed = tmp_path / "killed"
    for turn in range(30):
        with both.feeds[0].at_work():
            if turn == 0:
                both.feeds[0].begin()
            for at in range(600):
                both.feeds[0].top("x", f"S{turn}-{at}", at)
        both.work()
        copying = CompositeCopy(str(tmp_path / "order"), killed, segment_bytes=1 << 20)
        for _ in range(chance.randrange(6)):
            copying.turn()
        copying.journal.region.close()  # as after kill -9: nothing is sealed, nothing closed
    finish(both, killed)
    finish(both, tmp_path / "late")
    assert told(records(f"journal:{killed}")) == told(records(both.address))
    assert [bytes(each)[32:] for _, each in records(f"journal:{killed}")] == [
        bytes(each)[32:] for _, each in records(f"journal:{tmp_path / 'late'}")
    ]
    assert len(list(killed.glob("*.names"))) > 3
    assert CliRunner().invoke(cli, ["verify", str(killed)]).exit_code == 0


def test_what_a_copy_misses_puts_books_of_all_inputs_in_doubt(tmp_path: Path) -> None:
    both = FedComposite(tmp_path)
    for feed, name in zip(both.feeds, FEEDS, strict=True):
        with feed.at_work():
            begin(feed, name)
    both.work()
    for price in (555, 556):
        with both.feeds[0].at_work():
            both.feeds[0].book(*OWN["left"], price, 1, snapshot=False)
        both.work()
    directory = finish(both)
    assert not books_of(f"journal:{directory}")[OWN["right"]].stale
    segment = max(directory.glob("*.segment"))
    damaged = bytearray(segment.read_bytes())
    damaged[damaged.index(struct.pack("<d", 555.0))] ^= 1
    segment.write_bytes(damaged)
    found = books_of(f"journal:{directory}")
    assert found[OWN["right"]].stale and found[OWN["left"]].stale
    lapped = [record.lapped for _, record in records(f"journal:{directory}")
              if record.kind is Kind.LAPPED]  # fmt: skip
    assert sum(lapped) >= 1


def test_verbs_take_a_composite_with_feeds(both: FedComposite, tmp_path: Path) -> None:
    def call(*arguments: str) -> str:
        run = CliRunner().invoke(cli, list(arguments))
        assert run.exit_code == 0, (run.output, run.exception)
        return run.stdout

    call("record", both.address, "--end")
    call("verify", both.address)
    found = json.loads(call("replay", both.address, "--json"))
    with Reader(copy_of(both), start="begin") as reader:
        assert found["records"] == len(list(reader))
    call("export", both.address, str(tmp_path))
    fed = {f"order/{name}" for name in FEEDS}
    # The sequencer's RESTART, which the bus itself makes, is in `messages` and `events` too.
    feeds = {"tops": fed, "bus": {"order"}, "merges": {"order"}, "events": {"order/orders", *fed}}
    for name, expected in (*feeds.items(), ("messages", {"order", "order/orders", *fed})):
        rows = read(tmp_path, name)
        scan = Scan(str(copy_directory(both.folder / "order")), name)
        assert rows == [row for piece in scan.pieces() for batch in scan.batches(piece)
                        for row in batch.to_pylist()]  # fmt: skip
        assert {row["feed"] for row in rows} == expected
    direct = [(one.symbol, one.received_ns) for _, one in records(both.address)
              if one.kind is Kind.TOP_OF_BOOK]  # fmt: skip
    assert [(row["symbol"], row["received_ns"]) for row in read(tmp_path, "tops")] == direct
    latency = pyarrow.dataset.dataset(tmp_path / "latency", format="parquet").to_table()
    assert set(latency["feed"].to_pylist()) == {"order", *fed}


def test_names_that_the_disk_did_not_take_are_taken_by_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = FedComposite(tmp_path)
    market(both, turns=6)
    left = 3

    def full(self: StoreNames, *arguments: int, begin: Any = StoreNames.begin) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(errno.ENOSPC, "no space left")
        return begin(self, *arguments)

    monkeypatch.setattr(StoreNames, "begin", full)
    with CompositeCopy(str(tmp_path / "order")) as copying:
        failed = 0
        while True:
            try:
                if not copying.turn():
                    break
            except OSError:
                failed += 1
        assert failed == 3 and copying.lapped == 0
    assert told(records(copy_of(both))) == told(records(both.address))


def test_frames_name_the_feed_as_an_export_of_the_copy_does(both: FedComposite) -> None:
    scan = Scan(str(copy_directory(both.folder / "order")), columns=("position", "kind", "feed"))
    exported = [
        row for piece in scan.pieces() for batch in scan.batches(piece) for row in batch.to_pylist()
    ]
    rows = frame_rows(copy_of(both))
    assert rows == exported
    assert {f"order/{name}" for name in FEEDS} <= {row["feed"] for row in rows}
    live = [row["feed"] for row in frame_rows(both.address)]
    assert live == [row["feed"] for row in rows if row["kind"] != "ORDER"]


def frame_rows(address: str) -> list[Any]:
    rows = []
    with Reader(address, start="begin") as reader:
        while reader.wait(0):
            table = pyarrow.table(reader.poll(timeout=0)).select(["position", "kind", "feed"])
            rows += table.to_pylist()
    return rows


def test_export_of_a_time_has_the_definitions_of_each_input(tmp_path: Path) -> None:
    both = FedComposite(tmp_path)
    for feed, tick_size in zip(both.feeds, (1.0, 2.0), strict=True):
        with feed.at_work():
            feed.restart()
            feed.begin()
            feed.define(*SAME, tick_size)
    both.work()
    start_ns = T0 + both.feeds[0].number * MS + 1
    for feed in both.feeds:
        with feed.at_work():
            feed.top(*SAME, 5.0)
    both.work()
    copy = finish(both)
    list(
        Exporter(
            copy, tmp_path / "root", tables=("instruments", "tops"), wanted=Wanted(start_ns)
        ).run()
    )
    found = pyarrow.dataset.dataset(tmp_path / "root" / "instruments").to_table()
    rows = zip(found["feed"].to_pylist(), found["tick_size"].to_pylist(), strict=True)
    assert sorted(rows) == [
        (f"order/{name}", tick) for name, tick in zip(FEEDS, (1.0, 2.0), strict=True)
    ]
