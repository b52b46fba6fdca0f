"""The simulated exchange: who receives all of it has every order in its queue."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lab.conformance.books import Followed, follow, venue_config
from lab.framings import Sent, build
from udpfast.agents.market.exchanges import VENUE_MARKETS
from udpfast.agents.market.venue_market import ItchMarket, VenueMarket
from udpfast.cli.send_options import VENUES
from udpfast.client.books import Books
from udpfast.config import FeedConfig
from udpfast.core.layout import GapReason, Kind
from udpfast.net.pcap import CapturedDatagram


def feed_of(market: VenueMarket, lines: int = 1) -> FeedConfig:
    return venue_config(
        market.framing,
        market.payload,
        lines,
        len(market.loops),
        ring_bytes=1 << 24,
        names=256,
        window=256,
        orders_max=2_000,
        streams=8,
    )


def sent(market: VenueMarket) -> list[tuple[tuple[int, int], CapturedDatagram]]:
    """Return all that it sends, by line."""
    return [
        ((1, line - 1) if line else (0, 0), CapturedDatagram(at, ("", 0), ("", 0), data))
        for at, line, data in market
    ]


def kept(market: VenueMarket) -> Books:
    """Return the books of a feed that receives all of it."""
    *_, (followed, _) = follow(feed_of(market), sent(market))
    return followed.books


def sound(market: VenueMarket, followed: Followed) -> set[str]:
    """Return the symbols whose books a reader believes."""
    symbols = market.books()
    return {each for each in symbols if not followed.books.orders(market.exchange, each).stale}


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


@pytest.mark.parametrize("venue", VENUES)
def test_each_message_of_a_feed_that_joins_in_the_middle_is_counted_once(venue: str) -> None:
    market = VENUE_MARKETS[venue](3, rate_per_s=400, seconds=2)
    datagrams = sent(market)
    for _ in follow(feed_of(market), datagrams[len(datagrams) // 2 :]):  # it compares the sums
        pass


@pytest.mark.parametrize("venue", VENUES)
def test_copy_with_other_bytes_puts_books_in_doubt(venue: str) -> None:
    """Nobody knows which copy is the exchange's, and what the first one did is in the books."""
    market = VENUE_MARKETS[venue](5, rate_per_s=400, seconds=3)
    datagrams = sent(market)
    of = [at for at, (line, _) in enumerate(datagrams) if line == (0, 0)]
    at = of[len(of) // 2]
    data = datagrams[at][1].payload
    copy = datagrams[at][1]._replace(payload=data[:-1] + bytes([data[-1] ^ 1]))
    datagrams.insert(at + 1, ((0, 1), copy))
    said: list[Kind] = []
    before: set[str] = set()
    streams = len(market.units())
    for followed, record in follow(feed_of(market, 2), datagrams):
        if said[-2:] == [Kind.DISAGREEMENT, Kind.GAP]:
            assert len(before) == len(market.books())
            assert len(sound(market, followed)) == len(before) - len(before) // streams
            said.append(Kind.MESSAGE)
        if record is None:
            break
        if record.kind == Kind.DISAGREEMENT:
            before = sound(market, followed)
            said.append(Kind.DISAGREEMENT)
        elif record.kind == Kind.GAP:
            assert record.data["reason"] == GapReason.DAMAGED
            said.append(Kind.GAP)
    assert said == [Kind.DISAGREEMENT, Kind.GAP, Kind.MESSAGE]
    # Only snapshots mend books.
    left = len(before) - (0 if market.loops else len(before) // streams)
    assert len(sound(market, followed)) == left


def messages_of(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a datagram of MoldUDP64, each behind its length."""
    at = 20
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2])
        yield data[at + 2 : end]
        at = end


def packed(messages: Sequence[bytes], first: int) -> CapturedDatagram:
    """Return a datagram of MoldUDP64 that was captured when its first message was sent."""
    data = build("moldudp64", Sent(first, tuple(messages), session=b"SESSION   "))
    return CapturedDatagram(first * 1_000_000, ("", 0), ("", 0), data)


@pytest.mark.parametrize("behind", [1, 5])
@pytest.mark.parametrize("changed", [0, 14, 29])
def test_message_that_two_copies_of_a_datagram_tell_differently_is_named(
    changed: int, behind: int
) -> None:
    market = ItchMarket(5, rate_per_s=4000, seconds=0.5)
    messages = [each for _, _, data in market for each in messages_of(data)]
    runs = [messages[at : at + 30] for at in range(0, len(messages), 30)]
    datagrams = [((0, 0), packed(run, 30 * at + 1)) for at, run in enumerate(runs)]
    at = len(runs) // 2
    run = runs[at]
    run[changed] = run[changed][:-1] + bytes([run[changed][-1] ^ 1])
    datagrams.insert(at + behind, ((0, 1), packed(run, 30 * at + 1)))
    told = [
        (record.kind, record.number)
        for _, record in follow(feed_of(market, 2), datagrams)
        if record is not None and record.kind in (Kind.DISAGREEMENT, Kind.GAP)
    ]
    number = 30 * at + changed + 1
    assert told == [(Kind.DISAGREEMENT, number), (Kind.GAP, number)]


def test_every_market_can_be_chosen() -> None:
    assert tuple(VENUE_MARKETS) == VENUES


def test_same_seed_is_the_same_market() -> None:
    first, second = (list(ItchMarket(3, seconds=0.05)) for _ in range(2))
    assert first == second
    assert first != list(ItchMarket(4, seconds=0.05))
