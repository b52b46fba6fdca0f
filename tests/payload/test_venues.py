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


def followed_raw(payloads: Iterable[bytes], **books: Any) -> Followed:
    """Return what a reader knows after some datagrams of CME."""
    datagrams = [
        ((0, 0), CapturedDatagram(AT_NS + i * 1_000_000, ("", 0), ("", 0), payload))
        for i, payload in enumerate(payloads)
    ]
    *_, (known, _) = follow(venue_config("cme_mdp3", "cme", 1, **books), datagrams)
    return known


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


def cme(number: int, template: int, root: bytes, rest: bytes) -> bytes:
    head_of = struct.pack("<HHHHH", 10 + len(root) + len(rest), len(root), template, 1, 9)
    return struct.pack("<IQ", number, AT_NS) + head_of + root + rest


def definition(number: int, depth: int) -> bytes:
    root = bytearray(59)
    root[5:6], root[35:38], root[55:59] = b"A", b"ABC", struct.pack("<i", 7)
    return cme(number, 54, bytes(root), struct.pack("<HBHB3sb", 9, 0, 4, 1, b"GBX", depth))


def bid(number: int, chain: int, place: int, action: int = 0) -> bytes:
    root = struct.pack("<QBxx", AT_NS, 0x80)
    price = (100 - place) * 10**9
    entry = struct.pack("<qiiIiBBc5x", price, 5, 7, chain, 1, place, action, b"0")
    return cme(number, 46, root, struct.pack("<HB", 32, 1) + entry + struct.pack("<H5xB", 24, 0))


BIDS = tuple(bid(place, place, place) for place in range(1, 5))


@pytest.mark.parametrize("depth", [4, 5, 10, 12])
def test_book_by_place_waits_for_the_depth_that_its_definition_tells(depth: int) -> None:
    assert not followed_raw(BIDS).books
    known = followed_raw((*BIDS, definition(5, depth)))
    assert sorted(known.levels["CME", "ABC"][0]) == [96.0, 97.0, 98.0, 99.0]
    assert not known.books["CME", "ABC"].stale


def test_book_that_was_deeper_than_its_definition_is_not_sound() -> None:
    # The venue told no third one of the three that are left after the delete.
    gone = bid(5, 5, 1, action=2)
    for payloads in ((*BIDS, definition(5, 3)), (*BIDS, gone, definition(6, 3))):
        books = followed_raw(payloads).books
        assert all(book.stale for book in books.values())
    books = followed_raw((definition(1, 10), *(bid(n + 1, n, n) for n in range(1, 5)))).books
    assert [book.stale for book in books.values()] == [False]
    many = [bid(place, place, 1) for place in range(1, 12)]
    assert all(book.stale for book in followed_raw((*many, definition(12, 12))).books.values())


def test_depth_may_be_told_by_the_settings() -> None:
    known = followed_raw(BIDS, places=4)
    assert sorted(known.levels["CME", "7"][0]) == [96.0, 97.0, 98.0, 99.0]
    known = followed_raw(BIDS, places=3)
    assert known.books["CME", "7"].stale


@pytest.mark.parametrize("name", SETS)
def test_sets_of_truths_hold(name: str) -> None:
    report = Report()
    check(shared("venues", "books", name) / "truth.json", report)
    assert [line for line in report.lines if line.startswith("FAILED")] == []
    assert report.passed >= 2


def test_feed_that_does_not_heal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(config: Any, datagrams: Iterable[Any]) -> Any:
        # To snapshots, but not to definitions.
        return follow(config, (one for one in datagrams if one[0][0] == 0 or one[0][1] == 0))

    monkeypatch.setattr("lab.conformance.books.follow", deaf)
    report = Report()
    check(shared("venues", "books", "cme_1") / "truth.json", report)
    assert [line.endswith("in doubt at the end") for line in report.lines].count(True) == 1
    assert report.failed == 1


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
