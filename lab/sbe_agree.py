"""Whether `decode`, `table` and an export's tables say the same of any bytes.

`decode` is taken for the truth: what it returns is turned, value by value, into what docs/sbe.md
says that a column of that type has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from udpfast.core.layout import RECORD
from udpfast.errors import FormatError
from udpfast.export.sbe_tables import SbeBlock, SbeTables
from udpfast.payload.sbe.model import Bits, Composite, Enumeration, Field, Level
from udpfast.payload.sbe.schema import Schema

__all__ = ["check_agreement"]


def check_agreement(schema: Schema, raws: Iterable[bytes]) -> dict[str, int]:
    """Decode messages one by one and as tables; return how many were read, how many refused.

    Raises
    ------
    AssertionError
        One way reads a message and the other does not, or a value differs.
    """
    sound: list[tuple[bytes, Any]] = []
    refused = 0
    for raw in raws:
        try:
            sound.append((raw, schema.decode(raw)))
        except FormatError as error:
            refused += 1
            _check_refused(schema, raw, error)
    batch = [raw for raw, _ in sound]
    rows = schema.rows(batch)
    assert rows.counts == ({"sound": len(batch)} if batch else {}), rows.counts
    # The records of an export, without a journal: positions tell them apart.
    headers = np.zeros(len(batch), RECORD)
    headers["position"] = np.arange(len(batch))
    tables = SbeTables(schema.model.file)
    block = SbeBlock(tables, rows, headers)
    for message in schema.messages:
        found = [values for _, values in sound if values.name == message]
        for level in schema.layout(message).level.levels:
            expected = [_row(level, values) for values in _rows_of(level.path, found)]
            table = schema.table(rows, level.path)
            _compare(level, expected, table.to_pylist(), list(table.schema.names))
            exported = block.batch(level.path, "feed")
            names = tables.arrow_schema(level.path).names
            _compare(level, expected, exported.to_pylist(), names)
    return {"read": len(sound), "refused": refused}


def _check_refused(schema: Schema, raw: bytes, error: FormatError) -> None:
    # A table may pass over a message of others, but never read one that `decode` refuses.
    rows = schema.rows([raw])
    assert "sound" not in rows.counts, f"{raw.hex()}: {rows.counts}, though decode says {error}"


def _rows_of(path: str, messages: list[Any]) -> Iterator[dict[str, Any]]:
    # The rows of a level in the order of the wire: all of a message before the next message's.
    _, *groups = path.split(".")
    for message in messages:
        rows = [message]
        for group in groups:
            rows = [inner for row in rows for inner in row[group]]
        yield from rows


def _row(level: Level, values: dict[str, Any]) -> list[Any]:
    found = [_cell(field, values[field.name]) for field in level.fields]
    return found + [_text(values[data.name]) for data in level.datas]


def _cell(field: Field, value: Any) -> Any:
    kind = field.type
    if value is None:
        return None
    if isinstance(kind, Enumeration):
        return value if isinstance(value, str) else str(value)
    if isinstance(kind, Bits):
        bits = {word: bit for bit, word in kind.words.items()}
        return [str(each) for each in sorted(value, key=lambda each: bits.get(each, each))]
    if isinstance(kind, Composite):
        if _is_decimal(kind):
            mantissa, exponent = value["mantissa"], value["exponent"]
            return None if mantissa is None else Decimal(mantissa).scaleb(exponent)
        return [_cell(member, value[member.name]) for member in kind.members]
    return value if isinstance(value, list) else _text(value)


def _is_decimal(kind: Composite) -> bool:
    mantissa, exponent = kind.member("mantissa"), kind.member("exponent")
    if len(kind.members) != 2 or mantissa is None or exponent is None:
        return False
    numbers = (getattr(each.type, "length", 0) == 1 for each in (mantissa, exponent))
    whole = not getattr(getattr(mantissa.type, "primitive", None), "is_float", True)
    constant = exponent.constant
    is_scale = isinstance(constant, int) and -38 <= constant <= 0 and mantissa.constant is None
    return all(numbers) and whole and is_scale


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return "".join("\ufffd" if 0xD800 <= ord(each) < 0xE000 else each for each in value)


def _compare(
    level: Level, expected: list[Any], found: list[dict[str, Any]], names: list[str]
) -> None:
    assert len(expected) == len(found), f"{level.path}: {len(expected)} rows, found {len(found)}"
    own = names[len(names) - len(level.fields) - len(level.datas) :]
    for i, (values, row) in enumerate(zip(expected, found, strict=True)):
        for value, name in zip(values, own, strict=True):
            same = _is_same(value, row[name])
            assert same, (
                f"{level.path} row {i} {name}: decoded {value!r}, in the table {row[name]!r}"
            )


def _is_same(value: Any, found: Any) -> bool:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(value, list):
        return (
            isinstance(found, list)
            and len(value) == len(found)
            and all(map(_is_same, value, found))
        )
    if isinstance(value, float) and math.isnan(value):
        return isinstance(found, float) and math.isnan(found)
    if isinstance(value, int) and isinstance(found, int):
        return value in (found, found + 2**64 * (found < 0))  # u64 of an export keep their bits
    return type(value) is type(found) and bool(value == found)
