"""Files in common formats: written here, read back by the libraries that users have."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from lab.conformance.books import read_set
from tests.export.market import BEGIN_NS, STEP_NS, Market, drive, record
from tests.full_disk import full_disk
from tests.shared import ROOT, shared
from udpfast.agents.feed.recorder import Recorder
from udpfast.agents.feed.replayer import Replayer
from udpfast.cli.main import cli
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig
from udpfast.core.layout import CONTROL_DTYPES, Kind, RecordFlag
from udpfast.export.dbn import DbnWriter
from udpfast.log.segment import list_segments, segment_path
from udpfast.net.pcap import CAPTURED, CaptureBatch

SNAPSHOT = {"flags": int(RecordFlag.SNAPSHOT)}
#: The update goes on in the next one.
PRESENT_MORE = 16


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the journal of a small market: two instruments, an empty snapshot, a loss."""
    folder = tmp_path_factory.mktemp("formats")
    market = Market(folder / "feed", 1 << 22)
    fill(market)
    record(market, folder / "journal")
    market.close()
    return folder / "journal"


def fill(market: Market) -> None:
    def book(rows: list[tuple[float, float]], asks: int, header: Any = None) -> None:
        levels = [{"price": price, "quantity": quantity} for price, quantity in rows]
        market.tell(
            Kind.BOOK, levels, "A", header, bid_count=len(rows) - asks, ask_count=asks,
            exchange_time_utc=market.number * STEP_NS + BEGIN_NS,
        )  # fmt: skip

    def orders(*rows: tuple[str, float, float, int, int], header: Any = None) -> None:
        market.tell(
            Kind.ORDERS,
            [
                {"order_id": name.encode(), "price": price, "quantity": quantity, "side": side,
                 "action": action, "present": 1}
                for name, price, quantity, side, action in rows
            ],
            "A", header,
        )  # fmt: skip

    market.tell(
        Kind.REFERENCE_DATA, [], "A", tick_size=0.01, strike_price=float("nan"), multiplier=10.0,
        security_type=2, quote_currency=b"USD", base_currency=b"OIL", expiry_datetime_utc=2_000_000,
    )  # fmt: skip
    book([(99.5, 3), (99.4, 4), (100.5, 2)], 1, SNAPSHOT)
    orders(("17", 99.5, 3, 1, 1), ("18", 100.5, 2, 2, 1), header=SNAPSHOT)
    market.tell(Kind.TOP_OF_BOOK, [], "A", bid_price=99.5, bid_quantity=3.0,
                ask_price=float("nan"), ask_quantity=float("nan"))  # fmt: skip
    book([(99.4, 0), (99.6, 1)], 0)
    orders(("19", 99.6, 1, 1, 1), ("17", 99.5, 2, 1, 2))
    market.tell(
        Kind.TRADES,
        [
            {"price": 99.6, "quantity": 1.0, "side": 2},
            {"price": 0.1 + 0.2, "quantity": 5, "side": 1},
        ],
        "A",
        exchange_time_utc=BEGIN_NS,
    )
    orders(("17", 99.5, 0, 1, 3))
    market.say(Kind.GAP, first=1, last=3, count=3)
    book([], 0, SNAPSHOT)
    orders(header=SNAPSHOT)
    market.tell(Kind.TRADES, [{"price": 7.0, "quantity": 0.5, "side": 1}], "B")


def exported(journal: Path, path: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["export", str(journal), str(path), *words])


@pytest.fixture
def dbn(recorded: Path, tmp_path: Path) -> Iterator[Any]:
    """Return a function that exports a table and returns what Databento's library reads."""
    databento = pytest.importorskip("databento", reason="not installed: the extra [dbn]")

    def read(table: str, name: str = "x.dbn") -> Any:
        words = ("--format", "dbn", "--table", table, "--symbol", "A")
        result = exported(recorded, tmp_path / name, *words)
        assert result.exit_code == 0, result.output + repr(result.exception)
        return databento.DBNStore.from_bytes((tmp_path / name).read_bytes())

    yield read


def test_orders_are_mbo_with_clears_and_what_goes_of_an_order(dbn: Any) -> None:
    store = dbn("orders")
    assert store.schema == "mbo"
    rows = store.to_ndarray()
    assert [
        (row["action"], row["side"], int(row["order_id"]), int(row["size"])) for row in rows
    ] == [
        (b"R", b"N", 0, 0),
        (b"A", b"B", 17, 3),
        (b"A", b"A", 18, 2),
        (b"A", b"B", 19, 1),
        (b"M", b"B", 17, 2),
        (b"C", b"B", 17, 2),
        (b"R", b"N", 0, 0),
        (b"R", b"N", 0, 0),
    ]
    assert rows["price"][1] == 99_500_000_000
    last, snapshot = 128, 32
    assert rows["flags"].tolist() == [
        snapshot, snapshot, snapshot | last, 0, last, last, last | 4, snapshot | last
    ]  # fmt: skip
    frame = store.to_df()
    assert set(frame["symbol"]) == {"A"}


class Queues:
    """Orders in their queues, by the meaning of DBN's actions for its readers."""

    def __init__(self) -> None:
        self.orders: dict[int, tuple[bytes, int, int]] = {}

    def apply(self, row: Any) -> None:
        order = int(row["order_id"])
        now = bytes(row["side"]), int(row["price"]), int(row["size"])
        if row["action"] == b"R":
            self.orders.clear()
        elif row["action"] == b"C":
            assert self.orders.pop(order)[2] == now[2]
        elif row["action"] == b"A":
            assert order not in self.orders
            self.orders[order] = now
        else:
            before = self.orders[order]
            if now[:2] != before[:2] or now[2] > before[2]:
                del self.orders[order]
            self.orders[order] = now

    def at(self, side: bytes, price: int) -> list[int]:
        return [order for order, row in self.orders.items() if row[:2] == (side, price)]


def test_reader_of_mbo_has_the_orders_in_the_queue_of_the_venue(tmp_path: Path) -> None:
    databento = pytest.importorskip("databento", reason="not installed: the extra [dbn]")
    market = Market(tmp_path / "feed", 1 << 22)

    def orders(*rows: tuple[int, float, int, int], header: Any = None) -> None:
        market.tell(
            Kind.ORDERS,
            [
                {"order_id": b"%d" % order, "price": 7.0, "quantity": quantity, "side": 1,
                 "action": action, "priority": priority, "present": 1}
                for order, quantity, action, priority in rows
            ],
            "A", header,
        )  # fmt: skip

    orders((13, 5, 1, 30), (11, 5, 1, 10), (12, 5, 1, 20), header=SNAPSHOT)
    orders((11, 4, 2, 10))  # smaller: it keeps its place
    orders((11, 4, 2, 40), (12, 6, 2, 50))  # moved; larger: moved
    orders((13, 5, 3, 30))
    orders((16, 1, 1, 70), (15, 1, 1, 65))  # told of again, in any order
    orders((16, 0, 3, 70), (15, 0, 3, 65))
    market.tell(Kind.ORDERS, [{"order_id": b"14", "price": 7.0, "quantity": 1, "side": 1,
                               "action": 1, "priority": 60, "present": 1}],
                "A", {"flags": int(RecordFlag.DOUBT)})  # fmt: skip
    record(market, tmp_path / "journal")
    market.close()
    words = ("--format", "dbn", "--table", "orders")
    assert exported(tmp_path / "journal", tmp_path / "x.dbn", *words).exit_code == 0
    queues, found = Queues(), []
    rows = databento.DBNStore.from_bytes((tmp_path / "x.dbn").read_bytes()).to_ndarray()
    for row in rows:
        queues.apply(row)
        if row["flags"] & 128:
            found.append(queues.at(b"B", 7_000_000_000))
    assert found == [
        [11, 12, 13], [11, 12, 13], [13, 11, 12], [11, 12], [11, 12, 15, 16], [11, 12], [11, 12, 14]
    ]  # fmt: skip
    assert [bool(row["flags"] & 4) for row in rows] == [False] * (len(rows) - 1) + [True]


def begun_anew(directory: Path, roq: bool) -> Path:
    """Return a journal of A and B, a session in which only B is told of, and a restart."""
    market = Market(directory / "feed", 1 << 22)
    streams = {"A": 0, "B": 0, "C": 0} if roq else {"A": 2, "B": 2, "C": 3}

    def tell(symbol: str, order: int) -> None:
        header = {"stream": streams[symbol], "session": 1}
        row = {"order_id": b"%d" % order, "price": 7.0, "quantity": 5.0, "side": 1, "action": 1,
               "present": 1}  # fmt: skip
        market.tell(Kind.ORDERS, [row], symbol, header)
        market.tell(Kind.BOOK, [{"price": 7.0, "quantity": 5.0}], symbol, header, bid_count=1)
        whole = header | {"flags": int(RecordFlag.SNAPSHOT)}
        market.tell(Kind.TOP_OF_BOOK, (), symbol, whole, bid_price=7.0, ask_price=float("nan"))

    def begin(kind: Kind, stream: int) -> None:
        content = np.zeros((), CONTROL_DTYPES[kind]).tobytes()
        market.put(kind, content, stream=stream)

    begin(Kind.SESSION, streams["A"])
    begin(Kind.SESSION, streams["C"])
    for order, symbol in enumerate("ABC", 1):
        tell(symbol, order)
    begin(Kind.SESSION, streams["A"])
    tell("B", 4)
    begin(Kind.RESTART, 65_535)
    tell("C", 5)
    record(market, directory / "journal")
    market.close()
    return directory / "journal"


@pytest.mark.parametrize("roq", [True, False])
def test_session_clears_the_books_of_its_stream_and_a_restart_all(
    tmp_path: Path, roq: bool
) -> None:
    databento = pytest.importorskip("databento", reason="not installed: the extra [dbn]")
    journal = begun_anew(tmp_path, roq)
    words = ("--format", "dbn", "--table", "orders")
    assert exported(journal, tmp_path / "x.dbn", *words).exit_code == 0
    rows = databento.DBNStore.from_bytes((tmp_path / "x.dbn").read_bytes()).to_ndarray()
    found = [(bytes(row["action"]), int(row["instrument_id"])) for row in rows]
    added, cleared = [(b"A", 1), (b"A", 2), (b"A", 3)], [(b"R", 1), (b"R", 2)]
    ended = [(b"R", 2)] if roq else [(b"R", 3), (b"R", 2)]
    if roq:
        cleared.append((b"R", 3))
    assert found == [*added, *cleared, (b"A", 2), *ended, (b"A", 3)]
    assert all(row["flags"] == 128 for row in rows)

    assert exported(journal, tmp_path / "a.dbn", *words, "--symbol", "A").exit_code == 0
    rows = databento.DBNStore.from_bytes((tmp_path / "a.dbn").read_bytes()).to_ndarray()
    assert rows["action"].tolist() == [b"A", b"R"]


@pytest.mark.parametrize("roq", [True, False])
def test_session_clears_the_tops_of_its_stream_and_a_restart_all(tmp_path: Path, roq: bool) -> None:
    databento = pytest.importorskip("databento", reason="not installed: the extra [dbn]")
    journal = begun_anew(tmp_path, roq)
    words = ("--format", "dbn", "--table", "tops")
    assert exported(journal, tmp_path / "x.dbn", *words).exit_code == 0
    rows = databento.DBNStore.from_bytes((tmp_path / "x.dbn").read_bytes()).to_ndarray()
    found = [(bytes(row["action"]), int(row["instrument_id"])) for row in rows]
    told, cleared = [(b"M", 1), (b"M", 2), (b"M", 3)], [(b"R", 1), (b"R", 2)]
    ended = [(b"R", 2)] if roq else [(b"R", 3), (b"R", 2)]
    if roq:
        cleared.append((b"R", 3))
    assert found == [*told, *cleared, (b"M", 2), *ended, (b"M", 3)]
    assert all(row["flags"] == 128 and row["side"] == b"N" for row in rows)
    undefined = 2**63 - 1
    for row in rows:
        bid = undefined if row["action"] == b"R" else 7_000_000_000
        assert (row["bid_px_00"], row["ask_px_00"], row["price"]) == (bid, undefined, undefined)
        assert (row["bid_sz_00"], row["ask_sz_00"]) == (0, 0)

    assert exported(journal, tmp_path / "a.dbn", *words, "--symbol", "A").exit_code == 0
    rows = databento.DBNStore.from_bytes((tmp_path / "a.dbn").read_bytes()).to_ndarray()
    assert rows["action"].tolist() == [b"M", b"R"]


def test_session_clears_the_book_of_hftbacktest(tmp_path: Path) -> None:
    backtest = pytest.importorskip("hftbacktest", reason="not installed: the extra [hftbacktest]")
    words = ("--format", "hftbacktest", "--symbol", "A")
    result = exported(begun_anew(tmp_path, True), tmp_path / "a.npz", *words)
    assert result.exit_code == 0, result.output
    data = np.load(tmp_path / "a.npz")["data"]
    kinds = [int(each) & 0xFF for each in data["ev"]]
    assert kinds == [backtest.DEPTH_EVENT, backtest.DEPTH_CLEAR_EVENT]


class Doubted(Market):
    """Three instruments that each have an object of stream 2, numbered in the order of names."""

    def change(self, symbol: str, flags: int = 0) -> None:
        header = {"stream": 2, "object": ord(symbol), "flags": flags}
        order = {"order_id": b"%d" % self.number, "price": 7.0, "quantity": 5.0, "side": 1,
                 "action": 1, "present": 1}  # fmt: skip
        self.tell(Kind.ORDERS, [order], symbol, header)
        self.tell(Kind.BOOK, [{"price": 7.0, "quantity": 5.0}], symbol, header, bid_count=1)
        whole = header | {"flags": flags | int(RecordFlag.SNAPSHOT)}
        self.tell(Kind.TOP_OF_BOOK, (), symbol, whole, bid_price=7.0, ask_price=float("nan"))

    def lose(self, kind: Kind = Kind.GAP, stream: int = 2) -> None:
        self.put(kind, np.zeros((), CONTROL_DTYPES[kind]).tobytes(), stream=stream)

    def judge(self, kind: Kind, symbol: str, continues: bool = False) -> None:
        said = np.zeros((), CONTROL_DTYPES[kind])
        said["continues"] = continues
        said["exchange_id"] = self.names.intern("binance-usdm")
        said["symbol_id"] = self.names.intern(symbol)
        self.put(kind, said.tobytes(), stream=2, object=ord(symbol))


@pytest.fixture
def doubted(tmp_path: Path) -> Iterator[Any]:
    """Return a market, and a function that exports it and returns rows or events."""
    market = Doubted(tmp_path / "feed", 1 << 22)

    def read(form: str, *words: str) -> Any:
        if not (tmp_path / "journal").exists():
            record(market, tmp_path / "journal")
        result = exported(tmp_path / "journal", tmp_path / form, "--format", form, *words)
        assert result.exit_code == 0, result.output + repr(result.exception)
        market.said = result.stderr
        if form == "hftbacktest":
            kinds = np.load(tmp_path / form)["data"]["ev"].astype("u8") & 0xFF
            return "".join({1: "u", 3: "R", 4: "s"}[int(kind)] for kind in kinds)
        databento = pytest.importorskip("databento", reason="not installed: the extra [dbn]")
        rows = databento.DBNStore.from_bytes((tmp_path / form).read_bytes()).to_ndarray()
        return [
            bytes(row["action"]).decode() + str(row["instrument_id"]) + "?" * bool(row["flags"] & 4)
            for row in rows
        ]

    yield market, read
    market.close()


def test_books_are_cleared_where_they_may_be_wrong_until_they_are_whole(doubted: Any) -> None:
    market, read = doubted
    for symbol in "ABC":
        market.change(symbol)
    market.lose(stream=3)
    market.lose()
    market.judge(Kind.RECOVERED, "A", continues=True)
    market.judge(Kind.STALE, "B")  # of C the feed says nothing more
    market.change("A")
    market.judge(Kind.RECOVERED, "B")
    market.change("B", flags=int(RecordFlag.SNAPSHOT))
    market.judge(Kind.STALE, "A")
    cleared = ["R2?", "R3?"]
    orders, tops = read("dbn", "--table", "orders"), read("dbn", "--table", "tops")
    assert orders == ["A1", "A2", "A3", *cleared, "A1", "R2", "A2", "R1?"]
    assert tops == ["M1", "M2", "M3", *cleared, "M1", "M2", "R1?"]
    pytest.importorskip("hftbacktest", reason="not installed: the extra [hftbacktest]")
    found = {each: read("hftbacktest", "--symbol", each) for each in "ABC"}
    assert found == {"A": "uuR", "B": "uRRs", "C": "uR"}


def test_rows_behind_lost_records_are_in_doubt_until_a_snapshot(doubted: Any) -> None:
    market, read = doubted
    market.change("A")
    market.change("B")
    market.lose(Kind.LAPPED, 65_535)
    market.change("A")
    market.change("B")
    market.change("A", flags=int(RecordFlag.SNAPSHOT))
    market.change("A")
    found = read("dbn", "--table", "orders")
    assert found == ["A1", "A2", "R1?", "R2?", "A1?", "A2?", "R1", "A1", "A1"]
    found = read("dbn", "--table", "tops")
    assert found == ["M1", "M2", "R1?", "R2?", "M1", "M2", "M1", "M1"]


def test_books_that_began_before_the_time_are_marked_until_a_snapshot(doubted: Any) -> None:
    market, read = doubted
    market.change("A")
    market.change("B")
    start = ("--from", str(BEGIN_NS + market.number * STEP_NS + STEP_NS))
    for symbol in "AB":
        market.change(symbol)
    market.change("C", flags=int(RecordFlag.FIRST))
    market.change("A", flags=int(RecordFlag.SNAPSHOT))
    market.change("A")
    found = read("dbn", "--table", "orders", *start)
    assert found == ["R1?", "A1?", "R2?", "A2?", "A3", "R1", "A1", "A1"]
    assert "2 books begin empty at --from" in market.said
    assert read("dbn", "--table", "tops", *start) == ["M1", "M2", "M3", "M1", "M1"]
    assert "books begin" not in market.said
    pytest.importorskip("hftbacktest", reason="not installed: the extra [hftbacktest]")
    assert read("hftbacktest", "--symbol", "A", *start) == "RuRsu"
    assert "1 book begins empty at --from" in market.said
    assert read("hftbacktest", "--symbol", "A") == "uuRsu"
    assert "books begin" not in market.said


def test_parquet_says_that_books_begin_empty(doubted: Any, tmp_path: Path) -> None:
    market, _ = doubted
    market.change("A")
    market.change("A")
    record(market, tmp_path / "journal")
    for late in (0, 1):
        start = ("--from", str(BEGIN_NS + STEP_NS + late * 2 * STEP_NS))
        for table in ("levels", "trades", "orders"):
            path = tmp_path / f"{table}{late}"
            result = exported(tmp_path / "journal", path, "--table", table, *start)
            told = "books begin empty at --from" in result.stderr
            assert told == (late == 1 and table != "trades")


@pytest.mark.parametrize("apart", [0, 1, 9_000])
def test_snapshot_in_several_records_is_one_queue_in_mbo(tmp_path: Path, apart: int) -> None:
    databento = pytest.importorskip("databento", reason="not installed: the extra [dbn]")
    market = Market(tmp_path / "feed", 1 << 26)
    more = {"present": PRESENT_MORE}

    def orders(
        *rows: tuple[int, int], header: Any = None, symbol: str = "A", **fields: Any
    ) -> None:
        market.tell(
            Kind.ORDERS,
            [
                {"order_id": b"%d" % order, "price": 7.0, "quantity": 5, "side": 1, "action": 1,
                 "priority": priority, "present": 1}
                for order, priority in rows
            ],
            symbol, (header or {}) | {"received_ns": BEGIN_NS}, **fields,
        )  # fmt: skip

    orders((13, 30), (11, 10), header=SNAPSHOT, **more)
    for _ in range(apart):  # other blocks begin meanwhile
        market.tell(Kind.TRADES, [], "B", {"received_ns": BEGIN_NS})
    orders((15, 50), (12, 20), **more)
    orders((14, 40))
    orders((10, 60))
    record(market, tmp_path / "journal")
    market.close()
    words = ("--format", "dbn", "--table", "orders")
    assert exported(tmp_path / "journal", tmp_path / "x.dbn", *words).exit_code == 0
    rows = databento.DBNStore.from_bytes((tmp_path / "x.dbn").read_bytes()).to_ndarray()
    queues, found = Queues(), []
    for row in rows:
        queues.apply(row)
        if row["flags"] & 128:
            found.append(queues.at(b"B", 7_000_000_000))
    assert found == [[11, 12, 13, 14, 15], [11, 12, 13, 14, 15, 10]]
    assert [bool(row["flags"] & 32) for row in rows] == [True] * 6 + [False]


def test_queues_of_mbo_are_those_of_a_strategy_behind_snapshots_in_parts(tmp_path: Path) -> None:
    databento = pytest.importorskip("databento", reason="not installed: the extra [dbn]")
    folder = shared("venues", "books", "cme_esh4_first")
    config, datagrams = read_set(folder, "feed", orders=True)
    journal, instance = tmp_path / "journal", tmp_path / "feed"
    instance.mkdir()
    replayer = Replayer(replace(config, ring=replace(config.ring, carry="updates")), instance)
    for (channel, line), sent in datagrams[:6_000]:
        headers = np.zeros(1, CAPTURED)
        headers["timestamp_ns"], headers["size"] = sent.timestamp_ns, len(sent.payload)
        places = (np.full(1, value, np.uint8) for value in (channel, line))
        replayer.replay(CaptureBatch(headers, sent.payload), *places, 0, 1)
    replayer.finish()
    books = Books()
    with Reader(f"ring:{instance}", start="begin") as reader:
        while reader.lag:
            books.apply(next(reader))
        assert reader.lapped == 0
    recorder = Recorder(RecordConfig(directory=str(journal), sync_ms=1), instance, "feed")
    recorder.on_start()
    drive(recorder)
    recorder.on_stop()
    replayer.close()
    words = ("--format", "dbn", "--table", "orders")
    result = exported(journal, tmp_path / "x.dbn", *words)
    assert result.exit_code == 0, result.output
    queues = Queues()
    for row in databento.DBNStore.from_bytes((tmp_path / "x.dbn").read_bytes()).to_ndarray():
        queues.apply(row)
    kept = books.orders("CME", "ESH4")
    assert not kept.stale
    found: dict[tuple[bytes, int], list[int]] = {}
    for order, (side, price, _) in queues.orders.items():
        found.setdefault((side, price), []).append(order)
    wanted: dict[tuple[bytes, int], list[int]] = {}
    for side, rows in ((b"B", kept.bids()), (b"A", kept.asks())):
        for row in rows:
            place = side, round(row["price"] * 1e9)
            wanted.setdefault(place, []).append(int(row["order_id"]))
    assert len(kept) > 8_000
    assert found == wanted


def test_tops_are_mbp_1_and_a_side_that_is_missing_is_undefined(dbn: Any) -> None:
    row = dbn("tops").to_ndarray()[0]
    assert (row["bid_px_00"], row["bid_sz_00"]) == (99_500_000_000, 3)
    assert (row["ask_px_00"], row["ask_sz_00"]) == (2**63 - 1, 0)


def test_metadata_that_cannot_be_written_leave_no_file(tmp_path: Path) -> None:
    pytest.importorskip("databento_dbn", reason="not installed: the extra [dbn]")
    for name in ("x.dbn", "x.dbn.zst"):
        writer = DbnWriter(tmp_path / name, "trades", "UDPFAST.FEED")
        # A symbol takes 71 bytes at most in this format.
        writer._ids["venue", "S" * 500] = 1
        with pytest.raises(Exception, match=r"\S"), writer:
            pass
        assert list(tmp_path.iterdir()) == []


def test_a_file_is_compressed_if_its_name_says_so(dbn: Any, tmp_path: Path) -> None:
    plain, compressed = dbn("orders"), dbn("orders", "y.dbn.zst")
    assert compressed.to_ndarray().tolist() == plain.to_ndarray().tolist()
    assert (tmp_path / "y.dbn.zst").read_bytes()[:4] == bytes.fromhex("28b52ffd")


def test_trades_have_the_side_of_the_taker_and_the_times_of_both(dbn: Any) -> None:
    rows = dbn("trades").to_ndarray()
    assert rows["side"].tolist() == [b"A", b"B"]
    assert rows["price"].tolist() == [99_600_000_000, 300_000_000]
    assert rows["size"].tolist() == [1, 5]
    assert set(rows["ts_event"].tolist()) == {BEGIN_NS}
    assert (rows["ts_recv"] > BEGIN_NS).all()


def test_reference_data_are_definitions(dbn: Any) -> None:
    (row,) = dbn("instruments").to_df().to_dict("records")
    assert (row["raw_symbol"], row["instrument_class"], row["currency"]) == ("A", "F", "USD")
    assert row["min_price_increment"] == 0.01
    assert row["expiration"].timestamp() == 2_000_000


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--table", "trades"],
            "found quantity 0.5 in units of 1; choose another unit .--size-unit.: 0.1 fits",
        ),
        (["--table", "levels"], "DBN has no schema for the table 'levels': expected orders"),
        ([], "expected one --table"),
        (["--table", "trades", "--table", "tops"], "expected one --table .* found trades, tops"),
    ],
)
def test_what_dbn_cannot_carry_is_refused_and_leaves_no_file(
    recorded: Path, tmp_path: Path, words: list[str], expected: str
) -> None:
    pytest.importorskip("databento_dbn", reason="not installed: the extra [dbn]")
    result = exported(recorded, tmp_path / "x.dbn", "--format", "dbn", *words)
    assert result.exception is not None
    with pytest.raises(type(result.exception), match=expected):
        raise result.exception
    assert list(tmp_path.iterdir()) == []


def test_sizes_are_counted_in_the_unit_that_was_chosen_and_losses_are_said(
    recorded: Path, tmp_path: Path
) -> None:
    databento = pytest.importorskip("databento", reason="not installed: the extra [dbn]")
    words = ["--format", "dbn", "--table", "trades", "--size-unit", "0.5"]
    result = exported(recorded, tmp_path / "x.dbn", *words)
    assert "1 records of losses (GAP, LAPPED) have no place in dbn" in result.output
    rows = databento.DBNStore.from_bytes((tmp_path / "x.dbn").read_bytes()).to_ndarray()
    assert rows["size"].tolist() == [2, 10, 1]
    assert rows["instrument_id"].tolist() == [1, 1, 2]


@pytest.mark.nightly  # its functions compile for seconds
def test_hftbacktest_replays_the_book_that_the_journal_has(recorded: Path, tmp_path: Path) -> None:
    backtest = pytest.importorskip("hftbacktest", reason="not installed: the extra [hftbacktest]")
    path = tmp_path / "a.npz"
    result = exported(recorded, path, "--format", "hftbacktest", "--symbol", "A")
    assert result.exit_code == 0, result.output + repr(result.exception)
    data = np.load(path)["data"]
    assert data.dtype == backtest.event_dtype
    local = data[data["ev"] & backtest.LOCAL_EVENT != 0]
    kinds = {
        backtest.DEPTH_CLEAR_EVENT: "clear",
        backtest.DEPTH_SNAPSHOT_EVENT: "snapshot",
        backtest.DEPTH_EVENT: "depth",
        backtest.TRADE_EVENT: "trade",
    }
    found = [
        (kinds[int(row["ev"]) & 0xFF], "B" if row["ev"] & backtest.BUY_EVENT else
         "S" if row["ev"] & backtest.SELL_EVENT else "", float(row["px"]), float(row["qty"]))
        for row in local
    ]  # fmt: skip
    assert found == [
        ("clear", "", 0, 0),
        ("snapshot", "B", 99.5, 3),
        ("snapshot", "B", 99.4, 4),
        ("snapshot", "S", 100.5, 2),
        ("depth", "B", 99.4, 0),
        ("depth", "B", 99.6, 1),
        ("trade", "S", 99.6, 1),
        ("trade", "B", 0.1 + 0.2, 5),
        ("clear", "", 0, 0),  # what was lost
        ("clear", "", 0, 0),  # the snapshot is empty
    ]


def test_hftbacktest_has_one_instrument_in_a_file(recorded: Path, tmp_path: Path) -> None:
    pytest.importorskip("hftbacktest", reason="not installed: the extra [hftbacktest]")
    result = exported(recorded, tmp_path / "a.npz", "--format", "hftbacktest")
    assert "found A of binance-usdm and B of binance-usdm; choose one" in str(result.exception)
    assert not (tmp_path / "a.npz").exists()


def test_a_symbol_without_rows_is_said(recorded: Path, tmp_path: Path) -> None:
    pytest.importorskip("databento_dbn", reason="not installed: the extra [dbn]")
    words = ["--format", "dbn", "--table", "trades", "--size-unit", "0.5", "--symbol", "AMBR"]
    result = exported(recorded, tmp_path / "x.dbn", *words)
    assert result.exit_code == 1
    unknown = "symbol not published so far: 'AMBR'; published are B, A"
    assert unknown in str(result.exception)
    assert not (tmp_path / "x.dbn").exists()
    words[-1:] = ["B", "--from", str(BEGIN_NS), "--until", str(BEGIN_NS + 1)]
    assert "it has nothing before" in str(exported(recorded, tmp_path / "x.dbn", *words).exception)
    words[-1] = str(BEGIN_NS + 60 * 10**9)
    assert "1 rows" in exported(recorded, tmp_path / "x.dbn", *words).output
    pytest.importorskip("hftbacktest", reason="not installed: the extra [hftbacktest]")
    result = exported(recorded, tmp_path / "a.npz", "--format", "hftbacktest", "--symbol", "AMBR")
    assert unknown in str(result.exception)


@pytest.mark.parametrize("form", ["dbn", "hftbacktest"])
@pytest.mark.parametrize("harm", ["in the middle", "at the end", "a file that is gone"])
def test_damage_is_said_as_an_export_to_parquet_says_it(
    journal: Path, tmp_path: Path, form: str, harm: str
) -> None:
    pytest.importorskip({"dbn": "databento_dbn"}.get(form, form), reason="not installed")
    copy = tmp_path / "journal"
    copy.mkdir(mode=0o700)
    for path in journal.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    words = ["--format", form, "--exchange", "binance-usdm"]
    words += ["--table", "trades", "--size-unit", "0.001"] * (form == "dbn")
    whole = exported(copy, tmp_path / "whole", *words, "--symbol", "SYM0")
    assert (whole.exit_code, "damaged" in whole.stderr) == (0, False)
    number = list_segments(copy)[-1 if harm == "at the end" else 1]
    path = segment_path(copy, number)
    content = bytearray(path.read_bytes())
    if harm == "a file that is gone":
        path.unlink()
    else:
        at = len(content.rstrip(b"\0")) - 32 if harm == "at the end" else len(content) // 2
        content[at] ^= 1
        path.write_bytes(content)
    parquet = exported(copy, tmp_path / "root")
    found = exported(copy, tmp_path / "file", *words, "--symbol", "SYM0")
    if harm == "a file that is gone":
        ((first, end),) = re.findall(r"records (\d+) to (\d+) are no longer", parquet.stderr)
        missing = f"{int(end) - int(first):,}"
    else:
        (missing,) = re.findall(r"is damaged: ([\d,]+) records are in no table", parquet.stderr)
        assert parquet.exit_code == 1
    assert f"is damaged: {missing} records could not be read; udpfast verify" in found.stderr
    assert found.exit_code == 1
    assert (tmp_path / "file").stat().st_size > 0


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("library", ["duckdb", "polars"])
def test_recipes_of_the_page_run_over_an_export(
    root: Path, tmp_path: Path, library: str, lossless: bool
) -> None:
    pytest.importorskip(library, reason="not installed: see [dev]")
    tables = tmp_path / "tables"
    shutil.copytree(root, tables)
    if lossless:  # as an export leaves a table without rows
        shutil.rmtree(tables / "gaps")
        (tables / "gaps").mkdir()
    gold = tmp_path / "gold/bars"  # as Spark leaves it
    gold.mkdir(parents=True)
    pq.write_table(pa.table({"close": [1.5]}), gold / "part-00000-x.snappy.parquet")
    (gold / "_SUCCESS").touch()
    (gold / ".part-00000-x.snappy.parquet.crc").write_bytes(b"crc\0")
    page = (ROOT / "docs/formats.md").read_text()
    blocks = [
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.S)
        if f"import {library}" in block
    ]
    rows = []
    for block in blocks:
        ((program, result),) = re.findall(r"\A(.*)print\((\w+)\)\n\Z", block, re.S)
        names: dict[str, Any] = {}
        exec(program.replace("DIR", str(tables)).replace("OUT", str(tmp_path)), names)
        rows.append(len(names[result]))
    assert len(rows) >= 3 and max(rows) > 0


def test_price_when_a_trade_arrived_is_of_its_session_and_not_in_doubt(tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="not installed: see [dev]")
    names = {"feed": ["f"], "exchange": ["x"], "symbol": ["S"]}
    for table, session, columns in (
        ("tops", "s1", {"position": [0], "bid_price": [1.0], "ask_price": [2.0]}),
        ("tops", "s2", {"position": [20], "bid_price": [5.0], "ask_price": [6.0]}),
        ("trades", "s1", {"position": [5], "price": [1.0], "side": ["Buy"]}),
        ("trades", "s2", {"position": [10], "price": [5.0], "side": ["Buy"]}),
        ("trades", "s3", {"position": [30], "price": [9.0], "side": ["Sell"], "doubt": [True]}),
    ):
        directory = tmp_path / table / "date=2026-11-27" / "stream=0" / f"session={session}"
        directory.mkdir(parents=True)
        pq.write_table(pa.table(names | {"doubt": [False]} | columns), directory / "a.parquet")
    page = (ROOT / "docs/formats.md").read_text()
    (program,) = re.findall(r"```python\n([^`]*ASOF[^`]*)print", page)
    found: dict[str, Any] = {}
    exec(program.replace("DIR", str(tmp_path)), found)
    assert sorted(found["mids"].fetchall()) == [("S", 1.0, "Buy", 1.5), ("S", 5.0, "Buy", None)]


@pytest.mark.parametrize(
    "words", [("--format", "dbn", "--table", "trades"), ("--format", "hftbacktest")]
)
def test_file_of_something_else_is_not_overwritten(
    recorded: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "feed.toml"
    path.write_text('name = "feed"\n')
    result = exported(recorded, path, "--symbol", "A", *words)
    assert result.exit_code != 0
    assert "give another name" in str(result.exception)
    assert path.read_text() == 'name = "feed"\n'


def test_file_of_an_earlier_export_is_replaced(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for _ in range(2):
        assert exported(recorded, path, "--symbol", "A", "--format", "hftbacktest").exit_code == 0


@pytest.mark.parametrize(
    ("library", "name", "beside", "words"),
    [
        ("databento_dbn", "x.dbn", "rows", ("--format", "dbn", "--table", "trades")),
        ("databento_dbn", "x.dbn", "partial", ("--format", "dbn", "--table", "trades")),
        ("databento_dbn", "x.dbn.zst", "partial", ("--format", "dbn", "--table", "trades")),
    ],
)
def test_full_disk_is_said_with_the_name_of_the_file(
    recorded: Path, tmp_path: Path, library: str, name: str, beside: str, words: tuple[str, ...]
) -> None:
    pytest.importorskip(library, reason="not installed: an extra of its own")
    path = tmp_path / name
    (tmp_path / f"{name}.{beside}").symlink_to("/dev/full")
    result = exported(recorded, path, "--symbol", "A", *words)
    assert isinstance(result.exception, OSError)
    assert f"cannot write: {path}: No space left on device" in str(result.exception)
    assert list(tmp_path.glob(f"{name}*")) == []


def test_file_that_has_no_room_leaves_the_one_before(recorded: Path, tmp_path: Path) -> None:
    pytest.importorskip("hftbacktest", reason="not installed: an extra of its own")
    path = tmp_path / "x.npz"
    assert exported(recorded, path, "--symbol", "A", "--format", "hftbacktest").exit_code == 0
    content = path.read_bytes()
    with full_disk(len(content) // 2):
        result = exported(recorded, path, "--symbol", "A", "--format", "hftbacktest")
    assert isinstance(result.exception, OSError)
    assert f"cannot write: {path}: File too large" in str(result.exception)
    assert [(each.name, each.read_bytes()) for each in tmp_path.glob("x.npz*")] == [
        ("x.npz", content)
    ]
