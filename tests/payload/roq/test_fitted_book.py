"""A book as far as a message carries it, beside one that is sorted and cut from the beginning."""

import random

import numpy as np
import pytest

from lab.dense_markets import check_book
from udpfast.feed.publication import Publication
from udpfast.payload.roq.encode import SourceInfo, encode_book
from udpfast.payload.roq.fitted_book import FittedBook, LeftOut, levels_that_fit

MESSAGE_SIZE_MAX = Publication.message_size_max
NOTHING = np.zeros((0, 2))


def levels(*rows):
    return np.array(rows, np.float64).reshape(-1, 2)


def test_book_that_fits_goes_out_as_it_came():
    book = FittedBook(4)
    bids, asks = levels((9, 1), (8, 1)), levels((10, 1), (10, 2))
    message = book.apply(bids, asks, snapshot=True)
    assert message.snapshot
    assert message.bids.tolist() == bids.tolist()
    assert message.asks.tolist() == asks.tolist()
    removal = book.apply(levels((7, 0)), NOTHING, snapshot=False)
    assert (removal.snapshot, removal.bids.tolist()) == (False, [[7.0, 0.0]])
    assert book.left_out == LeftOut(0, 0, 0)


def test_book_too_dense_keeps_the_levels_nearest_the_touch():
    book = FittedBook(4)
    asks = levels((10, 1), (11, 1), (12, 1), (13, 1))
    message = book.apply(levels((9, 1)), asks, snapshot=True)
    assert message.bids.tolist() == [[9, 1]]
    assert message.asks.tolist() == [[10, 1], [11, 1], [12, 1]]
    assert book.left_out.levels == 1
    # A level that goes makes room for the next beyond; one that comes takes the last one's.
    gone = book.apply(NOTHING, levels((11, 0)), snapshot=False)
    assert dict(gone.asks.tolist()) == {11.0: 0.0, 13.0: 1.0}
    came = book.apply(NOTHING, levels((10.5, 7)), snapshot=False)
    assert dict(came.asks.tolist()) == {10.5: 7.0, 13.0: 0.0}
    assert book.apply(NOTHING, levels((13, 5)), snapshot=False) is None
    assert book.left_out == LeftOut(levels=1, levels_most=1, changes=2)
    both = book.apply(levels((8, 1), (7, 1)), NOTHING, snapshot=False)
    assert dict(both.bids.tolist()) == {8.0: 1.0}
    assert dict(both.asks.tolist()) == {12.0: 0.0}


def test_update_that_is_larger_than_a_message_becomes_the_whole_book():
    book = FittedBook(4)
    book.apply(levels((9, 1), (8, 1)), levels((10, 1), (11, 1)), snapshot=True)
    message = book.apply(
        levels((9, 0), (8, 0), (7, 1), (6, 1)), levels((10, 0), (12, 1)), snapshot=False
    )
    assert message.snapshot
    assert message.bids.tolist() == [[7, 1], [6, 1]]
    assert message.asks.tolist() == [[11, 1], [12, 1]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_and_changes_nothing(value):
    book = FittedBook(4)
    book.apply(levels((9, 1)), levels((10, 1)), snapshot=True)
    for bids, asks in (
        (levels((8, 1)), levels((value, 1))),
        (levels((8, value)), NOTHING),
    ):
        with pytest.raises(ValueError, match="finite numbers"):
            book.apply(bids, asks, snapshot=True)
    assert book.whole().bids.tolist() == [[9, 1]]


@pytest.mark.parametrize(
    ("exchange", "symbol"), [("e", "S"), ("x" * 500, "y" * 501), ("", ""), ("ä" * 9, "s" * 3)]
)
def test_levels_that_fit_do_and_hardly_any_more_would(exchange, symbol):
    most = levels_that_fit(exchange, symbol)
    chance = random.Random(1)
    for removed in (0.0, 0.5, 1.0):
        rows = np.array([(price, float(chance.random() >= removed)) for price in range(most)])
        split = chance.randrange(most)
        everything = {
            "stream_id": 1, "exchange_time_utc": 1 << 62, "exchange_sequence": 1 << 62,
            "price_precision": 9, "quantity_precision": 9, "source": SourceInfo(9, 9, 9, 9, 9),
        }  # fmt: skip
        payload = encode_book(exchange, symbol, bids=rows[:split], asks=rows[split:], **everything)
        assert len(payload) <= MESSAGE_SIZE_MAX
        if not removed:
            assert len(payload) > MESSAGE_SIZE_MAX - 150


def test_levels_max_of_nothing_is_refused():
    with pytest.raises(ValueError, match="must be at least 1, was 0"):
        FittedBook(0)


@pytest.mark.parametrize("seed", range(20))
def test_book_as_published_equals_the_sorted_and_cut_one(seed):
    check_book(seed)
