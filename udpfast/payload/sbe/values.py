"""Converts Python's values to the bytes of a block, and back: a codec for each kind of type."""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from math import isnan
from typing import Any, Protocol

from udpfast.errors import FormatError, RangeError, shown
from udpfast.payload.sbe.charset import encoded, trimmed
from udpfast.payload.sbe.model import Bits, Composite, Enumeration, Field, Text, Type, Values

__all__ = ["BlockCodec", "Leaf"]

#: As a version newer than any, as a size larger than any block: all fields are present.
ALL = 2**64


class Codec(Protocol):
    """Converts one type at one place."""

    format: str  # of struct, for its slots
    slots: int

    def read(self, values: tuple[Any, ...], at: int, version: int, size: int) -> Any:
        """Return the value whose slots begin at `at`."""

    def write(self, value: Any, where: str) -> list[Any]:
        """Return the slots of a value; None means that it was left out."""


def _required(where: str) -> FormatError:
    return FormatError(f"{where} is required: expected a value, found none")


def _wrong(where: str, expected: str, found: object) -> FormatError:
    return FormatError(f"{where}: expected {expected}, found {shown(found)}")


def _beyond(where: str, low: object, high: object, found: object) -> RangeError:
    return RangeError(f"{where} must be from {low} to {high}, was {shown(found)}")


class NumberCodec:
    """An integer or a floating point number."""

    slots = 1

    def __init__(self, kind: Values, optional: bool) -> None:
        self._kind = kind
        self._optional = optional
        self.format = kind.primitive.code
        self._nan = optional and isnan(kind.null)

    def read(self, values: tuple[Any, ...], at: int, version: int, size: int) -> Any:
        """Return the number; None for null."""
        value = values[at]
        if self._optional and (value == self._kind.null or (self._nan and isnan(value))):
            return None
        return value

    def write(self, value: Any, where: str) -> list[Any]:
        """Return the number after checking it."""
        kind = self._kind
        if value is None:
            if not self._optional:
                raise _required(where)
            return [kind.null]
        try:
            number = float(value) if kind.primitive.is_float else operator.index(value)
        except (TypeError, ValueError, OverflowError):
            what = "a number" if kind.primitive.is_float else "an integer"
            raise _wrong(where, what, value) from None
        try:
            number = kind.primitive.stored(number)
        except OverflowError:
            largest = kind.primitive.largest
            raise _beyond(where, -largest, largest, value) from None
        is_null = self._optional and number == kind.null
        if not kind.low <= number <= kind.high and not isnan(number) and not is_null:
            raise _beyond(where, kind.low, kind.high, value)
        return [number]


class ArrayCodec:
    """An array of numbers."""

    def __init__(self, kind: Values, optional: bool) -> None:
        self._one = NumberCodec(kind, optional)
        self._optional = optional
        self.slots = kind.length
        self.format = f"{kind.length}{kind.primitive.code}"

    def read(self, values: tuple[Any, ...], at: int, version: int, size: int) -> Any:
        """Return a list; None if all numbers are null."""
        one = self._one
        found = [one.read(values, i, version, size) for i in range(at, at + self.slots)]
        if self._optional and all(each is None for each in found):
            return None
        return found

    def write(self, value: Any, where: str) -> list[Any]:
        """Return the numbers of a sequence, as many as the array has."""
        if value is None:
            return self._one.write(None, where) * self.slots
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise _wrong(where, f"{self.slots} numbers", value)
        given = list(value)
        if len(given) != self.slots:
            raise _wrong(where, f"{self.slots} numbers", f"{len(given)} of them")
        return [self._one.write(each, where)[0] for each in given]


class TextCodec:
    """Characters in a field of fixed size."""

    slots = 1

    def __init__(self, kind: Text, optional: bool) -> None:
        self._kind = kind
        self._optional = optional
        self._null = bytes([kind.null]).ljust(kind.size, b"\0")
        self.format = f"{kind.size}s"

    def read(self, values: tuple[Any, ...], at: int, version: int, size: int) -> Any:
        """Return the characters; None for null."""
        raw = values[at]
        if self._optional and raw == self._null:
            return None
        return trimmed(raw, self._kind.codec)

    def write(self, value: Any, where: str) -> list[Any]:
        """Return the bytes, which `struct` pads with zeros."""
        kind = self._kind
        if value is None:
            if not self._optional:
                raise _required(where)
            return [self._null]
        raw = bytes_of(value, kind.codec, where)
        if len(raw) > kind.size:
            raise RangeError(f"{where} has room for {kind.size} bytes, found {len(raw)}")
        return [raw]


class EnumCodec:
    """A number or character that has a name."""

    slots = 1

    def __init__(self, kind: Enumeration, optional: bool) -> None:
        self._kind = kind
        self._optional = optional
        self._numbers = {word: number for number, word in kind.words.items()}
        self.format = kind.primitive.code

    def read(self, values: tuple[Any, ...], at: int, version: int, size: int) -> Any:
        """Return the name; the number if it has no name; None for null."""
        value = values[at]
        if self._optional and value == self._kind.null:
            return None
        return self._kind.words.get(value, value)

    def write(self, value: Any, where: str) -> list[Any]:
        """Return the number of a name or a character, or a number as it is."""
        primitive = self._kind.primitive
        if value is None:
            if not self._optional:
                raise _required(where)
            return [self._kind.null]
        if isinstance(value, str):
            number = self._numbers.get(value)
            if number is None and primitive.name == "char" and len(value) == 1:
                number = ord(value) if ord(value) in self._kind.words else None
            if number is None:
                raise _wrong(where, f"one of {', '.join(self._numbers)}", value)
            return [number]
        try:
            number = operator.index(value)
        except TypeError:
            raise _wrong(where, f"one of {', '.join(self._numbers)}", value) from None
        if not primitive.low <= number <= primitive.high:
            raise _beyond(where, primitive.low, primitive.high, value)
        return [number]


class BitsCodec:
    """A set of choices."""

    slots = 1

    def __init__(self, kind: Bits, optional: bool) -> None:
        self._kind = kind
        self._optional = optional
        self._bits = {word: bit for bit, word in kind.words.items()}
        self.format = kind.primitive.code

    def read(self, values: tuple[Any, ...], at: int, version: int, size: int) -> Any:
        """Return the names of the bits that are set; the number of a bit without a name."""
        value = values[at]
        words = self._kind.words
        if self._optional and value == self._kind.null:
            return None
        found: set[str | int] = set()
        while value:
            low = value & -value
            bit = low.bit_length() - 1
            found.add(words.get(bit, bit))
            value ^= low
        return found

    def write(self, value: Any, where: str) -> list[Any]:
        """Return the number for names or numbers of bits, or a number as it is."""
        primitive = self._kind.primitive
        if value is None:
            if not self._optional:
                raise _required(where)
            return [self._kind.null or 0]
        if isinstance(value, str) or not isinstance(value, Iterable):
            number = self._index(value, where)
            if not 0 <= number <= primitive.high:
                raise _beyond(where, 0, primitive.high, value)
            return [number]
        number = 0
        chosen = [each for each in value if not isinstance(value, Mapping) or value[each]]
        for choice in chosen:
            bit = self._bits[choice] if choice in self._bits else self._index(choice, where)
            if not 0 <= bit < primitive.size * 8:
                raise _wrong(where, f"choices of {', '.join(self._bits)}", choice)
            number |= 1 << bit
        return [number]

    def _index(self, value: Any, where: str) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise _wrong(where, f"choices of {', '.join(self._bits)}", value) from None


class ConstantCodec:
    """A constant, which takes no byte."""

    slots = 0
    format = ""

    def __init__(self, kind: Type, constant: object) -> None:
        self._kind = kind
        self._constant = constant

    def read(self, values: tuple[Any, ...], at: int, version: int, size: int) -> Any:
        """Return the constant."""
        return self._constant

    def write(self, value: Any, where: str) -> list[Any]:
        """Return no slots. A value other than the constant is an error."""
        if value is not None and not self._is_same(value):
            raise _wrong(where, f"the constant {shown(self._constant)}", value)
        return []

    def _is_same(self, value: Any) -> bool:
        kind = self._kind
        if not isinstance(kind, Values) or not isinstance(value, float):
            return bool(value == self._constant)
        try:
            found = kind.primitive.stored(value)
        except OverflowError:
            return False
        return found == self._constant or (isnan(found) and self._constant != self._constant)


class CompositeCodec:
    """Several values as a dict."""

    def __init__(self, kind: Composite, optional: bool, offset: int, since: int) -> None:
        self._block = BlockCodec(kind.members, offset, since)
        self.slots = self._block.slots
        self.format = self._block.format
        exponent, mantissa = kind.member("exponent"), kind.member("mantissa")
        self._exponent: int | None = None
        if len(kind.members) == 2 and mantissa is not None and exponent is not None:
            constant = exponent.constant
            self._exponent = constant if isinstance(constant, int) else None

    @property
    def leaves(self) -> list[Leaf]:
        """The single values that it has in the block."""
        return self._block.leaves

    def read(self, values: tuple[Any, ...], at: int, version: int, size: int) -> Any:
        """Return its members as a dict."""
        return self._block.read(values, at, version, size)

    def write(self, value: Any, where: str) -> list[Any]:
        """Return the slots of a mapping, or of a number if the composite is a decimal."""
        if value is None:
            value = {}
        elif self._exponent is not None and not isinstance(value, Mapping):
            value = {"mantissa": _mantissa(value, self._exponent, where)}
        if not isinstance(value, Mapping):
            raise _wrong(where, "a mapping of its members", value)
        self._block.check_names(value, where)
        return [
            slot
            for field in self._block.fields
            for slot in field.codec.write(value.get(field.name), f"{where}.{field.name}")
        ]


def _mantissa(value: Any, exponent: int, where: str) -> int:
    try:
        number = Decimal(repr(float(value)) if isinstance(value, float) else value)
        scaled = number.scaleb(-exponent)
        mantissa = int(scaled)
    except (ArithmeticError, TypeError, ValueError):
        raise _wrong(where, "a number, or its mantissa and exponent", value) from None
    if mantissa != scaled:
        raise _wrong(where, f"a multiple of 10**{exponent}", value)
    return mantissa


def bytes_of(value: Any, codec: str, where: str) -> bytes:
    """Return the bytes of text or bytes; an empty `codec` stands for ASCII."""
    if isinstance(value, str):
        return encoded(value, codec or "ascii", where)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        return bytes(value) if not isinstance(value, int) else value.to_bytes(0, "big")
    except (TypeError, ValueError, OverflowError):
        raise _wrong(where, "text or bytes", value) from None


class Leaf:
    """A single value of a block on the wire: a number, a text or an array.

    Attributes
    ----------
    offset, end : int
        In the block.
    since : int
        The version of the schema that brought it.
    """

    __slots__ = ("end", "offset", "since")

    def __init__(self, offset: int, end: int, since: int) -> None:
        self.offset = offset
        self.end = end
        self.since = since


class _Placed:
    # A field of a block, and its codec.
    __slots__ = ("at", "codec", "least", "leaves", "name", "offset", "since")

    def __init__(self, field: Field, offset: int, since: int, at: int) -> None:
        self.name = field.name
        self.offset = offset + field.offset
        self.since = max(since, field.since)
        self.at = at
        self.codec = _codec(field, self.offset, self.since)
        if isinstance(self.codec, CompositeCodec):
            self.leaves = self.codec.leaves
        else:
            end = self.offset + field.size
            self.leaves = [Leaf(self.offset, end, self.since)] if field.size else []
        self.least = self.offset + field.first if field.first else 0


def _codec(field: Field, offset: int, since: int) -> Codec:
    kind = field.type
    if field.constant is not None:
        return ConstantCodec(kind, field.constant)
    if isinstance(kind, Composite):
        return CompositeCodec(kind, field.optional, offset, since)
    if isinstance(kind, Text):
        return TextCodec(kind, field.optional)
    if isinstance(kind, Enumeration):
        return EnumCodec(kind, field.optional)
    if isinstance(kind, Bits):
        return BitsCodec(kind, field.optional)
    return (NumberCodec if kind.length == 1 else ArrayCodec)(kind, field.optional)


class BlockCodec:
    """Converts the fields of a block, or of a composite in a block.

    Parameters
    ----------
    members : tuple of Field
        The fields.
    offset : int
        Of the composite in its block.
    since : int
        The version of the schema that brought the composite.

    Attributes
    ----------
    fields : list
        The fields with their codecs.
    leaves : list of Leaf
        The single values.
    format : str
        A format of `struct`: the single values and the gaps between them.
    slots : int
        How many values `struct` has for the format.
    """

    def __init__(self, members: tuple[Field, ...], offset: int = 0, since: int = 0) -> None:
        self.fields: list[_Placed] = []
        self.leaves: list[Leaf] = []
        self.format = ""
        self.slots = 0
        end = offset
        for member in members:
            placed = _Placed(member, offset, since, self.slots)
            self.fields.append(placed)
            self.leaves += placed.leaves
            self.slots += placed.codec.slots
            if member.size:
                gap = placed.offset - end
                self.format += (f"{gap}x" if gap else "") + placed.codec.format
                end = placed.offset + member.size
        self._names = {field.name for field in self.fields}

    def read(self, values: tuple[Any, ...], at: int, version: int, size: int) -> dict[str, Any]:
        """Return the fields as a dict; a field that the writer's version or block lacks is None.

        Parameters
        ----------
        values : tuple
            The values that `struct` unpacked from the block.
        at : int
            Index in `values` where this block's slots begin.
        version, size : int
            The version of the writer's schema, and the bytes of its block.
        """
        return {
            field.name: None
            if field.since > version or field.least > size
            else field.codec.read(values, at + field.at, version, size)
            for field in self.fields
        }

    def check_names(self, values: Mapping[str, Any], where: str, *others: str) -> None:
        """Raise FormatError for a name that is not a field's."""
        for name in values:
            if name not in self._names and name not in others:
                known = ", ".join([*(field.name for field in self.fields), *others])
                raise FormatError(f"{where} has no {name!r}; it has {known or 'nothing'}")

    def write(self, values: Mapping[str, Any], where: str) -> list[Any]:
        """Return the slots of all fields."""
        return [
            slot
            for field in self.fields
            for slot in field.codec.write(values.get(field.name), f"{where}.{field.name}")
        ]

    def pack(self, order: str, size: int) -> struct.Struct:
        """Return the `struct` of a block of this size, with the slots of `read` and `write`."""
        rest = size - struct.calcsize(order + self.format)
        return struct.Struct(f"{order}{self.format}{f'{rest}x' if rest else ''}")
