"""The recorded market as a source, against the counts and books of an independent script."""

import json
from collections import Counter

import numpy as np
import pytest

from tests.agents.oracle import final_books
from tests.shared import shared
from udpfast.agents.market.market_event import BookChange, Quote, Trade
from udpfast.agents.market.market_recording import MarketRecording
from udpfast.errors import FormatError

pyarrow = pytest.importorskip("pyarrow")

SCHEMA = [
    ("recv_ns", "int64"),
    ("event_ns", "int64"),
    ("venue", "string"),
    ("symbol", "string"),
    ("msg", "int32"),
    ("update_type", "int8"),
    ("last_id", "int64"),
    ("side", "int8"),
    ("price", "float64"),
    ("qty", "float64"),
]


@pytest.fixture(scope="module")
def expected():
    return json.loads(shared("data", "market", "expected.json").read_text())["binance_20240808"]


@pytest.fixture(scope="module")
def prefix():
    return shared("data", "market", "binance_20240808_l2.parquet").with_name("binance_20240808")


@pytest.fixture(scope="module")
def recording(prefix):
    return MarketRecording(prefix)


def books_of(source):
    """Apply a source's book changes to plain dicts."""
    books = {}
    for event in source:
        if isinstance(event, BookChange):
            bids, asks = books.setdefault(source.instruments[event.instrument].name, ({}, {}))
            for side, levels in ((bids, event.bids), (asks, event.asks)):
                if event.snapshot:
                    side.clear()
                side.update(levels.tolist())
    return {
        name: tuple(
            {price: quantity for price, quantity in side.items() if quantity} for side in sides
        )
        for name, sides in books.items()
    }


def test_recording_counts_equal_the_expected_ones(recording, expected):
    applied, snapshots, quotes, trades = Counter(), Counter(), Counter(), Counter()
    for event in recording:
        kind = (
            quotes
            if isinstance(event, Quote)
            else trades
            if isinstance(event, Trade)
            else (snapshots if event.snapshot else applied)
        )
        kind[recording.instruments[event.instrument].name] += 1
    for index, instrument in enumerate(recording.instruments):
        name, facts = instrument.name, expected[instrument.name]
        assert recording.book_messages[index] == facts["l2"]["messages"]
        assert recording.updates_older[index] == facts["l2"]["updates_older_than_snapshot"]
        assert snapshots[name] == facts["l2"]["snapshots"]
        assert applied[name] == facts["l2"]["updates_applied"]
        assert quotes[name] == facts["quotes"]["count"]
        assert trades[name] == facts["trades"]["count"]


def test_recording_times_only_grow(recording):
    times = np.fromiter((event.recv_ns for event in recording), np.int64)
    assert (np.diff(times) >= 0).all()


def test_recording_final_books_equal_the_expected_ones(recording, expected):
    for name, (bids, asks) in books_of(recording).items():
        final = expected[name]["l2"]["final_book"]
        assert (len(bids), len(asks)) == (final["bid_levels"], final["ask_levels"])
        assert [max(bids), bids[max(bids)]] == final["bid"]
        assert [min(asks), asks[min(asks)]] == final["ask"]
        assert sum(bids.values()) == pytest.approx(final["bid_qty_sum"], abs=1e-5)
        assert sum(asks.values()) == pytest.approx(final["ask_qty_sum"], abs=1e-5)


def test_recording_trades_and_quotes_keep_their_sums(recording, expected):
    quantities, last_quotes = Counter(), {}
    for event in recording:
        name = recording.instruments[event.instrument].name
        if isinstance(event, Trade):
            quantities[name] += event.quantity
        elif isinstance(event, Quote):
            last_quotes[name] = [
                event.bid_price,
                event.bid_quantity,
                event.ask_price,
                event.ask_quantity,
            ]
    for name, facts in ((i.name, expected[i.name]) for i in recording.instruments):
        assert quantities[name] == pytest.approx(facts["trades"]["qty_sum"], abs=1e-5)
        assert last_quotes[name] == facts["quotes"]["last"]


def test_recording_digits_are_those_of_the_prices(recording):
    digits = {i.name: (i.price_digits, i.tick_size) for i in recording.instruments}
    assert digits["binance-usdm:BTCUSDT"] == (1, 0.1)
    assert digits["binance-spot:BTCUSDT"] == (2, 0.01)


@pytest.mark.nightly  # six seconds; the band is an option of recordings alone
def test_recording_price_band_agrees_with_the_oracle(prefix):
    banded = MarketRecording(prefix, price_band=0.01)
    found, oracle = books_of(banded), final_books(prefix, price_band=0.01)
    assert found.keys() == oracle.keys()
    for name, book in oracle.items():
        assert found[name] == (dict(book.bids), dict(book.asks))
        left = banded.outside_band[name]
        assert left.rows > 0
        assert left.low <= min(dict(book.bids)) < max(dict(book.asks)) <= left.high


def test_recording_of_many_venues_loads_without_snapshots_or_ids():
    prefix = shared("data", "market", "multivenue_2021_l2.parquet").with_name("multivenue_2021")
    expected = json.loads(shared("data", "market", "expected.json").read_text())["multivenue_2021"]
    recording = MarketRecording(prefix)
    assert len(list(recording)) == len(recording)
    found = dict(zip((i.name for i in recording.instruments), recording.book_messages, strict=True))
    assert {name: count for name, count in found.items() if count} == {
        name: facts["l2"]["messages"] for name, facts in expected.items() if "l2" in facts
    }


def write(path, rows):
    from pyarrow import parquet

    columns = list(zip(*rows, strict=True))
    parquet.write_table(
        pyarrow.table(
            {
                name: pyarrow.array(column, kind)
                for (name, kind), column in zip(SCHEMA, columns, strict=True)
            }
        ),
        path,
    )
    return str(path).removesuffix("_l2.parquet")


def row(recv_ns, msg, update_type, last_id, side, price, qty):
    return (recv_ns, None, "v", "S", msg, update_type, last_id, side, price, qty)


def test_recording_updates_before_the_snapshot_wait_or_are_dropped(tmp_path):
    prefix = write(
        tmp_path / "x_l2.parquet",
        [
            row(1, 0, 2, 10, 1, 99.0, 1.0),  # contained in the snapshot
            row(2, 1, 2, 12, 1, 98.0, 2.0),  # newer: comes behind it
            row(3, 2, 1, 11, 1, 99.0, 5.0),
            row(3, 2, 1, 11, 2, 101.0, 6.0),
            row(4, 3, 2, 11, 1, 97.0, 3.0),  # late, contained
            row(5, 4, 2, 13, 2, 101.0, 0.0),
        ],
    )
    recording = MarketRecording(prefix)
    assert [(e.recv_ns, e.sequence, e.snapshot) for e in recording] == [
        (3, 11, True),
        (3, 12, False),
        (5, 13, False),
    ]
    assert (recording.updates_older, recording.updates_kept_back) == ([2], [1])
    assert books_of(recording) == {"v:S": ({99.0: 5.0, 98.0: 2.0}, {})}


def test_recording_price_band_leaves_out_levels_and_empty_updates(tmp_path):
    prefix = write(
        tmp_path / "x_l2.parquet",
        [
            row(1, 0, 1, 1, 1, 99.0, 1.0),
            row(1, 0, 1, 1, 1, 80.0, 1.0),
            row(1, 0, 1, 1, 2, 101.0, 1.0),
            row(2, 1, 2, 2, 1, 80.0, 0.0),  # nothing is left of it
            row(3, 2, 2, 3, 1, 79.0, 4.0),
            row(3, 2, 2, 3, 2, 102.0, 4.0),
        ],
    )
    recording = MarketRecording(prefix, price_band=0.1)
    assert [e.sequence for e in recording] == [1, 3]
    assert recording.outside_band["v:S"] == (100.0, 90.0, pytest.approx(110.0), 3, 2, 1)
    assert books_of(recording) == {"v:S": ({99.0: 1.0}, {101.0: 1.0, 102.0: 4.0})}


def test_recording_absent_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none_l2.parquet: expected recorded order book"):
        MarketRecording(tmp_path / "none")


def test_recording_that_is_no_parquet_file_says_so(tmp_path):
    (tmp_path / "market_l2.parquet").write_bytes(b"rubbish" * 20)
    with pytest.raises(FormatError, match="expected a Parquet file"):
        MarketRecording(tmp_path / "market")
