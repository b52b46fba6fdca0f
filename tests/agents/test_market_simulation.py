"""The simulated market: repeatable, never crossed, and told by its own quotes."""

import itertools

import pytest

from udpfast.agents.market.market_event import BookChange, Quote
from udpfast.agents.market.market_simulation import SimulatedMarket


def text(market):
    return [
        tuple(field.tolist() if hasattr(field, "tolist") else field for field in event)
        for event in market
    ]


def test_simulator_same_seed_same_events():
    assert text(SimulatedMarket(5, events=500)) == text(SimulatedMarket(5, events=500))
    market = SimulatedMarket(5, events=500)
    assert text(market) == text(market)
    assert text(market) != text(SimulatedMarket(6, events=500))


def test_simulator_book_is_never_crossed_and_quotes_are_its_best():
    market = SimulatedMarket(3, instruments=3, events=5000, levels=20)
    books = [({}, {}) for _ in market.instruments]
    last_ns = count = 0
    for event in market:
        count += 1
        assert event.recv_ns >= last_ns
        last_ns = event.recv_ns
        bids, asks = books[event.instrument]
        if isinstance(event, BookChange):
            for side, levels in ((bids, event.bids), (asks, event.asks)):
                for price, quantity in levels.tolist():
                    if quantity:
                        side[price] = quantity
                    else:
                        side.pop(price, None)
            assert max(bids) < min(asks), f"seed 3, event {count}"
        elif isinstance(event, Quote):
            assert (event.bid_price, event.ask_price) == (max(bids), min(asks))
            assert (event.bid_quantity, event.ask_quantity) == (bids[max(bids)], asks[min(asks)])
    assert count == len(market) == 5000


def test_simulator_without_end_goes_on_as_with_one():
    endless = SimulatedMarket(5, events=None)
    assert text(itertools.islice(endless, 500)) == text(SimulatedMarket(5, events=500))
    with pytest.raises(TypeError, match="an endless market"):
        len(endless)


@pytest.mark.parametrize("settings", [{"instruments": 0}, {"instruments": 9}, {"events": 3}])
def test_simulator_impossible_setting_is_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        SimulatedMarket(1, **settings)
