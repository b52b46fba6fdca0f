"""Makes messages from values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from udpfast.errors import FormatError, shown
from udpfast.payload.sbe.layout import Block, LevelLayout, prefix_block
from udpfast.payload.sbe.model import Composite, Data, Field, Level, Prefix, Text, Values
from udpfast.payload.sbe.values import bytes_of

__all__ = ["Encoder"]


class Encoder:
    """Makes the messages of one schema.

    Parameters
    ----------
    layouts : dict of str to LevelLayout
        The levels by their paths.
    header : Prefix
        The message header.
    order : str
        Byte order, `"<"` or `">"`.
    schema_id, version : int
        Of the schema.
    """

    def __init__(
        self,
        layouts: dict[str, LevelLayout],
        header: Prefix,
        order: str,
        schema_id: int,
        version: int,
    ) -> None:
        self._layouts = layouts
        self._header = header
        self._order = order
        self._ids = {"schemaId": schema_id, "version": version}
        self._block = cache(self._make_block)
        self._prefixes: dict[int, tuple[Prefix, Block]] = {}

    def message(self, path: str, values: Mapping[str, Any], header: Mapping[str, Any]) -> bytes:
        """Return the bytes of a message.

        Parameters
        ----------
        path : str
            The message's name.
        values : mapping
            Its fields, groups and data.
        header : mapping
            The header's members that do not follow from the schema.

        Raises
        ------
        FormatError, RangeError
            A value is missing, of another kind, or does not fit.
        """
        level = self._layouts[path].level
        out = bytearray()
        numbers = self._ids | {
            "blockLength": level.block_length,
            "templateId": level.id or 0,
            "numGroups": len(level.groups),
            "numVarDataFields": len(level.datas),
        }
        for name in numbers:
            if name in header:
                raise FormatError(f"the header's {name} follows from the schema: leave it out")
        self._prefix(out, self._header, numbers, f"{path} header", header)
        self._level(out, level, values, path)
        return bytes(out)

    def _make_block(self, path: str) -> Block:
        return self._layouts[path].block

    def _level(self, out: bytearray, level: Level, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise FormatError(f"{where}: expected a mapping of values, found {shown(values)}")
        block = self._block(level.path)
        others = [group.name for group in level.groups] + [data.name for data in level.datas]
        block.codec.check_names(values, where, *others)
        out += block.struct.pack(*block.codec.write(values, where))
        for group in level.groups:
            self._group(out, group, values.get(group.name), f"{where}.{group.name}")
        for data in level.datas:
            self._data(out, data, values.get(data.name), f"{where}.{data.name}")

    def _group(self, out: bytearray, group: Level, given: Any, where: str) -> None:
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable | None):
            raise FormatError(f"{where}: expected a list of rows, found {shown(given)}")
        rows = [] if given is None else list(given)
        numbers = {
            "blockLength": group.block_length,
            "numInGroup": len(rows),
            "numGroups": len(group.groups),
            "numVarDataFields": len(group.datas),
        }
        self._prefix(out, group.prefix, numbers, where, {})
        for i, row in enumerate(rows):
            self._level(out, group, row, f"{where}[{i}]")

    def _data(self, out: bytearray, data: Data, given: Any, where: str) -> None:
        raw = b"" if given is None else bytes_of(given, data.codec, where)
        self._prefix(out, data.prefix, {"length": len(raw)}, where, {})
        out += raw

    def _prefix(
        self,
        out: bytearray,
        prefix: Prefix,
        numbers: Mapping[str, int],
        where: str,
        others: Mapping[str, Any],
    ) -> None:
        # Append a header: its numbers, what the caller gave for other members, null or zero for the
        # rest.
        known = self._prefixes.get(id(prefix))
        if known is None:
            known = prefix, prefix_block(prefix, self._order)
            self._prefixes[id(prefix)] = known
        block = known[1]
        block.codec.check_names(others, where)
        values: dict[str, Any] = {}
        for member in prefix.composite.members:
            if member.name in prefix.numbers:
                values[member.name] = numbers[member.name]
            elif member.name in others:
                values[member.name] = others[member.name]
            else:
                values[member.name] = _nothing(member)
        out += block.struct.pack(*block.codec.write(values, where))


def _nothing(field: Field) -> Any:
    kind = field.type
    if field.optional or field.constant is not None:
        return None
    if isinstance(kind, Composite):
        return {member.name: _nothing(member) for member in kind.members}
    if isinstance(kind, Text):
        return ""
    return [0] * kind.length if isinstance(kind, Values) and kind.length != 1 else 0
