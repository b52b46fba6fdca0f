"""A schema's layout as constants: what numpy and Cython read are the same places."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.payload.sbe.schemas import ORDERS_MESSAGES, ORDERS_TYPES, orders, write_schema
from tests.shared import shared
from udpfast.cli.venues import venues
from udpfast.errors import ConfigError
from udpfast.payload.sbe.constants import constant_name, write_constants
from udpfast.payload.sbe.model import Level
from udpfast.payload.sbe.schema import Schema


def values(lines: list[str]) -> dict[str, int]:
    found = [re.match(r"    (\w+) = (\d+)", line) for line in lines]
    return {match[1]: int(match[2]) for match in found if match}


def levels(level: Level) -> list[Level]:
    return [level, *(below for group in level.groups for below in levels(group))]


def check(schema: Schema) -> int:
    """Compare each constant with where numpy finds the field; return how many there are."""
    found = values(list(write_constants(schema.model, list(schema.model.messages))))
    compared = 0
    for message in schema.model.messages:
        assert found[constant_name(message.name)] == message.id
        for level in levels(message):
            fields = schema.dtype(level.path).fields or {}
            prefix = constant_name(*level.path.split("."))
            for name, (_, offset, *_rest) in fields.items():
                assert found[f"{prefix}_{constant_name(name)}"] == offset
                compared += 1
    return compared


def test_constants_are_where_numpy_finds_the_fields(tmp_path: Path) -> None:
    assert check(orders(tmp_path)) == 9


def test_constants_of_a_venues_schema_are_where_numpy_finds_the_fields() -> None:
    assert check(Schema(shared("sbe", "schemas", "FixBinary.xml"))) > 100


@pytest.fixture
def file(tmp_path: Path) -> Path:
    later = ORDERS_MESSAGES.replace(
        '<group name="fills"',
        '<field name="extra" id="99" type="uint32" sinceVersion="3"/><group name="fills"',
    )
    return write_schema(tmp_path / "orders.xml", ORDERS_TYPES, later, 'package="orders"')


def run(*words: object) -> str:
    result = CliRunner().invoke(venues, ["schema", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_messages_are_listed_by_template(file: Path) -> None:
    lines = run(file).splitlines()
    assert lines[0] == "orders: schema 7, version 3"
    assert [line.split() for line in lines[2:]] == [
        ["1", "37", "Order", "fills"],
        ["2", "0", "Empty"],
    ]


def test_layout_tells_types_versions_and_groups(file: Path) -> None:
    text = run(file, "Order")
    assert "# Before the block: 0 u16 blockLength, 2 u16 templateId" in text
    assert "    ORDER_ID = 0  # uint64\n" in text
    assert "    ORDER_EXTRA = 33  # uint32; since version 3, blocks of 37\n" in text
    assert (
        "    ORDER_LIMIT = 17  # 0 mantissa int64, null -9223372036854775808, exponent -3\n" in text
    )
    assert "cdef enum:  # in front of Order.fills.parties: 4 bytes\n" in text
    assert "VENUE" not in text  # a constant has no bytes
    assert run(file, "1") == text


def test_unknown_message_says_which_there_are(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"version 3 has no message 'Trade'; it has Order \(1\)"):
        run(file, "Trade")
