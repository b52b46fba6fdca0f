"""Offsets of a schema's fields as the constants of a decoder's `layout.pxd`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from udpfast.payload.sbe.model import (
    Bits,
    Composite,
    Enumeration,
    Field,
    Level,
    SchemaModel,
    Text,
    Values,
)

__all__ = ["constant_name", "list_messages", "write_constants"]

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
#: A line that would be longer gets its comment above.
_COLUMNS = 100


def constant_name(*names: str) -> str:
    """Return the schema's names, joined to the name of a constant."""
    return "_".join(_WORDS.sub("_", name) for name in names).upper()


def list_messages(model: SchemaModel) -> Iterator[tuple[int, int, int, str, str]]:
    """Yield template, block size, first version, name and groups of each message."""
    for message in sorted(model.messages, key=lambda one: one.id or 0):
        groups = ", ".join(group.name for group in message.groups)
        yield message.id or 0, message.block_length, message.since, message.name, groups


def write_constants(model: SchemaModel, messages: list[Level]) -> Iterator[str]:
    """Yield the lines of a `layout.pxd` for these messages.

    Offsets count from their block. A block is as long as its message says, which tells which
    fields its version has, and may be longer than here.
    """
    endian = "big" if model.order == ">" else "little"
    yield f"# {model.package}, schema {model.id}, version {model.version}: SBE, {endian} endian."
    numbers = model.header.numbers
    fields = [f"{n.offset} u{8 * n.primitive.size} {name}" for name, n in numbers.items()]
    yield f"# Before the block: {', '.join(fields)}; the block begins at {model.header.size}."
    yield ""
    yield "cdef enum:  # templates"
    for message in messages:
        yield f"    {constant_name(message.name)} = {message.id}"
    for message in messages:
        yield from _level(message, message.name)


def _level(level: Level, path: str) -> Iterator[str]:
    yield ""
    yield f"cdef enum:  # {path}: {level.block_length} bytes"
    prefix = constant_name(*path.split("."))
    there = [field for field in level.fields if field.size]
    for field in there:
        comment = _kind(field)
        if field.since:
            comment += f"; since version {field.since}, blocks of {field.offset + field.size}"
        line = f"    {prefix}_{constant_name(field.name)} = {field.offset}"
        if len(line) + len(comment) + 4 <= _COLUMNS:
            yield f"{line}  # {comment}"
        else:
            yield f"    # {comment}"
            yield line
    if not there:
        yield f"    {prefix}_BLOCK = {level.block_length}"
    for group in level.groups:
        numbers = group.prefix.numbers
        yield ""
        yield f"cdef enum:  # in front of {path}.{group.name}: {group.prefix.size} bytes"
        own = constant_name(*path.split("."), group.name)
        for name, number in numbers.items():
            if number.constant is None:
                width = 8 * number.primitive.size
                yield f"    {own}_{constant_name(name)} = {number.offset}  # u{width}"
        yield from _level(group, f"{path}.{group.name}")


def _kind(field: Field) -> str:
    # Describe the field's bytes, and its null.
    kind = field.type
    if isinstance(kind, Composite):
        inner = [one for one in kind.members if one.size]
        fixed = [f"{one.name} {one.constant}" for one in kind.members if not one.size]
        return ", ".join([f"{one.offset} {one.name} {_kind(one)}" for one in inner] + fixed)
    if isinstance(kind, Text):
        return f"c{kind.size}"
    many = f" x {kind.length}" if isinstance(kind, Values) and kind.length != 1 else ""
    null = f", null {kind.null}" if field.optional and kind.null is not None else ""
    if isinstance(kind, Enumeration | Bits):
        return f"{kind.primitive.name} {kind.name}{null}"
    return f"{kind.primitive.name}{many}{null}"
