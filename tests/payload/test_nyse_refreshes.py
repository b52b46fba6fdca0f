"""NYSE's refreshes on a line of their own: by hand, and markets from seeds with losses."""

import random
import struct
from collections.abc import Iterator

import pytest

from lab.conformance.books import Followed, follow
from tests.payload.seeded_markets import Sent, captured
from tests.payload.test_venues import NYSE_MAPPING, NYSE_NAME, nyse, nyse_add
from udpfast.config import FeedConfig, parse_feed
from udpfast.core.layout import Kind

Book = dict[int, tuple[bytes, int, int]]  # by id: side, price, size
LIVE, LOOP, OTHER = (0, 0), (1, 0), (1, 1)
NAMES = {7: NYSE_NAME, 8: ("NYSE", "XYZ")}
MAPPINGS = (NYSE_MAPPING, nyse(3, "I11sxHBcBcHII", 8, b"XYZ", 1, 1, b"N", 2, b"A", 100, 0, 0))


def config() -> FeedConfig:
    """Return the settings of a feed of one line of changes and two of refreshes."""
    return parse_feed(
        {
            "name": "nyse",
            "wire": {"framing": "nyse_xdp", "payload": "nyse_integrated", "streams_max": 4},
            "streams": {"lines": [{"name": "A", "address": "127.0.0.1:9001"}]},
            "recovery": {
                "lines": [{"name": f"R{i}", "address": f"127.0.0.1:{9101 + i}"} for i in range(2)]
            },
            "window": {"size": 256, "lost_packet_wait_us": 20_000},
            "ring": {"capacity_bytes": 1 << 22, "names": 256},
            "books": {"orders": True, "orders_max": 1_000},
        }
    )


def datagram(number: int, *messages: bytes, delivery: int = 11) -> bytes:
    size = 16 + sum(map(len, messages))
    head = struct.pack("<HBBIII", size, delivery, len(messages), number, 1, 0)
    return head + b"".join(messages)


def restored(order: int, side: bytes, price: int, size: int, index: int = 7) -> bytes:
    return nyse(106, "IIIIQIIc5sB", 0, 0, index, 0, order, price, size, side, b"", 0)


def refresh(last: int, chain: int, book: Book, index: int = 7, part: int = 2) -> list[bytes]:
    """Return the datagrams of a refresh, each with so many orders."""
    orders = [restored(n, *one, index) for n, one in book.items()]
    parts = [orders[at : at + part] for at in range(0, len(orders), part)] or [[]]
    state = nyse(34, "IIIIc41s", 0, 0, index, 0, b"O", b"")
    return [
        datagram(
            1,
            nyse(35, "HHII", n + 1, len(parts), last, chain),
            *((state,) if n == 0 else ()),
            *some,
            delivery=17 if len(parts) == 1 else 18 if n == 0 else 20 if n == len(parts) - 1 else 19,
        )
        for n, some in enumerate(parts)
    ]


def looped(parts: list[bytes], where: tuple[int, int] = LOOP) -> list[Sent]:
    return [(where, one) for one in parts]


def known_of(sent: list[Sent]) -> Followed:
    *_, (known, _) = follow(config(), captured(sent, 30_000_000))
    return known


def orders_of(known: Followed, name: tuple[str, str] = NYSE_NAME) -> list[tuple[int, ...]]:
    rows = known.orders[name].items()
    return sorted((int(n), row[0], round(row[1] * 100), int(row[2])) for n, row in rows)


def listed(book: Book) -> list[tuple[int, ...]]:
    return sorted((n, side == b"S", price, size) for n, (side, price, size) in book.items())


BOOK: Book = {1: (b"B", 500, 100), 2: (b"B", 499, 70), 3: (b"S", 510, 20)}
BEGIN = (LIVE, datagram(1, *MAPPINGS, nyse_add(1, 1, b"B", 500)))
#: Numbers 4 and 5 are lost, and with them the symbol's 2 and 3.
BEHIND = (LIVE, datagram(6, nyse_add(4, 9, b"S", 511)))
LATER = (LIVE, datagram(7, nyse_add(5, 10, b"S", 512)))
PARTS = refresh(5, 3, BOOK)
HEALED = listed(BOOK | {9: (b"S", 511, 100), 10: (b"S", 512, 100)})


def is_sound(known: Followed) -> bool:
    return NYSE_NAME in known.books and not known.books[NYSE_NAME].stale


def test_refresh_and_what_came_behind_its_number_are_a_book() -> None:
    known = known_of([BEGIN, BEHIND, LATER, *looped(PARTS)])
    assert is_sound(known)
    assert orders_of(known) == HEALED
    between = known_of([BEGIN, BEHIND, *looped(PARTS[:1]), LATER, *looped(PARTS[1:])])
    assert is_sound(between)
    assert orders_of(between) == HEALED
    whole = known_of([BEGIN, BEHIND, LATER, *looped(refresh(7, 5, BOOK, part=9))])
    assert (is_sound(whole), orders_of(whole)) == (True, listed(BOOK))


def test_refresh_without_an_order_is_an_empty_book() -> None:
    known = known_of([BEGIN, BEHIND, *looped(refresh(6, 4, {}))])
    assert (is_sound(known), orders_of(known)) == (True, [])


def test_both_lines_bring_the_same_refresh() -> None:
    mixed = [one for part in PARTS for one in ((LOOP, part), (OTHER, part))]
    known = known_of([BEGIN, BEHIND, LATER, *mixed])
    assert (is_sound(known), orders_of(known)) == (True, HEALED)


@pytest.mark.parametrize(
    "loop",
    [
        looped(PARTS[1:]),  # its first datagram is lost
        looped(PARTS[:1]),
        looped(PARTS[::-1]),
        looped(PARTS[:1]) + looped(PARTS[1:], OTHER),  # halves of two lines
        looped(refresh(4, 2, BOOK)),  # of before the end of the loss
        looped(refresh(99, 5, BOOK)),  # of what never came
        looped(refresh(5, 2, BOOK)),  # what came behind does not continue it
        looped(refresh(5, 3, BOOK, index=8)),
        looped([datagram(1, nyse(35, "HHII", 1, 1, 5, 3), delivery=17)]),  # it names no symbol
        looped(PARTS[:1] + refresh(5, 3, BOOK, index=8)[1:]),
        looped([datagram(1, *[restored(n, *one) for n, one in BOOK.items()], delivery=17)]),
        looped(
            [
                datagram(
                    1,
                    nyse(35, "HHII", 1, 1, 5, 3),
                    *[restored(n, *one, 7 + n % 2) for n, one in BOOK.items()],
                    delivery=17,
                )
            ]
        ),
        looped(refresh(5, 3, BOOK | {9: (b"S", 511, 100)})),  # an order that is added behind it
        looped(refresh(5, 3, BOOK | {4: (b"?", 1, 1)})),  # of no side
    ],
)
def test_refresh_that_is_not_whole_or_not_in_time_heals_nothing(loop: list[Sent]) -> None:
    assert not is_sound(known_of([BEGIN, BEHIND, LATER, *loop]))
    again = known_of([BEGIN, BEHIND, LATER, *loop, *looped(refresh(7, 5, BOOK))])
    assert (is_sound(again), orders_of(again)) == (True, listed(BOOK))


def test_symbol_that_is_cleared_waits_for_its_refresh() -> None:
    clear = (LIVE, datagram(6, nyse(32, "IIII", 0, 0, 7, 2), nyse_add(2, 9, b"S", 511)))
    begin = (LIVE, datagram(1, *MAPPINGS, nyse_add(1, 1, b"B", 500), *MAPPINGS))
    assert not is_sound(known_of([begin, clear]))
    assert not is_sound(known_of([begin, clear, *looped(refresh(5, 1, BOOK))]))  # of before it
    known = known_of([begin, clear, *looped(refresh(6, 1, BOOK))])
    assert (is_sound(known), orders_of(known)) == (True, listed(BOOK | {9: (b"S", 511, 100)}))


class Market:
    """Two symbols' orders, as the venue has them, and the messages that say so."""

    def __init__(self, seed: int) -> None:
        """Begin empty."""
        self.chance = random.Random(seed)
        self.books: dict[int, Book] = {index: {} for index in NAMES}
        self.chain = dict.fromkeys(NAMES, 0)
        self.number = 0
        self.id = 0

    def change(self) -> bytes:
        """Return the next message."""
        chance, index = self.chance, self.chance.choice(list(NAMES))
        book = self.books[index]
        self.number += 1
        if chance.random() < 0.02 and self.chain[index]:
            return nyse(32, "IIII", 0, 0, index, self.chain[index] + 1)
        self.chain[index] += 1
        common = (0, index, self.chain[index])
        if not book or chance.random() < 0.5:
            self.id += 1
            side, price = chance.choice((b"B", b"S")), chance.randrange(90, 110)
            book[self.id] = (side, price, 100)
            return nyse(100, "IIIQIIc5sB", *common, self.id, price, 100, side, b"", 0)
        one = chance.choice(sorted(book))
        side, price, size = book.pop(one)
        what = chance.randrange(4)
        if what == 0 and size > 30:
            book[one] = (side, price, size - 30)
            fill = (one, 5, price, 30, 1, 0, *[b" "] * 4)
            return nyse(103, "IIIQIIIBBcccc", *common, *fill)
        if what == 1:
            book[one] = (side, price + 1, size + 5)
            return nyse(101, "IIIQIIBBB", *common, one, price + 1, size + 5, 0, 0, 0)
        if what == 2:
            self.id += 1
            book[self.id] = (side, price, size)
            return nyse(104, "IIIQQIIBB", *common, one, self.id, price, size, 0, 0)
        return nyse(102, "IIIQB", *common, one, 0)


def market(seed: int) -> Iterator[tuple[Sent | None, int, dict[int, Book]]]:
    """Yield what arrives (or does not), and the books as of each number of the changes."""
    venue = Market(seed)
    chance = venue.chance
    pending: list[Sent] = []
    venue.number = 2
    yield (LIVE, datagram(1, *MAPPINGS)), 2, {index: {} for index in NAMES}
    for turn in range(500):
        messages, first = [], venue.number + 1
        for _ in range(chance.randrange(1, 4)):
            messages.append(venue.change())
            yield None, venue.number, {index: dict(one) for index, one in venue.books.items()}
        lost = chance.random() < 0.03
        yield (None if lost else (LIVE, datagram(first, *messages))), venue.number, venue.books
        if turn % 6 == 0 and not pending:
            for index in NAMES:
                parts = refresh(venue.number, venue.chain[index], venue.books[index], index, part=4)
                for part in parts:
                    pending += [(LOOP, part), (OTHER, part)]
        for _ in range(chance.randrange(8)):
            if pending:
                sent = pending.pop(0)
                yield (None if chance.random() < 0.05 else sent), venue.number, venue.books


@pytest.mark.parametrize("seed", range(9300, 9310))
def test_sound_book_of_any_market_is_that_of_the_venue(seed: int) -> None:
    truth: dict[int, dict[int, Book]] = {1: {index: {} for index in NAMES}}
    arrived: list[Sent] = []
    for sent, number, books in market(seed):
        truth.setdefault(number, {index: dict(one) for index, one in books.items()})
        if sent is not None:
            arrived.append(sent)
    compared = healed = last = 0
    for known, record in follow(config(), captured(arrived, 1_000_000)):
        # What is known is what was said before this record: of all numbers before it. What was held
        # of a symbol is in its book without a record of its number.
        if last and (record is None or record.number > last):
            numbers = range(last, record.number if record is not None else len(truth) + 1)
            for index, name in NAMES.items():
                if name in known.orders and not known.books[name].stale:
                    possible = [listed(truth[number][index]) for number in numbers]
                    assert orders_of(known, name) in possible, (last, name)
                    compared += 1
        if record is not None:
            healed += record.kind == Kind.RECOVERED
            last = max(last, record.number)
    assert compared > 200
    assert healed >= 4
