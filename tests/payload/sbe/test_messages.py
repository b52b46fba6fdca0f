"""Messages: values to bytes and back, of this version and of others."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.payload.sbe.schemas import ORDER, orders, schema_of
from udpfast.errors import ConfigError, FormatError, RangeError
from udpfast.payload.sbe.schema import Schema

SCALARS = "".join(
    f'<field name="{name}" id="{i}" type="{name}" presence="optional"/>'
    for i, name in enumerate(
        (
            *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
            *("float", "double", "char"),
        )
    )
)


def test_order_becomes_the_bytes_of_the_standard(tmp_path: Path) -> None:
    raw = orders(tmp_path).encode("Order", ORDER)
    assert raw.hex(" ", 1) == (
        "21 00 01 00 07 00 03 00 "  # block 33, template 1, schema 7, version 3
        "00 00 00 00 00 00 00 80 31 00 02 42 54 43 00 00 00 98 44 00 00 00 00 00 00 "
        "00 00 00 00 00 00 f8 7f "
        "0c 00 02 00 05 00 00 00 ff ff ff ff ff ff ff ff "  # fills: 12 bytes, 2 rows
        "01 00 02 00 01 01 00 61 02 02 00 c3 bc "  # parties: 1 byte, 2 rows
        "05 00 66 69 72 73 74 "
        "06 00 00 00 00 00 00 00 00 00 00 80 01 00 00 00 00 00 "
        "07 00 47 72 c3 bc c3 9f 65 02 00 ff"
    )


@pytest.mark.parametrize("order", ["littleEndian", "bigEndian"])
def test_order_comes_back_as_it_was(tmp_path: Path, order: str) -> None:
    schema = orders(tmp_path, f'byteOrder="{order}"')
    decoded = schema.decode(schema.encode("Order", ORDER))
    assert decoded == ORDER
    assert (decoded.name, decoded.version) == ("Order", 3)
    assert schema.encode(1, decoded) == schema.encode("Order", ORDER)


def test_nulls_are_those_of_the_types(tmp_path: Path) -> None:
    schema = schema_of(tmp_path, "", f'<message name="M" id="1">{SCALARS}</message>')
    raw = schema.encode("M", {})
    block = np.frombuffer(raw, schema.dtype("M"), 1, 8)[0]
    for size in (8, 16, 32, 64):
        assert block[f"int{size}"] == -(2 ** (size - 1))
        assert block[f"uint{size}"] == 2**size - 1
    assert math.isnan(block["float"])
    assert math.isnan(block["double"])
    assert block["char"] == b""
    assert set(schema.decode(raw).values()) == {None}


def test_declared_null_stands_for_nothing(tmp_path: Path) -> None:
    types = (
        '<type name="A" primitiveType="int32" presence="optional" nullValue="7"/>'
        '<enum name="E" encodingType="B"><validValue name="V">1</validValue></enum>'
        '<type name="B" primitiveType="uint8" presence="optional" nullValue="9"/>'
        '<type name="C" primitiveType="char" presence="optional" nullValue="?"/>'
        '<type name="D" primitiveType="double" presence="optional" nullValue="-1.5"/>'
        '<type name="N" primitiveType="int16" length="2" presence="optional"/>'
    )
    fields = "".join(f'<field name="{n}" id="1" type="{n.upper()}"/>' for n in "aecdn")
    schema = schema_of(tmp_path, types, f'<message name="M" id="1">{fields}</message>')
    raw = schema.encode("M", {})
    assert raw[8:] == b"\x07\0\0\0\x09?" + np.float64(-1.5).tobytes() + b"\0\x80" * 2
    assert set(schema.decode(raw).values()) == {None}
    assert schema.decode(schema.encode("M", {"n": [None, 5]}))["n"] == [None, 5]


def test_required_field_holds_every_value_of_its_type(tmp_path: Path) -> None:
    message = '<message name="M" id="1"><field name="f" id="1" type="uint8"/></message>'
    schema = schema_of(tmp_path, "", message)
    assert [schema.decode(schema.encode("M", {"f": i}))["f"] for i in range(256)] == list(
        range(256)
    )


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, r"Order\.id is required: expected a value, found none"),
    ({"id": -1}, r"Order\.id must be from 0 to 18446744073709551615, was -1"),
    ({"id": "5"}, r"Order\.id: expected an integer, found '5'"),
    ({"id": 5.0}, r"Order\.id: expected an integer, found 5\.0"),
    ({"id": 5, "side": "Hold"}, r"Order\.side: expected one of Buy, Sell, found 'Hold'"),
    ({"id": 5, "side": 256}, r"Order\.side must be from 0 to 255, was 256"),
    ({"id": 5, "side": 1.5}, r"Order\.side: expected one of Buy, Sell, found 1\.5"),
    ({**ORDER, "flags": ["Iceberg"]}, r"choices of Hidden, PostOnly, found 'Iceberg'"),
    ({**ORDER, "flags": [16]}, r"choices of Hidden, PostOnly, found 16"),
    ({**ORDER, "flags": 65_536}, r"Order\.flags must be from 0 to 65535, was 65536"),
    ({**ORDER, "symbol": "BITCOIN"}, r"Order\.symbol has room for 6 bytes, found 7"),
    ({**ORDER, "symbol": "BÜ"}, r"Order\.symbol: expected characters of ascii, found"),
    ({**ORDER, "limit": {"mantisse": 1}}, r"Order\.limit has no 'mantisse'; it has mantissa, exp"),
    ({**ORDER, "limit": Decimal("0.0001")}, r"Order\.limit: expected a multiple of 10\*\*-3, fou"),
    ({**ORDER, "limit": {"exponent": -2}}, r"Order\.limit\.exponent: expected the constant -3, f"),
    ({**ORDER, "venue": "Buy"}, r"Order\.venue: expected the constant 'Sell', found 'Buy'"),
    ({**ORDER, "fills": {"quantity": 1}}, r"Order\.fills: expected a list of rows, found"),
    ({**ORDER, "fills": [5]}, r"Order\.fills\[0\]: expected a mapping of values, found 5"),
    (
        {**ORDER, "fills": [{"quantity": 2**32}]},
        r"Order\.fills\[0\]\.quantity must be from 0 to 429",
    ),
    ({**ORDER, "fill": []}, r"Order has no 'fill'; it has id, side, .*, fills, memo, key"),
    ({**ORDER, "key": bytes(256)}, r"Order\.key\.length must be from 0 to 255, was 256"),
    ({**ORDER, "memo": 5}, r"Order\.memo: expected text or bytes, found 5"),
]


@pytest.mark.parametrize(("values", "said"), WRONG)
def test_value_that_does_not_fit_is_refused(
    tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        orders(tmp_path).encode("Order", values)


def test_values_are_taken_in_every_form_that_means_the_same(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    raw = schema.encode("Order", ORDER)
    for same in (
        {"side": "1"},
        {"side": ord("1")},
        {"flags": 1 << 9},
        {"flags": [9]},
        {"flags": {"PostOnly": True, "Hidden": False}},
        {"symbol": b"BTC"},
        {"limit": 17.56},
        {"limit": Decimal("17.560")},
        {"limit": {"mantissa": np.int64(17_560)}},
        {"ratio": math.nan},
        {"venue": None},
        {"memo": "Grüße".encode()},
        {"key": bytearray(b"\x00\xff")},
    ):
        assert schema.encode("Order", {**ORDER, **same}) == raw, same


def test_bounds_of_a_type_are_kept_and_read_as_they_come(tmp_path: Path) -> None:
    types = '<type name="Ron" primitiveType="uint8" minValue="90" maxValue="110"/>'
    message = '<message name="M" id="1"><field name="r" id="1" type="Ron"/></message>'
    schema = schema_of(tmp_path, types, message)
    assert schema.decode(schema.encode("M", {"r": 110}))["r"] == 110
    with pytest.raises(ValueError, match=r"M\.r must be from 90 to 110, was 111"):
        schema.encode("M", {"r": 111})
    assert schema.decode(schema.encode("M", {"r": 100})[:-1] + b"\x05")["r"] == 5


def test_unknown_names_keep_their_numbers(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    decoded = schema.decode(schema.encode("Order", {**ORDER, "side": 0x39, "flags": 0x8001}))
    assert decoded["side"] == 0x39
    assert decoded["flags"] == {"Hidden", 15}
    assert schema.encode("Order", decoded)[16:19] == b"\x39\x01\x80"


def test_bytes_that_are_no_characters_come_back(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    raw = schema.encode("Order", {**ORDER, "symbol": b"\xff\0\x80", "memo": b"\xc3"})
    assert schema.encode("Order", schema.decode(raw)) == raw


OLD = (
    '<message name="M" id="1"><field name="a" id="1" type="uint32"/>{}'
    '<data name="t" id="9" type="text"/></message>'
)
NEW = OLD.format(
    '<field name="b" id="2" type="uint16" sinceVersion="2"/>'
    '<field name="c" id="3" type="Pair" sinceVersion="3"/>'
    '<group name="g" id="4" sinceVersion="3"><field name="x" id="5" type="uint8"/></group>'
)
PAIR = (
    '<composite name="Pair"><type name="x" primitiveType="uint8"/>'
    '<type name="y" primitiveType="uint8" sinceVersion="4"/></composite>'
)


def versions(tmp_path: Path) -> tuple[Schema, Schema]:
    """Return the same message before and after fields were added."""
    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
    old = schema_of(folders[0], "", OLD.format(""), 'version="1"')
    return old, schema_of(folders[1], PAIR, NEW, 'version="4"')


def test_older_message_lacks_what_came_later(tmp_path: Path) -> None:
    old, new = versions(tmp_path)
    decoded = new.decode(old.encode("M", {"a": 1, "t": "x"}))
    assert decoded == {"a": 1, "b": None, "c": None, "g": [], "t": "x"}
    assert decoded.version == 1


def test_newer_block_is_stepped_over(tmp_path: Path) -> None:
    old, new = versions(tmp_path)
    values = {"a": 1, "b": 2, "c": {"x": 3, "y": 4}, "t": "x"}
    raw = bytearray(new.encode("M", values))
    # The group between block and text is beyond what the older schema can know: leave it out.
    del raw[16:20]
    assert old.decode(bytes(raw)) == {"a": 1, "t": "x"}


def test_newer_message_may_have_more_behind_it(tmp_path: Path) -> None:
    old, _ = versions(tmp_path)
    raw = bytearray(old.encode("M", {"a": 1, "t": "x"}))
    with pytest.raises(FormatError, match=r"ends at 15: expected no bytes after it, found 3"):
        old.decode(bytes(raw) + b"new")
    raw[6] = 2
    assert old.decode(bytes(raw) + b"new") == {"a": 1, "t": "x"}


def test_member_of_a_composite_is_as_old_as_it_says(tmp_path: Path) -> None:
    _, new = versions(tmp_path)
    raw = bytearray(new.encode("M", {"a": 1, "b": 2, "c": {"x": 3, "y": 4}, "t": ""}))
    assert new.decode(bytes(raw))["c"] == {"x": 3, "y": 4}
    raw[6] = 3
    assert new.decode(bytes(raw))["c"] == {"x": 3, "y": None}


def test_block_that_ends_inside_a_field_lacks_it(tmp_path: Path) -> None:
    _, new = versions(tmp_path)
    raw = bytearray(new.encode("M", {"a": 1, "b": 2, "c": {"x": 3, "y": 4}, "t": "x"}))
    for size, found in ((7, None), (6, None), (5, None)):
        short = raw[:8] + raw[8 : 8 + size] + raw[16:]
        short[0] = size
        decoded = new.decode(bytes(short))
        assert decoded["b"] == (2 if size > 5 else None)
        assert decoded["c"] == ({"x": 3, "y": None} if size == 7 else found)


def test_header_of_any_form_is_written_and_read(tmp_path: Path) -> None:
    header = (
        '<composite name="frame"><type name="version" primitiveType="uint8"/>'
        '<type name="schemaId" primitiveType="uint8" presence="constant">7</type>'
        '<type name="templateId" primitiveType="uint8" offset="4"/>'
        '<type name="blockLength" primitiveType="uint64"/>'
        '<type name="numGroups" primitiveType="uint8"/>'
        '<type name="sequence" primitiveType="uint16"/></composite>'
    )
    group = '<message name="M" id="1"><group name="g" id="1"/></message>'
    schema = schema_of(tmp_path, header, group, 'headerType="frame" byteOrder="bigEndian"')
    raw = schema.encode("M", {}, header={"sequence": 515})
    assert raw.hex(" ") == "03 00 00 00 01 00 00 00 00 00 00 00 00 01 02 03 00 00 00 00"
    assert schema.header(raw)["sequence"] == 515
    assert schema.name(raw) == "M"
    with pytest.raises(FormatError, match="templateId follows from the schema"):
        schema.encode("M", {}, header={"templateId": 1})


def test_other_messages_are_refused_by_name(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    raw = bytearray(schema.encode("Empty", {}))
    raw[2] = 9
    with pytest.raises(FormatError, match=r"found template 9 at 0; it has 1 Order, 2 Empty"):
        schema.decode(bytes(raw))
    raw[4] = 8
    with pytest.raises(FormatError, match=r"expected schema 7, found schema 8"):
        schema.decode(bytes(raw))
    assert schema.name(bytes(raw)) is None
    with pytest.raises(ConfigError, match=r"is a group: expected one of Order, Empty"):
        schema.encode("Order.fills", {})


def test_what_is_no_bytes_is_refused(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    for payload in (5, 0, [1, 2], None, "text"):
        with pytest.raises(TypeError, match="bytes-like"):
            schema.decode(payload)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="bytes-like"):
            schema.rows([payload])
    raw = schema.encode("Empty", {})
    for same in (bytearray(raw), memoryview(b"".join(bytes([each, 0]) for each in raw))[::2]):
        assert schema.decode(same) == schema.decode(raw)
        assert schema.rows([same]).counts["sound"] == 1


def test_table_passes_over_messages_of_others(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    own = schema.encode("Empty", {})
    unknown, foreign = bytearray(own), bytearray(own)
    unknown[2], foreign[4] = 9, 8
    batch = [own, unknown, foreign, own]
    assert len(schema.table(batch, "Empty")) == 2
    counts = schema.rows(batch).counts
    assert (counts["sound"], counts["unknown"], counts["foreign"]) == (2, 1, 1)


def test_schema_is_reached_through_the_package(tmp_path: Path) -> None:
    import udpfast

    assert udpfast.sbe.Schema is Schema


def test_float_is_compared_as_a_message_holds_it(tmp_path: Path) -> None:
    types = (
        '<type name="A" primitiveType="float" minValue="0.1" maxValue="0.3"/>'
        '<type name="C" primitiveType="float" presence="constant">0.1</type>'
        '<type name="F" primitiveType="float"/>'
    )
    fields = "".join(f'<field name="{n.lower()}" id="1" type="{n}"/>' for n in "ACF")
    schema = schema_of(tmp_path, types, f'<message name="M" id="1">{fields}</message>')
    decoded = schema.decode(schema.encode("M", {"a": 0.1, "c": 0.1, "f": math.inf}))
    assert decoded["a"] == decoded["c"] == float(np.float32(0.1))
    assert schema.encode("M", decoded)
    with pytest.raises(RangeError, match=r"M\.a must be from 0\.1\d* to 0\.3\d*, was 0\.31"):
        schema.encode("M", {"a": 0.31, "f": 0})
    with pytest.raises(RangeError, match=r"M\.f must be from -3\.4\d*e\+38 to 3\.4\d*e\+38, was"):
        schema.encode("M", {"a": 0.1, "f": 1e39})
