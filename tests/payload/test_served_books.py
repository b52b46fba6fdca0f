"""Books that a snapshot server heals: never sound and wrong, and sound again in the end."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from lab.conformance.books import Followed, Line, follow
from tests.cases import nightly
from tests.payload.itch_market import ItchMarket
from tests.payload.order_market import STOCKS, DeepPlusMarket, OrderMarket, PitchMarket, cut
from udpfast.agents.recovery import served
from udpfast.agents.recovery.glimpse import GlimpseDialogue
from udpfast.agents.recovery.served import ServedBooks
from udpfast.agents.recovery.snap import SnapDialogue
from udpfast.agents.recovery.spin import SpinDialogue
from udpfast.config import FeedConfig, Login, parse_feed
from udpfast.core.layout import Kind
from udpfast.net.pcap import CapturedDatagram
from udpfast.shm.answers import Wanted

AT_NS = 1_700_000_000_000_000_000
#: Each fault that was planted in the dialogues showed at one of these, as at the others.
SEEDS = (0, 2, 4, 6, 2019)


class WrappingPitch(PitchMarket):
    """A unit whose numbers begin anew soon."""

    first = 2**32 - 150


#: What a feed calls the stream of a market, and how its server is spoken with.
DIALOGUES = {
    ItchMarket: (0, GlimpseDialogue),
    PitchMarket: (PitchMarket.UNIT, SpinDialogue),
    WrappingPitch: (PitchMarket.UNIT, SpinDialogue),
    DeepPlusMarket: (DeepPlusMarket.PROTOCOL << 16 | DeepPlusMarket.CHANNEL, SnapDialogue),
}


def config(market: type[OrderMarket], **tables: Any) -> FeedConfig:
    lines = [{"name": name, "address": f"127.0.0.1:{9000 + i}"} for i, name in enumerate("AB")]
    return parse_feed(
        {
            "name": "served",
            "wire": {"framing": market.framing, "payload": market.payload, "streams_max": 4},
            "streams": {"lines": lines},
            "window": {"size": 256, "lost_packet_wait_us": 3_000},
            "ring": {"carry": "both", "capacity_bytes": 1 << 24},
            "books": {"orders": True, "orders_max": 5_000},
            "snapshot_server": {"server": "127.0.0.1:9", "held_changes": 1 << 16},
        }
        | tables
    )


def state(known: Followed, exchange: str, stock: str) -> dict[str, list[tuple[int, int, int]]]:
    """Return a stock's orders as a reader has them, each side by price and in its queue."""
    rows = known.orders.get((exchange, stock), {}).items()
    found: dict[str, list[tuple[int, int, int, int]]] = {"B": [], "S": []}
    for reference, (side, price, shares, priority) in rows:
        found["BS"[side]].append((round(price * 10_000), priority, int(reference), int(shares)))
    return {side: [(p, r, q) for p, _, r, q in sorted(rows)] for side, rows in found.items()}


def check(known: Followed, market: OrderMarket, number: int) -> int:
    """Compare every book that says that it is sound; return how many do."""
    sound = 0
    for stock in STOCKS.values():
        name = (market.exchange, stock)
        if name not in known.books or known.books[name].stale or name in known.doubted:
            continue
        sound += 1
        truth = {
            side: sorted(orders, key=lambda order: order[0])
            for side, orders in market.books[number][stock].items()
        }
        assert state(known, market.exchange, stock) == truth, f"{stock} after message {number}"
        levels = known.levels[name]
        for side, rows in enumerate(truth.values()):
            sums: dict[float, float] = {}
            for price, _, shares in rows:
                sums[price / 10_000] = sums.get(price / 10_000, 0) + shares
            assert {price: row[0] for price, row in levels[side].items()} == sums
    return sound


def numbers_before(market: Any, late: int) -> int:
    """Return what records' numbers are ahead of the market's, if the feed begins with this one."""
    return market.published(late) - late if hasattr(market, "published") else 0


def served_datagrams(market: Any, number: int, pick: random.Random, before: int) -> list[bytes]:
    """Return the datagrams of a snapshot as of this message, as the agent makes them."""
    stream, dialogue_of = DIALOGUES[type(market)]
    wanted = Wanted(0, before, before, before + number, stream)
    dialogue: Any = dialogue_of(Login({}), ServedBooks(wanted, 10_000))
    dialogue.begin()
    if hasattr(market, "greeting"):
        assert b"".join(dialogue.take(piece) for piece in cut(market.greeting(number), pick))
    for piece in cut(market.snapshot(number), pick):
        dialogue.take(piece)
    published = market.published(number) if hasattr(market, "published") else number
    assert dialogue.number == published
    return list(dialogue.books.datagrams(before + number))


def sent(market: Any, pick: random.Random, late: int) -> Iterator[tuple[Line, bytes]]:
    """Yield what two lossy lines and a server bring; of the end nothing is lost."""
    loss = pick.choice((0.0, 0.02, 0.1, 0.3))
    queue: list[bytes] = []
    before = numbers_before(market, late)
    at = late
    while at <= len(market.messages):
        count = min(pick.randint(1, 6), len(market.messages) - at + 1)
        data = market.datagram(at, market.messages[at - 1 : at - 1 + count])
        at += count
        last = at > len(market.messages) - 20
        for line in range(2):
            if last or pick.random() >= loss:
                yield (0, line), data
        if not queue and pick.random() < 0.1:
            # As of any number: of long ago, of now, of what the feed has not come to yet.
            number = min(max(at - pick.randint(-4, 12), 1), len(market.messages))
            queue = served_datagrams(market, number, pick, before)
            if pick.random() < 0.1:
                queue = queue[: pick.randrange(len(queue))]  # its agent died
        while queue and pick.random() < 0.7:
            yield (1, 0), queue.pop(0)
    for data in served_datagrams(market, len(market.messages), pick, before):
        yield (1, 0), data


def joined_late(
    kind: type[OrderMarket], seed: int
) -> tuple[OrderMarket, int, Iterator[tuple[Line, CapturedDatagram]]]:
    """Return a market, the first of its messages that a feed hears, and what the feed receives."""
    pick = random.Random(seed)
    market = kind(seed, 400)
    late = pick.choice((1, pick.randint(2, 300)))
    datagrams = (
        (line, CapturedDatagram(AT_NS + i * 1_000_000, ("", 0), ("", 0), data))
        for i, (line, data) in enumerate(sent(market, pick, late))
    )
    return market, late, datagrams


# 2019: the first part of a snapshot comes before the feed is there, the others behind it.
@pytest.mark.parametrize(
    "seed", [*SEEDS, *nightly(*(seed for seed in range(12) if seed not in SEEDS))]
)
@pytest.mark.parametrize("kind", DIALOGUES)
def test_books_are_never_sound_and_wrong(
    kind: type[OrderMarket], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_ORDERS_PER_PART", 3)
    market, late, datagrams = joined_late(kind, seed)
    number = 0
    for known, record in follow(config(kind), datagrams):
        if number:
            check(known, market, number)
        number = 0
        if record is not None and record.kind == Kind.MESSAGE:
            number = record.number - numbers_before(market, late)
    there = [stock for stock in STOCKS.values() if (market.exchange, stock) in known.books]
    assert check(known, market, len(market.messages)) == len(there) >= 3


@pytest.mark.parametrize("seed", [0, 1, 2, 11])
@pytest.mark.parametrize("kind", [ItchMarket, PitchMarket])
def test_trades_have_the_prices_of_the_venue_while_a_snapshot_is_taken(
    kind: type[OrderMarket], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_ORDERS_PER_PART", 3)
    market, late, datagrams = joined_late(kind, seed)
    true = {number: (price / 1e4, shares) for number, _, price, shares in market.trades}
    compared = 0
    for _, record in follow(config(kind), datagrams):
        if record is not None and record.kind == Kind.TRADES:
            (row,) = record.update.rows
            number = record.number - numbers_before(market, late)
            assert (float(row["price"]), float(row["quantity"])) == true[number], number
            compared += 1
    assert compared
