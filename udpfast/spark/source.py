"""A journal as a data source of Spark: `spark.read.format("udpfast").load("deribit")`.

The tables and columns are those of an export (`export/schema.py`), so a query can read data that
is not exported yet, or that is still being recorded. Tasks yield only Arrow batches.

Spark asks a source for all columns and rows, even if a query needs few of them; the source has
options to limit both. With the option `pushdown` the query's own filters limit the rows, if the
session allows it (`spark.sql.python.filterPushdown.enabled`).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from msgspec import structs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from udpfast.archive.bus_files import stored_journal
from udpfast.client.unpublished import describe_unpublished
from udpfast.core.moment import unix_ns
from udpfast.errors import ConfigError, FormatError
from udpfast.export.scan import FIELDS, Condition, Scan
from udpfast.export.segments import Part
from udpfast.spark.options import OPTIONS, flag_of, list_of, number_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JournalPartition", "JournalReader", "UdpfastSource", "scan_of"]

_PIECE_BYTES_MIN = 1 << 16
_DAY_NS = 86_400_000_000_000
_EPOCH = datetime.date(1970, 1, 1)


@dataclass
class JournalPartition(InputPartition):
    """The part of a journal that one task reads."""

    piece: Part


class UdpfastSource(DataSource):
    """Tables of a journal: their current rows, or a stream of them as the journal grows."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the source for `format`."""
        return "udpfast"

    def schema(self) -> StructType:
        """Return the requested columns, all by default, with the partition columns last."""
        own = _fields(_scan(self.options))
        columns = list_of(self.options, "columns")
        if columns is None:
            return StructType(list(own.values()))
        for at, name in enumerate(columns):
            if name not in own:
                raise ConfigError(f"columns must be among {', '.join(own)}, had {name!r}")
            if name in columns[:at]:
                raise ConfigError(f"columns must name each column once, had {name!r} twice")
        return StructType([own[name] for name in columns])

    def reader(self, schema: StructType) -> JournalReader:
        """Return a reader of the current records.

        Raises
        ------
        FormatError
            The journal has not published a name of `symbols` or `exchanges`. A stream waits for it.
        """
        scan = scan_of(self.options, schema)
        if said := describe_unpublished(
            Path(scan.journal), scan.exchanges or (), scan.symbols or ()
        ):
            raise FormatError(f"{scan.journal}: {said}")
        return PushdownReader(scan) if flag_of(self.options, "pushdown") else JournalReader(scan)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        """Return a reader of the current records and of those that follow."""
        from udpfast.spark.stream import JournalStreamReader

        return JournalStreamReader(
            scan_of(self.options, schema),
            first=self.options.get("from", "begin"),
            max_records=number_of(self.options, "max_records", 1),
            skip_loss=flag_of(self.options, "skip_loss"),
        )


class JournalReader(DataSourceReader):
    """A table of a journal, with the current records.

    Parameters
    ----------
    scan : Scan
    """

    def __init__(self, scan: Scan) -> None:
        self.scan = scan

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the journal, one per task."""
        return [JournalPartition(piece) for piece in self.scan.pieces()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition. Spark passes None if there is none: it has no rows."""
        if not isinstance(partition, JournalPartition):
            return iter(())
        return self.scan.batches(partition.piece)


class PushdownReader(JournalReader):
    """A reader that applies those filters of the query that it can, so that Spark need not."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take over the filters that can be applied to records; yield the others back."""
        for each in filters:
            changed = _push(self.scan, each)
            if changed is None:
                yield each
            else:
                self.scan = changed


def _push(scan: Scan, asked: Filter) -> Scan | None:
    # Return the scan with one more condition, or None if the scan cannot apply it.
    attribute: tuple[str, ...] = getattr(asked, "attribute", ())
    name = attribute[0] if len(attribute) == 1 else ""
    if scan.table in ("races", "latency"):
        return None
    if scan.schema and name not in ("position", "index", "received_ns", "published_ns"):
        return None  # other columns belong to the schema, even if records have the same name
    if name in ("symbol", "exchange") or (name == "kind" and scan.table == "messages"):
        return _push_words(scan, asked, f"{name}s")
    if isinstance(asked, IsNotNull) and name in (*FIELDS, "kind", "date"):
        return scan  # these columns are never NULL
    # A bound that is not an integer has a type that Spark compares in its own way.
    value = getattr(asked, "value", None)
    if name == "date" and type(value) is datetime.date:
        first = (value - _EPOCH).days * _DAY_NS
        name, last = "published_ns", first + _DAY_NS - 1
    elif name in FIELDS and type(value) is int:
        first = last = value
    else:
        return None
    bounds = _bounds(asked, first, last)
    if bounds is None:
        return None
    return structs.replace(scan, conditions=(*scan.conditions, Condition(name, *bounds)))


def _push_words(scan: Scan, asked: Filter, field: str) -> Scan | None:
    if getattr(scan, field) is not None:
        return None
    if isinstance(asked, EqualTo | EqualNullSafe) and isinstance(asked.value, str):
        words: tuple[str, ...] = (asked.value,)
    elif isinstance(asked, In):
        words = tuple(word for word in asked.value if isinstance(word, str))
    else:
        return None
    if field == "kinds":
        from udpfast.core.layout import Kind

        words = tuple(word for word in words if word in Kind.__members__)
    changed: dict[str, Any] = {field: words}
    return structs.replace(scan, **changed)


def _bounds(asked: Filter, first: int, last: int) -> tuple[int | None, int | None] | None:
    # Return a filter as bounds, both included. The value of the filter spans first to last.
    if isinstance(asked, EqualTo | EqualNullSafe):
        return first, last
    if isinstance(asked, GreaterThanOrEqual):
        return first, None
    if isinstance(asked, LessThanOrEqual):
        return None, last
    if isinstance(asked, GreaterThan):
        return last + 1, None
    if isinstance(asked, LessThan):
        return None, first - 1
    return None


# --- options ------------------------------------------------------------------------------------


def scan_of(options: Mapping[str, str], schema: StructType) -> Scan:
    """Return the scan for the options, with the columns of a schema.

    Raises
    ------
    ConfigError
        An option is unknown or has an invalid value, or the schema is not that of the table.
    """
    for name in options:
        if name.lower() not in OPTIONS:
            raise ConfigError(f"option must be one of {', '.join(OPTIONS)}, was {name!r}")
    if "path" not in options:
        raise ConfigError("load() needs the directory of a journal, or its name")
    whole = _scan(options)
    own = _fields(whole)
    for field in schema.fields:
        if field.name not in own or own[field.name].dataType != field.dataType:
            found = own[field.name].dataType.simpleString() if field.name in own else "no such"
            raise ConfigError(
                f"schema: expected columns of {whole.table}, found {field.name} "
                f"{field.dataType.simpleString()} ({found} column there)"
            )
    times = (("start", "low", 0), ("end", "high", -1))
    conditions = tuple(
        Condition("published_ns", **{bound: unix_ns(options[name], name) + shift})
        for name, bound, shift in times
        if name in options
    )
    return structs.replace(
        whole,
        journal=_directory(options["path"]),
        columns=tuple(field.name for field in schema.fields),
        feed=options.get("feed", ""),
        payloads=flag_of(options, "payloads"),
        kinds=list_of(options, "kinds"),
        symbols=list_of(options, "symbols"),
        exchanges=list_of(options, "exchanges"),
        conditions=conditions,
        piece_bytes=number_of(options, "piece_bytes", _PIECE_BYTES_MIN) or 1 << 25,
        skip_damage=flag_of(options, "skip_damage"),
    )


def _scan(options: Mapping[str, str]) -> Scan:
    # The scan of the requested table, with all its columns.
    schema = options.get("schema", "")
    if "framing" in options and not schema:
        raise ConfigError("framing says how the messages of a schema stand in a record")
    table = options.get("table", "" if schema else "messages")
    return Scan(journal="", table=table, schema=schema, framing=options.get("framing", ""))


def _fields(scan: Scan) -> dict[str, StructField]:
    # From Arrow, because the process that asks a source for its schema has no JVM to read DDL.
    schema = from_arrow_schema(scan.arrow_schema())
    return {field.name: field for field in schema.fields}


def _directory(path: str) -> str:
    if path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    return str(stored_journal(path).absolute())
