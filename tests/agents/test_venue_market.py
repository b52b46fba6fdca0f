"""The simulated exchange: who receives all of it has every order in its queue."""

from typing import Any

import pytest

from lab.conformance.books import follow, venue_config
from udpfast.agents.market.exchanges import VENUE_MARKETS
from udpfast.agents.market.venue_market import ItchMarket, VenueMarket
from udpfast.cli.send_options import VENUES
from udpfast.client.books import Books
from udpfast.net.pcap import CapturedDatagram


def kept(market: VenueMarket) -> Books:
    """Return the books of a feed that receives all of it."""
    config = venue_config(
        market.framing,
        market.payload,
        1,
        len(market.loops),
        ring_bytes=1 << 24,
        names=256,
        window=256,
        orders_max=2_000,
        streams=8,
    )
    datagrams = [
        ((1, line - 1) if line else (0, 0), CapturedDatagram(at, ("", 0), ("", 0), data))
        for at, line, data in market
    ]
    *_, (followed, _) = follow(config, datagrams)
    return followed.books


def listed(rows: Any) -> list[tuple[int, int, int]]:
    return [
        (int(row["order_id"]), round(row["price"] * 10_000), int(row["quantity"])) for row in rows
    ]


@pytest.mark.parametrize("seed", [1, 8])
@pytest.mark.parametrize("venue", VENUES)
def test_receiver_has_every_order_in_its_place(venue: str, seed: int) -> None:
    market = VENUE_MARKETS[venue](seed, rate_per_s=400, seconds=2)
    books = kept(market)
    for symbol, sides in market.books().items():
        queues = books.orders(market.exchange, symbol)
        assert not queues.stale
        for rows, side in zip((queues.bids(), queues.asks()), sides, strict=True):
            assert listed(rows) == [(one.number, one.price, one.shares) for one in side]
            assert len(rows) > 5
        best = [side[0].price / 10_000 for side in sides]
        assert books[market.exchange, symbol].best()[::2] == tuple(best)
        assert best[0] < best[1]


def test_every_market_can_be_chosen() -> None:
    assert tuple(VENUE_MARKETS) == VENUES


def test_same_seed_is_the_same_market() -> None:
    first, second = (list(ItchMarket(3, seconds=0.05)) for _ in range(2))
    assert first == second
    assert first != list(ItchMarket(4, seconds=0.05))
