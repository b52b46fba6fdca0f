"""What venues' definitions say of options: strike, call or put, what they are on, tick size."""

import math
import struct
from collections.abc import Iterable
from typing import Any

import pytest

from lab.conformance.books import follow, venue_config
from tests.payload import test_deribit as deribit
from tests.payload.test_venues import AT_NS, SMALL
from udpfast.core.layout import Kind
from udpfast.net.pcap import CapturedDatagram

NULL = 2**63 - 1


def told(framing: str, payload: str, datagrams: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the definitions that readers get."""
    arrived = (
        ((0, 0), CapturedDatagram(AT_NS + at * 1_000_000, ("", 0), ("", 0), data))
        for at, data in enumerate(datagrams)
    )
    return [
        record.data
        for _, record in follow(venue_config(framing, payload, 1, **SMALL), arrived)
        if record is not None and record.kind == Kind.REFERENCE_DATA
    ]


def cme_option(
    strike: int, call: int, underlying: bytes = b"ESZ6", tick: int = NULL, template: int = 55
) -> bytes:
    root = bytearray(213)
    root[5:6], root[35:43], root[55:59] = b"A", b"ESZ6 C60", struct.pack("<i", 7)
    struct.pack_into("<B", root, 71, call)
    struct.pack_into("<q", root, 80, strike)
    struct.pack_into("<q", root, 111, tick)
    groups = struct.pack("<HBHB3sbHB4xHB5x", 9, 0, 4, 1, b"GBX", 3, 4, 1, 5, 1)
    groups += struct.pack("<HBi20s", 24, 1, 8, underlying) + struct.pack("<HB", 24, 0)
    head = struct.pack("<HHHHH", 10 + len(root) + len(groups), len(root), template, 1, 9)
    return head + bytes(root) + groups


def cme(*messages: bytes) -> list[dict[str, Any]]:
    return told(
        "cme_mdp3",
        "cme",
        (struct.pack("<IQ", number, AT_NS) + one for number, one in enumerate(messages, 1)),
    )


@pytest.mark.parametrize(("template", "unit"), [(55, 10**9), (41, 10**7)])
def test_option_of_cme_is_told_with_its_strike(template: int, unit: int) -> None:
    (row,) = cme(cme_option(6_000 * unit, 1, tick=unit // 20, template=template))
    assert (row["strike_price"], row["option_type"], row["tick_size"]) == (6_000.0, 1, 0.05)
    assert (row["underlying"], row["security_type"]) == (b"ESZ6", 3)
    (row,) = cme(cme_option(-5 * unit, 0, template=template))
    assert (row["strike_price"], row["option_type"]) == (-5.0, 2)
    assert math.isnan(row["tick_size"])


def test_option_is_told_again_where_anything_of_it_changes() -> None:
    first = cme_option(10**9, 1)
    others = [cme_option(2 * 10**9, 1), cme_option(10**9, 0), cme_option(10**9, 1, b"ESH7")]
    assert len(cme(first, first)) == 1
    assert [len(cme(first, other)) for other in others] == [2, 2, 2]
    assert math.isnan(cme(cme_option(NULL, 1))[0]["strike_price"])


def test_definition_behind_an_option_is_none() -> None:
    future = bytearray(cme_option(10**9, 1))
    struct.pack_into("<H", future, 4, 54)
    struct.pack_into("<i", future, 10 + 55, 8)
    future[10 + 35 : 10 + 39] = b"NQZ6"
    option, row = cme(cme_option(10**9, 1) + bytes(future))
    assert (option["option_type"], row["option_type"], row["underlying"]) == (1, 0, b"")
    assert math.isnan(row["strike_price"])


def deribit_option(kind: int, option: int, strike: float, earlier: int = 0) -> bytes:
    root = bytearray(140 - earlier)
    struct.pack_into("<IBBBB", root, 0, 7, 1, kind, 2, option)
    struct.pack_into("<5d", root, 68 - earlier, strike, 1.0, 0.1, math.nan, 0.0005)
    template = 1010 if earlier else 1000
    return deribit.datagram(1, 1, deribit.message(template, bytes(root), text=b"BTC-C"))


@pytest.mark.parametrize("earlier", [0, 1])
def test_option_of_deribit_is_told_with_its_strike(earlier: int) -> None:
    def row(kind: int, option: int, strike: float) -> tuple[float, int]:
        loop = [deribit_option(kind, option, strike, earlier)]
        (told_row,) = told("deribit_sbe", "deribit", loop)
        return told_row["strike_price"], told_row["option_type"]

    assert row(1, 1, 62_500.5) == (62_500.5, 1)
    assert row(1, 2, 50_000.0) == (50_000.0, 2)
    assert row(1, 255, 50_000.0) == (50_000.0, 0)
    assert math.isnan(row(1, 1, math.nan)[0])
    assert math.isnan(row(0, 0, 0.0)[0])
