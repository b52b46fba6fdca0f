"""The jobs `orders` and `imbalance` on markets of venues, beside the same counted by a reader."""

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lab.conformance.books import read_set
from tests.cases import nightly
from tests.export.market import drive
from tests.shared import shared
from tests.spark.test_jobs import by, epoch_s, table
from udpfast.agents.feed.recorder import Recorder
from udpfast.agents.feed.replayer import Replayer
from udpfast.cli.main import cli
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig
from udpfast.core.layout import Kind, RecordFlag
from udpfast.net.pcap import CAPTURED, CaptureBatch
from udpfast.spark.bronze import Bronze
from udpfast.spark.jobs import Parameters

BAR_S = 1
DELETE = 3


class Counted:
    """What a reader counts, order by order, with queues that it walks through."""

    def __init__(self) -> None:
        self.orders: dict[Any, dict[str, Any]] = {}
        self.queues: dict[Any, dict[Any, int]] = defaultdict(dict)
        self.traded: dict[Any, float] = defaultdict(float)
        self.touched: dict[Any, set[Any]] = defaultdict(set)
        self.quotes: dict[Any, list[tuple[float, float]]] = defaultdict(list)

    def take(self, record: Any) -> None:
        name = record.exchange, record.symbol
        message = name, record.session, record.stream, record.number
        if record.kind == Kind.TRADES:
            self.traded[message] += float(record.update.rows["quantity"].sum())
        elif record.kind == Kind.ORDERS:
            for row in record.update.rows:
                self.change(name, message, record, row)
        elif record.kind == Kind.TOP_OF_BOOK:
            self.quote(name, record)

    def change(self, name: Any, message: Any, record: Any, row: Any) -> None:
        key = name, record.session, bytes(row["order_id"])
        place = name, record.session, int(row["side"]), float(row["price"])
        order = self.orders.get(key)
        told = bool(record.flags & RecordFlag.SNAPSHOT)
        if order is None:
            order = self.orders[key] = {
                "begin_ns": record.received_ns, "quantity": float(row["quantity"]),
                "before": len(self.queues[place]), "told": told, "ended_ns": None,
            }  # fmt: skip
        else:
            self.queues[order["place"]].pop(key, None)
            if not told and row["action"] != 1:
                self.touched[message].add(key)
        order["place"] = place
        if row["action"] == DELETE:
            order["ended_ns"] = record.received_ns
        else:
            self.queues[place][key] = int(row["priority"])

    def quote(self, name: Any, record: Any) -> None:
        top = record.update.header
        bid, ask = float(top["bid_quantity"]), float(top["ask_quantity"])
        if np.isfinite(top["bid_price"]) and np.isfinite(top["ask_price"]) and bid + ask:
            period = record.received_ns // 1_000_000_000 // BAR_S * BAR_S
            mid = float(top["bid_price"] + top["ask_price"]) / 2
            self.quotes[(*name, period)].append(((bid - ask) / (bid + ask), mid))

    def found(self) -> dict[Any, dict[str, Any]]:
        """Return what the job's table says of each instrument."""
        filled: dict[Any, float] = defaultdict(float)
        for message, keys in self.touched.items():
            for key in keys:
                filled[key] += self.traded.get(message, 0.0)
        whole: dict[Any, list[Any]] = defaultdict(list)
        for key, order in self.orders.items():
            whole[key[0]].append((order, filled[key]))
        return {name: self.row(orders) for name, orders in whole.items()}

    @staticmethod
    def row(orders: list[tuple[dict[str, Any], float]]) -> dict[str, Any]:
        ended = [(one, part) for one, part in orders if one["ended_ns"] is not None]
        lived = [one["ended_ns"] - one["begin_ns"] for one, _ in ended if not one["told"]]
        places = [one["before"] for one, _ in orders if not one["told"]]
        return {
            "orders": len(orders),
            "ended": len(ended),
            "cancelled": sum(part < one["quantity"] for one, part in ended),
            "quantity": sum(one["quantity"] for one, _ in orders),
            "filled": sum(part for _, part in orders),
            "lifetime_mean_ns": statistics.fmean(lived) if lived else None,
            "lifetime_p50_ns": statistics.median(lived) if lived else None,
            "place_mean": statistics.fmean(places) if places else None,
            "place_p50": statistics.median(places) if places else None,
            "at_front": sum(place == 0 for place in places) / len(places) if places else None,
        }


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


@pytest.mark.parametrize("name", ["pitch_2", *nightly("itch_small")])
def test_orders_and_imbalance_are_what_a_reader_counts(spark, tmp_path: Path, name: str) -> None:
    out, counted = play(shared("venues", "books", name), tmp_path)
    bronze = Bronze(spark, (str(out),))
    rows = by(table(bronze, "orders"), "exchange", "symbol")
    expected = counted.found()
    assert rows.keys() == expected.keys()
    for key, row in expected.items():
        assert {column: rows[key][column] for column in row} == pytest.approx(row, rel=1e-9), key
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
