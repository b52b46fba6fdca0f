"""Tables of Arrow: typed columns, nulls, and where a row is from."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.payload.sbe.schemas import ORDER, orders, schema_of
from udpfast.core.layout import FRAME, RECORD, Kind
from udpfast.errors import FormatError


def test_order_becomes_a_table_for_each_level(tmp_path: Path) -> None:
    schema = orders(tmp_path, 'byteOrder="bigEndian"')
    raw = schema.encode("Order", ORDER)
    rows = schema.rows([raw, schema.encode("Empty", {}), raw])
    assert schema.table(rows, "Order").to_pylist()[1] == {
        "_payload": 2,
        "_row": 1,
        **{key: value for key, value in ORDER.items() if key not in ("fills", "flags", "limit")},
        "flags": ["PostOnly"],
        "limit": Decimal("17.560"),
    }
    fills = schema.table(rows, "Order.fills")
    assert fills["_parent"].to_pylist() == [0, 0, 1, 1]
    assert fills["price"].to_pylist() == [-1, None, -1, None]
    parties = schema.table(rows, "Order.fills.parties")
    assert parties["_parent"].to_pylist() == [0, 0, 2, 2]
    assert parties["name"].to_pylist() == ["a", "ü"] * 2
    assert schema.table(rows, "Empty").num_rows == 1


def test_types_of_columns_are_those_of_the_schema(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    table = schema.table([schema.encode("Order", ORDER)], "Order")
    words = pa.dictionary(pa.int32(), pa.string())
    assert {field.name: field.type for field in table.schema if field.name[0] != "_"} == {
        "id": pa.uint64(),
        "side": words,
        "flags": pa.list_(pa.string()),
        "symbol": pa.string(),
        "limit": pa.decimal128(19, 3),
        "ratio": pa.float64(),
        "venue": words,
        "memo": pa.string(),
        "key": pa.binary(),
    }
    assert schema.table([], "Order").schema == table.schema


def test_columns_of_rows_never_take_a_name_of_the_schema(tmp_path: Path) -> None:
    message = '<message name="M" id="1"><field name="_row" id="1" type="int8"/></message>'
    schema = schema_of(tmp_path, "", message)
    table = schema.table([schema.encode("M", {"_row": 5})], "M")
    assert table.to_pylist() == [{"__payload": 0, "__row": 0, "_row": 5}]


def test_arrow_arrays_are_batches(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    raw = schema.encode("Order", ORDER)
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array([b"x", raw, None, raw], kind).slice(1)
        table = schema.table(array, "Order")
        assert table["_payload"].to_pylist() == [0, 2]
        assert schema.table(pa.chunked_array([array, array]), "Order").num_rows == 4


def test_records_that_carry_messages_are_a_batch(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    raw = schema.encode("Order", ORDER)

    class Records:
        # Roq's, with a frame; no message; another framing's; an app's on the bus.
        parts = (bytes(FRAME.itemsize) + raw, b"x" * 8, raw, raw, b"short")
        headers = np.zeros(len(parts), RECORD)
        sizes = np.array([len(part) for part in parts])
        offsets = (np.cumsum(sizes) - sizes).astype(np.uint64)
        payloads = np.frombuffer(b"".join(parts), np.uint8)

    Records.headers["kind"] = [Kind.MESSAGE, Kind.GAP, Kind.MESSAGE, 48, Kind.MESSAGE]
    Records.headers["stream"] = [1, 0, 2, 0, 0]
    Records.headers["length"] = RECORD.itemsize + Records.sizes
    rows = schema.rows(Records())
    assert rows.counts == {"sound": 3, "header_short": 1}
    assert rows.places("Order")["payload"].tolist() == [0, 2, 3]
    Records.headers["length"][-1] += 1
    with pytest.raises(FormatError, match="records reach beyond the end of their memory"):
        schema.rows(Records())


def test_bytes_that_are_no_characters_are_shown_as_such(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    raw = schema.encode("Order", {**ORDER, "symbol": b"A\xff", "memo": b"\xc3"})
    table = schema.table([raw, schema.encode("Order", ORDER)], "Order")
    assert table["symbol"].to_pylist() == ["A�", "BTC"]
    assert table["memo"].to_pylist() == ["�", "Grüße"]


def test_numbers_without_names_are_shown_as_numbers(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    table = schema.table([schema.encode("Order", {**ORDER, "side": 65, "flags": 3})], "Order")
    assert table["side"].to_pylist() == ["65"]
    assert table["flags"].to_pylist() == [["Hidden", "1"]]
