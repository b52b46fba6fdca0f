"""Layouts: the names, types and offsets of the fields of records and their payloads.

Kept data outlives the version that wrote it. It is stored with its layouts, by which any other
version, later or earlier, reads it field by field (`log.translation`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from udpfast.core.layout import CONTROL_DTYPES, RECORD, Kind

__all__ = ["CONTROL_LAYOUTS", "ROW_COUNT", "Layouts"]

#: The field of an update with the number of rows that follow.
ROW_COUNT = "row_count"

#: Fields by which a log is walked: the same in every version (a segment's version stands for them).
_WALKED = {
    "length": ("<i4", 0),
    "kind": ("|u1", 4),
    "position": ("<u8", 8),
    "index": ("<u8", 16),
    "published_ns": ("<i8", 32),
    "checksum": ("<u4", 60),
}

#: Exceptions that parsing arbitrary bytes as layouts may raise.
_NONSENSE = (
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
    RecursionError,
    SyntaxError,
)

Dtype = np.dtype[Any]


class Layouts:
    """The layouts of a log's records.

    Attributes
    ----------
    header : numpy.dtype
        Layout of the header of every record.
    payloads : dict
        Layout of the beginning of a payload, by kind. Payloads of other kinds are as published.
    rows : dict
        Layout of the rows that follow, by kind; the payload's `row_count` is their number.
    """

    def __init__(
        self,
        header: Dtype,
        payloads: Mapping[int, Dtype],
        rows: Mapping[int, Dtype] = MappingProxyType({}),
    ) -> None:
        self.header, self.payloads, self.rows = header, payloads, rows

    @cached_property
    def hash(self) -> int:
        """64-bit hash of all names, types and offsets, which the files of a log carry."""
        digest = hashlib.sha256(json.dumps(self._described()).encode()).digest()
        return int.from_bytes(digest[:8], "little")

    @property
    def raw(self) -> bool:
        """Whether these are layouts of a raw capture: no payload is an update."""
        return not any(Kind.BOOK <= kind < Kind.BUS for kind in self.payloads)

    def to_json(self, version: str) -> str:
        """Return the layouts as text, one struct per line, with the version that writes them."""
        parts = [f'"version": {json.dumps(version)}']
        for name, value in self._described().items():
            parts.append(f"{json.dumps(name)}: {_lines(value)}")
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @staticmethod
    def from_json(text: str | bytes) -> Layouts:
        """Return the layouts in a text made by `to_json`.

        Raises
        ------
        ValueError
            The text has no layouts, or those of records that this version cannot walk.
        """
        try:
            found = json.loads(text)
            layouts = Layouts(
                _dtype(found["header"]),
                {int(kind): _dtype(each) for kind, each in found["payloads"].items()},
                {int(kind): _dtype(each) for kind, each in found["rows"].items()},
            )
        except _NONSENSE as error:
            raise ValueError(f"expected layouts, found something else: {error}") from None
        layouts._check()
        return layouts

    def _described(self) -> dict[str, Any]:
        return {
            "header": _fields(self.header),
            "payloads": {str(int(kind)): _fields(each) for kind, each in self.payloads.items()},
            "rows": {str(int(kind)): _fields(each) for kind, each in self.rows.items()},
        }

    def _check(self) -> None:
        fields: Any = self.header.fields or {}
        for name, (type_, offset) in _WALKED.items():
            found = fields.get(name)
            if found is None or (found[0].str, found[1]) != (type_, offset):
                raise ValueError(
                    f"expected the header's {name} as {type_} at {offset}, found "
                    f"{None if found is None else (found[0].str, found[1])}"
                )
        if self.header.itemsize < RECORD.itemsize or self.header.itemsize % 8:
            raise ValueError(
                f"expected a header of {RECORD.itemsize} bytes or more, a multiple "
                f"of 8, found {self.header.itemsize}"
            )
        for kind in self.rows:
            if ROW_COUNT not in (self.payloads[kind].fields or {} if kind in self.payloads else {}):
                raise ValueError(
                    f"expected rows of kind {kind} behind a payload with {ROW_COUNT}, found none"
                )


def _fields(dtype: Dtype) -> list[Any]:
    # Return [size, [name, type, offset], ...].
    fields: Any = dtype.fields or {}
    return [dtype.itemsize, *([name, fields[name][0].str, fields[name][1]] for name in fields)]


def _dtype(described: list[Any]) -> Dtype:
    size, *fields = described
    names, formats, offsets = zip(*fields, strict=True)
    return np.dtype(
        {
            "names": list(names),
            "formats": [_type(each) for each in formats],
            "offsets": list(offsets),
            "itemsize": size,
        }
    )


def _type(text: str) -> Dtype:
    found = np.dtype(text)
    if found.kind not in "uifSV" or found.itemsize == 0:
        raise ValueError(f"expected a number, a text or bytes, found {text!r}")
    return found


def _lines(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    rows = (f"  {json.dumps(kind)}: {json.dumps(each)}" for kind, each in value.items())
    return "{\n" + ",\n".join(rows) + "\n}" if value else "{}"


#: The layouts of a log without updates, that is, a raw capture.
CONTROL_LAYOUTS = Layouts(RECORD, {int(kind): each for kind, each in CONTROL_DTYPES.items()})
