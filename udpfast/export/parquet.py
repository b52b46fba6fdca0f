"""Write the Parquet files of a part in a directory of their own; `manifest` makes them visible."""

from __future__ import annotations

import hashlib
import os
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from udpfast.export.columns import Partition
from udpfast.export.naming import naming
from udpfast.export.schema import Table, arrow_schema
from udpfast.market.columns import session_word

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["ROW_GROUP", "PartitionFile", "WrittenFile", "partition_directory", "sync_directory"]

#: Rows per row group, the unit that a task reads and that has its own statistics.
ROW_GROUP = 1 << 20

_EPOCH = date(1970, 1, 1)


class WrittenFile(Struct, frozen=True):
    """One file of an export.

    Attributes
    ----------
    table : str
        Name of its table.
    path : str
        Path relative to the export's root.
    rows : int
        Number of rows.
    first_position, last_position : int or None
        Positions of the records of its first and last row; None: the table has no positions.
    size_bytes : int
        Size of the file.
    sha256 : str
        Hash of the file, in hexadecimal digits.
    """

    table: str
    path: str
    rows: int
    first_position: int | None
    last_position: int | None
    size_bytes: int
    sha256: str


def partition_directory(partition: Partition) -> str:
    """Return the relative path of a partition, in the layout of Hive."""
    day, stream, session = partition
    when = _EPOCH + timedelta(days=day)
    return f"date={when.isoformat()}/stream={stream}/session={session_word(session)}"


class PartitionFile:
    """The file of one table in one partition, from one segment.

    Parameters
    ----------
    writing : Path
        Directory to write in; `manifest` moves complete files to the export.
    table : Table
        The table.
    partition : Partition
        The partition.
    name : str
        Name of the file.
    """

    def __init__(self, writing: Path, table: Table, partition: Partition, name: str) -> None:
        self.path = f"{table.name}/{partition_directory(partition)}/{name}"
        self._table = table
        self._path = writing / self.path
        self._writer: pq.ParquetWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._pending = 0
        self._unsorted = False
        self._rows = 0
        self._positions: tuple[int, int] | None = None

    def append(self, batch: pa.RecordBatch, *, earlier: bool = False) -> None:
        """Append rows; `earlier`: rows from before others that were appended."""
        self._batches.append(batch)
        self._unsorted |= earlier
        self._pending += batch.num_rows
        if self._pending >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._batches:
            return
        # One dictionary per row group: with several, Parquet would write the words without one.
        table = pa.Table.from_batches(self._batches).unify_dictionaries()
        if self._unsorted:
            table = table.sort_by("position")
        self._batches = []
        self._pending = 0
        self._unsorted = False
        self._rows += table.num_rows
        if "position" in table.column_names:
            positions = table.column("position")
            first = self._positions[0] if self._positions else positions[0].as_py()
            self._positions = (first, positions[-1].as_py())
        with naming(self._path):
            if self._writer is None:
                self._writer = self._open(table.schema)
            self._writer.write_table(table, row_group_size=ROW_GROUP)

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        import pyarrow.parquet as pq

        self._path.parent.mkdir(parents=True, exist_ok=True)
        return pq.ParquetWriter(self._path, schema, **_options(self._table))

    def finish(self) -> WrittenFile:
        """Complete the file and write it to the disk; it is not visible yet."""
        self._flush()
        assert self._writer is not None, "a file has rows"
        with naming(self._path):
            self._writer.close()
            with self._path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
        first, last = self._positions or (None, None)
        return WrittenFile(
            self._table.name,
            self.path,
            self._rows,
            first,
            last,
            self._path.stat().st_size,
            digest,
        )

    def discard(self) -> None:
        """Remove the file. Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._path.unlink(missing_ok=True)


def _options(table: Table) -> dict[str, Any]:
    # Numbers that grow are stored as differences: half the size of plain ones, and faster to write
    # and read. All others use a dictionary, which Parquet abandons by itself if it does not help.
    import pyarrow.parquet as pq

    if not table.columns:  # a table of SBE messages, whose types are those of its batches
        return {"compression": "zstd", "compression_level": 3, "store_schema": False}
    growing = [each.name for each in table.columns if each.type in ("long", "timestamp")]
    schema = arrow_schema(table.name)
    by_dictionary = [name for name in schema.names if name not in growing]
    nested = {"longs": "list.element", "ints": "list.element"}
    for column in table.columns:
        if column.type in nested:
            by_dictionary[by_dictionary.index(column.name)] = f"{column.name}.list.element"
    order = ("position",) if "position" in schema.names else ()
    return {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": by_dictionary,
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
        "sorting_columns": [pq.SortingColumn(schema.get_field_index(name)) for name in order],
        "store_schema": False,  # otherwise pyarrow would return texts as dictionaries
    }


def sync_directory(path: Path) -> None:
    """Write the entries of a directory to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
