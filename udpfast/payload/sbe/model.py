"""A schema with everything resolved: types, fields at their offsets, groups, messages."""

from __future__ import annotations

import math
import struct
from functools import cached_property
from typing import TypeAlias

import numpy as np
from msgspec import Struct

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


class Primitive(Struct, frozen=True):
    """A primitive type of SBE.

    Attributes
    ----------
    name : str
        As schemas write it.
    code : str
        Its format character in `struct`.
    dtype : str
        Its numpy type, without the byte order.
    size : int
        Bytes.
    low, high : int or float
        The least and largest value.
    null : int or float
        The null value, unless a schema declares another.
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
        """True for float and double."""
        return self.code in "fd"

    @property
    def largest(self) -> float:
        """The largest finite number that it can hold."""
        return float(np.finfo(self.dtype).max) if self.is_float else self.high

    def stored(self, value: float) -> float:
        """Return a number as a message stores it: a `float` has 24 bits of precision.

        Raises
        ------
        OverflowError
            The number is finite, but too large for a `float`.
        """
        if self.code != "f":
            return value
        return float(struct.unpack("<f", struct.pack("<f", value))[0])

    @property
    def is_unsigned(self) -> bool:
        """True for unsigned integers, but not for characters."""
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


#: The primitive types by name.
PRIMITIVES = _primitives()


class Values(Struct, frozen=True):
    """A number, or an array of numbers.

    Attributes
    ----------
    name : str
        Name of the type.
    primitive : Primitive
        The type of each number.
    length : int
        How many; 1: not an array.
    optional : bool
        True if null means that there is no value.
    null : int or float
        The null value.
    low, high : int or float
        As declared, or those of the primitive type.
    constant : object
        The constant value; None: not a constant.
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


class Text(Struct, frozen=True):
    """Characters, padded with zero bytes.

    Attributes
    ----------
    name : str
        Name of the type.
    size : int
        Bytes.
    optional : bool
        True if null means that there is no value.
    null : int
        The first byte of a null text.
    codec : str
        Python's name of the encoding.
    constant : object
        The constant text; None: not a constant.
    """

    name: str
    size: int
    optional: bool
    null: int
    codec: str
    constant: object = None

    def __str__(self) -> str:
        return f"char[{self.size}]"


class Enumeration(Struct, frozen=True):
    """A number or character whose values have names.

    Attributes
    ----------
    name : str
        Name of the type.
    primitive : Primitive
        The type of the number.
    words : dict of int to str
        The names of values.
    optional : bool
        True if null means that there is no value.
    null : int
        The null value.
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


class Bits(Struct, frozen=True):
    """A set: each bit is a choice.

    Attributes
    ----------
    name : str
        Name of the type.
    primitive : Primitive
        The type of the number that holds the bits.
    words : dict of int to str
        The names of bits.
    optional : bool
        True if null means that there is no value.
    null : int or None
        As declared. There is none by default, because any value could be a set.
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


class Composite(Struct, frozen=True):
    """Several values under one name.

    Attributes
    ----------
    name : str
        Name of the type.
    members : tuple of Field
        Their offsets count from the beginning of the composite.
    size : int
        Bytes in a block.
    """

    name: str
    members: tuple[Field, ...]
    size: int
    optional: bool = False
    null: None = None

    def member(self, name: str) -> Field | None:
        """Return a member by its name, or None."""
        return next((each for each in self.members if each.name == name), None)

    def __str__(self) -> str:
        return f"composite {self.name}"


Type: TypeAlias = Values | Text | Enumeration | Bits | Composite


class Field(Struct, frozen=True):
    """A field of a block, or a member of a composite.

    Attributes
    ----------
    name : str
        Name of the field.
    id : int or None
        As in the schema; members have none.
    type : Type
        Its type.
    offset : int
        In its block or composite.
    since : int
        The version of the schema that brought it.
    optional : bool
        True if the type's null means that there is no value.
    constant : object
        Its constant value, which takes no byte on the wire; None: not a constant.
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
        """How many of its bytes a block must contain for the field to be present.

        All bytes of a value; for a composite those of its first value.
        """
        kind = self.type
        if self.constant is not None or not isinstance(kind, Composite):
            return self.size
        return next((each.offset + each.first for each in kind.members if each.first), 0)


class Number(Struct, frozen=True):
    """An integer of a header: a length, a count, an id.

    Attributes
    ----------
    offset : int
        In its header.
    primitive : Primitive
        Its type.
    low, high : int
        As declared, or those of the primitive type.
    constant : int or None
        None: it is on the wire.
    """

    offset: int
    primitive: Primitive
    low: int
    high: int
    constant: int | None


class Prefix(Struct, frozen=True):
    """The header of a message, a group or variable data.

    Attributes
    ----------
    composite : Composite
        All its members.
    size : int
        Bytes.
    numbers : dict of str to Number
        The members that SBE defines.
    """

    composite: Composite
    size: int
    numbers: dict[str, Number]


class Data(Struct, frozen=True):
    """Variable data.

    Attributes
    ----------
    name : str
        Name of the data.
    id : int or None
        As in the schema.
    since : int
        The version of the schema that brought it.
    prefix : Prefix
        Its length.
    codec : str
        Python's name of the encoding; empty: plain bytes.
    """

    name: str
    id: int | None
    since: int
    prefix: Prefix
    codec: str


class Level(Struct, frozen=True, dict=True):
    """The root of a message, or a group: a block, and groups and data behind it.

    Attributes
    ----------
    name : str
        Name of the message or group.
    path : str
        `Message`, `Message.group`, `Message.group.group`: names it in tables and arrays.
    id : int or None
        Of the message (its template) or the group.
    since : int
        The version of the schema that brought it.
    fields : tuple of Field
        The fields of its block.
    block_length : int
        Bytes of its block.
    groups : tuple of Level
        The groups inside.
    datas : tuple of Data
        Its variable data.
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
        """This level and all below it, in the order of the wire."""
        return (self, *(inner for group in self.groups for inner in group.levels))


class SchemaModel(Struct, frozen=True):
    """A whole schema.

    Attributes
    ----------
    file : str
        Its path.
    package : str
        As in the schema.
    id, version : int
        As in the schema.
    order : str
        Byte order as `struct` and numpy write it, `"<"` or `">"`.
    header : Prefix
        The message header.
    messages : tuple of Level
        In the order of the file.
    """

    file: str
    package: str
    id: int
    version: int
    order: str
    header: Prefix
    messages: tuple[Level, ...]
