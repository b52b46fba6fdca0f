"""EOBI's loops of snapshots: markets from seeds, with losses on all lines."""

import itertools
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.conformance.books import Followed, Line, follow
from tests.payload.seeded_markets import Sent, captured, compare_sound
from tests.payload.test_eobi import details_6, details_13
from tests.payload.test_venues import AT_NS
from udpfast.config import FeedConfig, parse_feed

Book = dict[tuple[int, int], tuple[int, int]]  # by priority and side: price, quantity
Version = Callable[[int, int, int, int | None], bytes]
NAME = ("EUREX", "7")
LIVE, LOOP, OTHER = (0, 0), (1, 0), (1, 1)


def message(template: int, number: int, body: bytes) -> bytes:
    return struct.pack("<HHI", 8 + len(body), template, number) + body


def add(number: int, details: bytes, instrument: int = 7) -> bytes:
    return message(13_100, number, struct.pack("<Qq", AT_NS, instrument) + details)


def delete(number: int, details: bytes, instrument: int = 7) -> bytes:
    return message(13_102, number, struct.pack("<QQq", 0, 0, instrument) + details)


def change(number: int, details: bytes, instrument: int = 7) -> bytes:
    return message(13_106, number, struct.pack("<QQqq", 0, 0, 0, instrument) + details)


def datagram(number: int, *messages: bytes, sent_ns: int = AT_NS, reset: int = 0) -> bytes:
    head = struct.pack("<HHIIiBBB5xQ", 32, 13_002, 0, number, 5, 1, 1, reset, sent_ns)
    return head + b"".join(messages)


def product(last: int) -> bytes:
    return message(13_600, 0, struct.pack("<I12x", last))


def summary(orders: int, instrument: int = 7) -> bytes:
    return message(13_601, 0, struct.pack("<qQQH8xBB4x", instrument, 0, 0, orders, 1, 0))


def order(details: bytes) -> bytes:
    return message(13_602, 0, details)


def rows(book: Book, version: Version = details_6) -> list[bytes]:
    return [
        order(version(priority, quantity, side, price))
        for (priority, side), (price, quantity) in sorted(book.items())
    ]


def cycle(last: int, book: Book, instrument: int = 7) -> list[bytes]:
    return [product(last), summary(len(book), instrument), *rows(book)]


def config() -> FeedConfig:
    """Return the settings of a feed of one line of changes and two of snapshots."""
    tables: dict[str, Any] = {
        "name": "eobi",
        "wire": {"framing": "eurex_eobi", "payload": "eobi", "streams_max": 4},
        "streams": {"lines": [{"name": "A", "address": "127.0.0.1:9001"}]},
        "recovery": {
            "lines": [{"name": f"S{i}", "address": f"127.0.0.1:{9101 + i}"} for i in range(2)]
        },
        "window": {"size": 256, "lost_packet_wait_us": 20_000},
        "ring": {"capacity_bytes": 1 << 22, "names": 256},
        "books": {"orders": True, "orders_max": 1_000},
    }
    return parse_feed(tables)


def known_of(sent: list[Sent]) -> Followed:
    *_, (known, _) = follow(config(), captured(sent, 30_000_000))
    return known


def is_doubted(known: Followed) -> bool:
    return NAME not in known.books or known.books[NAME].stale


def queue(known: Followed) -> list[tuple[int, int, int, int]]:
    """Return priority, side, price and quantity of all orders."""
    found = known.orders[NAME].items()
    return sorted((int(n) >> 1, row[0] + 1, int(row[1]), int(row[2])) for n, row in found)


def listed(book: Book) -> list[tuple[int, int, int, int]]:
    return sorted((*key, *rest) for key, rest in book.items())


BOOK: Book = {(11, 1): (10, 3), (12, 1): (10, 5), (13, 2): (11, 4)}
#: Messages 41 and 42 in datagram 5, 43 in datagram 6.
LATE = [
    (LIVE, datagram(5, add(41, details_6(1, 1, 1, 9)), add(42, details_6(12, 5, 1, 10)))),
    (LIVE, datagram(6, add(43, details_6(14, 1, 2, 12)))),
]
AFTER = {**BOOK, (14, 2): (12, 1)}


def looped(*datagrams: list[bytes], where: Line = LOOP, first: int = 2) -> list[Sent]:
    return [(where, datagram(first + n, *some)) for n, some in enumerate(datagrams)]


PARTS = cycle(42, BOOK)
CUT = [PARTS[:3], PARTS[3:4], PARTS[4:]]  # of three datagrams: an order each


def test_snapshot_and_what_came_behind_it_are_a_book() -> None:
    for parts in ([PARTS], CUT, [[one] for one in PARTS]):
        known = known_of([*LATE, *looped(*parts)])
        assert not known.books[NAME].stale
        assert queue(known) == listed(AFTER)
    empty = known_of([*LATE, *looped(cycle(42, {}))])
    assert (queue(empty), empty.books[NAME].stale) == ([(14, 2, 12, 1)], False)
    before = known_of([*LATE, *looped(cycle(40, {(12, 1): (10, 5)}))])  # ends before datagram 5
    assert is_doubted(before)  # 42 adds an order that is there
    last = known_of([*LATE, *looped(cycle(43, AFTER))])
    assert (queue(last), last.books[NAME].stale) == (listed(AFTER), False)


def test_snapshot_of_version_13_is_read() -> None:
    late = [(LIVE, datagram(5, add(41, details_13(12, 5, 1, 10))))]
    known = known_of([*late, *looped([product(41), summary(3), *rows(BOOK, details_13)])])
    assert (queue(known), known.books[NAME].stale) == (listed(BOOK), False)


def test_order_without_a_price_counts_and_is_in_no_book() -> None:
    market = order(details_6(10, 7, 1, None))
    known = known_of([*LATE, *looped([product(42), summary(4), market, *rows(BOOK)])])
    assert (queue(known), known.books[NAME].stale) == (listed(AFTER), False)


def test_each_instrument_is_healed_by_its_own_orders() -> None:
    other = (LIVE, datagram(7, add(44, details_6(21, 2, 1, 50), 8)))
    eighth: Book = {(21, 1): (50, 2), (22, 2): (51, 1)}
    whole = [product(44), summary(4), *rows(AFTER), summary(2, 8), *rows(eighth)]
    for cut in range(1, len(whole)):
        known = known_of([*LATE, other, *looped(whole[:cut], whole[cut:])])
        assert not known.books[NAME].stale
        assert not known.books["EUREX", "8"].stale
        assert queue(known) == listed(AFTER)
        assert len(known.orders["EUREX", "8"]) == 2
    # The first lacks an order; those of the other are complete.
    torn = [*whole[:3], *whole[4:]]
    known = known_of([*LATE, other, *looped(torn)])
    assert is_doubted(known)
    assert not known.books["EUREX", "8"].stale


@pytest.mark.parametrize(
    "loop",
    [
        looped(CUT[1], CUT[2]),  # its beginning is lost
        looped(CUT[0], CUT[1]),
        looped(CUT[0]) + looped(CUT[2], first=4),
        looped(CUT[0], CUT[1]) + looped(CUT[1], first=3),  # one part twice
        looped(cycle(39, BOOK)),  # of before what was missed
        looped(cycle(41, BOOK)),  # of the middle of a datagram
        looped(cycle(99, BOOK)),  # of what never came
        looped(CUT[0]) + looped(CUT[1], CUT[2], where=OTHER, first=3),  # two lines' halves
        looped([*PARTS[:3], order(details_6(12, 5, 3, 10)), PARTS[4]]),  # of no side
        looped([*PARTS[:3], order(details_6(12, 5, 0, 10)), PARTS[4]]),
        looped([product(42), summary(4), *rows(BOOK)]),  # it lacks one
        looped([product(42), summary(0xFFFF), *rows(BOOK)]),
        looped([summary(3), *rows(BOOK)]),  # as of what, nobody said
        looped([message(13_600, 0, b"*"), summary(3), *rows(BOOK)]),  # too short for its type
        looped([product(42), message(13_601, 0, summary(3)[8:33]), *rows(BOOK)]),
        looped([*PARTS[:2], message(13_602, 0, details_6(11, 3, 1, 10)[:23]), *PARTS[3:]]),
        # A cycle that was sent before the numbers began.
        [(LOOP, datagram(2, *PARTS, sent_ns=AT_NS - 1))],
        # Two cycles' halves that add up to a number of orders.
        looped(CUT[0], CUT[1]) + looped([order(details_6(13, 4, 2, 11))], first=9),
    ],
)
def test_snapshot_that_is_not_whole_or_not_in_time_heals_nothing(loop: list[Sent]) -> None:
    assert is_doubted(known_of([*LATE, *loop]))
    again = known_of([*LATE, *loop, *looped(*CUT, first=40)])  # the next cycle does
    assert not again.books[NAME].stale
    assert queue(again) == listed(AFTER)


def test_restart_makes_a_cycle_of_the_numbers_before_void() -> None:
    begun = [(LIVE, datagram(1, add(1, details_6(31, 1, 1, 9)), sent_ns=AT_NS + 10, reset=1))]
    more = [
        (LIVE, datagram(n, add(n, details_6(30 + n, 1, 1, 9)), sent_ns=AT_NS + 10 + n, reset=0))
        for n in (2, 4)  # 3 is lost
    ]
    wait = [(LIVE, datagram(n, sent_ns=AT_NS + 10 + n)) for n in range(5, 9)]
    known = known_of([*LATE, *begun, *more, *wait, *looped(cycle(4, BOOK))])
    assert is_doubted(known)


def market(seed: int) -> Iterator[tuple[Sent | None, int, Book]]:
    """Yield what arrives, and the book as of each datagram of the changes."""
    chance, stamp, last = random.Random(seed), 0, 0
    book: Book = {}
    pending: list[list[Sent]] = [[], []]
    loop_number = 0
    for number in range(1, 401):
        events = []
        for _ in range(chance.randrange(1, 4)):
            last += 1
            one = chance.choice(sorted(book)) if book and chance.random() < 0.45 else None
            if one is None:
                stamp += 1
                side = chance.choice((1, 2))
                one = (stamp, side)
                book[one] = (chance.randrange(90, 100) + 10 * (side == 2), stamp)
                events.append(add(last, details_6(stamp, stamp, side, book[one][0])))
            elif chance.random() < 0.5:
                price, quantity = book.pop(one)
                events.append(delete(last, details_6(one[0], quantity, one[1], price)))
            else:
                price, quantity = book[one]
                book[one] = (price, quantity + 1)
                events.append(change(last, details_6(one[0], quantity + 1, one[1], price)))
        sent = (LIVE, datagram(number, *events))
        yield (None if chance.random() < 0.03 else sent), number, dict(book)
        if not any(pending) and number % 5 == 0:
            whole = [product(last), summary(0, 9), summary(len(book)), *rows(book)]
            whole += [summary(40, 8)]  # which, of another instrument's, look as its own
            whole += [order(details_6(1_000 + n, 1, 1 + n % 2, 90)) for n in range(40)]
            cuts = sorted({0, len(whole), *(chance.randrange(len(whole)) for _ in range(3))})
            for start, end in itertools.pairwise(cuts):
                loop_number += 1
                for line in (0, 1):
                    pending[line].append(((1, line), datagram(loop_number, *whole[start:end])))
        for _ in range(chance.randrange(4)):
            line = chance.randrange(2)
            if pending[line]:
                looping = pending[line].pop(0)
                yield (None if chance.random() < 0.1 else looping), number, dict(book)


@pytest.mark.parametrize("seed", range(9300, 9312))
def test_sound_book_of_any_market_is_that_of_the_venue(seed: int) -> None:
    compared, healed = compare_sound(market(seed), config(), NAME, queue, listed)
    assert compared > 30
    assert healed >= 2
