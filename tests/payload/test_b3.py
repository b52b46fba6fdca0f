"""B3 UMDF by layout: books of our own bytes, and a real datagram that touches none."""

import struct
from pathlib import Path

import pytest

from lab.conformance.books import Followed
from tests.payload.test_venues import AT_NS, followed_raw
from tests.shared import shared
from udpfast.net.pcap import CaptureReader

NAME = ("B3", "7")
NULL = -(2**63)


def message(template: int, block: bytes) -> bytes:
    head = struct.pack("<HHHHHH", 12 + len(block), 0xEB50, len(block), template, 2, 9)
    return head + block


def order(
    number: int, side: str, price: int | None, size: int, action: int = 0, ends: bool = True
) -> bytes:
    block = bytearray(72)
    mantissa = NULL if price is None else price * 10_000
    struct.pack_into("<QBBcxqq", block, 0, 7, 0x80 * ends, action, side.encode(), mantissa, size)
    struct.pack_into("<QIxxxxQ", block, 44, number, 1, AT_NS)
    return message(50, bytes(block))


def delete(number: int, side: str, price: int | None) -> bytes:
    block = bytearray(52)
    struct.pack_into("<QBBc", block, 0, 7, 0x80, 2, side.encode())
    struct.pack_into("<Q", block, 24, number)
    struct.pack_into("<q", block, 44, NULL if price is None else price * 10_000)
    return message(51, bytes(block))


def datagram(number: int, *messages: bytes) -> bytes:
    return struct.pack("<BxHIQ", 50, 1, number, AT_NS) + b"".join(messages)


def followed(*datagrams: bytes) -> Followed:
    return followed_raw(datagrams, "b3_umdf", "b3")


def queue(known: Followed) -> list[tuple[int, float, float]]:
    rows = sorted((row[0], row[3], row[1], row[2]) for row in known.orders[NAME].values())
    return [(side, price, quantity) for side, _, price, quantity in rows]


BEGUN = datagram(1, order(12, "0", 10, 5), order(11, "0", 10, 3), order(13, "1", 11, 4))


def test_orders_stand_by_their_secondary_ids() -> None:
    assert queue(followed(BEGUN)) == [(0, 10.0, 3.0), (0, 10.0, 5.0), (1, 11.0, 4.0)]
    changed = datagram(2, order(11, "0", 10, 2, action=1), delete(13, "1", 11))
    known = followed(BEGUN, changed)
    assert queue(known) == [(0, 10.0, 2.0), (0, 10.0, 5.0)]
    assert known.levels[NAME][0] == {10.0: (7.0, 2, 0)}
    assert not known.books[NAME].stale


def test_order_that_loses_its_price_leaves_the_book() -> None:
    known = followed(BEGUN, datagram(2, order(12, "0", None, 5, action=1)))
    assert queue(known) == [(0, 10.0, 3.0), (1, 11.0, 4.0)]
    at_market = datagram(2, order(20, "0", None, 5), delete(20, "0", None))
    assert not followed(BEGUN, at_market).books[NAME].stale


@pytest.mark.parametrize("template", [9, 11])
def test_empty_book_and_channel_reset_leave_nothing(template: int) -> None:
    block = struct.pack("<QB11x", 7, 0x80) if template == 9 else bytes(4)
    known = followed(BEGUN, datagram(2, message(template, block), order(30, "1", 12, 1)))
    assert (queue(known), known.books[NAME].stale) == ([(1, 12.0, 1.0)], False)


def test_what_is_lost_or_names_no_order_is_a_doubt() -> None:
    for last in (
        datagram(3, order(30, "1", 12, 1)),  # 2 is lost
        datagram(2, message(52, struct.pack("<QBBc17x", 7, 0x80, 3, b"0"))),  # mass delete
        datagram(2, delete(99, "0", 10)),
        datagram(2, order(30, "?", 12, 1)),
        datagram(2, message(50, bytes(40))),
    ):
        assert followed(BEGUN, last).books[NAME].stale
    traded = datagram(2, message(53, bytes(60)))  # it comes as published
    assert not followed(BEGUN, traded).books[NAME].stale


def test_top_of_book_comes_when_its_event_ends() -> None:
    half = datagram(1, order(11, "0", 10, 3), order(12, "1", 12, 1, ends=False))
    known = followed(half)
    assert known.tops[NAME][2] != 12.0
    known = followed(half, datagram(2, order(13, "1", 11, 4)))
    assert known.tops[NAME][0] == 10.0
    assert known.tops[NAME][2] == 11.0


@pytest.mark.parametrize("name", ["v1.5__PriceBand", "v1.5__SecurityGroupPhase", "v1.8__Sequence"])
def test_real_datagrams_that_touch_no_book_make_none(name: str) -> None:
    path = Path(shared("data", "pcap", "singles", "b3_umdf", f"BinaryUmdf.{name}.pcap"))
    with CaptureReader(path) as reader:
        known = followed(*(datagram.payload for datagram in reader))
    assert not known.books
