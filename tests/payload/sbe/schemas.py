"""Small schemas, written for one test each."""

from pathlib import Path

from udpfast.payload.sbe.schema import Schema

HEADER = """<composite name="messageHeader">
<type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
<type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/>
</composite>
<composite name="groupSizeEncoding">
<type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint16"/>
</composite>
<composite name="text"><type name="length" primitiveType="uint16"/>
<type name="varData" primitiveType="uint8" length="0" characterEncoding="UTF-8"/></composite>
<composite name="blob"><type name="length" primitiveType="uint8"/>
<type name="varData" primitiveType="uint8" length="0"/></composite>"""


def write_schema(
    path: Path, types: str, messages: str, attributes: str = "", header: str = HEADER
) -> Path:
    """Write a schema of id 7, version 3."""
    said = 'id="7"' if " id=" in f" {attributes}" else 'id="7" version="3"'
    if "version=" in attributes:
        said = 'id="7"'
    path.write_text(
        f"<messageSchema {said} {attributes}>\n<types>\n{header}\n{types}\n</types>\n"
        f"{messages}\n</messageSchema>\n",
        encoding="utf-8",
    )
    return path


def schema_of(folder: Path, types: str, messages: str, attributes: str = "") -> Schema:
    """Return a schema of some types and messages."""
    return Schema(write_schema(folder / "schema.xml", types, messages, attributes))


#: The message of `ORDERS`' bytes: header, block, one fill, one note.
ORDERS_TYPES = """
<type name="Price" primitiveType="int64" presence="optional"/>
<enum name="Side" encodingType="char"><validValue name="Buy">1</validValue>
<validValue name="Sell">2</validValue></enum>
<set name="Flags" encodingType="uint16"><choice name="Hidden">0</choice>
<choice name="PostOnly">9</choice></set>
<type name="Symbol" primitiveType="char" length="6"/>
<composite name="Decimal"><type name="mantissa" primitiveType="int64" presence="optional"/>
<type name="exponent" primitiveType="int8" presence="constant">-3</type></composite>
"""
ORDERS_MESSAGES = """
<message name="Order" id="1"><field name="id" id="1" type="uint64"/>
<field name="side" id="2" type="Side"/><field name="flags" id="3" type="Flags"/>
<field name="symbol" id="4" type="Symbol"/><field name="limit" id="5" type="Decimal"/>
<field name="ratio" id="6" type="double" presence="optional"/>
<field name="venue" id="7" type="Side" presence="constant" valueRef="Side.Sell"/>
<group name="fills" id="8"><field name="quantity" id="9" type="uint32"/>
<field name="price" id="10" type="Price"/>
<group name="parties" id="11"><field name="party" id="12" type="uint8"/>
<data name="name" id="13" type="text"/></group>
<data name="note" id="14" type="text"/></group>
<data name="memo" id="15" type="text"/><data name="key" id="16" type="blob"/></message>
<message name="Empty" id="2"/>
"""
ORDER = {
    "id": 2**63,
    "side": "Buy",
    "flags": {"PostOnly"},
    "symbol": "BTC",
    "limit": {"mantissa": 17_560, "exponent": -3},
    "ratio": None,
    "venue": "Sell",
    "fills": [
        {
            "quantity": 5,
            "price": -1,
            "parties": [{"party": 1, "name": "a"}, {"party": 2, "name": "ü"}],
            "note": "first",
        },
        {"quantity": 6, "price": None, "parties": [], "note": ""},
    ],
    "memo": "Grüße",
    "key": b"\x00\xff",
}


def orders(folder: Path, attributes: str = "") -> Schema:
    """Return a schema with all that a message can have."""
    return schema_of(folder, ORDERS_TYPES, ORDERS_MESSAGES, attributes)
