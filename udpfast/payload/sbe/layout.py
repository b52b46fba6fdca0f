"""The levels of a schema as instructions for the walk, numpy dtypes and `struct` codecs."""

from __future__ import annotations

import struct
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udpfast.payload.sbe.model import (
    Composite,
    Data,
    Field,
    Level,
    Number,
    Prefix,
    SchemaModel,
    Text,
    Values,
)
from udpfast.payload.sbe.plan import Plan
from udpfast.payload.sbe.values import BlockCodec

__all__ = ["Block", "LevelLayout", "field_dtype", "make_plan"]

_OP_END, _OP_GROUP, _OP_GROUP_END, _OP_DATA = range(4)
_NOTHING = (0, 0, 0, 0)
_HEADER = ("blockLength", "templateId", "schemaId", "version")


def field_dtype(field: Field, order: str) -> np.dtype[Any]:
    """Return the dtype by which numpy reads a field in place."""
    kind = field.type
    if isinstance(kind, Composite):
        return _struct_dtype(kind.members, kind.size, order)
    if isinstance(kind, Text):
        return np.dtype(f"S{kind.size}")
    one = np.dtype(order + kind.primitive.dtype)
    if isinstance(kind, Values) and kind.length != 1:
        return np.dtype((one, (kind.length,)))
    return one


def _struct_dtype(fields: tuple[Field, ...], size: int, order: str) -> np.dtype[Any]:
    there = [field for field in fields if field.size]
    return np.dtype(
        {
            "names": [field.name for field in there],
            "formats": [field_dtype(field, order) for field in there],
            "offsets": [field.offset for field in there],
            "itemsize": size,
        }
    )


class Block:
    """A block of fixed size: the block of a level, or a header.

    Parameters
    ----------
    members : tuple of Field
        Its fields.
    size : int
        Bytes.
    order : str
        Byte order, `"<"` or `">"`.

    Attributes
    ----------
    codec : BlockCodec
        Converts the fields.
    struct : struct.Struct
        The layout of the whole block.
    dtype : numpy.dtype
        The same for numpy.
    since : int
        The version that brought its newest field.
    """

    def __init__(self, members: tuple[Field, ...], size: int, order: str) -> None:
        self.size = size
        self.codec = BlockCodec(members)
        self.struct: struct.Struct = self.codec.pack(order, size)
        self.dtype = _struct_dtype(members, size, order)
        self.since = max((leaf.since for leaf in self.codec.leaves), default=0)
        self._members = members
        self._order = order

    def read(self, data: memoryview, offset: int, size: int, version: int) -> dict[str, Any]:
        """Return the fields of a block that was written with a version and a size in bytes."""
        if size >= self.size:
            return self.codec.read(self.struct.unpack_from(data, offset), 0, version, size)
        short = bytes(data[offset : offset + size]).ljust(self.size, b"\0")
        return self.codec.read(self.struct.unpack(short), 0, version, size)

    @cached_property
    def absent(self) -> NDArray[np.uint8]:
        """A block with all fields absent: each has its type's null."""
        block = np.zeros(1, self.dtype)
        _make_absent(block, self._members)
        return np.frombuffer(block.tobytes(), np.uint8)

    @cached_property
    def leaves(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Offset and end of each single value in the block, and the version that brought it."""
        found = self.codec.leaves
        places = np.array([(leaf.offset, leaf.end) for leaf in found], np.int64).reshape(-1, 2)
        return places, np.array([leaf.since for leaf in found], np.uint64)


def _make_absent(block: NDArray[Any], members: tuple[Field, ...]) -> None:
    for field in members:
        if not field.size:
            continue
        if isinstance(field.type, Composite):
            _make_absent(block[field.name], field.type.members)
        elif isinstance(field.type, Text):
            block[field.name] = bytes([field.type.null])
        else:
            block[field.name] = field.type.null or 0


class LevelLayout:
    """A level, and its place among all levels of its schema.

    Attributes
    ----------
    level : Level
        What the schema says of it.
    index : int
        Index of its rows in a walk.
    parent : LevelLayout or None
        The level above; None for a root.
    block : Block
        Its fields.
    """

    def __init__(self, level: Level, index: int, parent: LevelLayout | None, order: str) -> None:
        self.level = level
        self.index = index
        self.parent = parent
        self._order = order

    @cached_property
    def block(self) -> Block:
        """Its fields, made when first asked for: a schema may have a thousand levels."""
        return Block(self.level.fields, self.level.block_length, self._order)


def make_plan(model: SchemaModel) -> tuple[Plan, dict[str, LevelLayout], list[str]]:
    """Return the plan of a schema, its levels by path, and a name for each instruction."""
    names: list[str] = []
    ops: list[tuple[Any, ...]] = []
    templates: list[tuple[int, int, int, int]] = []
    layouts: dict[str, LevelLayout] = {}

    def place(level: Level, parent: LevelLayout | None) -> LevelLayout:
        layout = LevelLayout(level, len(layouts), parent, model.order)
        layouts[level.path] = layout
        return layout

    def add(layout: LevelLayout) -> None:
        level = layout.level
        for group in level.groups:
            inner = place(group, layout)
            at = len(ops)
            ops.append(())
            names.append(f"group {group.path}")
            add(inner)
            names.append(f"group {group.path}")
            ops.append((_OP_GROUP_END, inner.index, 0, 0, 0, 0, 0, _NOTHING, _NOTHING))
            flat = not (group.groups or group.datas)
            numbers = group.prefix.numbers
            ops[at] = (
                *(_OP_GROUP, inner.index, 0, len(ops), group.prefix.size, flat, group.since),
                _number(numbers["blockLength"]),
                _number(numbers["numInGroup"]),
            )
        for slot, data in enumerate(level.datas):
            ops.append(_data_op(layout, slot, data, len(ops)))
            names.append(f"data {level.path}.{data.name}")

    for message in sorted(model.messages, key=lambda each: each.id or 0):
        first = len(ops)
        root = place(message, None)
        add(root)
        names.append(message.path)
        ops.append((_OP_END, root.index, 0, 0, 0, 0, 0, _NOTHING, _NOTHING))
        templates.append((message.id or 0, root.index, len(layouts), first))
    plan = Plan(
        big=model.order == ">",
        schema_id=model.id,
        version=model.version,
        header_size=model.header.size,
        header=_header(model),
        templates=templates,
        ops=ops,
        slots=[len(layout.level.datas) for layout in layouts.values()],
    )
    return plan, layouts, names


def _header(model: SchemaModel) -> list[tuple[int, int, int, int]]:
    numbers = model.header.numbers  # empty in a schema without messages
    return [_number(numbers[name]) if name in numbers else _NOTHING for name in _HEADER]


def _data_op(layout: LevelLayout, slot: int, data: Data, at: int) -> tuple[Any, ...]:
    length = _number(data.prefix.numbers["length"])
    return (
        *(_OP_DATA, layout.index, slot, at + 1, data.prefix.size, False, data.since),
        length,
        _NOTHING,
    )


def _number(number: Number) -> tuple[int, int, int, int]:
    width = 0 if number.constant is not None else number.primitive.size
    return number.offset, width, number.constant or 0, number.high


def prefix_block(prefix: Prefix, order: str) -> Block:
    """Return a header as a block."""
    return Block(prefix.composite.members, prefix.size, order)
