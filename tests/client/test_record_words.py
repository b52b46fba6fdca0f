"""Records as one line and as plain values: prices, quantities, rows, reasons, all of them."""

import json

import numpy as np
import pytest

from tests.client.instance import Instance
from udpfast import Kind, Reader
from udpfast.client.record_words import describe_record, number_word, record_line
from udpfast.core.layout import CONTROL_DTYPES
from udpfast.core.moment import moment_text, unix_ns
from udpfast.market.updates import ROW_DTYPES, UPDATE_DTYPES


def payload_of(instance: Instance, kind: Kind, rows: int) -> bytes:
    """Return a payload of a kind in which every number is 1."""
    update = np.frombuffer(b"\1" * UPDATE_DTYPES[kind].itemsize, UPDATE_DTYPES[kind], 1).copy()
    update["exchange_id"] = instance.names.intern("deribit")
    update["symbol_id"] = instance.names.intern("BTC-PERPETUAL")
    update["row_count"] = rows
    if kind is Kind.BOOK:
        update["bid_count"], update["ask_count"] = rows - 1, 1
    return update.tobytes() + (b"\1" * rows * ROW_DTYPES[kind].itemsize if rows else b"")


def test_line_of_a_top_of_book_has_its_prices(instance: Instance) -> None:
    update = instance.update(
        UPDATE_DTYPES[Kind.TOP_OF_BOOK],
        "deribit",
        "BTC",
        bid_price=100.05,
        bid_quantity=28.5,
        ask_price=float("nan"),
    )
    instance.append(Kind.TOP_OF_BOOK, update.tobytes())
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    at = moment_text(record.received_ns)
    line = f"TOP_OF_BOOK   {at} deribit BTC number=1 index=0 first bid=100.05 x 28.5 ask=none"
    assert record_line(record) == str(record) == line
    assert repr(record) == f"<ReadRecord {line}>"
    described = describe_record(record)
    assert (described["bid_price"], described["ask_price"]) == (100.05, None)


def test_line_has_the_time_of_receipt_as_a_reader_takes_it(instance: Instance) -> None:
    received_ns = 1_795_219_199_500_000_123
    instance.ring.append(Kind.MESSAGE, b"", received_ns=received_ns)
    instance.ring.flush()
    with Reader(instance.address, start="begin") as reader:
        _, at, *_ = str(next(reader)).split()
    assert at == "2026-11-20T23:59:59.500000123Z"
    assert unix_ns(at, "start") == received_ns


def test_line_of_a_book_has_its_first_levels_and_how_many_more(instance: Instance) -> None:
    instance.book([(float(10 - i), 1.5) for i in range(5)], [(11.0, 0.0)], snapshot=True)
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    assert record_line(record).endswith(
        "index=0 snapshot first bids 10 x 1.5, 9 x 1.5, 8 x 1.5, 2 more asks 11 x 0"
    )
    described = describe_record(record)
    assert [level["price"] for level in described["bids"]] == [10.0, 9.0, 8.0, 7.0, 6.0]
    assert described["asks"][0]["quantity"] == 0.0


def test_line_of_a_gap_has_its_reason_in_words(instance: Instance) -> None:
    gap = np.zeros((), CONTROL_DTYPES[Kind.GAP])
    gap["first"], gap["last"], gap["count"], gap["reason"] = 3, 4, 2, 2
    instance.append(Kind.GAP, gap.tobytes())
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    assert record_line(record).endswith("first=3 last=4 count=2 waited_ns=0 reason=TIME")
    assert describe_record(record)["reason"] == "TIME"


@pytest.mark.parametrize(
    ("stream", "shown"),
    [(0, "incremental number="), (1, "snapshot number="), (7, "stream=7 number=")],
)
def test_line_of_a_doubt_has_its_stream(instance: Instance, stream: int, shown: str) -> None:
    connection = np.zeros((), CONTROL_DTYPES[Kind.CONNECTION])
    connection["status"], connection["scope"] = 5, 1
    gap = bytes(CONTROL_DTYPES[Kind.GAP].itemsize)
    instance.ring.append(Kind.GAP, gap, stream=stream)
    instance.ring.append(Kind.CONNECTION, connection.tobytes(), stream=stream, line=1)
    instance.ring.flush()
    with Reader(instance.address, start="begin") as reader:
        lines = [record_line(next(reader)) for _ in range(2)]
    assert [line.split(maxsplit=1)[1].startswith(shown) for line in lines] == [True, True]
    assert "line=1 status=READY scope=LINE" in lines[1]


@pytest.mark.parametrize(
    ("reason", "first", "unseen", "shown"),
    [(1, 5_000, 0, None), (1, 5, 4, 4), (1, 1, 0, 0), (2, 5_000, 0, 0)],
)
def test_numbers_before_the_first_session_of_a_process_are_unknown_where_it_cannot_know(
    instance: Instance, reason: int, first: int, unseen: int, shown: int | None
) -> None:
    session = np.zeros((), CONTROL_DTYPES[Kind.SESSION])
    session["reason"], session["first_number"], session["unseen"] = reason, first, unseen
    instance.append(Kind.SESSION, session.tobytes())
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    assert describe_record(record)["unseen"] == shown
    assert f"unseen={'unknown' if shown is None else shown} " in record_line(record)


def test_line_of_a_restart_has_its_epoch_as_the_bus_says_it(instance: Instance) -> None:
    payload = np.zeros((), CONTROL_DTYPES[Kind.RESTART])
    payload["epoch"] = 0x1F89EEE
    instance.append(Kind.RESTART, payload.tobytes())
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    assert " epoch=0x1f89eee " in record_line(record)
    assert describe_record(record)["epoch"] == 0x1F89EEE


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.PAD])
def test_record_of_every_kind_is_a_line_and_json(instance: Instance, kind: Kind) -> None:
    rows = 5 if kind in ROW_DTYPES else 0
    if kind in UPDATE_DTYPES:
        payload = payload_of(instance, kind, rows)
    elif kind in CONTROL_DTYPES:
        payload = b"\1" * CONTROL_DTYPES[kind].itemsize
    else:
        payload = b"raw"
    instance.append(kind, payload)
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    assert record_line(record).startswith(kind.name)
    assert "\n" not in record_line(record)
    described = json.loads(json.dumps(describe_record(record), allow_nan=False))
    listed = [value for name, value in described.items() if name in ("bids", "asks", "rows")]
    assert sum(map(len, listed)) == rows
    if kind in UPDATE_DTYPES:
        own = set(UPDATE_DTYPES[kind].names or ()) - set(described)
        assert own <= {
            "exchange_id",
            "symbol_id",
            "present",
            "row_count",
            "reserved",
            "reserved2",
        } | {
            "bid_count",
            "ask_count",
        }


@pytest.mark.parametrize("size", [0, 1, 5])
def test_control_record_that_is_too_short_is_a_line(instance: Instance, size: int) -> None:
    instance.append(Kind.GAP, b"\1" * size)
    with Reader(instance.address, start="begin") as reader:
        assert record_line(next(reader)).startswith("GAP")


@pytest.mark.parametrize(
    ("value", "word"),
    [(0.1 + 0.2, "0.3"), (1e9, "1000000000"), (float("nan"), "-"), (-0.5, "-0.5")],
)
def test_number_word_is_short(value: float, word: str) -> None:
    assert number_word(value) == word


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [
        ("", "''"),
        (" ", "' '"),
        ("a,b", "a,b"),
        ('"q"', '"q"'),
        ("ES Z6", "ES Z6"),
        ("Zürich", "Zürich"),
        (b"Z\xfcrich", r"Z\xfcrich"),
        ("a\nb", r"a\nb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\u202egnirts", r"\u202egnirts"),
    ],
)
def test_name_of_the_feed_breaks_no_line_and_no_terminal(
    instance: Instance, symbol: str | bytes, shown: str
) -> None:
    update = instance.update(UPDATE_DTYPES[Kind.TOP_OF_BOOK], "x", symbol, bid_price=-0.0)
    instance.append(Kind.TOP_OF_BOOK, update.tobytes())
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    at = moment_text(record.received_ns)
    assert str(record) == (
        f"TOP_OF_BOOK   {at} x {shown} number=1 index=0 first bid=0 x 0 ask=0 x 0"
    )
    assert describe_record(record)["symbol"] == record.symbol


def test_text_of_an_update_breaks_no_line(instance: Instance) -> None:
    dtype = UPDATE_DTYPES[Kind.REFERENCE_DATA]
    update = instance.update(dtype, "x", "A", description="one\ntwo", quote_currency=b"\xff")
    instance.append(Kind.REFERENCE_DATA, update.tobytes())
    with Reader(instance.address, start="begin") as reader:
        line = str(next(reader))
    assert r"description=one\ntwo" in line
    assert "\n" not in line


@pytest.mark.parametrize("price", [0.0, -0.5, 1e308, -1e308, 5e-324, float("inf"), float("-inf")])
def test_price_of_any_size_and_sign_is_a_number(instance: Instance, price: float) -> None:
    instance.top(price, float("nan"))
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    assert f"bid={price + 0.0:.12g} x 0 ask=none" in str(record)
    described = json.loads(json.dumps(describe_record(record), allow_nan=False))
    assert described["bid_price"] == (price if np.isfinite(price) else None)
    assert described["ask_price"] is None
    assert record._repr_html_()
