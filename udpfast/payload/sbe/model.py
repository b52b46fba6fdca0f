"""What a schema says, resolved: types, fields at their offsets, groups, messages."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

__all__ = [
    "PRIMITIVES",
    "Bits",
    "Composite",
    "Data",
    "Enumeration",
    "Field",
    "Level",
    "Number",
    "Prefix",
    "Primitive",
    "SchemaModel",
    "Text",
    "Type",
    "Values",
]


@dataclass(frozen=True, slots=True)
class Primitive:
    """One of the types that SBE brings along.

    Attributes
    ----------
    name : str
    code : str
        Of `struct`.
    dtype : str
        Of numpy, without byte order.
    size : int
        Bytes.
    low, high : int or float
        What it can hold.
    null : int or float
        That stands for nothing where a schema declares no other.
    """

    name: str
    code: str
    dtype: str
    size: int
    low: float
    high: float
    null: float

    @property
    def is_float(self) -> bool:
        """Whether it is a number with a fraction."""
        return self.code in "fd"

    @property
    def largest(self) -> float:
        """The largest finite number that it can hold."""
        return float(np.finfo(self.dtype).max) if self.is_float else self.high

    def stored(self, value: float) -> float:
        """Return a number as a message has it: a `float` has 24 bits of precision.

        Raises
        ------
        OverflowError
            It is finite, and larger than a `float` can be.
        """
        if self.code != "f":
            return value
        return float(struct.unpack("<f", struct.pack("<f", value))[0])

    @property
    def is_unsigned(self) -> bool:
        """Whether it is an integer from 0 on, and no character."""
        return self.dtype[0] == "u"


def _primitives() -> dict[str, Primitive]:
    found = {
        "char": Primitive("char", "B", "S1", 1, 0, 255, 0),
        "float": Primitive("float", "f", "f4", 4, -math.inf, math.inf, math.nan),
        "double": Primitive("double", "d", "f8", 8, -math.inf, math.inf, math.nan),
    }
    for size, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q")):
        half = 1 << size * 8 - 1
        name = f"int{size * 8}"
        found[name] = Primitive(name, code, f"i{size}", size, -half, half - 1, -half)
        found[f"u{name}"] = Primitive(
            f"u{name}", code.upper(), f"u{size}", size, 0, 2 * half - 1, 2 * half - 1
        )
    return found


#: By name.
PRIMITIVES = _primitives()


@dataclass(frozen=True, slots=True)
class Values:
    """A number, or an array of them.

    Attributes
    ----------
    name : str
    primitive : Primitive
    length : int
        1: no array.
    optional : bool
    null : int or float
    low, high : int or float
        As declared, or of the primitive type.
    constant : object
        None: it is none.
    """

    name: str
    primitive: Primitive
    length: int
    optional: bool
    null: float
    low: float
    high: float
    constant: object = None

    @property
    def size(self) -> int:
        """Bytes in a block."""
        return self.primitive.size * self.length

    def __str__(self) -> str:
        return self.primitive.name + f"[{self.length}]" * (self.length != 1)


@dataclass(frozen=True, slots=True)
class Text:
    """Characters, filled up with zero bytes.

    Attributes
    ----------
    name : str
    size : int
        Bytes.
    optional : bool
    null : int
        First byte of a text that stands for nothing.
    codec : str
        Of Python.
    constant : object
        None: it is none.
    """

    name: str
    size: int
    optional: bool
    null: int
    codec: str
    constant: object = None

    def __str__(self) -> str:
        return f"char[{self.size}]"


@dataclass(frozen=True, slots=True)
class Enumeration:
    """A number or character that goes by names.

    Attributes
    ----------
    name : str
    primitive : Primitive
    words : dict
        Number -> name.
    optional : bool
    null : int
    """

    name: str
    primitive: Primitive
    words: dict[int, str]
    optional: bool
    null: int

    @property
    def size(self) -> int:
        """Bytes in a block."""
        return self.primitive.size

    def __str__(self) -> str:
        return f"enum {self.name}"


@dataclass(frozen=True, slots=True)
class Bits:
    """A set: each bit is a choice.

    Attributes
    ----------
    name : str
    primitive : Primitive
    words : dict
        Bit -> name of the choice.
    optional : bool
    null : int or None
        As declared; there is none by default, since it could be a set.
    """

    name: str
    primitive: Primitive
    words: dict[int, str]
    optional: bool
    null: int | None

    @property
    def size(self) -> int:
        """Bytes in a block."""
        return self.primitive.size

    def __str__(self) -> str:
        return f"set {self.name}"


@dataclass(frozen=True, slots=True)
class Composite:
    """Several values under one name.

    Attributes
    ----------
    name : str
    members : tuple of Field
        Offsets count from where the composite begins.
    size : int
        Bytes in a block.
    """

    name: str
    members: tuple[Field, ...]
    size: int
    optional: bool = False
    null: None = None

    def member(self, name: str) -> Field | None:
        """Return a member by its name."""
        return next((each for each in self.members if each.name == name), None)

    def __str__(self) -> str:
        return f"composite {self.name}"


Type: TypeAlias = Values | Text | Enumeration | Bits | Composite


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a block, or one member of a composite.

    Attributes
    ----------
    name : str
    id : int or None
    type : Type
    offset : int
        In its block or composite.
    since : int
        Version of the schema that brought it.
    optional : bool
        Whether its type's null stands for nothing here.
    constant : object
        What it always is, without a byte on the wire; None: it is none.
    """

    name: str
    id: int | None
    type: Type
    offset: int
    since: int
    optional: bool
    constant: object = None

    @property
    def size(self) -> int:
        """Bytes in a block."""
        return 0 if self.constant is not None else self.type.size

    @property
    def first(self) -> int:
        """How many of its bytes a block must have so that the field is there.

        All bytes of a value; of a composite those of its first value.
        """
        kind = self.type
        if self.constant is not None or not isinstance(kind, Composite):
            return self.size
        return next((each.offset + each.first for each in kind.members if each.first), 0)


@dataclass(frozen=True, slots=True)
class Number:
    """An integer of a header: a length, a count, an id.

    Attributes
    ----------
    offset : int
        In its header.
    primitive : Primitive
    low, high : int
        As declared, or of the primitive type.
    constant : int or None
        None: it is on the wire.
    """

    offset: int
    primitive: Primitive
    low: int
    high: int
    constant: int | None


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands in front of a message, a group or variable data.

    Attributes
    ----------
    composite : Composite
    size : int
        Bytes.
    numbers : dict
        Name -> Number, of those that SBE knows.
    """

    composite: Composite
    size: int
    numbers: dict[str, Number]


@dataclass(frozen=True, slots=True)
class Data:
    """Variable data.

    Attributes
    ----------
    name : str
    id : int or None
    since : int
    prefix : Prefix
        Its length.
    codec : str
        Of Python; empty: bytes.
    """

    name: str
    id: int | None
    since: int
    prefix: Prefix
    codec: str


@dataclass(frozen=True)
class Level:
    """The root of a message, or a group: a block, groups and data behind it.

    Attributes
    ----------
    name : str
    path : str
        `Message`, `Message.group`, `Message.group.group`: how tables and arrays are asked for.
    id : int or None
        Of the message (its template), or the group.
    since : int
    fields : tuple of Field
    block_length : int
    groups : tuple of Level
    datas : tuple of Data
    prefix : Prefix
        The message header, or the group's dimensions.
    """

    name: str
    path: str
    id: int | None
    since: int
    fields: tuple[Field, ...]
    block_length: int
    groups: tuple[Level, ...]
    datas: tuple[Data, ...]
    prefix: Prefix

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """This one and all below it, in the order of the wire."""
        return (self, *(inner for group in self.groups for inner in group.levels))


@dataclass(frozen=True, slots=True)
class SchemaModel:
    """A whole schema.

    Attributes
    ----------
    file : str
    package : str
    id, version : int
    order : str
        Byte order, as `struct` and numpy write it.
    header : Prefix
    messages : tuple of Level
    """

    file: str
    package: str
    id: int
    version: int
    order: str
    header: Prefix
    messages: tuple[Level, ...]
