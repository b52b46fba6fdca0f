"""Random schemas of SBE and random messages of theirs, and what these are, naively.

`Oracle` lays a message out by hand, walks over bytes by slicing them, and says what a decoder of
the whole schema should return for a message of an older or a newer version.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from .sbe_types import (
    NUMBERS,
    UNSIGNED,
    Kind,
    NumberKind,
    Sample,
    number_bytes,
    random_kind,
)

__all__ = ["Made", "Oracle", "OracleLevel"]

NEWEST = 4
#: Rows of a message that may take no byte.
EMPTY_ROWS = 65_535
#: Types of data, and the encodings of their texts.
_DATA = {
    "bytesData": "",
    "utf8Data": "UTF-8",
    "asciiData": "ASCII",
    "utf16Data": "UTF-16LE",
    "utf32Data": "UTF-32BE",
    "gbData": "GB18030",
}


@dataclass
class OracleField:
    """A field at its place."""

    name: str
    kind: Kind
    type_name: str
    offset: int
    since: int
    optional: bool
    is_placed: bool


@dataclass
class OracleLevel:
    """A message or a group."""

    name: str
    path: str
    since: int
    dimensions: str
    fields: list[OracleField] = field(default_factory=list)
    groups: list[OracleLevel] = field(default_factory=list)
    datas: list[tuple[str, str, int]] = field(default_factory=list)  # name, type, since
    length: int = 0
    declared: bool = False

    def end(self, version: int) -> int:
        """Return where the fields of a version end."""
        ends = [f.offset + f.kind.size for f in self.fields if f.since <= version and f.kind.size]
        return max(ends, default=0)

    @property
    def levels(self) -> list[OracleLevel]:
        """This one and all below it."""
        return [self, *(inner for group in self.groups for inner in group.levels)]


@dataclass
class Made:
    """A message: what is given to an encoder, what a decoder returns, bytes, rows by level."""

    given: dict[str, Any]
    expected: dict[str, Any]
    raw: bytes
    columns: dict[str, list[dict[str, Any]]]


class Oracle:
    """A schema by a seed.

    Attributes
    ----------
    xml : str
    messages : list of OracleLevel
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.big = rng.random() < 0.4
        self.id = rng.randint(0, 200)
        self.header = self._prefix(["blockLength", "templateId", "schemaId", "version"])
        self.named: dict[str, Kind] = {}
        for i in range(rng.randint(3, 8)):
            self.named[f"T{i}"] = random_kind(rng, self.named)
        self.dimensions = {
            name: self._prefix(["blockLength", "numInGroup"])
            for name in ("groupSizeEncoding", "otherSizes")
        }
        self.texts = {
            name: (rng.choice(UNSIGNED[:3]), rng.choice(["uint8", "char"]), encoding)
            for name, encoding in _DATA.items()
        }
        self.messages = [self._level(f"M{i}", "", 0) for i in range(rng.randint(1, 3))]
        ids = rng.sample(range(250), len(self.messages))
        self.ids = {each.name: i for each, i in zip(self.messages, ids, strict=True)}
        self.xml = self._xml()

    # --- the schema -----------------------------------------------------------------------------

    def _prefix(self, names: list[str]) -> dict[str, tuple[int, str, bool]]:
        # A header: name -> offset, primitive type, whether the offset is said.
        rng = self.rng
        wanted = [*names, "more"] if rng.random() < 0.3 else list(names)
        if rng.random() < 0.3:
            rng.shuffle(wanted)
        if rng.random() < 0.3:
            wanted += ["numGroups", "numVarDataFields"]
        found: dict[str, tuple[int, str, bool]] = {}
        at = 0
        for name in wanted:
            primitive = rng.choice(["uint16", "uint16", "uint32", "uint64"])
            if name in ("templateId", "schemaId", "version", "numInGroup", "numGroups"):
                primitive = rng.choice(UNSIGNED)
            is_placed = rng.random() < 0.15
            at += rng.choice([1, 3]) if is_placed else 0
            found[name] = at, primitive, is_placed
            at += NUMBERS[primitive][0]
        return found

    def _level(self, name: str, above: str, depth: int) -> OracleLevel:
        rng = self.rng
        path = f"{above}.{name}" if above else name
        level = OracleLevel(name, path, 0, rng.choice(list(self.dimensions)))
        at = 0
        for i, since in enumerate(self._sinces(rng.randint(0, 7))):
            type_name = rng.choice([*self.named, "int32", "uint64", "double"])
            kind = self.named.get(type_name)
            if kind is None:
                kind = NumberKind(NUMBERS[type_name][0], False, type_name)
            is_placed = rng.random() < 0.2 and kind.size > 0
            offset = at + (rng.choice([0, 2, 8]) if is_placed else 0)
            optional = kind.optional or (rng.random() < 0.2 and hasattr(kind, "primitive"))
            optional &= kind.size > 0
            level.fields.append(
                OracleField(f"f{i}", kind, type_name, offset, since, optional, is_placed)
            )
            at = offset + kind.size if kind.size else at
        level.declared = rng.random() < 0.3
        level.length = at + (rng.choice([0, 0, 3, 16]) if level.declared else 0)
        if depth < 3:
            for i, since in enumerate(self._sinces(rng.choice([0, 0, 1, 2]))):
                group = self._level(f"g{i}", path, depth + 1)
                group.since = since
                level.groups.append(group)
        for i, since in enumerate(self._sinces(rng.choice([0, 0, 1, 2]))):
            level.datas.append((f"d{i}", rng.choice(list(self.texts)), since))
        return level

    def _sinces(self, count: int) -> list[int]:
        return sorted(self.rng.choice([0, 0, 0, 1, 2, 3, NEWEST]) for _ in range(count))

    def _xml(self) -> str:
        types = [self._prefix_xml("someHeader", self.header)]
        types += [self._prefix_xml(name, spec) for name, spec in self.dimensions.items()]
        for name, (length, body, encoding) in self.texts.items():
            said = f' characterEncoding="{encoding}"' if encoding else ""
            types.append(
                f'<composite name="{name}"><type name="length" primitiveType="{length}"/>'
                f'<type name="varData" primitiveType="{body}" length="0"{said}/></composite>'
            )
        types += [kind.xml(name) for name, kind in self.named.items()]
        self.rng.shuffle(types)
        order = "bigEndian" if self.big else "littleEndian"
        messages = "\n".join(
            f'<m:message name="{m.name}" id="{self.ids[m.name]}"{self._length(m)}>'
            f"{self._level_xml(m)}</m:message>"
            for m in self.messages
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n<m:messageSchema xmlns:m="urn:any" '
            f'id="{self.id}" version="{NEWEST}" byteOrder="{order}" headerType="someHeader">\n'
            f"<types>\n{chr(10).join(types)}\n</types>\n{messages}\n</m:messageSchema>\n"
        )

    def _prefix_xml(self, name: str, spec: dict[str, tuple[int, str, bool]]) -> str:
        inner = "".join(
            f'<type name="{each}" primitiveType="{primitive}"'
            f"{f' offset={chr(34)}{offset}{chr(34)}' if is_placed else ''}/>"
            for each, (offset, primitive, is_placed) in spec.items()
        )
        return f'<composite name="{name}">{inner}</composite>'

    @staticmethod
    def _length(level: OracleLevel) -> str:
        return f' blockLength="{level.length}"' if level.declared else ""

    def _level_xml(self, level: OracleLevel) -> str:
        found = ""
        for i, each in enumerate(level.fields):
            said = f' offset="{each.offset}"' if each.is_placed else ""
            said += f' sinceVersion="{each.since}"' if each.since else ""
            said += ' presence="optional"' if each.optional and not each.kind.optional else ""
            found += f'\n<field name="{each.name}" id="{i}" type="{each.type_name}"{said}/>'
        for group in level.groups:
            said = f' sinceVersion="{group.since}"' if group.since else ""
            found += (
                f'\n<group name="{group.name}" id="1" dimensionType="{group.dimensions}"{said}'
                f"{self._length(group)}>{self._level_xml(group)}</group>"
            )
        for name, kind, since in level.datas:
            said = f' sinceVersion="{since}"' if since else ""
            found += f'\n<data name="{name}" id="2" type="{kind}"{said}/>'
        return found

    # --- messages -------------------------------------------------------------------------------

    def message(self, level: OracleLevel, version: int = NEWEST, short: bool = False) -> Made:
        """Return a message as the schema of a version writes it, and as this schema reads it.

        Before `NEWEST` without what came later, at times with bytes of no meaning in its place;
        behind it with more bytes in each block, and behind the message. A short one has blocks that
        end before some of its fields, whatever its version says.
        """
        self._short = short
        self._lengths: dict[str, int] = {}
        made = Made({}, {}, b"", {each.path: [] for each in level.levels})
        self._rows = made.columns
        numbers = {"templateId": self.ids[level.name], "schemaId": self.id, "version": version}
        given, expected, raw, length = self._put(level, version)
        made.given, made.expected = given, expected
        made.raw = self._prefix_bytes(self.header, level, numbers | {"blockLength": length}) + raw
        if version > NEWEST:
            made.raw += self.rng.randbytes(self.rng.randint(0, 9))
        return made

    def _put(self, level: OracleLevel, version: int) -> tuple[dict[str, Any], Any, bytes, int]:
        rng = self.rng
        given: dict[str, Any] = {}
        expected: dict[str, Any] = {}
        columns: dict[str, Any] = {}
        if level.path not in self._lengths:  # all rows of a message's group have one
            self._lengths[level.path] = self._length_of(level, version)
        length = self._lengths[level.path]
        block = bytearray(length) if version == NEWEST else bytearray(rng.randbytes(length))
        for each in level.fields:
            made = each.kind.sample(rng, self.big, each.optional)
            if each.since > version or (each.kind.size and each.offset + each.kind.size > length):
                made = Sample(None, None, b"", None)
            elif isinstance(made.raw, bytes) and made.raw:
                block[each.offset : each.offset + len(made.raw)] = made.raw
            if made.given is not None or rng.random() < 0.5:
                given[each.name] = made.given
            expected[each.name], columns[each.name] = made.expected, made.column
        self._rows[level.path].append(columns)
        raw = bytes(block)
        for group in level.groups:
            given[group.name], expected[group.name] = [], []
            if group.since > version:
                continue
            count = rng.choice([0, 1, 1, 2, 3])
            rows = [self._put(group, version) for _ in range(count)]
            length_of_rows = rows[0][3] if rows else group.length
            dimensions = {"blockLength": length_of_rows, "numInGroup": count}
            raw += self._prefix_bytes(self.dimensions[group.dimensions], group, dimensions)
            for row_given, row_expected, row_raw, _ in rows:
                raw += row_raw
                given[group.name].append(row_given)
                expected[group.name].append(row_expected)
        for name, kind, since in level.datas:
            expected[name] = columns[name] = None
            if since > version:
                continue
            length_type, _, encoding = self.texts[kind]
            body = bytes(rng.randbytes(rng.randint(0, 9)))
            value: Any = body
            if encoding:
                value = "".join(rng.choice("abcxyz ") for _ in range(rng.randint(0, 9)))
                value += "ä" * (encoding != "ASCII" and rng.random() < 0.3)
                body = value.encode(encoding)
            raw += number_bytes(len(body), length_type, self.big) + body
            given[name] = expected[name] = columns[name] = value
        return given, expected, raw, length

    def _length_of(self, level: OracleLevel, version: int) -> int:
        rng = self.rng
        length = level.length
        if version < NEWEST:
            length = level.end(version) + rng.choice([0, 0, 4])
        elif version > NEWEST:
            length += rng.randint(0, 9)
        if self._short and level.fields:
            length = min(length, rng.choice(level.fields).offset)
        return length

    def _prefix_bytes(
        self,
        spec: dict[str, tuple[int, str, bool]],
        level: OracleLevel,
        numbers: dict[str, int],
    ) -> bytes:
        known = {"numGroups": len(level.groups), "numVarDataFields": len(level.datas), **numbers}
        raw = bytearray(self.prefix_size(spec))
        for name, (offset, primitive, _) in spec.items():
            said = number_bytes(known.get(name, 0), primitive, self.big)
            raw[offset : offset + len(said)] = said
        return bytes(raw)

    @staticmethod
    def prefix_size(spec: dict[str, tuple[int, str, bool]]) -> int:
        """Return the bytes of a header."""
        return max(offset + NUMBERS[primitive][0] for offset, primitive, _ in spec.values())

    # --- walking over any bytes -----------------------------------------------------------------

    def fits(self, raw: bytes) -> bool:
        """Whether bytes are a message, by cutting pieces off from the front."""
        size = self.prefix_size(self.header)
        if len(raw) < size:
            return False
        numbers = {name: self._number(raw, self.header, name) for name in self.header}
        levels = [m for m in self.messages if self.ids[m.name] == numbers["templateId"]]
        if numbers["schemaId"] != self.id or not levels:
            return False
        self._rows_left = len(raw) + EMPTY_ROWS
        rest = self._cut(raw[size:], numbers["blockLength"])
        if rest is not None:
            rest = self._step(levels[0], rest, numbers["version"])
        return rest is not None and (not rest or numbers["version"] > NEWEST)

    def _number(self, raw: bytes, spec: dict[str, tuple[int, str, bool]], name: str) -> int:
        offset, primitive, _ = spec[name]
        piece = raw[offset : offset + NUMBERS[primitive][0]]
        return int.from_bytes(piece, "big" if self.big else "little")

    @staticmethod
    def _cut(raw: bytes, size: int) -> bytes | None:
        return None if size > len(raw) else raw[size:]

    def _step(self, level: OracleLevel, raw: bytes, version: int) -> bytes | None:
        rest: bytes | None = raw
        for group in level.groups:
            if rest is None or group.since > version:
                continue
            spec = self.dimensions[group.dimensions]
            size = self.prefix_size(spec)
            if len(rest) < size:
                return None
            count = self._number(rest, spec, "numInGroup")
            length = self._number(rest, spec, "blockLength")
            rest = rest[size:]
            self._rows_left -= count
            if self._rows_left < 0 or count * length > len(rest):
                return None
            for _ in range(count):
                rest = self._cut(rest, length)
                rest = rest if rest is None else self._step(group, rest, version)
                if rest is None:
                    return None
        for _, kind, since in level.datas:
            if rest is None or since > version:
                continue
            size = NUMBERS[self.texts[kind][0]][0]
            if len(rest) < size:
                return None
            length = int.from_bytes(rest[:size], "big" if self.big else "little")
            rest = self._cut(rest[size:], length)
        return rest
