"""SBE messages in records as tables for Parquet and Spark: one table per message and group.

The record's columns come first, then those of the schema. A schema column gets a trailing `_` if
its name is taken; names are compared without case, as in Spark. A type that Spark lacks becomes the
next wider one; unsigned 64-bit integers keep their bits.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from udpfast.core.layout import RECORD
from udpfast.errors import ConfigError
from udpfast.export.schema import PARTITION_COLUMNS, Table, partition_schema
from udpfast.market.block import Block
from udpfast.payload.sbe.payloads import MESSAGE_KINDS, payloads_in
from udpfast.payload.sbe.rows import Rows
from udpfast.payload.sbe.schema import FRAMINGS, Schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SbeTables"]

#: Columns with fields of the row's record.
_RECORD = ("position", "index", "received_ns", "published_ns")
_OWN = ("feed", *_RECORD, "row", "parent")


class SbeTables:
    """The tables of a schema.

    Parameters
    ----------
    path : path-like
        XML file of the schema.
    framing : str
        Framing of the feed, if a record contains all messages of a datagram; otherwise empty.

    Attributes
    ----------
    tables : dict
        Table by path of the message or group; the table's name is `sbe/PATH`.
    identity : str
        Hash of all columns, to recognise tables that another schema made.
    """

    def __init__(self, path: str | os.PathLike[str], framing: str = "") -> None:
        if framing and framing not in FRAMINGS:
            raise ConfigError(f"framing must be one of {', '.join(FRAMINGS)}, was {framing!r}")
        self._schema = Schema(path)
        self._framing = framing
        self.tables = {
            name: Table(f"sbe/{name}", ("MESSAGE",), False, True, "", ()) for name in self._schema
        }
        said = "\n".join(f"{name}: {self.arrow_schema(name)}" for name in self.tables)
        self.identity = hashlib.sha256(f"{framing}\n{said}".encode()).hexdigest()[:16]

    def arrow_schema(self, name: str, *, partitions: bool = False) -> pa.Schema:
        """Return the Arrow schema of a table's files, or with the partition columns."""
        import pyarrow as pa

        from udpfast.payload.sbe.arrow import level_schema

        layout = self._schema.layout(name)
        fields = [pa.field("feed", pa.string())]
        fields += [pa.field(each, pa.int64()) for each in _RECORD]
        fields += [pa.field("row", pa.int32())]
        if layout.parent is not None:
            fields.append(pa.field("parent", pa.int32()))
        typed = level_schema(layout)
        names = _free_names(typed.names)
        fields += [
            pa.field(free, _spark_type(each.type)) for free, each in zip(names, typed, strict=True)
        ]
        return pa.schema([*fields, *partition_schema()] if partitions else fields)

    def walk(self, block: Block, keep: NDArray[np.bool_] | None = None) -> SbeBlock:
        """Return the SBE messages of a block of records.

        Parameters
        ----------
        block : Block
            The records.
        keep : ndarray of bool, optional
            By record: False leaves the record out.
        """
        found = block.select(sum(1 << kind for kind in MESSAGE_KINDS), False, keep)
        names = ("kind", "length", "stream", *_RECORD)
        fields = RECORD.fields
        assert fields is not None
        headers = np.zeros(found.count, [(name, fields[name][0]) for name in names])
        offsets = np.zeros(1, np.int32)
        memory = np.zeros(0, np.uint8)
        if found.count:
            for name in names:
                dtype, offset = fields[name][:2]
                headers[name] = found.column("record", offset, dtype)
            offsets, memory = found.payloads()
        payloads = payloads_in(memory, offsets[:-1].astype(np.uint64), headers)
        rows = self._schema.rows(payloads, framing=self._framing)
        return SbeBlock(self, rows, headers)


class SbeBlock:
    """The SBE messages of a block of records.

    Attributes
    ----------
    damaged : dict
        For each damaged payload, the reason by position of its record.
    """

    def __init__(self, tables: SbeTables, rows: Rows, headers: NDArray[Any]) -> None:
        self._tables = tables
        self._rows = rows
        self._headers = headers
        self.damaged = {int(headers["position"][index]): reason for index, reason in rows.damage()}

    def levels(self) -> tuple[str, ...]:
        """Return the names of the tables that have rows."""
        return tuple(self._rows)

    def batch(self, name: str, feed: str) -> pa.RecordBatch:
        """Return the rows of one table."""
        import pyarrow as pa

        from udpfast.payload.sbe.arrow import level_arrays

        layout = self._rows.schema.layout(name)
        schema = self._tables.arrow_schema(name)
        if not self._rows.count(name):
            return pa.RecordBatch.from_pylist([], schema)
        places = self._rows.places(name)
        columns = [pa.array([feed]).take(pa.array(np.zeros(len(places), np.int32)))]
        columns += [self._headers[each][places["payload"]].astype(np.int64) for each in _RECORD]
        columns.append(_ordinals(places["payload"]))
        if layout.parent is not None:
            above = self._rows.places(layout.parent.level.path)
            columns.append(_ordinals(above["payload"])[places["parent"]])
        columns += level_arrays(self._rows, layout).values()
        arrays = [
            _as_type(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _ordinals(payloads: NDArray[np.int64]) -> NDArray[np.int32]:
    # Number the rows of each payload 0, 1, ...; they are consecutive.
    begins = np.flatnonzero(np.diff(payloads, prepend=-1))
    counts = np.diff(np.append(begins, len(payloads)))
    found: NDArray[np.int32] = (np.arange(len(payloads)) - np.repeat(begins, counts)).astype("i4")
    return found


def _free_names(names: list[str]) -> list[str]:
    taken = {name.lower() for name in (*_OWN, *PARTITION_COLUMNS)}
    found = []
    for name in names:
        free = name
        while free.lower() in taken:
            free += "_"
        taken.add(free.lower())
        found.append(free)
    return found


def _spark_type(type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return type_.value_type
    if pa.types.is_fixed_size_list(type_) or pa.types.is_list(type_):
        return pa.list_(_spark_type(type_.value_type))
    if pa.types.is_struct(type_):
        names = _free_in([field.name for field in type_])
        return pa.struct(
            [(name, _spark_type(field.type)) for name, field in zip(names, type_, strict=True)]
        )
    if pa.types.is_integer(type_):
        is_wide = type_.bit_width == 64 or type_ == pa.uint32()
        return pa.int64() if is_wide else pa.int32()
    return type_


def _free_in(names: list[str]) -> list[str]:
    # Return names for the members of a struct that differ even without case.
    taken: set[str] = set()
    found = []
    for name in names:
        free = name
        while free.lower() in taken:
            free += "_"
        taken.add(free.lower())
        found.append(free)
    return found


def _as_type(column: Any, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    array = column if isinstance(column, pa.Array) else pa.array(column)
    if pa.types.is_struct(type_):
        inner = [_as_type(array.field(i), field.type) for i, field in enumerate(type_)]
        return pa.StructArray.from_arrays(inner, fields=list(type_), mask=array.is_null())
    if array.type == pa.uint64():
        return array.view(pa.int64()) if type_ == pa.int64() else array.cast(type_, safe=False)
    return array.cast(type_, safe=False)
