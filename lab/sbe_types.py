"""Random types of SBE: their XML, random values, and the bytes that these are, naively.

Written from the standard alone: nothing of `udpfast.payload.sbe` is used, and nothing is fast.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from typing import Any

__all__ = ["NUMBERS", "Kind", "Sample", "number_bytes", "random_kind"]

#: Name -> bytes, lowest, highest; floats have no bounds.
NUMBERS: dict[str, tuple[int, int, int]] = {
    "int8": (1, -128, 127),
    "int16": (2, -(2**15), 2**15 - 1),
    "int32": (4, -(2**31), 2**31 - 1),
    "int64": (8, -(2**63), 2**63 - 1),
    "uint8": (1, 0, 255),
    "uint16": (2, 0, 2**16 - 1),
    "uint32": (4, 0, 2**32 - 1),
    "uint64": (8, 0, 2**64 - 1),
    "float": (4, 0, 0),
    "double": (8, 0, 0),
}
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
#: Values of `characterEncoding`, and what they can hold.
ENCODINGS = {
    "": LETTERS + " .-",
    "US-ASCII": LETTERS,
    "UTF-8": LETTERS + "äß€",
    "ISO-8859-1": LETTERS + "äß",
    "GB18030": LETTERS + "中文",
    "UTF-16": LETTERS + "äß€",
    "UTF-16LE": LETTERS + "äß€",
    "UTF-16BE": LETTERS + "äß€中",
    "UTF-32LE": LETTERS + "€",
}


@dataclass(frozen=True)
class Sample:
    """A value: what is given to the encoder, what the decoder returns, the bytes, its column."""

    given: Any
    expected: Any
    raw: bytes
    column: Any


def number_bytes(value: float, primitive: str, big: bool) -> bytes:
    """Return a number on the wire."""
    order = ">" if big else "<"
    if primitive in ("float", "double"):
        return struct.pack(order + ("f" if primitive == "float" else "d"), value)
    size, low, _ = NUMBERS[primitive]
    return int(value).to_bytes(size, "big" if big else "little", signed=low < 0)


def default_null(primitive: str) -> float:
    """Return what stands for nothing."""
    if primitive in ("float", "double"):
        return float("nan")
    _, low, high = NUMBERS[primitive]
    return low if low < 0 else high


@dataclass
class Kind:
    """A type.

    Attributes
    ----------
    size : int
        Bytes; 0: a constant.
    """

    size: int = 0
    optional: bool = False

    def xml(self, name: str, attributes: str = "") -> str:
        """Return its element."""
        raise NotImplementedError

    def sample(self, rng: random.Random, big: bool, optional: bool) -> Sample:
        """Return a value; None at times, where it may be."""
        raise NotImplementedError

    def absent(self) -> Any:
        """Return its column where it is not there."""
        return None


@dataclass
class NumberKind(Kind):
    """One number, or several."""

    primitive: str = "int8"
    length: int = 1
    null: float | None = None
    bounds: tuple[int, int] | None = None

    def xml(self, name: str, attributes: str = "") -> str:
        """Return its element."""
        said = f'primitiveType="{self.primitive}"'
        if self.length != 1:
            said += f' length="{self.length}"'
        if self.null is not None:
            said += f' nullValue="{self.null}"'
        if self.bounds is not None:
            said += f' minValue="{self.bounds[0]}" maxValue="{self.bounds[1]}"'
        if self.optional:
            said += ' presence="optional"'
        return f'<type name="{name}" {said}{attributes}/>'

    def one(self, rng: random.Random) -> float:
        """Return a number that is not null's."""
        nothing = default_null(self.primitive) if self.null is None else self.null
        while True:
            value = self._any(rng)
            if value != nothing:
                return value

    def _any(self, rng: random.Random) -> float:
        if self.primitive in ("float", "double"):
            value = rng.choice([0.0, -1.5, 2.0**20, rng.random() * 1e6])
            rounded: float = struct.unpack("f", struct.pack("f", value))[0]
            return rounded
        _, low, high = NUMBERS[self.primitive]
        low, high = self.bounds or (low, high)
        return rng.choice([low, high, rng.randint(low, high), max(low, min(high, 7))])

    def sample(self, rng: random.Random, big: bool, optional: bool) -> Sample:
        """Return numbers."""
        nothing = default_null(self.primitive) if self.null is None else self.null
        if optional and rng.random() < 0.3:
            raw = number_bytes(nothing, self.primitive, big) * self.length
            return Sample(None, None, raw, None)
        values = [self.one(rng) for _ in range(self.length)]
        raw = b"".join(number_bytes(value, self.primitive, big) for value in values)
        value = values[0] if self.length == 1 else values
        return Sample(value, value, raw, value)


@dataclass
class TextKind(Kind):
    """Characters."""

    encoding: str = ""

    def xml(self, name: str, attributes: str = "") -> str:
        """Return its element."""
        said = f' length="{self.size}"' if self.size != 1 else ""
        if self.encoding:
            said += f' characterEncoding="{self.encoding}"'
        if self.optional:
            said += ' presence="optional"'
        return f'<type name="{name}" primitiveType="char"{said}{attributes}/>'

    def sample(self, rng: random.Random, big: bool, optional: bool) -> Sample:
        """Return characters that fit."""
        if optional and rng.random() < 0.3:
            return Sample(None, None, bytes(self.size), None)
        text = ""
        while True:
            more = text + rng.choice(ENCODINGS[self.encoding])
            if len(more.encode(self.encoding or "ascii")) > self.size:
                break
            text = more
            if rng.random() < 0.15:
                break
        text = text or "x"
        raw = text.encode(self.encoding or "ascii").ljust(self.size, b"\0")
        return Sample(text, text, raw, text)


@dataclass
class EnumKind(Kind):
    """Names for numbers or characters."""

    encoding: str = "uint8"
    words: dict[str, int] = field(default_factory=dict)
    null: int = 0

    def xml(self, name: str, attributes: str = "") -> str:
        """Return its element."""
        values = "".join(
            f'<validValue name="{word}">{chr(value) if self.encoding == "char" else value}'
            "</validValue>"
            for word, value in self.words.items()
        )
        return f'<enum name="{name}" encodingType="{self.encoding}"{attributes}>{values}</enum>'

    def wire(self, value: int, big: bool) -> bytes:
        """Return a value on the wire."""
        return (
            bytes([value]) if self.encoding == "char" else number_bytes(value, self.encoding, big)
        )

    def sample(self, rng: random.Random, big: bool, optional: bool) -> Sample:
        """Return a name; at times the number of none."""
        if optional and rng.random() < 0.3:
            return Sample(None, None, self.wire(self.null, big), None)
        if rng.random() < 0.1:
            value = next(v for v in range(64, 128) if v not in self.words.values())
            return Sample(value, value, self.wire(value, big), str(value))
        word = rng.choice(list(self.words))
        value = self.words[word]
        given = chr(value) if self.encoding == "char" and chr(value) not in self.words else word
        return Sample(rng.choice([word, given, value]), word, self.wire(value, big), word)


@dataclass
class SetKind(Kind):
    """Names for bits."""

    encoding: str = "uint8"
    words: dict[str, int] = field(default_factory=dict)

    def xml(self, name: str, attributes: str = "") -> str:
        """Return its element."""
        choices = "".join(f'<choice name="{w}">{bit}</choice>' for w, bit in self.words.items())
        return f'<set name="{name}" encodingType="{self.encoding}"{attributes}>{choices}</set>'

    def sample(self, rng: random.Random, big: bool, optional: bool) -> Sample:
        """Return names; at times a bit that has none."""
        chosen: set[str | int] = {word for word in self.words if rng.random() < 0.5}
        free = [bit for bit in range(self.size * 8) if bit not in self.words.values()]
        if free and rng.random() < 0.2:
            chosen.add(rng.choice(free))
        bits = {word if isinstance(word, int) else self.words[word]: str(word) for word in chosen}
        number = sum(1 << bit for bit in bits)
        column = [bits[bit] for bit in sorted(bits)]
        given = rng.choice([chosen, list(chosen), number])
        return Sample(given, chosen, number_bytes(number, self.encoding, big), column)


@dataclass
class ConstantKind(Kind):
    """A number or text that is never sent."""

    primitive: str = "uint8"
    value: Any = 0
    text: str = ""  # valueRef

    def xml(self, name: str, attributes: str = "") -> str:
        """Return its element."""
        said = f' valueRef="{self.text}"' if self.text else ""
        body = "" if self.text else self.value
        return (
            f'<type name="{name}" primitiveType="{self.primitive}" presence="constant"{said}'
            f"{attributes}>{body}</type>"
        )

    def sample(self, rng: random.Random, big: bool, optional: bool) -> Sample:
        """Return it, or nothing: both will do."""
        return Sample(rng.choice([None, self.value]), self.value, b"", self.value)


@dataclass
class CompositeKind(Kind):
    """Several types, each at its offset; a `ref` where it has a name to refer to."""

    members: list[tuple[str, Kind, int, bool, str]] = field(default_factory=list)

    def xml(self, name: str, attributes: str = "") -> str:
        """Return its element."""
        inner = ""
        for member, kind, offset, is_placed, reference in self.members:
            said = f' offset="{offset}"' if is_placed else ""
            if reference:
                inner += f'<ref name="{member}" type="{reference}"{said}/>'
            else:
                inner += kind.xml(member, said)
        return f'<composite name="{name}"{attributes}>{inner}</composite>'

    @property
    def scale(self) -> int | None:
        """Digits behind the point, if it is a decimal number."""
        names = {name: kind for name, kind, *_ in self.members}
        if set(names) != {"mantissa", "exponent"}:
            return None
        exponent = names["exponent"]
        return -int(exponent.value) if isinstance(exponent, ConstantKind) else None

    def sample(self, rng: random.Random, big: bool, optional: bool) -> Sample:
        """Return a value of each member."""
        given, expected, columns, raw = {}, {}, {}, bytearray(self.size)
        for name, kind, offset, *_ in self.members:
            made = kind.sample(rng, big, kind.optional)
            given[name], expected[name], columns[name] = made.given, made.expected, made.column
            raw[offset : offset + len(made.raw)] = made.raw
        column: Any = columns
        if self.scale is not None:
            column = columns["mantissa"]
        return Sample(given, expected, bytes(raw), column)


def random_kind(
    rng: random.Random, named: dict[str, Kind], depth: int = 0, composite: bool = True
) -> Kind:
    """Return a type; members of composites may refer to those with names."""
    choice = rng.randrange(11 if composite and depth < 3 else 8)
    if choice < 3:
        return _random_number(rng, 1)
    if choice == 3:
        return _random_number(rng, rng.randint(2, 5))
    if choice == 4:
        size = rng.choice([1, 1, 3, 7, 8, 11, 20])
        encoding = rng.choice(list(ENCODINGS)) if size > 4 else rng.choice(["", "US-ASCII"])
        return TextKind(size, rng.random() < 0.3, encoding)
    if choice == 5:
        return _random_enum(rng)
    if choice == 6:
        encoding = rng.choice(UNSIGNED)
        bits = rng.sample(range(NUMBERS[encoding][0] * 8), rng.randint(1, 6))
        size = NUMBERS[encoding][0]
        return SetKind(size, False, encoding, {f"Choice{bit}": bit for bit in bits})
    if choice == 7:
        return _random_constant(rng, named)
    return _random_composite(rng, named, depth)


def _random_number(rng: random.Random, length: int) -> NumberKind:
    primitive = rng.choice(list(NUMBERS))
    size, low, high = NUMBERS[primitive]
    kind = NumberKind(size * length, rng.random() < 0.3, primitive, length)
    if primitive in ("float", "double"):
        if kind.optional and rng.random() < 0.5:
            kind.null = rng.choice([0.1, -1e-30, 3.3e38, 0.0])
    else:
        if kind.optional and rng.random() < 0.5:
            kind.null = rng.choice([low, high, 0])
        if rng.random() < 0.2:
            kind.bounds = (max(low, -50), min(high, 90))
    return kind


def _random_enum(rng: random.Random) -> EnumKind:
    encoding = rng.choice(["char", "uint8", "uint16", "int8", "uint32"])
    if encoding == "char":
        values = [ord(letter) for letter in rng.sample(LETTERS, 4)]
        return EnumKind(1, False, encoding, {f"Is{chr(v)}": v for v in values}, 0)
    values = rng.sample(range(60), 4)
    null = int(default_null(encoding))
    return EnumKind(NUMBERS[encoding][0], False, encoding, {f"V{v}": v for v in values}, null)


def _random_constant(rng: random.Random, named: dict[str, Kind]) -> ConstantKind:
    enums = [name for name, kind in named.items() if isinstance(kind, EnumKind)]
    if enums and rng.random() < 0.4:
        name = rng.choice(enums)
        kind = named[name]
        assert isinstance(kind, EnumKind)
        word = rng.choice(list(kind.words))
        value = kind.words[word]
        if kind.encoding == "char":
            return ConstantKind(0, False, "char", chr(value), f"{name}.{word}")
        return ConstantKind(0, False, "uint8", value, f"{name}.{word}")
    if rng.random() < 0.3:
        return ConstantKind(0, False, "char", "".join(rng.sample(LETTERS, rng.randint(1, 6))))
    return ConstantKind(0, False, rng.choice(["int8", "uint16", "int64"]), rng.randint(0, 99))


def _random_composite(rng: random.Random, named: dict[str, Kind], depth: int) -> CompositeKind:
    kind = CompositeKind()
    if rng.random() < 0.3:
        mantissa = NumberKind(8, rng.random() < 0.5, "int64")
        exponent = ConstantKind(0, False, "int8", -rng.randint(0, 9))
        kind.members = [("mantissa", mantissa, 0, False, ""), ("exponent", exponent, 8, False, "")]
        kind.size = 8
        return kind
    for i in range(rng.randint(1, 4)):
        reference = rng.choice(list(named)) if named and rng.random() < 0.3 else ""
        inner = named[reference] if reference else random_kind(rng, named, depth + 1)
        if not inner.size and not isinstance(inner, ConstantKind):
            continue
        is_placed = rng.random() < 0.3 and inner.size > 0
        offset = kind.size + (rng.choice([0, 1, 5]) if is_placed else 0)
        kind.members.append((f"m{i}", inner, offset, is_placed, reference))
        if inner.size:
            kind.size = offset + inner.size
    if not kind.size:
        kind.members.append(("last", NumberKind(1, False, "uint8"), 0, False, ""))
        kind.size = 1
    return kind
