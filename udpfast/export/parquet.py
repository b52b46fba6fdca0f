"""Write Parquet files aside, and show those of a part once all are complete."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from udpfast.core.oserr import check
from udpfast.export.columns import Partition, session_word
from udpfast.export.schema import Table, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["ROW_GROUP", "PartitionFile", "WrittenFile", "partition_directory", "sync_directory"]

#: Rows of one row group: what a task reads at once, and what has statistics of its own.
ROW_GROUP = 1 << 20

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One file of an export.

    Attributes
    ----------
    table : str
    path : str
        Below the export's root.
    rows : int
    first_position, last_position : int or None
        Of the records of its first and last row; None: the table has no positions.
    size_bytes : int
    sha256 : str
    """

    table: str
    path: str
    rows: int
    first_position: int | None
    last_position: int | None
    size_bytes: int
    sha256: str


def partition_directory(partition: Partition) -> str:
    """Return the directories of a partition, as Hive has them."""
    day, stream, session = partition
    when = _EPOCH + timedelta(days=day)
    return f"date={when.isoformat()}/stream={stream}/session={session_word(session)}"


class PartitionFile:
    """The rows of one table in one partition, out of one segment.

    Parameters
    ----------
    writing : Path
        Directory of what is written; what is complete is moved to the export by `manifest`.
    table : Table
    partition : Partition
    name : str
        Of the file.
    """

    def __init__(self, writing: Path, table: Table, partition: Partition, name: str) -> None:
        self.path = f"{table.name}/{partition_directory(partition)}/{name}"
        self._table = table
        self._path = writing / self.path
        self._writer: pq.ParquetWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._pending = 0
        self._rows = 0
        self._positions: tuple[int, int] | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows, behind those that are there."""
        self._batches.append(batch)
        self._pending += batch.num_rows
        if self._pending >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._batches:
            return
        # One dictionary per row group: with several, Parquet would write words out in full.
        table = pa.Table.from_batches(self._batches).unify_dictionaries()
        self._batches = []
        self._pending = 0
        self._rows += table.num_rows
        if "position" in table.column_names:
            positions = table.column("position")
            first = self._positions[0] if self._positions else positions[0].as_py()
            self._positions = (first, positions[-1].as_py())
        with _naming(self._path):
            if self._writer is None:
                self._writer = self._open(table.schema)
            self._writer.write_table(table, row_group_size=ROW_GROUP)

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        import pyarrow.parquet as pq

        self._path.parent.mkdir(parents=True, exist_ok=True)
        return pq.ParquetWriter(self._path, schema, **_options(self._table))

    def finish(self) -> WrittenFile:
        """Have the disk take the file; it is complete, and still aside."""
        self._flush()
        assert self._writer is not None, "a file has rows"
        with _naming(self._path):
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
        """Remove what was written. Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._path.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    # pyarrow does not name the file of an error of the system: the disk that is full is unknown.
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        check(-error.errno, "write", str(path))


def _options(table: Table) -> dict[str, Any]:
    # Growing numbers as differences: half the size of plain ones, and faster to write and to read.
    # Everything else by dictionary, which Parquet gives up by itself where it does not pay.
    import pyarrow.parquet as pq

    if not table.columns:  # a schema's own, whose types are those of its batches
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
        "store_schema": False,  # so that everybody reads texts as texts
    }


def sync_directory(path: Path) -> None:
    """Have the disk take the names of a directory."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
