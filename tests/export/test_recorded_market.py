"""A recorded market through the engine, the journal and the export: rows equal the records."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.market import SEGMENT_BYTES
from tests.export.test_export import table_of
from tests.shared import shared
from udpfast.agents.feed.recorder import Recorder
from udpfast.agents.feed.replayer import Replayer
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig, parse_feed
from udpfast.core.layout import Kind
from udpfast.errors import RingClosedError
from udpfast.export.exporter import Exporter
from udpfast.market.updates import ROW_DTYPES
from udpfast.net.pcap import CaptureReader

TABLES = {
    "levels": Kind.BOOK,
    "tops": Kind.TOP_OF_BOOK,
    "trades": Kind.TRADES,
}


def record_capture(directory: Path) -> Path:
    """Return the directory of the journal of a captured feed."""
    instance = directory / "feed"
    instance.mkdir(mode=0o700)
    lines = [{"name": name, "address": f"0.0.0.0:{9001 + i}"} for i, name in enumerate("AB")]
    config = parse_feed(
        {
            "name": "feed",
            "incremental": {"lines": lines},
            "snapshot": {"lines": [{"name": "A", "address": "0.0.0.0:9003"}]},
            "ring": {"capacity_bytes": 1 << 26},
        }
    )
    replayer = Replayer(config, instance)
    with CaptureReader(shared("wire", "capture", "roq_udp_rough.pcap.gz")) as source:
        while (batch := source.read_batch()) is not None:
            ports = batch.headers["destination_port"]
            channels, heard = (ports == 9002).astype(np.uint8), (ports == 9101).astype(np.uint8)
            replayer.replay(batch, channels, heard, 0, len(ports))
    replayer.finish()
    replayer.close()
    keep = RecordConfig(
        directory=str(directory / "journal"), segment_bytes=16 * SEGMENT_BYTES, sync_ms=1
    )
    recorder = Recorder(keep, instance, "feed")
    recorder.on_start()
    for now_ns in range(100_000):
        if recorder.work(now_ns) == 0 and recorder.recordings[0].backlog == 0:
            break
        recorder.keep()
    recorder.on_stop()
    return directory / "journal"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the journal of a captured feed."""
    return record_capture(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def root(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("export")
    list(Exporter(journal, root).run())
    return root


@pytest.fixture(scope="module")
def records(journal: Path) -> dict[Kind, list[tuple[Any, Any, Any, str | None]]]:
    """Return (header, fixed part, rows, symbol) of every update, by kind; and every header."""
    found: dict[Kind, list[tuple[Any, Any, Any, str | None]]] = {}
    with Reader(f"journal:{journal}", batch=4096) as reader:
        while not reader.closed:
            try:
                batch = reader.poll()
            except RingClosedError:
                break
            for i, header in enumerate(batch.headers):
                kind = Kind(header["kind"])
                fixed = rows = symbol = None
                if kind >= Kind.BOOK:
                    update = batch.update(i)
                    fixed, rows = update.header.copy(), update.rows.copy()
                    symbol = batch.names[int(fixed["symbol_id"])]
                found.setdefault(kind, []).append((header.copy(), fixed, rows, symbol))
    return found


def test_every_record_is_a_message(records, root: Path) -> None:
    table = table_of(root, "messages")
    headers = sorted(
        (row[0] for rows in records.values() for row in rows), key=lambda h: h["index"]
    )
    assert len(headers) > 10_000 and len(records) > 5
    for name in ("position", "index", "received_ns", "published_ns", "number", "object"):
        assert table[name].to_pylist() == [int(header[name]) for header in headers]
    assert table["kind"].to_pylist() == [Kind(header["kind"]).name for header in headers]


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_updates_are_the_rows_of_the_table(records, root: Path, name: str) -> None:
    kind = TABLES[name]
    table = table_of(root, name)
    updates = records[kind]
    nested = kind in ROW_DTYPES
    repeats = [len(rows) if nested else 1 for _, _, rows, _ in updates]
    assert len(table) == sum(repeats) > 0
    for field in ("position", "number", "received_ns"):
        expected = np.repeat([int(header[field]) for header, _, _, _ in updates], repeats)
        assert np.array_equal(table[field].to_numpy(), expected)
    symbols = [symbol for _, _, _, symbol in updates]
    assert table["symbol"].to_pylist() == np.repeat(symbols, repeats).tolist()
    times = np.repeat([int(fixed["exchange_time_utc"]) for _, fixed, _, _ in updates], repeats)
    assert np.array_equal(table["exchange_time_ns"].to_numpy(), times)
    values = (
        np.concatenate([rows for _, _, rows, _ in updates])
        if nested
        else np.array([fixed for _, fixed, _, _ in updates])
    )
    for field in ("price", "quantity", "bid_price", "ask_quantity", "value"):
        if field in values.dtype.names:
            found = table[field].to_numpy(zero_copy_only=False).astype(float)
            assert np.array_equal(found, values[field], equal_nan=True)


def test_sides_of_levels_are_those_of_the_book(records, root: Path) -> None:
    expected: list[str] = []
    for _, fixed, _, _ in records[Kind.BOOK]:
        expected += ["Bid"] * int(fixed["bid_count"]) + ["Ask"] * int(fixed["ask_count"])
    assert table_of(root, "levels")["side"].to_pylist() == expected


def test_gaps_are_the_feed_s_own(records, root: Path) -> None:
    assert len(table_of(root, "gaps")) == len(records.get(Kind.GAP, []))
