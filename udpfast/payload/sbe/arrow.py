"""Rows of a level as an Arrow table, with the types of the schema.

| in the schema | column |
|---|---|
| integer, float, double | the same width |
| char, an array of them | string |
| another array | fixed-size list |
| enum | dictionary of strings: the name, or the number if it has no name |
| set | list of strings: the names, or the number of a bit without a name |
| composite of mantissa and constant exponent, at most 0 | decimal |
| another composite | struct |
| constant | the same value in each row |
| data | string if it has an encoding, else binary |

A null value, and a field that the row's writer did not have, is null.
"""

from __future__ import annotations

from math import isnan
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from udpfast.errors import FormatError
from udpfast.payload.sbe.charset import decoded, legible, trimmed
from udpfast.payload.sbe.layout import LevelLayout
from udpfast.payload.sbe.model import Bits, Composite, Data, Enumeration, Field, Text, Values
from udpfast.payload.sbe.rows import Rows

__all__ = ["level_arrays", "level_schema", "level_table", "place_names"]

Array: TypeAlias = NDArray[Any]
_PLACES = ("payload", "row", "parent")
#: Most digits of an Arrow decimal.
_DIGITS_MAX = 38
_NUMBERS = {
    **{
        f"{sign}{bits}": getattr(pa, f"{sign}{bits}")()
        for sign in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    "float": pa.float32(),
    "double": pa.float64(),
}


def place_names(layout: LevelLayout) -> tuple[str, ...]:
    """Return the names of the columns that say where a row comes from.

    They are the index of the payload in the batch, the row in this table and, for a group, the row
    in the table of the level above. The names differ from all in the schema.
    """
    taken = {each.name for each in layout.level.fields} | {each.name for each in layout.level.datas}
    bar = "_"
    while taken & {bar + name for name in _PLACES}:
        bar += "_"
    names = tuple(bar + name for name in _PLACES)
    return names if layout.parent is not None else names[:2]


def level_table(rows: Rows, layout: LevelLayout) -> pa.Table:
    """Return all rows of a level as a table."""
    places = rows.places(layout.level.path)
    arrays: dict[str, pa.Array] = {}
    values = (places["payload"], np.arange(len(places)), places["parent"])
    for name, value in zip(place_names(layout), values, strict=False):
        arrays[name] = pa.array(value)
    arrays |= level_arrays(rows, layout)
    return pa.table(arrays)


def level_schema(layout: LevelLayout) -> pa.Schema:
    """Return names and types of a level's columns, without those of `place_names`."""
    fields = [(field.name, _type(field)) for field in layout.level.fields]
    fields += [(data.name, _data_type(data)) for data in layout.level.datas]
    return pa.schema(fields)


def level_arrays(rows: Rows, layout: LevelLayout) -> dict[str, pa.Array]:
    """Return the columns of `level_schema`, by name."""
    level = layout.level
    places = rows.places(level.path)
    columns = _Columns(places["version"], places["size"])
    blocks = rows[level.path]
    found = {
        field.name: columns.field(field, blocks, field.offset, field.since)
        for field in level.fields
    }
    for data in level.datas:
        found[data.name] = _data_array(rows, level.path, data)
    return found


# --- types --------------------------------------------------------------------------------------


def _is_text(field: Field) -> bool:
    return isinstance(field.type, Text) or isinstance(field.constant, str)


def _decimal(field: Field) -> tuple[Field, int, int] | None:
    # Return mantissa, digits, and digits behind the point of a composite that is a decimal; else
    # None.
    kind = field.type
    if not isinstance(kind, Composite) or len(kind.members) != 2:
        return None
    mantissa, exponent = kind.member("mantissa"), kind.member("exponent")
    if mantissa is None or exponent is None or not isinstance(exponent.constant, int):
        return None
    inner = mantissa.type
    if not isinstance(inner, Values) or inner.length != 1 or inner.primitive.is_float:
        return None
    if mantissa.constant is not None or not -_DIGITS_MAX <= exponent.constant <= 0:
        return None
    digits = len(str(int(inner.primitive.high)))
    return mantissa, max(digits, -exponent.constant), -exponent.constant


def _type(field: Field) -> pa.DataType:
    kind = field.type
    if isinstance(kind, Enumeration):
        return pa.dictionary(pa.int32(), pa.string())
    if _is_text(field):
        return pa.string()
    if isinstance(kind, Bits):
        return pa.list_(pa.string())
    if isinstance(kind, Composite):
        decimal = _decimal(field)
        if decimal is not None:
            return pa.decimal128(decimal[1], decimal[2])
        return pa.struct([(member.name, _type(member)) for member in kind.members])
    assert isinstance(kind, Values)
    one = _NUMBERS[kind.primitive.name]
    return one if kind.length == 1 or field.constant is not None else pa.list_(one, kind.length)


def _data_type(data: Data) -> pa.DataType:
    return pa.string() if data.codec else pa.binary()


# --- columns ------------------------------------------------------------------------------------


class _Columns:
    # Columns of rows that several versions may have written, in blocks of different sizes.
    def __init__(self, versions: Array, sizes: Array) -> None:
        self._versions = versions
        self._sizes = sizes
        self._count = len(versions)

    def absent(self, since: int, end: int) -> Array:
        found: Array = (self._versions < np.uint64(since)) | (self._sizes < np.uint64(end))
        return found

    def field(self, field: Field, block: Array, offset: int, since: int) -> pa.Array:
        kind = field.type
        absent = self.absent(since, offset + field.first if field.first else 0)
        type_ = _type(field)
        if field.constant is not None:
            values = pa.repeat(pa.scalar(field.constant, _plain(type_)), self._count)
            if absent.any():
                values = pa.compute.if_else(pa.array(~absent), values, None)
            return values.cast(type_) if pa.types.is_dictionary(type_) else values
        if isinstance(kind, Composite):
            inner = block[field.name] if field.size else block
            return self._composite(field, kind, inner, offset, since, absent)
        raw = np.ascontiguousarray(block[field.name])
        if isinstance(kind, Text):
            return _texts(raw, kind, field.optional, absent)
        if isinstance(kind, Values) and kind.length != 1:
            return self._array(raw, kind, field.optional, absent)
        if field.optional and kind.null is not None:
            number = raw.view(np.uint8) if raw.dtype.kind == "S" else raw
            absent = absent | _is_null(number, kind.null)
        if isinstance(kind, Enumeration):
            return _words(raw, kind, absent)
        if isinstance(kind, Bits):
            return _choices(_native(raw), kind, absent)
        return pa.array(_native(raw), type_, mask=absent)

    def _array(self, raw: Array, kind: Values, optional: bool, absent: Array) -> pa.Array:
        flat = _native(raw).reshape(-1)
        none = _is_null(flat, kind.null) if optional else np.zeros(len(flat), np.bool_)
        if optional:
            absent = absent | none.reshape(self._count, kind.length).all(axis=1)
        one = _NUMBERS[kind.primitive.name]
        values = pa.array(flat, one, mask=none)
        return pa.FixedSizeListArray.from_arrays(values, kind.length, mask=pa.array(absent))

    def _composite(
        self,
        field: Field,
        kind: Composite,
        inner: Array,
        offset: int,
        since: int,
        absent: Array,
    ) -> pa.Array:
        decimal = _decimal(field)
        if decimal is not None:
            mantissa, digits, scale = decimal
            newest = max(since, mantissa.since)
            absent = self.absent(newest, offset + mantissa.offset + mantissa.size)
            raw = _native(np.ascontiguousarray(inner["mantissa"]))
            if mantissa.optional:
                absent = absent | _is_null(raw, mantissa.type.null)
            return _decimals(raw, digits, scale, absent)
        arrays = [
            self.field(member, inner, offset + member.offset, max(since, member.since))
            for member in kind.members
        ]
        fields = [pa.field(member.name, _type(member)) for member in kind.members]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent))


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _native(raw: Array) -> Array:
    return raw.astype(raw.dtype.newbyteorder("="), copy=False)


def _is_null(raw: Array, null: Any) -> Array:
    if null is None:
        return np.zeros(len(raw), np.bool_)
    found: Array = np.isnan(raw) if isnan(null) else raw == raw.dtype.type(null)
    return found


def _texts(raw: Array, kind: Text, optional: bool, absent: Array) -> pa.Array:
    # A few texts make up many rows, so each is decoded once. numpy hides zero bytes at a text's
    # end.
    keys, places = np.unique(raw, return_inverse=True)
    words = [legible(trimmed(bytes(key).ljust(kind.size, b"\0"), kind.codec)) for key in keys]
    if optional:
        null = bytes([kind.null]).rstrip(b"\0")
        absent = absent | (keys == null)[places]
    return pa.array(words, pa.string()).take(pa.array(places, mask=absent))


def _words(raw: Array, kind: Enumeration, absent: Array) -> pa.Array:
    numbers = raw.view(np.uint8) if raw.dtype.kind == "S" else _native(raw)
    keys, places = np.unique(numbers, return_inverse=True)
    words = pa.array([kind.words.get(int(key), str(int(key))) for key in keys], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32), mask=absent), words)


def _choices(raw: Array, kind: Bits, absent: Array) -> pa.Array:
    bits = kind.primitive.size * 8
    shifts = np.arange(bits, dtype=raw.dtype)
    there = (raw[:, None] >> shifts & raw.dtype.type(1)).astype(np.bool_) & ~absent[:, None]
    words = pa.array([kind.words.get(bit, str(bit)) for bit in range(bits)], pa.string())
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    values = words.take(pa.array(np.nonzero(there)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(absent))


def _decimals(raw: Array, digits: int, scale: int, absent: Array) -> pa.Array:
    pairs = np.empty((len(raw), 2), np.int64)  # 128 bits, little endian
    wide = raw.astype(np.uint64 if raw.dtype.kind == "u" else np.int64)
    pairs[:, 0] = wide.view(np.int64)
    pairs[:, 1] = 0 if raw.dtype.kind == "u" else -(wide < 0).astype(np.int64)
    bits = np.packbits(~absent, bitorder="little")
    buffers = [pa.py_buffer(bits.tobytes()), pa.py_buffer(pairs.tobytes())]
    return pa.Array.from_buffers(pa.decimal128(digits, scale), len(raw), buffers)


def _data_array(rows: Rows, path: str, data: Data) -> pa.Array:
    offsets, joined, absent = rows.texts(path, data.name)
    if len(joined) > np.iinfo(np.int32).max:
        raise FormatError(
            f"{path}.{data.name} of this batch has {len(joined)} bytes in all: pass fewer messages"
        )
    ends = pa.py_buffer(offsets.astype(np.int32).tobytes())
    bits = pa.py_buffer(np.packbits(~absent, bitorder="little").tobytes())
    count = len(offsets) - 1
    found = pa.Array.from_buffers(pa.binary(), count, [bits, ends, pa.py_buffer(joined)])
    if not data.codec:
        return found
    if data.codec == "utf-8" or (data.codec == "ascii" and not (joined >= 0x80).any()):
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            pass  # some bytes are not characters
    words = [
        None if each is None else legible(decoded(each, data.codec)) for each in found.to_pylist()
    ]
    return pa.array(words, pa.string())
