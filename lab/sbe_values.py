"""Random values for the messages of any schema of SBE, as its model says."""

from __future__ import annotations

import random
from typing import Any

from udpfast.errors import FormatError
from udpfast.payload.sbe.model import Bits, Composite, Enumeration, Field, Level, Text, Values
from udpfast.payload.sbe.schema import Schema

__all__ = ["is_read", "random_values"]

_ROWS = (0, 1, 2, 3)
_LETTERS = "ABCxyz019"


def random_values(rng: random.Random, level: Level) -> dict[str, Any]:
    """Return a value for each field, rows of each group, each data."""
    found = {field.name: _value(rng, field) for field in level.fields}
    for group in level.groups:
        rows = rng.choice(_ROWS)
        found[group.name] = [random_values(rng, group) for _ in range(rows)]
    for data in level.datas:
        size = rng.randint(0, min(20, data.prefix.numbers["length"].high))
        text = "".join(rng.choice(_LETTERS) for _ in range(size))
        found[data.name] = text if data.codec else rng.randbytes(size)
    return found


def _value(rng: random.Random, field: Field) -> Any:
    kind = field.type
    if field.constant is not None:
        return field.constant
    if field.optional and not isinstance(kind, Bits) and rng.random() < 0.3:
        return {m.name: _nothing(m) for m in kind.members} if isinstance(kind, Composite) else None
    if isinstance(kind, Composite):
        return {member.name: _value(rng, member) for member in kind.members}
    if isinstance(kind, Text):
        return "".join(rng.choice(_LETTERS) for _ in range(rng.randint(1, kind.size)))
    if isinstance(kind, Enumeration):
        return rng.choice(list(kind.words.values())) if kind.words else 1
    if isinstance(kind, Bits):
        return {word for word in kind.words.values() if rng.random() < 0.5}
    values = [_number(rng, kind) for _ in range(kind.length)]
    return values[0] if kind.length == 1 else values


def _nothing(field: Field) -> Any:
    if field.constant is not None:
        return field.constant
    return None if field.optional else _value(random.Random(0), field)


def _number(rng: random.Random, kind: Values) -> float:
    if kind.primitive.is_float:
        return rng.choice([-0.5, 0.0, 1024.25, 3.0])
    low, high = int(kind.low), int(kind.high)
    while True:
        value = rng.choice([low, high, rng.randint(low, high)])
        if value != kind.null:
            return value


def is_read(schema: Schema, raw: bytes) -> bool:
    """Return whether a message is decoded, rather than refused."""
    try:
        schema.decode(raw)
    except FormatError:
        return False
    return True
