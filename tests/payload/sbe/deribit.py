"""A schema of Deribit's messages, by what is publicly known of their layouts."""

from pathlib import Path

from udpfast.payload.sbe.schema import Schema

_HEADER = ("blockLength", "templateId", "schemaId", "version", "numGroups", "numVarDataFields")
_SIZES = ("blockLength", "numInGroup", "numGroups", "numVarDataFields")
_LEVEL = "price:double amount:double"

#: Name, template, bytes of the block, fields, bytes of a row, fields of the group, text behind.
_MESSAGES = (
    ("instrument", 1000, 140, "id:uint32", 0, "", True),
    ("instrument_v2", 1010, 139, "id:uint32", 16, "above:double tick:double", True),
    (
        *("book", 1001, 29, "id:uint32 ms:uint64 prev:uint64 change_id:uint64 is_last:uint8"),
        *(18, f"side:uint8 change:uint8 {_LEVEL}", False),
    ),
    ("trades", 1002, 4, "id:uint32", 83, f"direction:uint8 {_LEVEL} ms:uint64", False),
    ("ticker", 1003, 133, "id:uint32 state:uint8 ms:uint64", 0, "", False),
    ("snapshot", 1004, 22, "id:uint32 ms:uint64", 17, f"side:uint8 {_LEVEL}", False),
    ("snapshot_start", 1005, 4, "delay:uint32", 0, "", False),
    ("snapshot_end", 1006, 0, "", 0, "", False),
    ("combo_legs", 1007, 4, "id:uint32", 8, "leg:uint32 size:int32", False),
    ("price_index", 1008, 32, "name:name16 price:double ms:uint64", 0, "", False),
    ("rfq", 1009, 22, "id:uint32 active:uint8", 0, "", False),
)


def _composite(name: str, members: tuple[str, ...]) -> str:
    inner = "".join(f'<type name="{each}" primitiveType="uint16"/>' for each in members)
    return f'<composite name="{name}">{inner}</composite>'


def _fields(said: str) -> str:
    pairs = [each.split(":") for each in said.split()]
    return "".join(f'<field name="{name}" id="1" type="{kind}"/>' for name, kind in pairs)


def deribit_schema(folder: Path) -> Schema:
    """Return the schema, version 3."""
    messages = ""
    for name, number, size, fields, row_size, row, has_text in _MESSAGES:
        inner = _fields(fields)
        if row_size:
            inner += f'<group name="rows" id="2" blockLength="{row_size}">{_fields(row)}</group>'
        inner += '<data name="text" id="3" type="text"/>' * has_text
        messages += f'<message name="{name}" id="{number}" blockLength="{size}">{inner}</message>'
    path = folder / "deribit.xml"
    path.write_text(
        f'<messageSchema id="1" version="3"><types>{_composite("messageHeader", _HEADER)}'
        f"{_composite('groupSizeEncoding', _SIZES)}"
        '<composite name="text"><type name="length" primitiveType="uint8"/>'
        '<type name="varData" primitiveType="char" length="0" characterEncoding="UTF-8"/>'
        '</composite><type name="name16" primitiveType="char" length="16"/></types>'
        f"{messages}</messageSchema>"
    )
    return Schema(path)
