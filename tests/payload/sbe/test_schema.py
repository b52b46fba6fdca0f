"""Schemas that are refused say where, what was expected and what was found."""

from pathlib import Path

import numpy as np
import pytest

from tests.payload.sbe.schemas import HEADER, orders, write_schema
from udpfast.errors import ConfigError
from udpfast.payload.sbe.document import SchemaError
from udpfast.payload.sbe.schema import Schema

FIELD = '<message name="M" id="1"><field name="f" id="1" type="{}"/></message>'
U8 = '<type name="A" primitiveType="uint8"{}</type>'

REFUSED = {
    "unknown type": ("", FIELD.format("Nothing"), "<field f>: expected type to name a type, found"),
    "name twice": (U8.format(">") * 2, "", "<type A>: expected names that differ, found that of"),
    "bad name": (U8.format(">").replace("A", "1A"), "", "a name of letters, digits and _"),
    "no name": ('<type primitiveType="int8"/>', "", "found none"),
    "primitive": ('<type name="A" primitiveType="int24"/>', "", "found int24"),
    "presence": (U8.format(' presence="maybe">'), "", "required, optional, constant, found maybe"),
    "no constant": (U8.format(' presence="constant">'), "", "a constant uint8 as its text"),
    "wide constant": (U8.format(' presence="constant">256'), "", "found 256"),
    "long constant": (
        '<type name="A" primitiveType="char" length="2" presence="constant">abc</type>',
        "",
        "a constant of 1 to 2 characters, found abc",
    ),
    "length": (U8.format(' length="-1">'), "", "length to be a whole number from 0"),
    "no float": (
        '<type name="A" primitiveType="float" maxValue="1e39"/>',
        "",
        "maxValue to be a value of float, found 1e39",
    ),
    "no characters": (
        '<type name="A" primitiveType="char" length="9" characterEncoding="unicode_escape"/>',
        "",
        "characterEncoding to be one that Python knows, found unicode_escape",
    ),
    "bounds": (U8.format(' minValue="9" maxValue="8">'), "", "minValue to be at most maxValue 8"),
    "null": (U8.format(' nullValue="300">'), "", "nullValue to be a value of uint8, found 300"),
    "encoding": (
        '<type name="A" primitiveType="char" length="9" characterEncoding="EBCDIC-9"/>',
        "",
        "characterEncoding to be one that Python knows, found EBCDIC-9",
    ),
    "enum of floats": ('<enum name="E" encodingType="float"/>', "", "one integer or character"),
    "enum value": (
        '<enum name="E" encodingType="uint8"><validValue name="V">x</validValue></enum>',
        "",
        "<validValue V>: expected a valid value to be a number from 0 to 255, found x",
    ),
    "enum character": (
        '<enum name="E" encodingType="char"><validValue name="V">xy</validValue></enum>',
        "",
        "one character, found xy",
    ),
    "enum null": (
        '<enum name="E" encodingType="uint8"><validValue name="V">255</validValue></enum>',
        "",
        "a value that is not null's, found 255",
    ),
    "enum beyond its type": (
        U8.format(' maxValue="5">')
        + '<enum name="E" encodingType="A"><validValue name="V">6</validValue></enum>',
        "",
        "a number from 0 to 5, found 6",
    ),
    "enum values": (
        '<enum name="E" encodingType="uint8"><validValue name="V">1</validValue>'
        '<validValue name="W">1</validValue></enum>',
        "",
        "<validValue W>: expected values that differ in <enum E>, found 1, as V has",
    ),
    "enum names": (
        '<enum name="E" encodingType="uint8"><validValue name="V">1</validValue>'
        '<validValue name="V">2</validValue></enum>',
        "",
        "names that differ in <enum E>, found V",
    ),
    "set of signed": (
        '<set name="S" encodingType="int8"/>',
        "",
        "one unsigned integer, found int8",
    ),
    "set bit": (
        '<set name="S" encodingType="uint8"><choice name="C">8</choice></set>',
        "",
        "a bit from 0 to 7, found 8",
    ),
    "set bits": (
        '<set name="S" encodingType="uint8"><choice name="C">1</choice>'
        '<choice name="D">1</choice></set>',
        "",
        "bits that differ",
    ),
    "circle": (
        '<composite name="A"><ref name="b" type="B"/></composite>'
        '<composite name="B"><ref name="a" type="A"/></composite>',
        "",
        "types that do not contain themselves, found A -> B -> A",
    ),
    "composite offset": (
        '<composite name="A"><type name="x" primitiveType="int32"/>'
        '<type name="y" primitiveType="int8" offset="3"/></composite>',
        "",
        "<type y>: expected offset to be 4 at least, where the member before it ends, found 3",
    ),
    "composite member": ('<composite name="A"><field name="x"/></composite>', "", "found <field>"),
    "empty composite": ('<composite name="A"/>', "", "one member at least"),
    "valueRef": (
        U8.format(' presence="constant" valueRef="E.V">') + '<enum name="E" encodingType="uint8"/>',
        "",
        "valueRef to be a value of an enum, found E.V",
    ),
    "valueRef of another enum": (
        '<enum name="E" encodingType="uint8"><validValue name="V">1</validValue></enum>'
        '<enum name="F" encodingType="uint8"><validValue name="V">1</validValue></enum>',
        '<message name="M" id="1"><field name="f" id="1" type="E" presence="constant"'
        ' valueRef="F.V"/></message>',
        "a valueRef to a value of enum E, found F.V",
    ),
    "valueRef to a character": (
        '<enum name="E" encodingType="char"><validValue name="V">1</validValue></enum>',
        '<message name="M" id="1"><field name="f" id="1" type="uint8" presence="constant"'
        ' valueRef="E.V"/></message>',
        "valueRef to an enum of uint8",
    ),
    "field offset": (
        "",
        '<message name="M" id="1"><field name="f" id="1" type="int64"/>'
        '<field name="g" id="2" type="int8" offset="7"/></message>',
        "<field g>: expected offset to be 8 at least, where the field before it ends, found 7",
    ),
    "block length": (
        "",
        '<message name="M" id="1" blockLength="7"><field name="f" id="1" type="int64"/></message>',
        "<message M>: expected blockLength 8 at least, where its fields end, found 7",
    ),
    "block beyond the header": (
        "",
        '<message name="M" id="1" blockLength="70000"/>',
        "the block's length to be from 0 to 65535, as blockLength can hold, found 70000",
    ),
    "template beyond the header": ("", '<message name="M" id="65536"/>', "as templateId can hold"),
    "same id": ("", '<message name="M" id="1"/><message name="N" id="1"/>', "than that of"),
    "same message": ("", '<message name="M" id="1"/><message name="M" id="2"/>', "a name other"),
    "no id": ("", '<message name="M"/>', "an id, found none"),
    "same field": (
        "",
        FIELD.format("int8").replace("/></", '/><data name="f" id="2" type="blob"/></'),
        "names that differ in <message M>, found f",
    ),
    "field behind data": (
        "",
        '<message name="M" id="1"><data name="d" id="2" type="blob"/>'
        '<field name="f" id="1" type="int8"/></message>',
        "fields of <message M> before groups and data, found behind data",
    ),
    "group behind data": (
        "",
        '<message name="M" id="1"><data name="d" id="2" type="blob"/>'
        '<group name="g" id="1"/></message>',
        "groups of <message M> before data, found behind data",
    ),
    "dimensions": (
        '<type name="D" primitiveType="uint8"/>',
        '<message name="M" id="1"><group name="g" id="1" dimensionType="D"/></message>',
        "dimensionType to name a composite, found D, uint8",
    ),
    "no count": (
        '<composite name="D"><type name="blockLength" primitiveType="uint8"/></composite>',
        '<message name="M" id="1"><group name="g" id="1" dimensionType="D"/></message>',
        "<group g>: expected composite D to have numInGroup, found blockLength",
    ),
    "count of floats": (
        '<composite name="D"><type name="blockLength" primitiveType="uint8"/>'
        '<type name="numInGroup" primitiveType="float"/></composite>',
        '<message name="M" id="1"><group name="g" id="1" dimensionType="D"/></message>',
        "numInGroup of composite D to be an integer, found float",
    ),
    "data": (
        "",
        '<message name="M" id="1"><data name="d" id="2" type="uint8"/></message>',
        "type to name a composite, found uint8",
    ),
    "data without length": (
        "",
        '<message name="M" id="1"><data name="d" id="2" type="groupSizeEncoding"/></message>',
        "composite groupSizeEncoding to have length",
    ),
    "data as a field": ("", FIELD.format("blob"), "a type of a fixed size"),
    "version": (
        "",
        '<message name="M" id="1"><field name="f" id="1" type="int8" sinceVersion="4"/></message>',
        "sinceVersion to be at most the schema's version 3, found 4",
    ),
    "element": ("", '<message name="M" id="1"><fields/></message>', "found <fields>"),
    "element at the top": ("", "<massage/>", "<types> or <message>, found <massage>"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_schema_that_contradicts_itself_is_refused(tmp_path: Path, case: str) -> None:
    types, messages, said = REFUSED[case]
    path = write_schema(tmp_path / "schema.xml", types, messages)
    with pytest.raises(SchemaError) as caught:
        Schema(path)
    assert said in str(caught.value)
    for problem in caught.value.problems:
        assert problem.startswith(f"{path}:")
        assert "expected " in problem
        assert ", found " in problem


def test_schema_with_several_errors_names_all(tmp_path: Path) -> None:
    path = write_schema(
        tmp_path / "schema.xml",
        '<type name="A" primitiveType="int9"/><set name="S" encodingType="int8"/>',
        FIELD.format("Nothing"),
        'byteOrder="middleEndian" headerType="none"',
    )
    with pytest.raises(SchemaError, match=r"^5 errors in this schema:\n") as caught:
        Schema(path)
    assert len(caught.value.problems) == 5


def test_header_without_its_numbers_is_refused(tmp_path: Path) -> None:
    header = '<composite name="messageHeader"><type name="x" primitiveType="int8"/></composite>'
    path = write_schema(tmp_path / "a.xml", "", FIELD.format("int8"), header=header)
    with pytest.raises(SchemaError) as caught:
        Schema(path)
    for name in ("blockLength", "templateId", "schemaId", "version"):
        assert f"composite messageHeader to have {name}, found x" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<messageSchema", "expected XML, found"),
        ("", "expected XML, found no element found"),
        ("<schema/>", "the root <messageSchema>, found <schema>"),
        ("<!DOCTYPE m [<!ENTITY a 'b'>]><messageSchema/>", "no document type declaration"),
        ("<!DOCTYPE m SYSTEM 'file:///etc/passwd'><messageSchema/>", "no document type decl"),
        ('<?xml version="1.0" encoding="nonsense"?><messageSchema/>', "expected XML, found"),
        ("<a>" * 65 + "</a>" * 65, "at most 64 elements inside each other"),
    ],
)
def test_file_that_is_no_safe_xml_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "schema.xml"
    path.write_text(text)
    with pytest.raises(SchemaError) as caught:
        Schema(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def include(href: str, more: str = "") -> str:
    return f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{href}" {more}/>'


def test_included_file_defines_types(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "types.xml").write_text(f"<types>{HEADER}{include('more.xml')}</types>")
    (tmp_path / "inner" / "more.xml").write_text(
        '<types><type name="X" primitiveType="int8"/></types>'
    )
    path = tmp_path / "schema.xml"
    path.write_text(
        f'<messageSchema id="1">{include("inner/types.xml")}{FIELD.format("X")}</messageSchema>'
    )
    assert Schema(path).dtype("M").itemsize == 1


@pytest.mark.parametrize(
    ("element", "said"),
    [
        (include("http://localhost/types.xml"), "href to be a path beside this file"),
        (include("/etc/passwd"), "href to be a path beside this file"),
        (include("schema.xml"), "do not include each other in a circle"),
        (include("none.xml"), "href to be a file, found no file"),
        (include("schema.xml", 'parse="text"'), "the whole of an XML file"),
        (include("schema.xml", 'xpointer="x"'), "the whole of an XML file"),
    ],
)
def test_include_of_anything_else_is_refused(tmp_path: Path, element: str, said: str) -> None:
    path = tmp_path / "schema.xml"
    path.write_text(f"<messageSchema>{element}</messageSchema>")
    with pytest.raises(SchemaError) as caught:
        Schema(path)
    assert said in str(caught.value)


def test_types_alone_are_a_schema_without_messages(tmp_path: Path) -> None:
    path = tmp_path / "types.xml"
    path.write_text(f"<types>{HEADER}</types>")
    assert Schema(path).messages == ()


def test_foreign_elements_and_attributes_are_passed_over(tmp_path: Path) -> None:
    path = write_schema(
        tmp_path / "schema.xml",
        '<x:note xmlns:x="urn:x"/>',
        '<message name="M" id="1" xmlns:x="urn:x" x:id="9"><x:note/></message>',
    )
    assert Schema(path).messages == ("M",)


def test_groups_nest_as_deep_as_said_and_no_deeper(tmp_path: Path) -> None:
    for depth in (32, 33):
        groups = '<group name="g" id="1">' * depth + "</group>" * depth
        path = write_schema(tmp_path / "a.xml", "", f'<message name="M" id="1">{groups}</message>')
        if depth > 32:
            with pytest.raises(SchemaError, match="at most 32 groups inside each other"):
                Schema(path)
            continue
        schema = Schema(path)
        values: dict[str, object] = {}
        for _ in range(depth):
            values = {"g": [values]}
        decoded = schema.decode(schema.encode("M", values))
        assert schema.encode("M", decoded) == schema.encode("M", values)


def test_dtype_reads_blocks_in_place(tmp_path: Path) -> None:
    schema = orders(tmp_path, 'byteOrder="bigEndian"')
    raw = schema.encode(
        "Order", {"id": 5, "side": "Sell", "flags": 1, "symbol": "X", "limit": None}
    )
    block = np.frombuffer(raw, schema.dtype("Order"), 1, schema.model.header.size)[0]
    assert block["id"] == 5
    assert block["side"] == b"2"
    assert block["symbol"] == b"X"
    assert block["limit"]["mantissa"] == -(2**63)
    assert schema.dtype("Order.fills").names == ("quantity", "price")


def test_unknown_level_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no 'Orders'; it has Order, Order\.fills,"):
        orders(tmp_path).dtype("Orders")
