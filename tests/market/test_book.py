"""The order book against a dictionary, and against recorded markets."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shared import shared
from udpfast.core.layout import Kind, RecordFlag
from udpfast.errors import FormatError
from udpfast.market.book import OrderBook
from udpfast.market.updates import BOOK, LEVEL

SNAPSHOT, INCREMENTAL, STALE = 1, 2, 3


def payload(bids=(), asks=(), update_type: int = INCREMENTAL) -> bytes:
    """Return a book update of (price, quantity) pairs."""
    header = np.zeros(1, BOOK)
    header["bid_count"], header["ask_count"] = len(bids), len(asks)
    header["row_count"] = len(bids) + len(asks)
    header["update_type"] = update_type
    rows = np.zeros(len(bids) + len(asks), LEVEL)
    pairs = np.array([*bids, *asks], np.float64).reshape(-1, 2)
    rows["price"], rows["quantity"] = pairs[:, 0], pairs[:, 1]
    return header.tobytes() + rows.tobytes()


class Model:
    """The slow, obvious book: a dictionary per side."""

    def __init__(self) -> None:
        self.sides: tuple[dict[float, float], dict[float, float]] = ({}, {})
        self.removals_unknown = 0

    def apply(self, bids, asks, update_type: int) -> None:
        for side, rows in zip(self.sides, (bids, asks), strict=True):
            if update_type == SNAPSHOT:
                side.clear()
            for price, quantity in rows:
                if quantity:
                    side[price] = quantity
                elif side.pop(price, None) is None:
                    self.removals_unknown += 1

    def levels(self, side: int) -> list[list[float]]:
        return [list(level) for level in sorted(self.sides[side].items(), reverse=side == 0)]


PRICES = st.integers(-20, 20).map(lambda ticks: ticks / 10)
ROWS = st.lists(st.tuples(PRICES, st.sampled_from([0.0, 0.0, 1.0, 2.5, 1e9])), max_size=12)
UPDATES = st.lists(st.tuples(ROWS, ROWS, st.sampled_from([1, 2, 2, 2, 2])), max_size=12)


@settings(max_examples=300, deadline=None)
@given(UPDATES)
def test_book_equals_the_dictionary_model_after_every_update(updates):
    book, model = OrderBook(), Model()
    for bids, asks, update_type in updates:
        book.apply(payload(bids, asks, update_type))
        model.apply(bids, asks, update_type)
        assert book.bids().tolist() == model.levels(0)
        assert book.asks().tolist() == model.levels(1)
        assert book.levels == (len(model.sides[0]), len(model.sides[1]))
        assert book.removals_unknown == model.removals_unknown
        best = [(model.levels(side) or [[math.nan, 0.0]])[0] for side in (0, 1)]
        np.testing.assert_array_equal(book.best(), best[0] + best[1])
        assert book.crossed == (best[0][0] >= best[1][0])


def test_book_of_many_levels_stays_sorted_wherever_updates_fall():
    chance = np.random.default_rng(7)
    book, model = OrderBook(), Model()
    for _ in range(300):
        prices = np.round(chance.normal(1000, 300, (2, 20)), 1)
        quantities = chance.integers(0, 3, (2, 20)).astype(float)
        bids, asks = (
            list(zip(p.tolist(), q.tolist(), strict=True))
            for p, q in zip(prices, quantities, strict=True)
        )
        book.apply(payload(bids, asks))
        model.apply(bids, asks, INCREMENTAL)
    assert book.bids().tolist() == model.levels(0)
    assert book.asks().tolist() == model.levels(1)
    assert min(book.levels) > 1000


def test_levels_best_first_and_at_most_so_many():
    book = OrderBook()
    book.apply(payload([(1, 5), (3, 6), (2, 7)], [(6, 1), (4, 2), (5, 3)], SNAPSHOT))
    assert book.bids(2).tolist() == [[3, 6], [2, 7]]
    assert book.asks(2).tolist() == [[4, 2], [5, 3]]
    assert book.bids(99).shape == (3, 2)
    assert book.bids(0).shape == book.asks(-1).shape == (0, 2)
    assert book.bids().dtype == np.float64
    assert book.best() == (3, 6, 4, 2)


def test_empty_snapshot_empties_both_sides():
    book = OrderBook()
    book.apply(payload([(1, 1)], [(2, 1)]))
    book.apply(payload(update_type=SNAPSHOT))
    assert book.levels == (0, 0)


def test_book_is_partial_until_the_update_that_completes_the_event():
    book = OrderBook()
    begun = np.frombuffer(payload([(1, 1)]), np.uint8).copy()
    begun[: BOOK.itemsize].view(BOOK)["present"] = 16
    for update, partial in ((begun.tobytes(), True), (payload([(1, 2)]), False)):
        book.apply(update)
        assert book.partial is partial
    book.apply(begun.tobytes())
    book.clear()
    assert not book.partial


def test_stale_is_marked_by_the_update_and_by_hand_and_ends_with_a_snapshot():
    book = OrderBook()
    assert not book.stale
    book.apply(payload([(1, 1)], update_type=STALE))
    assert book.stale
    book.apply(payload([(1, 2)]))
    assert book.stale
    book.apply(payload([(1, 2)], update_type=SNAPSHOT))
    assert not book.stale
    book.mark_stale()
    assert book.stale
    book.mark_live()
    assert not book.stale
    book.clear()
    assert book.levels == (0, 0)


def test_apply_a_record_takes_its_payload_and_snapshot_flag():
    book = OrderBook()
    book.apply(payload([(1, 1)]))
    record = SimpleNamespace(
        kind=Kind.BOOK, flags=RecordFlag.SNAPSHOT, payload=memoryview(payload([(2, 1)]))
    )
    book.apply(record)
    assert book.bids().tolist() == [[2, 1]]
    record.kind = Kind.TRADES
    with pytest.raises(FormatError, match="TRADES"):
        book.apply(record)


def test_levels_beyond_the_limit_and_numbers_that_are_none_are_refused_and_counted():
    book = OrderBook(levels_max=2)
    book.apply(payload([(1, 1), (2, 1), (3, 1), (math.nan, 1), (1, math.nan)]))
    assert book.bids().tolist() == [[2, 1], [1, 1]]
    assert book.levels_refused == 3
    book.apply(payload([(1, 1), (2, 1), (3, 1)], update_type=SNAPSHOT))
    assert book.levels == (2, 0)


@pytest.mark.parametrize("refused", [(3, 1), (math.nan, 1), (1, math.nan)])
def test_book_that_refused_a_level_is_stale_until_a_snapshot_fits(refused):
    book = OrderBook(levels_max=2)
    book.apply(payload([(1, 1), (2, 1)], update_type=SNAPSHOT))
    book.apply(payload([refused]))
    assert book.stale
    book.apply(payload([(1, 2)]))
    assert book.stale
    book.apply(payload([(1, 1), (2, 1), refused], update_type=SNAPSHOT))
    assert book.stale
    book.apply(payload([(1, 1), (2, 1)], update_type=SNAPSHOT))
    assert not book.stale


@pytest.mark.parametrize("size", [0, 95, 96 + 31])
def test_apply_a_payload_shorter_than_it_says_is_refused(size):
    with pytest.raises(FormatError, match="too short"):
        OrderBook().apply(payload([(1, 1)])[:size])


VENUES = ["binance-coinm:ETHUSD_PERP", "binance-spot:BTCUSDT"]


@pytest.mark.parametrize("instrument", VENUES)
def test_recorded_market_ends_in_the_expected_book(instrument):
    parquet = pytest.importorskip("pyarrow.parquet")
    expected = json.loads(shared("data", "market", "expected.json").read_text())
    expected = expected["binance_20240808"][instrument]["l2"]
    venue, symbol = instrument.split(":")
    table = parquet.read_table(
        shared("data", "market", "binance_20240808_l2.parquet"),
        columns=["msg", "update_type", "last_id", "side", "price", "qty"],
        filters=[("venue", "=", venue), ("symbol", "=", symbol)],
    )
    columns = {name: table[name].to_numpy() for name in table.column_names}
    starts = np.flatnonzero(np.diff(columns["msg"], prepend=columns["msg"][0] - 1))
    messages = list(zip(starts, [*starts[1:], len(columns["msg"])], strict=True))
    snapshot = next(m for m in messages if columns["update_type"][m[0]] == SNAPSHOT)
    # Updates that came before the snapshot are kept; those it does not contain follow it.
    newer = columns["last_id"] > columns["last_id"][snapshot[0]]
    book, crossed = OrderBook(), 0
    for start, end in [snapshot, *(m for m in messages if newer[m[0]])]:
        rows = np.stack((columns["price"][start:end], columns["qty"][start:end]), 1)
        buys = columns["side"][start:end] == 1
        book.apply(payload(rows[buys], rows[~buys], columns["update_type"][start]))
        crossed += book.crossed
    final = expected["final_book"]
    assert book.levels == (final["bid_levels"], final["ask_levels"])
    assert list(book.best()) == final["bid"] + final["ask"]
    assert book.bids()[:, 1].sum() == pytest.approx(final["bid_qty_sum"])
    assert book.asks()[:, 1].sum() == pytest.approx(final["ask_qty_sum"])
    assert crossed == expected["messages_after_which_book_is_crossed"]


@pytest.mark.parametrize(
    "level",
    [(100.0, math.nan), (math.nan, 1.0), (math.nan, math.nan), (100.0, -1.0), (100.0, -math.inf)],
)
@pytest.mark.parametrize("update_type", [SNAPSHOT, INCREMENTAL])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_level_that_is_no_number_is_refused_wherever_it_stands(level, update_type, at) -> None:
    bids = [(101.0, 1.0), (99.0, 2.0)]
    bids.insert(at, level)
    book = OrderBook()
    book.apply(payload(bids, update_type=update_type))
    assert book.bids().tolist() == [[101.0, 1.0], [99.0, 2.0]]
    assert (book.levels_refused, book.stale) == (1, True)


@pytest.mark.parametrize("update_type", [SNAPSHOT, INCREMENTAL])
def test_infinite_and_negative_prices_are_levels(update_type) -> None:
    book = OrderBook()
    book.apply(payload([(math.inf, 1.0), (-5.0, 2.0), (-math.inf, 3.0)], (), update_type))
    assert book.bids().tolist() == [[math.inf, 1.0], [-5.0, 2.0], [-math.inf, 3.0]]
    assert (book.levels_refused, book.stale) == (0, False)


@pytest.mark.parametrize(
    ("bids", "asks", "mid", "spread"),
    [
        ([(1.5, 2.0)], [(2.5, 3.0)], 2.0, 1.0),
        ([(-0.5, 1.0)], [(0.5, 1.0)], 0.0, 1.0),
        ([(-3.0, 1.0)], [(-2.0, 1.0)], -2.5, 1.0),
        ([(2.0, 1.0)], [(1.0, 1.0)], 1.5, -1.0),
        ([(1e308, 1.0)], [(1.5e308, 1.0)], 1.25e308, 5e307),
        ([], [(1.0, 1.0)], math.nan, math.nan),
        ([], [], math.nan, math.nan),
    ],
)
def test_mid_and_spread_of_any_sign(bids, asks, mid, spread) -> None:
    book = OrderBook()
    book.apply(payload(bids, asks, SNAPSHOT))
    np.testing.assert_array_equal((book.mid, book.spread), (mid, spread))


def test_depth_has_both_sides_beside_each_other() -> None:
    book = OrderBook()
    book.apply(payload([(0.0, 2.0), (-1.0, 3.0)], [(0.5, 4.0)], SNAPSHOT))
    assert book.depth(1).tolist() == [(0.0, 2.0, 0.5, 4.0)]
    depth = book.depth(3)
    assert depth["bid_price"][:2].tolist() == [0.0, -1.0]
    assert np.isnan(depth["ask_price"]).tolist() == [False, True, True]
    assert depth["ask_quantity"].tolist() == [4.0, 0.0, 0.0]
    assert len(book.depth()) == 10
    assert len(book.depth(0)) == 0
    with pytest.raises(ValueError, match="count must be 0 or more levels, was -1"):
        book.depth(-1)
    pytest.importorskip("pandas")
    frame = book.to_pandas()
    assert list(frame.columns) == ["bid_price", "bid_quantity", "ask_price", "ask_quantity"]
    assert frame["bid_quantity"].tolist() == [2.0, 3.0]
    assert len(book.to_pandas(1)) == 1
    pytest.importorskip("polars")
    assert book.to_polars().columns == list(frame.columns)
    np.testing.assert_array_equal(book.to_polars().to_numpy(), frame.to_numpy())
    assert len(book.to_polars(1)) == 1
