"""Reads a schema from XML: header, messages, groups and data, with all offsets."""

from __future__ import annotations

import os

from udpfast.payload.sbe.document import Element, Problems, read_document
from udpfast.payload.sbe.model import (
    PRIMITIVES,
    Bits,
    Composite,
    Data,
    Enumeration,
    Field,
    Level,
    Number,
    Prefix,
    SchemaModel,
    Text,
    Type,
    Values,
)
from udpfast.payload.sbe.parse_types import (
    BLOCK_BYTES_MAX,
    Types,
    is_fixed,
    version_of,
    whole,
)

__all__ = ["DEPTH_MAX", "parse_schema"]

#: Groups inside groups; the walk over a message keeps a frame for each.
DEPTH_MAX = 32
_ORDERS = {"littleEndian": "<", "bigEndian": ">"}
_HEADER = ("blockLength", "templateId", "schemaId", "version")
_GROUP = ("blockLength", "numInGroup")
#: If a header has these they are written; nothing reads them.
_COUNTS = ("numGroups", "numVarDataFields")
_BIG = 2**64 - 1


def parse_schema(path: str | os.PathLike[str]) -> SchemaModel:
    """Read a schema from its XML file.

    Raises
    ------
    SchemaError
        The schema is invalid; lists all that is wrong.
    OSError
        The file cannot be read.
    """
    root = read_document(path)
    problems = Problems()
    if root.tag == "types":  # a file of types only, meant to be included
        types, root = root, Element("messageSchema", root.namespace, {"id": "0"}, root.file, 1)
        root.children.append(types)
    if root.tag != "messageSchema":
        problems.add(root, "the root <messageSchema>", f"<{root.tag}>")
        problems.check()
    schema = _Parser(root, problems).schema(str(path))
    problems.check()
    return schema


class _Parser:
    def __init__(self, root: Element, problems: Problems) -> None:
        self.root = root
        self.problems = problems
        self.version = whole(problems, root, "version", 0, _BIG) or 0
        sections = [each for each in root.children if each.tag == "types"]
        self.types = Types(problems, sections, self.version)
        self._prefixes: dict[tuple[str, tuple[str, ...]], Prefix | None] = {}

    def schema(self, path: str) -> SchemaModel:
        root = self.root
        order = root.attributes.get("byteOrder", "littleEndian")
        if order not in _ORDERS:
            self.problems.add(root, f"byteOrder to be one of {', '.join(_ORDERS)}", order)
        name = root.attributes.get("headerType", "messageHeader")
        wanted = any(each.tag == "message" for each in root.children)
        header = self._prefix(root, "headerType", name, _HEADER) if wanted else None
        number = whole(self.problems, root, "id", 0, _BIG)
        if number is None and "id" not in root.attributes:
            self.problems.add(root, "an id", "none")
        self._fits(root, "version", self.version, header, "version")
        self._fits(root, "id", number or 0, header, "schemaId")
        messages = self._messages(header)
        return SchemaModel(
            file=path,
            package=root.attributes.get("package", ""),
            id=number or 0,
            version=self.version,
            order=_ORDERS.get(order, "<"),
            header=header or _NO_PREFIX,
            messages=tuple(messages),
        )

    def _fits(
        self, element: Element, what: str, value: int, prefix: Prefix | None, name: str
    ) -> None:
        number = None if prefix is None else prefix.numbers[name]
        if number is None:
            return
        if number.constant not in (None, value):
            self.problems.add(element, f"{what} to be {name}'s constant {number.constant}", value)
        elif number.constant is None and not number.low <= value <= number.high:
            room = f"{what} to be from {number.low} to {number.high}, as {name} can hold"
            self.problems.add(element, room, value)

    # --- headers --------------------------------------------------------------------------------

    def _prefix(
        self, element: Element, attribute: str, name: str, wanted: tuple[str, ...]
    ) -> Prefix | None:
        # Return the composite of a header, with the numbers that it must have.
        key = name, wanted
        if key in self._prefixes:
            found = self._prefixes[key]
            if found is None:
                self._find_prefix(element, attribute, name, wanted)
            return found
        self._prefixes[key] = self._find_prefix(element, attribute, name, wanted)
        return self._prefixes[key]

    def _find_prefix(
        self, element: Element, attribute: str, name: str, wanted: tuple[str, ...]
    ) -> Prefix | None:
        kind = self._composite(element, attribute, name)
        if kind is None:
            return None
        numbers: dict[str, Number] = {}
        sound = True
        for each in wanted:
            number = self._number(element, kind, each)
            sound &= number is not None
            if number is not None:
                numbers[each] = number
        for each in _COUNTS:
            if kind.member(each) is not None and each not in numbers:
                number = self._number(element, kind, each)
                if number is not None:
                    numbers[each] = number
        if not sound:
            return None
        if wanted is _HEADER and not kind.size:
            self.problems.add(element, f"{kind} to have a byte at least", "constants alone")
            return None
        if not is_fixed(kind):
            self.problems.add(element, f"{kind} to have a fixed size", "a member of length 0")
            return None
        return Prefix(kind, kind.size, numbers)

    def _composite(self, element: Element, attribute: str, name: str) -> Composite | None:
        kind = self.types.find(element, attribute, name)
        if kind is not None and not isinstance(kind, Composite):
            self.problems.add(element, f"{attribute} to name a composite", f"{name}, {kind}")
            return None
        return kind

    def _number(self, element: Element, kind: Composite, name: str) -> Number | None:
        member = kind.member(name)
        if member is None:
            known = ", ".join(each.name for each in kind.members)
            self.problems.add(element, f"{kind} to have {name}", known)
            return None
        type_ = member.type
        if not isinstance(type_, Values) or type_.length != 1 or type_.primitive.is_float:
            self.problems.add(element, f"{name} of {kind} to be an integer", str(type_))
            return None
        constant = member.constant if isinstance(member.constant, int) else None
        low, high = max(0, int(type_.low)), int(type_.high)
        return Number(member.offset, type_.primitive, low, high, constant)

    # --- messages, groups -----------------------------------------------------------------------

    def _messages(self, header: Prefix | None) -> list[Level]:
        found: list[Level] = []
        ids: dict[int, Element] = {}
        names: dict[str, Element] = {}
        for element in self.root.children:
            if element.tag == "types":
                continue
            if element.tag != "message":
                if element.namespace in ("", self.root.namespace):
                    self.problems.add(element, "<types> or <message>", f"<{element.tag}>")
                continue
            number = whole(self.problems, element, "id", 0, _BIG)
            if number is None:
                if "id" not in element.attributes:
                    self.problems.add(element, "an id", "none")
            else:
                self._fits(element, "id", number, header, "templateId")
                first = ids.setdefault(number, element)
                if first is not element:
                    self.problems.add(element, f"an id other than that of {first.label}", number)
            first = names.setdefault(element.name, element)
            if first is not element:
                self.problems.add(element, f"a name other than that of {first.label}", element.name)
            found.append(self._level(element, "", header, number))
        return found

    def _level(
        self, element: Element, above: str, prefix: Prefix | None, number: int | None
    ) -> Level:
        self.types.has_name(element)
        path = f"{above}.{element.name}" if above else element.name
        since = version_of(self.problems, element, self.version)
        fields: list[Field] = []
        groups: list[Level] = []
        datas: list[Data] = []
        names: dict[str, Element] = {}
        at = 0
        for child in element.children:
            if child.tag not in ("field", "group", "data"):
                if child.namespace in ("", self.root.namespace, element.namespace):
                    self.problems.add(
                        child, f"field, group or data in {element.label}", f"<{child.tag}>"
                    )
                continue
            self._check_order(element, child, bool(groups), bool(datas))
            if names.setdefault(child.name, child) is not child:
                self.problems.add(child, f"names that differ in {element.label}", child.name)
            if child.tag == "group":
                groups.append(self._group(child, path))
            elif child.tag == "data":
                data = self._data(child)
                datas += [] if data is None else [data]
            else:
                field = self._field(child, at)
                if field is not None:
                    fields.append(field)
                    at = field.offset + field.size if field.size else at
        length = self._block_length(element, at, prefix)
        return Level(
            element.name,
            path,
            number,
            since,
            tuple(fields),
            length,
            tuple(groups),
            tuple(datas),
            prefix or _NO_PREFIX,
        )

    def _check_order(self, element: Element, child: Element, group: bool, data: bool) -> None:
        if child.tag == "field" and (group or data):
            behind = "data" if data else "a group"
            wanted = f"fields of {element.label} before groups and data"
            self.problems.add(child, wanted, f"behind {behind}")
        elif child.tag == "group" and data:
            self.problems.add(child, f"groups of {element.label} before data", "behind data")

    def _block_length(self, element: Element, at: int, prefix: Prefix | None) -> int:
        length = whole(self.problems, element, "blockLength", 0, BLOCK_BYTES_MAX)
        if length is not None and length < at:
            self.problems.add(element, f"blockLength {at} at least, where its fields end", length)
        length = max(at, length or 0)
        if length > BLOCK_BYTES_MAX:
            self.problems.add(element, f"a block of at most {BLOCK_BYTES_MAX} bytes", length)
        else:
            self._fits(element, "the block's length", length, prefix, "blockLength")
        return length

    def _group(self, element: Element, above: str) -> Level:
        if above.count(".") >= DEPTH_MAX:
            self.problems.add(element, f"at most {DEPTH_MAX} groups inside each other", "more")
            self.problems.check()
        name = element.attributes.get("dimensionType", "groupSizeEncoding")
        prefix = self._prefix(element, "dimensionType", name, _GROUP)
        number = whole(self.problems, element, "id", 0, _BIG)
        return self._level(element, above, prefix, number)

    def _data(self, element: Element) -> Data | None:
        sound = self.types.has_name(element)
        since = version_of(self.problems, element, self.version)
        number = whole(self.problems, element, "id", 0, _BIG)
        name = element.attributes.get("type", "")
        kind = self._composite(element, "type", name)
        if kind is None or not sound:
            return None
        length = self._number(element, kind, "length")
        body = kind.member("varData")
        if body is None:
            known = ", ".join(each.name for each in kind.members)
            self.problems.add(element, f"{kind} to have varData", known)
        if length is None or body is None:
            return None
        byte = isinstance(body.type, Text) or (
            isinstance(body.type, Values) and body.type.primitive.size == 1
        )
        if not byte or body is not kind.members[-1] or body.constant is not None:
            self.problems.add(
                element, f"varData of {kind} to be its last member, of bytes", str(body.type)
            )
            return None
        before = Composite(kind.name, kind.members[:-1], body.offset)
        prefix = Prefix(before, body.offset, {"length": length})
        return Data(element.name, number, since, prefix, self.types.data_codec(name))

    # --- fields ---------------------------------------------------------------------------------

    def _field(self, element: Element, at: int) -> Field | None:
        since = version_of(self.problems, element, self.version)
        number = whole(self.problems, element, "id", 0, _BIG)
        offset = whole(self.problems, element, "offset", 0, BLOCK_BYTES_MAX)
        named = self.types.has_name(element)
        kind = self.types.find(element, "type", element.attributes.get("type", ""))
        if kind is None:
            return None
        default = "optional" if kind.optional else "required"
        constant = getattr(kind, "constant", None)
        presence = self.types.presence(element, "constant" if constant is not None else default)
        if constant is not None and presence != "constant":
            self.problems.add(element, f"presence constant, as {kind} has", presence)
        of_constants = isinstance(kind, Composite) and not kind.size
        if (
            presence == "constant"
            and not of_constants
            and (constant is None or "valueRef" in element.attributes)
        ):
            constant = self._constant(element, kind)
            if constant is None:
                return None
        if constant is None and not is_fixed(kind):
            self.problems.add(element, "a type of a fixed size", f"{kind}, of length 0")
            return None
        if constant is None and offset is not None and offset < at:
            self.problems.add(
                element, f"offset to be {at} at least, where the field before it ends", offset
            )
        if not named:
            return None
        place = at if offset is None or constant is not None else offset
        return Field(element.name, number, kind, place, since, presence == "optional", constant)

    def _constant(self, element: Element, kind: Type) -> object:
        # Return a field's constant, from its valueRef or its text.
        reference = element.attributes.get("valueRef")
        if isinstance(kind, Composite | Bits):
            self.problems.add(element, "a constant to be a number, a text or an enum", str(kind))
            return None
        primitive = PRIMITIVES["char"] if isinstance(kind, Text) else kind.primitive
        if isinstance(kind, Enumeration):
            if reference is None:
                said = element.text.strip()
                if said in kind.words.values():
                    return said
                self.problems.add(element, f"a valueRef to a value of {kind}", said or "none")
                return None
            owner = self.types.find(element, "valueRef", reference.partition(".")[0])
            if owner is not None and owner is not kind:
                self.problems.add(element, f"a valueRef to a value of {kind}", reference)
                return None
            return self.types.reference(element, reference, None)
        return self.types.constant(element, primitive, kind.size or None)


_NO_PREFIX = Prefix(Composite("", (), 0), 0, {})
