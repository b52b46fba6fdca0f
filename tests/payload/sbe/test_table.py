"""Tables of Arrow: typed columns, nulls, and where a row is from."""

import struct
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


ODD = """
<type name="Wide" primitiveType="char" length="7" characterEncoding="UTF-16LE"/>
<type name="Ratio" primitiveType="float" presence="optional" nullValue="0.1"/>
<type name="Three" primitiveType="float" length="3" presence="optional" nullValue="0.1"/>
<type name="Tenth" primitiveType="float" presence="constant">0.1</type>
<composite name="Deep"><composite name="inner"><type name="a" primitiveType="int32"/>
<type name="b" primitiveType="int32"/></composite></composite>
<composite name="wide"><type name="length" primitiveType="uint8"/>
<type name="varData" primitiveType="uint8" length="0" characterEncoding="UTF-16LE"/></composite>
<composite name="plain"><type name="length" primitiveType="uint8"/>
<type name="varData" primitiveType="uint8" length="0" characterEncoding="US-ASCII"/></composite>
"""


@pytest.mark.parametrize(
    ("kind", "block", "decoded", "column"),
    [
        ("Wide", "aé".encode("utf-16-le") + bytes(3), "aé", "aé"),
        ("Wide", b"a\0\0\xd8b\0c", "a\udc00\udcd8b\udc63", "a\ufffd\ufffdb\ufffd"),
        ("Ratio", np.float32(0.1).tobytes(), None, None),
        ("Ratio", np.float32(0.2).tobytes(), float(np.float32(0.2)), float(np.float32(0.2))),
        ("Three", np.array([0.1, 2, 0.1], "f4").tobytes(), [None, 2, None], [None, 2, None]),
        ("Three", np.array([0.1] * 3, "f4").tobytes(), None, None),
        ("Tenth", b"", float(np.float32(0.1)), float(np.float32(0.1))),
        ("Deep", b"\7\0\0\0", {"inner": {"a": 7, "b": None}}, {"inner": {"a": 7, "b": None}}),
        ("Deep", b"\7\0\0", None, None),
    ],
)
def test_table_has_what_decode_returns(
    tmp_path: Path, kind: str, block: bytes, decoded: object, column: object
) -> None:
    said = ' presence="constant"' if kind == "Tenth" else ""
    message = f'<message name="M" id="1"><field name="f" id="1" type="{kind}"{said}/></message>'
    schema = schema_of(tmp_path, ODD, message)
    raw = struct.pack("<HHHH", len(block), 1, 7, 3) + block
    assert schema.decode(raw)["f"] == decoded
    assert schema.table([raw], "M")["f"].to_pylist() == [column]


@pytest.mark.parametrize(
    ("kind", "data", "decoded", "column"),
    [
        ("wide", b"a\0b", "a\udc62", "a\ufffd"),
        ("wide", b"\xff\xff\0\xd8", "\uffff\udc00\udcd8", "\uffff\ufffd\ufffd"),
        ("plain", "ä".encode(), "\udcc3\udca4", "\ufffd\ufffd"),
        ("text", b"\xed\xa0\x80\xc3", "\udced\udca0\udc80\udcc3", "\ufffd" * 4),
    ],
)
def test_data_of_a_table_is_what_decode_returns(
    tmp_path: Path, kind: str, data: bytes, decoded: str, column: str
) -> None:
    message = f'<message name="M" id="1"><data name="f" id="1" type="{kind}"/></message>'
    schema = schema_of(tmp_path, ODD, message)
    raw = schema.encode("M", {"f": data})
    assert schema.decode(raw)["f"] == decoded
    assert schema.encode("M", schema.decode(raw)) == raw
    assert schema.table([raw], "M")["f"].to_pylist() == [column]


def test_optional_array_without_rows_is_an_empty_column(tmp_path: Path) -> None:
    field = '<field name="f" id="1" type="Three"/>'
    message = f'<message name="M" id="1"><group name="g" id="2">{field}</group></message>'
    schema = schema_of(tmp_path, ODD, message)
    for batch in ([], [schema.encode("M", {})]):
        assert schema.table(batch, "M.g")["f"].to_pylist() == []
