"""Rows of ORDERS that an execution made say so, at every venue that tells of executions."""

import struct
from collections.abc import Iterable
from typing import Any

import pytest

from lab.conformance.books import follow, venue_config
from lab.framings import build
from tests.payload.itch_market import ItchMarket
from tests.payload.order_market import DeepPlusMarket, OrderMarket, PitchMarket
from tests.payload.test_eobi import add as eobi_add
from tests.payload.test_eobi import datagram, details_6, executed, message
from tests.payload.test_venues import (
    AT_NS,
    NYSE_MAPPING,
    ORDERS,
    SMALL,
    head,
    less,
    memx,
    nyse,
    nyse_add,
    replace,
    sent,
)
from udpfast.core.layout import Kind
from udpfast.net.pcap import CapturedDatagram

NEW, CHANGE, DELETE = 1, 2, 3
FILLED = 4

#: A row: number of its message, order, action, quantity, reason.
Row = tuple[int, str, int, float, int]


def rows_of(framing: str, payload: str, datagrams: Iterable[bytes]) -> tuple[list[Row], int]:
    """Return the rows of all ORDERS after some datagrams, and the number of trades."""
    captured = [
        ((0, 0), CapturedDatagram(AT_NS + at * 1_000_000, ("", 0), ("", 0), one))
        for at, one in enumerate(datagrams)
    ]
    rows: list[Row] = []
    trades = 0
    for _, record in follow(venue_config(framing, payload, 1, **SMALL), captured):
        if record is None:
            break
        trades += record.kind == Kind.TRADES
        if record.kind == Kind.ORDERS:
            each: Any
            for each in record.update.rows:
                told = each["order_id"].decode(), int(each["action"]), float(each["quantity"])
                rows.append((record.number, *told, int(each["reason"])))
    return rows, trades


@pytest.mark.parametrize("venue", [ItchMarket, PitchMarket, DeepPlusMarket])
def test_rows_of_executions_and_no_others_are_filled(venue: type[OrderMarket]) -> None:
    market = venue(5, 800)
    datagrams = [market.datagram(at, [one]) for at, one in enumerate(market.messages, 1)]
    rows, trades = rows_of(market.framing, market.payload, datagrams)
    assert trades == len(market.trades) > 50
    assert {row[4] for row in rows} == {0, FILLED}
    assert [row[0] for row in rows if row[4]] == [trade[0] for trade in market.trades]
    assert {row[2] for row in rows if row[4]} == {CHANGE, DELETE}


def test_fill_in_a_cross_of_itch_is_no_cancel() -> None:
    def crossed(order: int, shares: int) -> bytes:
        return head("C") + struct.pack(">QIQcI", order, shares, 5, b"N", 1_000_000)

    others = (less("X", 2, 10), replace(2, 4, 40, 1_000_000), head("D") + struct.pack(">Q", 4))
    messages = sent(1, (*ORDERS, crossed(1, 40), crossed(1, 60), *others))
    rows, trades = rows_of("moldudp64", "itch", [build("moldudp64", messages)])
    assert trades == 0
    assert [row[1:] for row in rows if row[0] > 3] == [
        ("1", CHANGE, 60.0, FILLED),
        ("1", DELETE, 0.0, FILLED),
        ("2", CHANGE, 40.0, 0),
        ("2", DELETE, 0.0, 0),
        ("4", NEW, 40.0, 0),
        ("4", DELETE, 0.0, 0),
    ]


def test_fills_of_nyse_are_filled_off_the_tape_too() -> None:
    messages = [NYSE_MAPPING, nyse_add(1, 11, b"B", 500), nyse_add(2, 12, b"B", 500)]
    for at, (order, size, printable) in enumerate([(11, 40, 1), (11, 60, 0), (12, 100, 0)], 3):
        fields = (0, 7, at, order, 5, 500, size, printable, 0, *[b" "] * 4)
        messages.append(nyse(103, "IIIQIIIBBcccc", *fields))
    start = struct.pack("<HBBIII", 16 + sum(map(len, messages)), 11, len(messages), 1, 1, 0)
    rows, trades = rows_of("nyse_xdp", "nyse_integrated", [start + b"".join(messages)])
    assert trades == 1
    assert [row[1:] for row in rows if row[4]] == [
        ("11", CHANGE, 60.0, FILLED),
        ("11", DELETE, 0.0, FILLED),
        ("12", DELETE, 0.0, FILLED),
    ]


def test_fills_of_memx_are_filled() -> None:
    messages = (
        memx(1, "6s6sIBBq", b"AAPL", b"", 100, 0, 0, 10_000),
        memx(10, "QcIq", 13, b"S", 70, 20_010_000),
        memx(12, "QI", 13, 10),
        memx(13, "QQIq", 13, 5, 20, 20_010_000),
        memx(11, "Q", 13),
    )
    start = struct.pack(">BBQQH", 2, 18, 1, 1, len(messages))
    rows, _ = rows_of("memx_memoir", "memx", [start + b"".join(messages)])
    assert [row[2:] for row in rows] == [
        (NEW, 70.0, 0),
        (CHANGE, 60.0, 0),
        (CHANGE, 40.0, FILLED),
        (DELETE, 0.0, 0),
    ]


def test_fills_of_eobi_are_filled_and_its_deletes_are_not() -> None:
    gone = message(13_102, struct.pack("<QQq", 0, 0, 7) + details_6(20, 4, 2, 101))
    rows, trades = rows_of(
        "eurex_eobi",
        "eobi",
        [
            datagram(1, *(eobi_add(details_6(*one)) for one in ((20, 4, 2, 101), (10, 3, 1, 100)))),
            datagram(
                2,
                executed(details_6, full=False, priority=10, side=1, quantity=1),
                gone,
                executed(details_6, full=True, priority=10, side=1, quantity=2),
            ),
        ],
    )
    assert trades == 2
    assert [row[2:] for row in rows if row[0] == 2] == [
        (CHANGE, 2.0, FILLED),
        (DELETE, 0.0, 0),
        (DELETE, 0.0, FILLED),
    ]
