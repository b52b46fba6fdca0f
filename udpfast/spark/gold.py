"""Gold tables, read with pyarrow and without Java."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyarrow import compute, dataset
from pyarrow.fs import FileSystem, FileType

from udpfast.errors import FormatError

__all__ = ["Gold", "open_file_system"]

#: Number of rows from which those that a page shows are chosen.
ROWS_CHOSEN_FROM = 100_000


def open_file_system(where: str) -> tuple[FileSystem, str]:
    """Return the file system and path of a URI or a local path."""
    from pathlib import Path

    found: tuple[FileSystem, str] = FileSystem.from_uri(
        where if "://" in where else str(Path(where).resolve())
    )
    return found


class Gold(Struct, frozen=True):
    """The results of a run of the pipeline, in a directory or below a URI."""

    out: str

    def run(self) -> dict[str, Any]:
        """Return the content of run.json: the jobs that ran, and on which sources.

        Raises
        ------
        FormatError
            There are no results of a run.
        """
        files, path = open_file_system(self.out)
        if files.get_file_info(f"{path}/run.json").type == FileType.NotFound:
            raise FormatError(f"{self.out}: expected what `udpfast spark run` writes, found none")
        with files.open_input_stream(f"{path}/run.json") as file:
            found: dict[str, Any] = json.loads(file.read())
        return found

    def table(
        self,
        name: str,
        rows: int,
        where: compute.Expression | None = None,
        columns: list[str] | None = None,
        shown_first: str | None = None,
    ) -> pa.Table:
        """Return at most `rows` rows of a job's table, in its order; none if it did not run.

        Parameters
        ----------
        name : str
            Name of the job.
        rows : int
            Most rows to return.
        where : pyarrow.compute.Expression, optional
            Only rows for which this is true.
        columns : list of str, optional
            Only these columns.
        shown_first : str, optional
            If there are more rows, choose those with the largest values of this column among the
            first `ROWS_CHOSEN_FROM`; they keep the table's order.
        """
        files, path = open_file_system(self.out)
        folder = f"{path}/gold/{name}"
        if files.get_file_info(folder).type == FileType.NotFound:
            return pa.table({})
        whole = dataset.dataset(folder, filesystem=files, format="parquet")
        if shown_first is None or shown_first not in whole.schema.names:
            return whole.head(rows, filter=where, columns=columns)
        found = whole.head(max(rows, ROWS_CHOSEN_FROM), filter=where, columns=columns)
        order = compute.sort_indices(found, sort_keys=[(shown_first, "descending")])
        return found.take(pa.array(sorted(order[:rows].to_pylist()), pa.int64()))

    def count(self, name: str, layer: str = "gold") -> int:
        """Return the number of rows of a table, from the metadata of its files."""
        files, path = open_file_system(self.out)
        folder = f"{path}/{layer}/{name}"
        if files.get_file_info(folder).type == FileType.NotFound:
            return 0
        found: int = dataset.dataset(folder, filesystem=files, format="parquet").count_rows()
        return found
