"""The jobs `orders` and `imbalance` on markets of venues, beside the same counted by a reader."""

import random
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lab.conformance.books import read_set
from tests.cases import nightly
from tests.export.market import BEGIN_NS, STEP_NS, Market, drive, record
from tests.shared import shared
from tests.spark.small_export import contents
from tests.spark.test_jobs import by, epoch_s, table
from udpfast.agents.feed.recorder import Recorder
from udpfast.agents.feed.replayer import Replayer
from udpfast.cli.main import cli
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig
from udpfast.core.layout import Kind, RecordFlag
from udpfast.net.pcap import CAPTURED, CaptureBatch
from udpfast.spark.bronze import Bronze
from udpfast.spark.jobs import JOBS, Parameters
from udpfast.spark.pipeline import run_jobs, stream_jobs

BAR_S = 1
NEW, CHANGE, DELETE = 1, 2, 3
FILLED = 4
ROW = ("order_id", "action", "side", "price", "quantity", "priority", "reason")


class Lives:
    """What a plain reader counts of the orders of one instrument."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self.open: dict[Any, dict[str, Any]] = {}

    def take(self, rows: list[Any], traded: float, now_ns: int, snapshot: bool) -> None:
        """Count the changes of one message, rows of `ROW`, and what was traded in it."""
        if snapshot:
            there = {row[0] for row in rows}
            self.open = {name: life for name, life in self.open.items() if name in there}
        tells = any(row[-1] == FILLED for row in rows)
        for name, action, side, price, quantity, _, reason in rows:
            life = self.open.pop(name, None)
            place = (side, price)
            if life is None:
                if action == DELETE:
                    continue
                before = sum(one["place"] == place for one in self.open.values())
                life = {
                    "begin_ns": now_ns, "asked": 0, "filled": 0, "open": 0, "ended_ns": None,
                    "before": None if snapshot or action != NEW else before,
                }  # fmt: skip
                self.all.append(life)
            now = 0 if action == DELETE else quantity
            life["asked"] += max(0, now - life["open"])
            shrunk = max(0, life["open"] - now)
            if reason == FILLED:
                life["filled"] += min(shrunk, traded or shrunk)
            elif not snapshot and not tells:
                life["filled"] += min(shrunk, traded)
            life["open"], life["place"] = now, place
            if action == DELETE:
                life["ended_ns"] = now_ns
            else:
                self.open[name] = life

    def row(self) -> dict[str, Any]:
        """Return what the job's table says."""
        ended = [one for one in self.all if one["ended_ns"] is not None]
        seen = [one for one in self.all if one["before"] is not None]
        lived = [one["ended_ns"] - one["begin_ns"] for one in seen if one["ended_ns"] is not None]
        places = [one["before"] for one in seen]
        return {
            "orders": len(self.all),
            "ended": len(ended),
            "cancelled": sum(one["filled"] < one["asked"] for one in ended),
            "quantity": sum(one["asked"] for one in self.all),
            "filled": sum(one["filled"] for one in self.all),
            "lifetime_mean_ns": statistics.fmean(lived) if lived else None,
            "lifetime_p50_ns": statistics.median(lived) if lived else None,
            "place_mean": statistics.fmean(places) if places else None,
            "place_p50": statistics.median(places) if places else None,
            "at_front": sum(place == 0 for place in places) / len(places) if places else None,
        }


class Counted:
    """What a reader counts, instrument by instrument."""

    def __init__(self) -> None:
        self.lives: dict[Any, Lives] = defaultdict(Lives)
        self.traded: dict[Any, float] = defaultdict(float)
        self.changes: dict[Any, Any] = {}
        self.quotes: dict[Any, list[tuple[float, float]]] = defaultdict(list)

    def take(self, record: Any) -> None:
        name = record.exchange, record.symbol
        message = name, record.session, record.stream, record.number
        if record.kind == Kind.TRADES:
            self.traded[message] += float(record.update.rows["quantity"].sum())
        elif record.kind == Kind.ORDERS:
            told = bool(record.flags & RecordFlag.SNAPSHOT)
            rows = record.update.rows[list(ROW)].tolist()
            self.changes.setdefault(message, ([], record.received_ns, told))[0].extend(rows)
        elif record.kind == Kind.TOP_OF_BOOK:
            self.quote(name, record)

    def quote(self, name: Any, record: Any) -> None:
        top = record.update.header
        bid, ask = float(top["bid_quantity"]), float(top["ask_quantity"])
        if np.isfinite(top["bid_price"]) and np.isfinite(top["ask_price"]) and bid + ask:
            period = record.received_ns // 1_000_000_000 // BAR_S * BAR_S
            mid = float(top["bid_price"] + top["ask_price"]) / 2
            self.quotes[(*name, period)].append(((bid - ask) / (bid + ask), mid))

    def found(self) -> dict[Any, dict[str, Any]]:
        """Return what the job's table says of each instrument."""
        for message, (rows, now_ns, told) in self.changes.items():
            self.lives[message[0]].take(rows, self.traded.get(message, 0.0), now_ns, told)
        return {name: lives.row() for name, lives in self.lives.items() if lives.all}


def play(folder: Path, directory: Path) -> tuple[Path, Counted]:
    """Return an export of a set's market, and what a reader of it counted."""
    config, datagrams = read_set(folder, "clean", orders=True)
    feed = directory / "feed"
    feed.mkdir(mode=0o700)
    replayer = Replayer(config, feed)
    recorder = Recorder(RecordConfig(directory=str(directory / "journal"), sync_ms=1), feed, "feed")
    recorder.on_start()
    counted = Counted()
    with Reader(f"ring:{feed}", start="begin") as reader:
        for (channel, line), sent in datagrams:
            headers = np.zeros(1, CAPTURED)
            headers["timestamp_ns"], headers["size"] = sent.timestamp_ns, len(sent.payload)
            place = (np.full(1, value, np.uint8) for value in (channel, line))
            replayer.replay(CaptureBatch(headers, sent.payload), *place, 0, 1)
            while reader.lag:
                counted.take(next(reader))
    drive(recorder)
    recorder.on_stop()
    replayer.close()
    out = directory / "export"
    result = CliRunner().invoke(cli, ["export", str(directory / "journal"), str(out)])
    assert result.exit_code == 0, result.output
    return out, counted


@pytest.mark.parametrize("name", ["pitch_2", *nightly("itch_small", "cme_1")])
def test_orders_and_imbalance_are_what_a_reader_counts(spark, tmp_path: Path, name: str) -> None:
    out, counted = play(shared("venues", "books", name), tmp_path)
    bronze = Bronze(spark, (str(out),))
    rows = by(table(bronze, "orders"), "exchange", "symbol")
    expected = counted.found()
    assert rows.keys() == expected.keys()
    for key, row in expected.items():
        assert {column: rows[key][column] for column in row} == pytest.approx(row, rel=1e-9), key
        if row["ended"]:
            assert rows[key]["cancel_ratio"] == pytest.approx(row["cancelled"] / row["ended"])
        assert rows[key]["fill_ratio"] == pytest.approx(row["filled"] / row["quantity"])
    assert sum(row["filled"] for row in expected.values()) > 0
    assert any(0 < row["at_front"] < 1 for row in expected.values())

    tops = table(bronze, "imbalance", Parameters(bar_s=BAR_S))
    found = {(row["exchange"], row["symbol"], epoch_s(row["time"])): row for row in tops}
    assert found.keys() == counted.quotes.keys()
    for key, quotes in counted.quotes.items():
        values, mids = zip(*quotes, strict=True)
        told = found[key]
        assert told["quotes"] == len(values)
        assert told["imbalance_mean"] == pytest.approx(statistics.fmean(values))
        assert (told["imbalance_min"], told["imbalance_max"]) == (min(values), max(values))
        assert told["imbalance_last"] == values[-1]
        assert told["mid_moved"] == pytest.approx(mids[-1] - mids[0])


class Written:
    """Orders of one instrument as a feed tells of them: some changes are lost, ids come again."""

    def __init__(self, market: Market, seed: int) -> None:
        self.market, self.chance = market, random.Random(seed)
        self.open: dict[str, tuple[int, float, int, int]] = {}  # id -> side, price, quantity, ...
        self.lives = Lives()
        self.free: list[str] = []
        self.tells = self.chance.random() < 0.5  # which rows executions made
        self.told = self.last = 0
        self.silent = self.chance.choice((0, 0, 200))  # not recorded: what came before

    def run(self, messages: int) -> None:
        for at in range(messages):
            self.silent = max(0, self.silent - 1)
            if at % 150 == 149:
                self.lose()
            else:
                self.message(self.chance.choice((1, 1, 1, 2, 4)))

    def message(self, changes: int) -> None:
        rows, traded = [], 0
        silent = self.tells and self.chance.random() < 0.2  # executions that no trade tells of
        for _ in range(changes):
            row, fill = self.change()
            rows.append((*row, FILLED if fill and self.tells else 0))
            traded += 0 if silent else fill
        self.tell(rows, traded)

    def change(self) -> tuple[tuple[Any, ...], int]:
        pick = self.chance.random()
        touched = {name for name in self.open if self.open[name][3] <= self.last}
        if pick < 0.4 or not touched:
            reused = self.free and self.chance.random() < 0.3
            name = self.free.pop(0) if reused else str(self.told)
            return self.put(name, NEW, self.chance.randrange(2), self.chance.randrange(1, 40)), 0
        name = self.chance.choice(sorted(touched))
        side, _, quantity, priority = self.open[name]
        if pick < 0.6:  # filled, maybe whole
            fill = self.chance.randrange(1, quantity + 1)
            return self.left(name, quantity - fill, priority), fill
        if pick < 0.75:
            return self.left(name, 0, priority), 0
        if pick < 0.85:
            return self.left(name, self.chance.randrange(1, quantity + 1), priority), 0
        return self.put(name, CHANGE, side - 1, quantity + self.chance.randrange(0, 20)), 0

    def put(self, name: str, action: int, side: int, quantity: int) -> tuple[Any, ...]:
        self.told += 1
        price = 100.0 + self.chance.randrange(-2, 3)
        self.open[name] = (side + 1, price, quantity, self.told)
        return (name, action, *self.open[name])

    def left(self, name: str, quantity: int, priority: int) -> tuple[Any, ...]:
        side, price, _, _ = self.open[name]
        self.open[name] = (side, price, quantity, priority)
        if quantity:
            return (name, CHANGE, *self.open[name])
        self.free.append(name)
        return (name, DELETE, *self.open.pop(name))

    def lose(self) -> None:
        """Lose messages, maybe of orders that are gone or moved; a snapshot in records heals."""
        silent, self.silent = self.silent, 1
        for _ in range(self.chance.randrange(20)):
            self.message(1)
        self.silent = silent
        rows = [(name, NEW, *row, 0) for name, row in self.open.items()]
        self.chance.shuffle(rows)
        rows.sort(key=lambda row: row[5])
        self.tell(rows, 0, snapshot=True)

    def tell(self, rows: list[tuple[Any, ...]], traded: int, snapshot: bool = False) -> None:
        self.last = self.told
        if self.silent:
            return
        number = self.market.number
        now_ns = BEGIN_NS + number * STEP_NS
        header = {"number": number, "received_ns": now_ns, "published_ns": now_ns}
        if traded:
            self.market.tell(Kind.TRADES, [{"price": 1.0, "quantity": traded}], "S", header)
        content = [dict(zip(ROW, row, strict=True)) for row in rows]
        # A large snapshot takes several records; only the first is marked.
        middle = len(rows) // 2 if snapshot else len(rows)
        first = header | ({"flags": int(RecordFlag.SNAPSHOT)} if snapshot else {})
        self.market.tell(Kind.ORDERS, content[:middle], "S", first)
        if content[middle:]:
            self.market.tell(Kind.ORDERS, content[middle:], "S", header)
        self.lives.take(rows, traded, now_ns, snapshot)


@pytest.mark.parametrize("markets", [4, *nightly(12)])
def test_orders_of_any_market_are_counted_once_from_where_they_were_seen(
    spark, tmp_path: Path, markets: int
) -> None:
    expected = {}
    for seed in range(markets):
        market = Market(tmp_path / f"feed{seed}", 1 << 22)
        written = Written(market, seed)
        written.run(900)
        record(market, tmp_path / f"journal{seed}")
        market.close()
        journal, out = (str(tmp_path / name) for name in (f"journal{seed}", "export"))
        result = CliRunner().invoke(cli, ["export", journal, out, "--feed", f"f{seed}"])
        assert result.exit_code == 0, result.output
        expected[f"f{seed}",] = written.lives.row()
    found = by(table(Bronze(spark, (str(tmp_path / "export"),)), "orders"), "feed")
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert {name: found[key][name] for name in row} == pytest.approx(row, rel=1e-9), key
        assert found[key]["fill_ratio"] <= 1


@pytest.fixture(scope="module")
def venue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export of a market that has orders, and is short."""
    directory = tmp_path_factory.mktemp("venue")
    market = Market(directory / "feed", 1 << 22)
    Written(market, 1).run(300)
    record(market, directory / "journal")
    market.close()
    arguments = ["export", str(directory / "journal"), str(directory / "export")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return directory / "export"


@pytest.mark.parametrize("name", ["orders", *nightly(*(name for name in JOBS if name != "orders"))])
def test_job_as_a_stream_writes_the_table_of_a_batch(
    spark, venue: Path, tmp_path: Path, name: str
) -> None:
    bronze, jobs = Bronze(spark, (str(venue),)), [JOBS[name]]
    stream, batch = str(tmp_path / "stream"), str(tmp_path / "batch")
    for ran in (stream_jobs(bronze, stream, jobs, Parameters()),
                run_jobs(bronze, batch, jobs, Parameters())):  # fmt: skip
        assert [one.failure for one in ran] == [""]
    assert contents(tmp_path / "stream", name) == contents(tmp_path / "batch", name)
