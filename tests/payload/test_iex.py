"""IEX messages into columns: by their layouts, and what does not fit them is counted."""

import struct

import numpy as np
import pytest

from udpfast.payload.iex.decode import decode_iex
from udpfast.payload.iex.layouts import LAYOUTS, Effect

#: Bytes of each message, as the venue's documents have them.
SIZES = dict(
    zip("SDHOPEQTB85XA", (10, 31, 22, 18, 19, 18, 42, 38, 38, 30, 30, 26, 80), strict=True)
)


def trade(price: int, size: int, number: int) -> bytes:
    return struct.pack("<cB q 8s I q q", b"T", 64, 10**18, b"MSFT    ", size, price, number)


@pytest.mark.parametrize("kind", SIZES)
def test_layout_has_the_published_size(kind: str) -> None:
    assert LAYOUTS[kind].dtype.itemsize == SIZES[kind]
    assert (LAYOUTS[kind].dtype.names or ())[:3] == ("type", "flags", "time_ns")


def test_decode_trades_are_columns_in_order_with_their_numbers() -> None:
    decoded = decode_iex([(5, trade(367_000, 390, 1)), (9, trade(-1, 2, 3))])
    table = decoded.tables["T"]
    assert table["number"].tolist() == [5, 9]
    assert table["price"].tolist() == [367_000, -1]
    assert table["size"].tolist() == [390, 2]
    assert table["trade_id"].tolist() == [1, 3]
    assert set(table["symbol"].tolist()) == {b"MSFT    "}
    assert np.all(table["flags"] == 64)
    assert (decoded.unknown, decoded.short) == ({}, {})


def test_decode_longer_message_keeps_what_is_known() -> None:
    (one,) = decode_iex([(1, trade(7, 8, 9) + b"later")]).tables["T"]
    assert (one["price"], one["trade_id"]) == (7, 9)


def test_decode_short_and_unknown_messages_are_counted() -> None:
    decoded = decode_iex([(1, trade(7, 8, 9)[:-1]), (2, b"z123"), (3, b"")])
    assert decoded.tables == {}
    assert (decoded.short, decoded.unknown) == ({"T": 1}, {"z": 1, "": 1})


def test_effects_say_what_a_gap_leaves_sound() -> None:
    assert {kind for kind, one in LAYOUTS.items() if one.effect is Effect.CHANGE} == {"8", "5"}
    assert LAYOUTS["Q"].effect is Effect.COMPLETE
    assert LAYOUTS["T"].effect is Effect.EVENT
