"""A journal as a Spark stream. An offset identifies a journal and a place between two records.

A journal's records never change, and a batch is the records between two positions. A query that
restarts from a checkpoint therefore reads exactly the unfinished batch again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import structs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from udpfast.errors import ConfigError, FormatError
from udpfast.export.scan import Scan
from udpfast.export.segments import (
    Part,
    Place,
    check_journal,
    journal_begin,
    journal_first,
    journal_head,
    journal_place,
)
from udpfast.spark.source import JournalPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JournalStreamReader"]


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A table of a journal, as a stream that grows with it.

    Parameters
    ----------
    scan : Scan
    first : str
        Where a query without a checkpoint begins: "begin" or "tail".
    max_records : int or None
        Limit of the records in one batch.
    skip_loss : bool
        Continue after records that were removed to make room, instead of raising an error.
    """

    def __init__(self, scan: Scan, *, first: str, max_records: int | None, skip_loss: bool) -> None:
        if first not in ("begin", "tail"):
            raise ConfigError(f"from must be begin or tail, was {first!r}")
        self._scan = scan
        self._first = first
        self._max_records = max_records
        self._skip_loss = skip_loss
        self._target: Place | None = None
        self._raw = scan.raw

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query begins."""
        place = self._head() if self._first == "tail" else journal_begin(self._scan.directory)
        return structs.asdict(place)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the configured limit, in records of the journal."""
        if self._max_records is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query at the current end of the journal."""
        self._target = self._head()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch.

        Raises
        ------
        FormatError
            The journal is not that of the checkpoint, or was cut.
        """
        begin = self._place(start)
        head = self._target or self._head()
        if head.position < begin.position:
            # Normal if the last segments are not raced yet, or if nothing was synced at the start.
            if journal_head(self._scan.directory, synced=False).position >= begin.position:
                return start
            raise FormatError(
                f"{self._scan.directory}: expected records up to {begin.index}, as the checkpoint "
                f"has it, found {head.index}: the journal was cut"
            )
        if isinstance(limit, ReadMaxRows) and head.position > begin.position:
            head = self._limited(begin, head, limit.max_rows)
        return structs.asdict(head)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of the journal."""
        return structs.asdict(self._head())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the parts between two places.

        Raises
        ------
        FormatError
            Records between them were removed, or another journal is in its place.
        """
        begin, behind = self._place(start), self._place(end)
        oldest = journal_first(self._scan.directory)
        if oldest.position > begin.position:
            if not self._skip_loss:
                raise FormatError(
                    f"{self._scan.directory}: records from {begin.index} to {oldest.index} were "
                    "removed before they were read (record.keep_bytes), or their files are "
                    "damaged; with the option skip_loss = true the stream skips them"
                )
            begin = oldest
        if begin.position >= behind.position:
            return []
        pieces = self._scan.pieces(begin, behind, streaming=True)
        return [JournalPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        assert isinstance(partition, JournalPartition)
        return self._scan.batches(partition.piece)

    def _place(self, offset: dict[str, Any]) -> Place:
        try:
            place = Place(**offset)
        except TypeError:
            raise FormatError(
                f"expected an offset with position, index and journal, found {offset}: choose "
                "another checkpoint"
            ) from None
        check_journal(self._scan.directory, place.journal)
        return place

    def _head(self) -> Place:
        if not self._raw:
            return journal_head(self._scan.directory)
        return self._end_of(self._raced())

    def _raced(self, begin: Place | None = None, end: Place | None = None) -> list[Part]:
        # Records missing inside a part are reported by the task that reads it.
        scan = structs.replace(self._scan, skip_damage=True)
        return scan.pieces(begin, end, streaming=True)

    def _limited(self, begin: Place, head: Place, records: int) -> Place:
        if self._raw:  # one segment per batch, because its records are raced together
            return self._end_of(self._raced(begin, head)[:1])
        place = journal_place(self._scan.directory, begin, records)
        return place if place.index < head.index else head

    def _end_of(self, pieces: list[Part]) -> Place:
        if not pieces:
            return journal_begin(self._scan.directory)
        return Place(pieces[-1].end_position, pieces[-1].end_index, pieces[-1].journal)
