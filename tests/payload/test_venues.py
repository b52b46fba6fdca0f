"""Feeds of venues: books of orders, by place and by price, and what losses leave of them."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lab.conformance import Report
from lab.conformance.books import Followed, check, follow, venue_config
from lab.framings import Sent, build
from tests.shared import shared
from udpfast.core.layout import Kind
from udpfast.net.pcap import CapturedDatagram

AT_NS = 1_700_000_000_000_000_000
SETS = ("itch_small", "pitch_2", "cme_1", "cme_2_reset")


def followed(
    framing: str, payload: str, messages: Iterable[Sent], **books: Any
) -> tuple[Followed, list[Kind]]:
    """Return what a reader knows after some datagrams, and the kinds of the records."""
    datagrams = [
        ((0, 0), CapturedDatagram(AT_NS + i * 1_000_000, ("", 0), ("", 0), build(framing, one)))
        for i, one in enumerate(messages)
    ]
    told = list(follow(venue_config(framing, payload, 1, **books), datagrams))
    kinds = [record.kind for _, record in told if record is not None]
    return told[-1][0], kinds


def sent(number: int, messages: tuple[bytes, ...]) -> Sent:
    return Sent(number, messages, session=b"0000000042")


def head(kind: str, locate: int = 7) -> bytes:
    return struct.pack(">cHH6s", kind.encode(), locate, 0, bytes(6))


def add(order: int, side: str, shares: int, price: int) -> bytes:
    return head("A") + struct.pack(">QcI8sI", order, side.encode(), shares, b"AAPL    ", price)


def less(kind: str, order: int, shares: int) -> bytes:
    return head(kind) + struct.pack(">QI", order, shares) + (bytes(8) if kind == "E" else b"")


def replace(old: int, new: int, shares: int, price: int) -> bytes:
    return head("U") + struct.pack(">QQII", old, new, shares, price)


NAME = ("NASDAQ", "AAPL")
ORDERS = (add(1, "B", 100, 1_000_000), add(2, "B", 50, 1_000_000), add(3, "S", 10, 1_000_100))


def test_levels_are_sums_of_orders_which_keep_their_queue() -> None:
    messages = (*ORDERS, less("X", 1, 40), replace(1, 4, 60, 1_000_000))
    known, _ = followed("moldudp64", "itch", [sent(1, messages)])
    assert not known.books[NAME].stale
    assert known.levels[NAME][0] == {100.0: (110.0, 2, 0)}
    assert known.levels[NAME][1] == {100.01: (10.0, 1, 0)}
    queue = sorted((row[3], order) for order, row in known.orders[NAME].items() if row[0] == 0)
    assert [order for _, order in queue] == ["2", "4"]
    assert known.tops[NAME] == (100.0, 110.0, 100.01, 10.0)


def test_execution_is_a_trade_of_the_taker() -> None:
    known, _ = followed("moldudp64", "itch", [sent(1, (*ORDERS, less("E", 3, 10)))])
    assert known.trades[NAME] == [(100.01, 10.0)]
    assert known.levels[NAME][1] == {}


def test_book_is_in_doubt_behind_a_gap() -> None:
    late = add(9, "S", 5, 1_000_200)
    known, kinds = followed(
        "moldudp64", "itch", [sent(1, ORDERS), sent(5, (late,)), sent(6, (late,))]
    )
    assert kinds.count(Kind.GAP) == 1
    assert known.books[NAME].stale
    assert Kind.STALE in kinds


def test_order_that_is_not_there_puts_its_book_in_doubt() -> None:
    known, kinds = followed("moldudp64", "itch", [sent(1, (*ORDERS, less("X", 8, 1)))])
    assert known.books[NAME].stale
    assert kinds.count(Kind.STALE) == 2  # of levels, and of orders


def test_more_orders_than_there_is_room_for_are_a_doubt() -> None:
    many = [add(n, "B", 1, 1_000_000) for n in range(1, 1_002)]
    datagrams = [sent(1 + n, tuple(many[n : n + 20])) for n in range(0, len(many), 20)]
    known, _ = followed("moldudp64", "itch", datagrams, orders_max=1_000)
    assert known.books[NAME].stale


def test_depth_shows_the_best_levels_alone() -> None:
    bids = [add(n, "B", 1, 1_000_000 + n * 100) for n in range(1, 6)]
    gone = head("D") + struct.pack(">Q", 5)
    known, _ = followed("moldudp64", "itch", [sent(1, (*bids, gone))], depth=2)
    assert sorted(known.levels[NAME][0]) == [100.03, 100.04]
    assert known.tops[NAME][0] == 100.04


@pytest.mark.parametrize("name", SETS)
def test_sets_of_truths_hold(name: str) -> None:
    report = Report()
    check(shared("venues", "books", name) / "truth.json", report)
    assert [line for line in report.lines if line.startswith("FAILED")] == []
    assert report.passed >= 2


def test_capture_that_differs_is_found(tmp_path: Path) -> None:
    folder = shared("venues", "books", "itch_small")
    truth = (folder / "truth.json").read_text()
    for file in folder.glob("clean.pcap.gz"):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "truth.json").write_text(truth.replace('"orders": 54', '"orders": 53', 1))
    report = Report()
    check(tmp_path / "truth.json", report)
    assert report.failed == 1


def plus(kind: str, flags: str | int, *fields: int, layout: str = "") -> bytes:
    flag = ord(flags) if isinstance(flags, str) else flags
    return struct.pack("<cBq8s" + layout, kind.encode(), flag, AT_NS, b"ZIEXT   ", *fields)


def test_deep_plus_keeps_orders_and_clears_a_book() -> None:
    name = ("IEX", "ZIEXT")
    messages = (
        plus("a", "8", 11, 100, 199_600, layout="QIq"),
        plus("a", "8", 12, 200, 199_600, layout="QIq"),
        plus("M", 0, 11, 100, 199_600, layout="QIq"),
        plus("L", 0, 12, 50, 199_600, 7, layout="QIqq"),
    )
    head_of = {"stream": (0x8005, 1), "session": 77, "sent_ns": AT_NS}
    known, _ = followed("iex_tp", "iex_deep_plus", [Sent(1, messages, **head_of)])
    assert known.levels[name][0] == {19.96: (250.0, 2, 0)}
    queue = sorted((row[3], order) for order, row in known.orders[name].items())
    assert [order for _, order in queue] == ["12", "11"]  # what is changed goes to the end
    assert known.trades[name] == [(19.96, 50.0)]
    known, _ = followed("iex_tp", "iex_deep_plus", [Sent(1, (*messages, plus("C", 0)), **head_of)])
    assert not known.books[name].stale
    assert known.levels[name] == ({}, {})
