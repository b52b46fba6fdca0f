"""T7 EOBI by layout, versions 6 and 13: real single datagrams, and books of our own bytes."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from lab.conformance.books import Followed
from lab.guarded_frame import GuardedPayload
from tests.payload.test_venues import AT_NS, followed_raw
from udpfast.config.lines import PAYLOADS

#: Messages of version 6, as captured: an execution of all of an order and what came back of it, an
#: order that moved. An order's id is its priority doubled, and one more if it sells.
EXECUTED = bytes.fromhex(
    "38003033766605000200000000000000007b06f4020000008220f3fb2ee07313dd83080000000000"
    "1f21000006000000007b06f402000000"
    "30002c3377660500bca62c032fe07313dd8308000000000054d92c032fe073130a00000001000000"
    "007b06f402000000"
)
MODIFIED = bytes.fromhex(
    "48002d3361f00700ed12e7dd2ee073138f33eddc2ee073130021b66b030000000100000000000000"
    "dc830800000000000b50e7dd2ee0731301000000020000004063c56b03000000"
)
ADDED, EXECUTION, DELETED = 10, 14, 16  # verbs


def changes(message: bytes) -> list[dict[str, Any]]:
    return GuardedPayload(PAYLOADS.index("eobi")).changes(message)


def test_real_messages_of_version_6_are_read() -> None:
    execution, added = changes(EXECUTED)
    assert (execution["instrument"], added["instrument"]) == (558_045, 558_045)
    seller = 0x1373E02EFBF32082 * 2 + 1
    assert (execution["order"], execution["quantity"], execution["side"]) == (seller, 6, 1)
    assert execution["price"] == 126_84000000
    assert (added["side"], added["quantity"], added["price"]) == (0, 10, 126_84000000)
    gone, came = changes(MODIFIED)
    assert (gone["order"] - 1) // 2 == 0x1373E02EDCED338F
    assert (came["order_before"], came["side"]) == (0x1373E02EDDE7500B, 1)
    assert came["price"] == 0x36BC56340


Version = Callable[[int, int, int, int | None], bytes]


def details_6(priority: int, quantity: int, side: int, price: int | None) -> bytes:
    return struct.pack("<QiB3xq", priority, quantity, side, scaled(price))


def details_13(priority: int, quantity: int, side: int, price: int | None) -> bytes:
    fields = (priority, quantity * 10_000, side, price is None, scaled(price))
    return struct.pack("<QQBB2xq4x", *fields)


def scaled(price: int | None) -> int:
    return -(2**63) if price is None else price * 10**8


def message(template: int, body: bytes) -> bytes:
    return struct.pack("<HHI", 8 + len(body), template, 1) + body


def add(details: bytes) -> bytes:
    return message(13_100, struct.pack("<Qq", AT_NS, 7) + details)


def datagram(number: int, *messages: bytes) -> bytes:
    head = struct.pack("<HHIIiBBBxIQ", 32, 13_002, 0, number, 5, 1, 1, 0, 0, AT_NS)
    return head[:32].ljust(32, b"\0") + b"".join(messages)


def executed(
    version: Version,
    full: bool,
    priority: int,
    side: int,
    quantity: int,
    own: int | None = 100,
    last: int | None = 100,
) -> bytes:
    price, paid = scaled(own), scaled(last)
    if version is details_6:
        body = struct.pack("<B7xqQqIiq", side, price, priority, 7, 99, quantity, paid)
    else:
        body = struct.pack("<B3xIqQqQq", side, 99, price, priority, 7, quantity * 10_000, paid)
    return message(13_104 if full else 13_105, body)


def followed(*datagrams: bytes) -> Followed:
    return followed_raw(datagrams, "eurex_eobi", "eobi")


NAME = ("EUREX", "7")


def queue(known: Followed) -> list[tuple[int, float, float]]:
    rows = sorted((row[0], row[3], row[1], row[2]) for row in known.orders[NAME].values())
    return [(side, price, quantity) for side, _, price, quantity in rows]


@pytest.mark.parametrize("version", [details_6, details_13])
def test_orders_stand_by_their_time_stamps(version: Version) -> None:
    first, second = add(version(20, 5, 1, 100)), add(version(10, 3, 1, 100))
    sell = add(version(20, 4, 2, 101))  # of the same time as the first, on the other side
    known = followed(datagram(1, first, second, sell))
    assert queue(known) == [(0, 100.0, 3.0), (0, 100.0, 5.0), (1, 101.0, 4.0)]
    previous = struct.pack("<Qqq", 10, scaled(100), 3 if version is details_6 else 30_000)
    moved = message(
        13_101, struct.pack("<Q", AT_NS) + previous + struct.pack("<q", 7) + version(30, 3, 1, 99)
    )
    same = message(13_106, struct.pack("<QQqq", 0, 0, 5, 7) + version(20, 2, 1, 100))
    known = followed(datagram(1, first, second, sell), datagram(2, moved, same))
    assert queue(known) == [(0, 100.0, 2.0), (0, 99.0, 3.0), (1, 101.0, 4.0)]
    gone = message(13_102, struct.pack("<QQq", 0, 0, 7) + version(20, 4, 2, 101))
    less = executed(version, full=False, priority=20, side=1, quantity=1)
    filled = executed(version, full=True, priority=30, side=1, quantity=3)
    known = followed(
        datagram(1, first, second, sell), datagram(2, moved, same), datagram(3, gone, less, filled)
    )
    assert queue(known) == [(0, 100.0, 1.0)]
    assert known.trades[NAME] == [(100.0, 1.0), (100.0, 3.0)]
    assert not known.books[NAME].stale
    known = followed(
        datagram(1, first, second), datagram(2, message(13_103, struct.pack("<qQ", 7, 0)))
    )
    assert (queue(known), known.books[NAME].stale) == ([], False)


@pytest.mark.parametrize("version", [details_6, details_13])
def test_order_without_a_price_is_in_no_book(version: Version) -> None:
    market = add(version(20, 5, 1, None))
    known = followed(datagram(1, market, add(version(30, 3, 1, 100))))
    assert queue(known) == [(0, 100.0, 3.0)]
    gone = message(13_102, struct.pack("<QQq", 0, 0, 7) + version(20, 5, 1, None))
    assert not followed(datagram(1, market, gone, add(version(30, 3, 1, 100)))).books[NAME].stale


@pytest.mark.parametrize("version", [details_6, details_13])
@pytest.mark.parametrize("own", [100, None])
def test_execution_is_a_trade_at_its_price_and_without_one_damage(
    version: Version, own: int | None
) -> None:
    begun = datagram(1, add(version(20, 5, 1, own)), add(version(30, 3, 1, 100)))
    filled = executed(version, full=True, priority=20, side=1, quantity=5, own=own, last=99)
    known = followed(begun, datagram(2, filled))
    assert (known.trades[NAME], queue(known)) == ([(99.0, 5.0)], [(0, 100.0, 3.0)])
    assert not known.books[NAME].stale
    unpriced = executed(version, full=True, priority=20, side=1, quantity=5, own=own, last=None)
    known = followed(begun, datagram(2, unpriced))
    assert (known.trades.get(NAME, []), known.books[NAME].stale) == ([], True)


@pytest.mark.parametrize("price", [5 * 10**8, 100 * 10**8, -(10**8), -(2**63)])
def test_details_with_the_price_elsewhere_are_refused(price: int) -> None:
    # Other versions have 32 bytes without padding at their end.
    begun = datagram(1, add(details_13(20, 5, 1, 100)))
    other = add(struct.pack("<QQBB6xq", 30, 10_000, 1, 0, price))
    assert followed(begun, datagram(2, other)).books[NAME].stale
    assert not followed(begun, datagram(2, add(details_13(30, 5, 1, 99)))).books[NAME].stale


def test_what_is_lost_or_not_known_is_a_doubt() -> None:
    begun = datagram(1, add(details_13(20, 5, 1, 100)))
    for last in (
        datagram(3, add(details_13(30, 5, 1, 100))),  # 2 is lost
        datagram(2, message(13_107, bytes(60))),  # of an order: what of it, nobody knows
        datagram(2, add(details_13(30, 5, 1, 100)[:20])),  # cut
        datagram(2, executed(details_13, True, 99, 1, 5)),  # of an order that is not there
        datagram(2, add(struct.pack("<QQBB2xq4x", 30, 1, 1, 0, 10**10))),  # of a part of one
    ):
        assert followed(begun, last).books[NAME].stale
    silent = datagram(2, message(13_301, bytes(48)))
    assert not followed(begun, silent).books[NAME].stale


def test_joined_in_the_middle_it_is_in_doubt_until_all_of_it_is_deleted() -> None:
    late = datagram(5, add(details_13(20, 5, 1, 100)))
    known = followed(late)
    assert NAME not in known.books or known.books[NAME].stale
    cleared = message(13_103, struct.pack("<qQ", 7, 0))
    known = followed(late, datagram(6, cleared, add(details_13(40, 2, 2, 101))))
    assert (queue(known), known.books[NAME].stale) == ([(1, 101.0, 2.0)], False)
