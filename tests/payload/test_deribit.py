"""Deribit: changes of more than one datagram, and what is lost of them; streams that begin at 0."""

import struct
from collections.abc import Iterable

import pytest

from lab.conformance.books import Followed
from tests.payload.test_venues import followed_raw

NAME = ("DERIBIT", "BTC-PERPETUAL")
#: (bid or not, price) of one level.
Row = tuple[int, float]


def message(template: int, root: bytes, *entries: bytes, text: bytes = b"") -> bytes:
    head = struct.pack("<6H", len(root), template, 1, 2, bool(entries), bool(text))
    group = struct.pack("<4H", len(entries[0]), len(entries), 0, 0) if entries else b""
    texts = bytes([len(text)]) + text if text else b""
    return head + root + group + b"".join(entries) + texts


def datagram(channel: int, number: int, *messages: bytes) -> bytes:
    body = b"".join(messages)
    return struct.pack("<HHI", len(body), channel, number) + body


def instrument(number: int) -> bytes:
    return message(1000, struct.pack("<I136x", number), text=NAME[1].encode())


def change(previous: int, number: int, rows: Iterable[Row], last: int = 1, of: int = 7) -> bytes:
    entries = [struct.pack("<BBdd", side, 0, price, 1.0) for side, price in rows]
    root = struct.pack("<IQQQB", of, 1_000 + number, previous, number, last)
    return message(1001, root, *entries)


def snapshot(number: int, rows: Iterable[Row]) -> bytes:
    entries = [struct.pack("<Bdd", side, price, 1.0) for side, price in rows]
    return message(1004, struct.pack("<IQQBB", 7, 1_000 + number, number, 1, 1), *entries)


def followed(*datagrams: bytes) -> Followed:
    return followed_raw(datagrams, "deribit_sbe", "deribit")


def bids(known: Followed) -> list[float] | None:
    """Return the prices of the bids, the highest first; None: the book is in doubt."""
    return None if known.books[NAME].stale else sorted(known.levels[NAME][0], reverse=True)


BEGIN = datagram(1, 1, instrument(7), change(0, 5, [(1, 10.0)]))
#: One change, in three datagrams.
PARTS = [
    datagram(1, 2, change(5, 6, [(1, 11.0)], last=0)),
    datagram(1, 3, change(5, 6, [(1, 12.0)], last=0)),
    datagram(1, 4, change(5, 6, [(1, 13.0)])),
]
NEXT = datagram(1, 5, change(6, 7, [(1, 14.0)]))
#: What shows that numbers before it were lost.
OTHERS = [datagram(1, number, change(0, 1, [(1, 1.0)], of=number)) for number in range(6, 36)]


def test_change_may_be_of_many_datagrams() -> None:
    assert bids(followed(BEGIN, *PARTS, NEXT)) == [14.0, 13.0, 12.0, 11.0, 10.0]


def test_change_may_be_of_many_datagrams_between_those_of_others() -> None:
    other = change(0, 1, [(1, 1.0)], of=8)
    parts = [datagram(1, 2 * n + 2, PARTS[n][8:]) for n in range(3)]
    between = [datagram(1, 2 * n + 3, other) for n in range(3)]
    rows = [row for pair in zip(parts, between, strict=True) for row in pair]
    assert bids(followed(BEGIN, *rows)) == [13.0, 12.0, 11.0, 10.0]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_book_that_lacks_a_part_of_a_change_is_in_doubt(lost: int) -> None:
    parts = [part for number, part in enumerate(PARTS) if number != lost]
    assert bids(followed(BEGIN, *parts, NEXT, *OTHERS)) is None


def test_book_does_not_begin_with_the_rest_of_its_first_change() -> None:
    rest = datagram(1, 3, change(0, 5, [(1, 11.0)]), instrument(7))
    known = followed(datagram(1, 1, change(0, 1, [(1, 1.0)], of=8)), rest, *OTHERS)
    assert NAME not in known.levels


def test_parts_that_waited_for_a_snapshot_follow_it() -> None:
    loop = datagram(101, 1, message(1005, bytes(4)), instrument(7), snapshot(5, [(1, 10.0)]))
    join = datagram(1, 1, change(4, 5, [(1, 10.0)]))
    assert bids(followed(join, *PARTS, loop)) == [13.0, 12.0, 11.0, 10.0]
    assert bids(followed(join, *PARTS[:2], loop, PARTS[2], NEXT)) == [14.0, 13.0, 12.0, 11.0, 10.0]


def test_snapshot_heals_what_lacks_a_part() -> None:
    rows = [(1, price) for price in (10.0, 11.0, 12.0, 13.0)]
    loop = datagram(101, 1, message(1005, bytes(4)), instrument(7), snapshot(6, rows))
    assert bids(followed(BEGIN, *PARTS[:2], *OTHERS, loop)) == [13.0, 12.0, 11.0, 10.0]


def test_copies_of_a_snapshot_that_differ_leave_its_book_in_doubt() -> None:
    def loop(number: int, *prices: float) -> bytes:
        rows = [(1, price) for price in prices]
        messages = (message(1005, bytes(4)), instrument(7), snapshot(number, rows))
        return datagram(101, number - 4, *messages)

    join = datagram(1, 1, change(4, 5, [(1, 10.0)]))
    disputed = (join, loop(5, 10.0), loop(5, 11.0))
    assert bids(followed(*disputed[:2])) == [10.0]
    assert bids(followed(*disputed)) is None
    behind = datagram(1, 2, change(5, 6, [(1, 12.0)]))
    assert bids(followed(*disputed, behind)) is None
    assert bids(followed(*disputed, behind, loop(6, 12.0, 10.0))) == [12.0, 10.0]


def test_change_that_goes_on_from_a_disputed_one_mends_nothing() -> None:
    """Both copies said what it goes on from."""
    first, other = (datagram(1, 2, change(5, 6, [(1, price)])) for price in (11.0, 12.0))
    behind = datagram(1, 3, change(6, 7, [(1, 13.0)]))
    assert bids(followed(BEGIN, first, first, behind)) == [13.0, 11.0, 10.0]
    assert bids(followed(BEGIN, first, other, behind)) is None
    assert bids(followed(BEGIN, first, behind, other, datagram(1, 4, change(7, 8, [])))) is None


def test_stream_may_begin_at_number_0() -> None:
    zero = datagram(1, 0, change(0, 4, [(1, 9.0)]), instrument(7))
    after = datagram(1, 1, change(4, 5, [(1, 10.0)]))
    assert bids(followed(zero, after)) == [10.0, 9.0]


@pytest.mark.parametrize(("at", "value"), [(0, 2), (1, 3), (0, 255)])
def test_side_or_action_that_nobody_knows_is_refused(at: int, value: int) -> None:
    entry = bytearray(struct.pack("<BBdd", 1, 0, 11.0, 1.0))
    entry[at] = value
    bad = message(1001, struct.pack("<IQQQB", 7, 1_006, 5, 6, 1), bytes(entry))
    assert bids(followed(BEGIN, datagram(1, 2, bad))) is None
