"""Reads the types of a schema from XML."""

from __future__ import annotations

import codecs
import math
import re
from typing import cast

from udpfast.payload.sbe.charset import has_texts
from udpfast.payload.sbe.document import Element, Problems
from udpfast.payload.sbe.model import (
    PRIMITIVES,
    Bits,
    Composite,
    Enumeration,
    Field,
    Primitive,
    Text,
    Type,
    Values,
)

__all__ = ["Types", "is_fixed", "version_of", "whole"]

#: Most bytes of a block: numpy stores the size of a row in 32 bits.
BLOCK_BYTES_MAX = (1 << 31) - 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_PRESENCE = ("required", "optional", "constant")
_TYPE_TAGS = ("type", "composite", "enum", "set")


def whole(problems: Problems, element: Element, name: str, low: int, high: int) -> int | None:
    """Return an attribute that is a whole number; None if it is missing or wrong."""
    said = element.attributes.get(name)
    if said is None:
        return None
    value = int(said) if _WHOLE.fullmatch(said.strip()) else None
    if value is None or not low <= value <= high:
        problems.add(element, f"{name} to be a whole number from {low} to {high}", said)
        return None
    return value


def version_of(problems: Problems, element: Element, schema_version: int) -> int:
    """Return `sinceVersion`, which must not exceed the schema's version."""
    since = whole(problems, element, "sinceVersion", 0, 2**64 - 1) or 0
    if since > schema_version:
        problems.add(
            element, f"sinceVersion to be at most the schema's version {schema_version}", since
        )
        return 0
    return since


def is_fixed(kind: Type) -> bool:
    """Return whether a type has a known size, the same in every block; variable data has none."""
    if isinstance(kind, Composite):
        return all(each.constant is not None or is_fixed(each.type) for each in kind.members)
    return kind.size > 0


class Types:
    """The types that a schema defines, by name, each resolved when first asked for.

    Parameters
    ----------
    problems : Problems
        Collects what is wrong with them.
    sections : list of Element
        The schema's `<types>`.
    version : int
        Of the schema.
    """

    def __init__(self, problems: Problems, sections: list[Element], version: int) -> None:
        self.problems = problems
        self._version = version
        self._elements: dict[str, Element] = {}
        self._found: dict[str, Type | None] = {}
        self._open: list[str] = []
        for section in sections:
            self._collect(section)
        for name in self._elements:
            self._named(name)

    def _collect(self, section: Element) -> None:
        for element in section.children:
            if element.tag == "types":  # an included file has a root of its own
                self._collect(element)
            elif element.tag not in _TYPE_TAGS:
                if element.namespace in ("", section.namespace):
                    self.problems.add(element, "type, composite, enum or set", f"<{element.tag}>")
            elif self.has_name(element):
                first = self._elements.setdefault(element.name, element)
                if first is not element:
                    self.problems.add(element, "names that differ", f"that of line {first.line}")

    def has_name(self, element: Element) -> bool:
        """Return whether an element has a name that SBE allows; add a problem if not."""
        if _NAME.fullmatch(element.name):
            return True
        self.problems.add(
            element, "a name of letters, digits and _, no digit first", element.name or "none"
        )
        return False

    def find(self, element: Element, attribute: str, name: str) -> Type | None:
        """Return a type by its name; if it is missing or wrong, add a problem and return None."""
        if name in self._elements:
            if name in self._open:
                circle = " -> ".join((*self._open[self._open.index(name) :], name))
                self.problems.add(element, "types that do not contain themselves", circle)
                return None
            return self._named(name)
        if name in PRIMITIVES:
            kind = PRIMITIVES[name]
            if kind.name == "char":
                return Text(name, 1, False, 0, "ascii")
            return Values(name, kind, 1, False, kind.null, kind.low, kind.high)
        self.problems.add(element, f"{attribute} to name a type", name or "none")
        return None

    def _named(self, name: str) -> Type | None:
        if name not in self._found:
            self._open.append(name)
            self._found[name] = self.read(self._elements[name])
            self._open.pop()
        return self._found[name]

    def read(self, element: Element) -> Type | None:
        """Return the type that an element defines, or None if it is wrong."""
        if element.tag == "composite":
            return self._composite(element)
        if element.tag == "enum":
            return self._enum(element)
        return self._set(element) if element.tag == "set" else self._type(element)

    # --- <type> ---------------------------------------------------------------------------------

    def _type(self, element: Element) -> Values | Text | None:
        name = element.attributes.get("primitiveType", "")
        primitive = PRIMITIVES.get(name)
        if primitive is None:
            self.problems.add(
                element, f"primitiveType to be one of {', '.join(PRIMITIVES)}", name or "none"
            )
            return None
        presence = self.presence(element)
        length = whole(self.problems, element, "length", 0, BLOCK_BYTES_MAX // primitive.size)
        low = self._literal(element, "minValue", primitive)
        high = self._literal(element, "maxValue", primitive)
        null = self._literal(element, "nullValue", primitive)
        if low is not None and high is not None and low > high:
            self.problems.add(element, f"minValue to be at most maxValue {high}", low)
        constant = self.constant(element, primitive, length) if presence == "constant" else None
        null = primitive.null if null is None else null
        optional = presence == "optional"
        size = 1 if length is None else length
        if name == "char":
            if isinstance(constant, str):
                size = max(size, len(constant))
            codec = self.codec(element)
            return Text(element.name, size, optional, int(null), codec, constant)
        return Values(
            element.name,
            primitive,
            size,
            optional,
            null,
            primitive.low if low is None else low,
            primitive.high if high is None else high,
            constant,
        )

    def presence(self, element: Element, default: str = "required") -> str:
        """Return the attribute `presence`."""
        said = element.attributes.get("presence", default)
        if said not in _PRESENCE:
            self.problems.add(element, f"presence to be one of {', '.join(_PRESENCE)}", said)
            return default
        return said

    def codec(self, element: Element, default: str = "ascii") -> str:
        """Return Python's name of the element's `characterEncoding`."""
        said = element.attributes.get("characterEncoding", "").strip()
        if not said:
            return default
        try:
            found = codecs.lookup(said)
        except (LookupError, ValueError):
            found = None
        if found is None or not has_texts(found):
            self.problems.add(element, "characterEncoding to be one that Python knows", said)
            return default
        return found.name

    def data_codec(self, name: str) -> str:
        """Return Python's name for the encoding of a composite's `varData`; empty for bytes."""
        for child in self._elements[name].children:
            if child.name == "varData":
                referred = self._elements.get(child.attributes.get("type", ""), child)
                return self.codec(referred if child.tag == "ref" else child, "")
        return ""

    def constant(self, element: Element, primitive: Primitive, length: int | None) -> object:
        """Return a constant: the element's text, or what its valueRef names."""
        reference = element.attributes.get("valueRef")
        if reference is not None:
            return self.reference(element, reference, primitive)
        said = element.text
        if primitive.name == "char":
            said = said if len(said) == 1 else said.strip()
            room = len(said) if length is None else length
            if not said or len(said) > room:
                self.problems.add(
                    element, f"a constant of 1 to {room or 'more'} characters", said or "none"
                )
                return None
            return said
        value = _number(primitive, said.strip())
        if value is None:
            self.problems.add(element, f"a constant {primitive.name} as its text", said or "none")
        return value

    def reference(self, element: Element, reference: str, primitive: Primitive | None) -> object:
        """Return the value of `ENUM.VALUE` as a `primitive`; if that is None, its name."""
        name, _, word = reference.partition(".")
        kind = self.find(element, "valueRef", name)
        if kind is None:
            return None
        numbers = {} if not isinstance(kind, Enumeration) else {w: n for n, w in kind.words.items()}
        if word not in numbers:
            known = ", ".join(f"{name}.{each}" for each in numbers) or "a value of an enum"
            self.problems.add(element, f"valueRef to be {known}", reference)
            return None
        if primitive is None:
            return word
        value = numbers[word]
        if (primitive.name == "char") != (cast(Enumeration, kind).primitive.name == "char"):
            self.problems.add(
                element, f"valueRef to an enum of {primitive.name}", f"{kind} of another"
            )
            return None
        if not primitive.low <= value <= primitive.high:
            self.problems.add(element, f"valueRef to a value of {primitive.name}", value)
            return None
        return chr(value) if primitive.name == "char" else value

    def _literal(self, element: Element, attribute: str, primitive: Primitive) -> float | None:
        said = element.attributes.get(attribute)
        if said is None:
            return None
        value = _number(primitive, said if len(said) == 1 else said.strip())
        if value is None:
            self.problems.add(element, f"{attribute} to be a value of {primitive.name}", said)
        return value

    # --- <enum>, <set> --------------------------------------------------------------------------

    def _encoding(self, element: Element) -> Values | Text | None:
        # Return the type that holds an enum or a set: a primitive type, or a type of length 1.
        kind = self.find(element, "encodingType", element.attributes.get("encodingType", ""))
        if kind is None:
            return None
        wanted = "encodingType to be one integer or character"
        if element.tag == "set":
            wanted = "encodingType to be one unsigned integer"
        primitive = kind.primitive if isinstance(kind, Values) else PRIMITIVES["char"]
        single = (isinstance(kind, Values) and kind.length == 1) or (
            isinstance(kind, Text) and kind.size == 1
        )
        right = primitive.is_unsigned if element.tag == "set" else not primitive.is_float
        if not single or not right or cast(Values | Text, kind).constant is not None:
            self.problems.add(element, wanted, str(kind))
            return None
        return cast(Values | Text, kind)

    def _words(self, element: Element, tag: str) -> list[tuple[Element, str]]:
        # Return the named values of an enum or a set, with their texts.
        found: dict[str, tuple[Element, str]] = {}
        for child in element.children:
            if child.tag != tag:
                if child.namespace in ("", element.namespace):
                    self.problems.add(child, f"<{tag}> inside {element.label}", f"<{child.tag}>")
            elif child.name in found:
                self.problems.add(child, f"names that differ in {element.label}", child.name)
            elif self.has_name(child):
                said = child.text
                found[child.name] = child, said if len(said) == 1 else said.strip()
        return list(found.values())

    def _enum(self, element: Element) -> Enumeration | None:
        encoding = self._encoding(element)
        if encoding is None:
            return None
        is_text = isinstance(encoding, Text)
        primitive = PRIMITIVES["char"] if isinstance(encoding, Text) else encoding.primitive
        declared = self._literal(element, "nullValue", primitive)
        null = int(encoding.null if declared is None else declared)
        low, high = (0, 255) if isinstance(encoding, Text) else (encoding.low, encoding.high)
        words: dict[int, str] = {}
        for child, said in self._words(element, "validValue"):
            value = _number(primitive, said)
            if value is None or not low <= value <= high:
                what = "one character" if is_text else f"a number from {low} to {high}"
                self.problems.add(child, f"a valid value to be {what}", said or "none")
            elif value == null:
                self.problems.add(child, "a value that is not null's", said)
            elif value in words:
                other = f"{said}, as {words[int(value)]} has"
                self.problems.add(child, f"values that differ in {element.label}", other)
            else:
                words[int(value)] = child.name
        optional = self.presence(element) == "optional" or encoding.optional
        return Enumeration(element.name, primitive, words, optional, null)

    def _set(self, element: Element) -> Bits | None:
        encoding = self._encoding(element)
        if not isinstance(encoding, Values):
            return None
        primitive = encoding.primitive
        words: dict[int, str] = {}
        for child, said in self._words(element, "choice"):
            bit = int(said) if _WHOLE.fullmatch(said) else -1
            if not 0 <= bit < primitive.size * 8:
                wanted = f"a choice to be a bit from 0 to {primitive.size * 8 - 1}"
                self.problems.add(child, wanted, said or "none")
            elif bit in words:
                self.problems.add(
                    child, f"bits that differ in {element.label}", f"{said}, as {words[bit]} has"
                )
            else:
                words[bit] = child.name
        declared = self._literal(element, "nullValue", primitive)
        if declared is None and encoding.optional and self._declares_null(element):
            declared = encoding.null
        optional = self.presence(element) == "optional" or encoding.optional
        return Bits(
            element.name, primitive, words, optional, None if declared is None else int(declared)
        )

    def _declares_null(self, element: Element) -> bool:
        # Return True if the encoding type of a set declares its own null.
        encoding = self._elements.get(element.attributes.get("encodingType", ""))
        return encoding is not None and "nullValue" in encoding.attributes

    # --- <composite> ----------------------------------------------------------------------------

    def _composite(self, element: Element) -> Composite | None:
        members: dict[str, Field] = {}
        sound = True
        at = 0
        for child in element.children:
            if child.tag not in (*_TYPE_TAGS, "ref"):
                if child.namespace in ("", element.namespace):
                    wanted = f"type, ref, enum, set or composite in {element.label}"
                    self.problems.add(child, wanted, f"<{child.tag}>")
                continue
            before = len(self.problems)
            member = self._member(child, at)
            if child.name in members:
                self.problems.add(child, f"names that differ in {element.label}", child.name)
            sound &= len(self.problems) == before
            if member is not None:
                members[child.name] = member
                at = member.offset + member.size
        if at > BLOCK_BYTES_MAX:
            self.problems.add(element, f"at most {BLOCK_BYTES_MAX} bytes", at)
            sound = False
        if not members and sound:
            self.problems.add(element, "one member at least", "none")
            sound = False
        return Composite(element.name, tuple(members.values()), at) if sound else None

    def _member(self, element: Element, at: int) -> Field | None:
        since = version_of(self.problems, element, self._version)
        offset = whole(self.problems, element, "offset", 0, BLOCK_BYTES_MAX)
        if not self.has_name(element):
            return None
        if element.tag == "ref":
            kind = self.find(element, "type", element.attributes.get("type", ""))
            optional = kind is not None and kind.optional
            if "presence" in element.attributes:
                optional = self.presence(element) == "optional"
        else:
            kind = self.read(element)
            optional = kind is not None and kind.optional
        if kind is None:
            return None
        constant = getattr(kind, "constant", None)
        if offset is not None and offset < at and constant is None:
            self.problems.add(
                element, f"offset to be {at} at least, where the member before it ends", offset
            )
        place = at if offset is None or constant is not None else offset
        if isinstance(kind, Composite | Enumeration | Bits):
            return Field(element.name, None, kind, place, since, optional)
        return Field(element.name, None, kind, place, since, optional, constant)


def _number(primitive: Primitive, said: str) -> float | None:
    # Return the value of a literal in a schema, or None if the type does not have it.
    if primitive.name == "char":
        if len(said) == 1:
            return ord(said) if ord(said) <= primitive.high else None
        value: float | None = int(said) if _WHOLE.fullmatch(said) else None
    elif primitive.is_float:
        try:
            value = float(said)
        except ValueError:
            return None
        if math.isinf(value) and "n" not in said.lower():
            return None
        try:
            return primitive.stored(value)
        except OverflowError:
            return None
    else:
        value = int(said) if _WHOLE.fullmatch(said) else None
    if value is None or not primitive.low <= value <= primitive.high:
        return None
    return value
