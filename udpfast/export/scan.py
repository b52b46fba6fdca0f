"""Read tables directly from a journal, in pieces that other processes (Spark's tasks) can read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from udpfast.archive.recorded_feed import feed_name, feed_of, input_names
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, FormatError
from udpfast.export.columns import (
    Names,
    Partition,
    Selection,
    latency_batches,
    partition_columns,
    record_batch,
)
from udpfast.export.hops import HopCounts
from udpfast.export.race_rows import part_races, race_batch, raced_parts, split_races
from udpfast.export.sbe_tables import SbeTables
from udpfast.export.schema import FROM_ALL, Table, arrow_schema, table_of
from udpfast.export.segments import (
    Blocks,
    Part,
    Place,
    after,
    check_journal,
    is_closed,
    is_end_known,
    journal_begin,
    journal_parts,
    state_of,
)
from udpfast.export.wanted import both
from udpfast.log.segment import Segment, segment_path
from udpfast.market.block import Block

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FIELDS", "Condition", "Scan"]

#: Fields of a record's header that a condition can test.
FIELDS = ("position", "index", "received_ns", "published_ns", "number", "line", "stream")

#: Most rows per batch of `races`; batches of other tables have the rows of one block.
_RACES = 1 << 16


class Condition(Struct, frozen=True):
    """A condition on a field of a record's header: between `low` and `high`, inclusive.

    Attributes
    ----------
    field : str
        One of `FIELDS`.
    low, high : int or None
        The bounds; None: no bound.
    """

    field: str
    low: int | None = None
    high: int | None = None


class Scan(Struct, frozen=True):
    """A table of a journal, or part of one.

    Attributes
    ----------
    journal : str
        Directory of the journal.
    table : str
        Name of the table.
    columns : tuple of str
        Names of the columns in order; empty: all, with the partition columns last.
    feed : str
        Value of the column `feed`; empty: the name of the recorded instance.
    payloads : bool
        Fill the column `payload`.
    kinds : tuple of str or None
        Only records of these kinds; None: all. A table of one kind has then all its rows or none.
    symbols, exchanges : tuple of str or None
        Only records of these; a record without names is left out. None: all.
    conditions : tuple of Condition
        Conditions that all must hold. Like the three filters above, they are not allowed for
        `races` and `latency`.
    piece_bytes : int
        Approximate bytes of the journal per piece.
    skip_damage : bool
        True: skip damaged records, and payloads that are not sound messages of `schema`. False:
        they raise FormatError.
    schema : str
        File of an SBE schema; its messages and groups are then the tables.
    framing : str
        As for `SbeTables`.
    """

    journal: str
    table: str = "messages"
    columns: tuple[str, ...] = ()
    feed: str = ""
    payloads: bool = False
    kinds: tuple[str, ...] | None = None
    symbols: tuple[str, ...] | None = None
    exchanges: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] = ()
    piece_bytes: int = 1 << 25
    skip_damage: bool = False
    schema: str = ""
    framing: str = ""

    def __post_init__(self) -> None:
        """Check names.

        Raises
        ------
        ConfigError, ValueError
            A name is unknown, or this table does not support the filters.
        """
        self._own()  # raises if there is no such table
        for name in self.columns:
            _check(name, tuple(self.arrow_schema().names), "column")
        for name in self.kinds or ():
            _check(name, tuple(Kind.__members__), "kind")
        for condition in self.conditions:
            _check(condition.field, FIELDS, "field")
        asked = self.conditions or (self.kinds, self.symbols, self.exchanges) != (None,) * 3
        if asked and not self.schema and self.table in FROM_ALL:
            raise ConfigError(
                f"{self.table} is made from all records: filter its rows, not what it is made from"
            )

    def _own(self) -> Table:
        return self._sbe().tables[self.table] if self.schema else table_of(self.table)

    def _sbe(self) -> SbeTables:
        tables = sbe_tables(self.schema, self.framing)
        _check(self.table, tuple(tables.tables), "table")
        return tables

    def arrow_schema(self) -> pa.Schema:
        """Return all columns of the table, the partition columns last."""
        if self.schema:
            return self._sbe().arrow_schema(self.table, partitions=True)
        return arrow_schema(self.table, partitions=True)

    @property
    def raw(self) -> bool:
        """Whether the table is made from the raw capture."""
        return self._own().raw

    @property
    def directory(self) -> Path:
        """Directory of the segments to read."""
        return Path(self.journal) / "raw" if self.raw else Path(self.journal)

    def pieces(
        self, start: Place | None = None, end: Place | None = None, *, streaming: bool = False
    ) -> list[Part]:
        """Return the pieces to read, in the order of the journal.

        Parameters
        ----------
        start, end : Place, optional
            Where to begin and to end; by default the whole journal. `races` is read in whole
            segments, `latency` in one piece per segment.
        streaming : bool
            True: more pieces will be requested later. Of a raw capture, only sealed segments are
            returned then, because the next writer may append to one that a dead writer left.

        Raises
        ------
        FormatError
            Segments are missing, or the journal was replaced by another one.
        """
        raw = self.raw
        for place in (start, end):
            if place is not None:
                check_journal(self.directory, place.journal)
        state = state_of(self.directory)  # read before the parts, which can only grow
        closed = is_closed(self.directory, dead=not streaming)
        parts = journal_parts(self.directory, dead=not streaming)
        if end is None and not self.skip_damage and not is_end_known(state, parts):
            raise FormatError(
                f"{self.directory}: expected the file `journal`, found none that can be read: "
                "records after the last segment may have been lost"
            )
        if raw:
            parts = raced_parts(self.directory, parts, closed)
        # The races at the end of a running capture are undecided: later records belong to them.
        known = 0 if state is None or (raw and not closed) else state.index
        if start is None:  # read after the parts, so that segments removed meanwhile are no hole
            start = journal_begin(self.directory)
        self._check_holes(parts, start.index, known if end is None else end.index)
        ends = [(start.position, start.index), *((p.end_position, p.end_index) for p in parts)]
        parts = [after(part, *end) for part, end in zip(parts, ends, strict=False)]
        parts = [part for part in parts if part.end_position > start.position]
        parts = [part for part in parts if end is None or part.position < end.position]
        if raw:
            return parts
        found: list[Part] = []
        for part in parts:
            piece = _clipped(part, start, end)
            if piece.end_position > piece.position and self._reaches(piece):
                found += self._cut(piece)
        return found

    def _check_holes(self, parts: list[Part], begin: int, end: int) -> None:
        # Check that the parts have all records between two indices, and no hole behind them.
        if self.skip_damage:
            return
        for index, end_index in sorted([(end, end), *((p.index, p.end_index) for p in parts)]):
            if index > begin:
                raise FormatError(
                    f"{self.directory}: expected records from {begin} on, found none before "
                    f"{index}: {index - begin} are no longer in any segment"
                )
            begin = max(begin, end_index)

    def _about(self, field: str) -> list[Condition]:
        return [condition for condition in self.conditions if condition.field == field]

    def _reaches(self, part: Part) -> bool:
        # Whether a segment can contain records with wanted times and positions.
        spans = {
            "published_ns": (part.first_ns, part.last_ns),
            "position": (part.position, part.end_position - 1),
        }
        return all(
            (condition.low is None or last >= condition.low)
            and (condition.high is None or first <= condition.high)
            for field, (first, last) in spans.items()
            for condition in self._about(field)
        )

    def _cut(self, part: Part) -> list[Part]:
        # Cut a segment into pieces at records of its index; leave out the first and last pieces if
        # they cannot contain wanted records.
        segment = Segment.open(segment_path(self.directory, part.number))
        entries = segment.index()
        segment.close()
        bounds = [(part.position, part.index)]
        for entry in entries if self.table != "latency" else ():  # its rows need whole segments
            position, index = int(entry["position"]), int(entry["index"])
            if not part.position < position < part.end_position:
                continue
            if self._is_beyond(position):
                return _between([*bounds, (position, index)], part)
            if len(bounds) == 1 and self._is_before(position, int(entry["before_ns"])):
                bounds = [(position, index)]
            elif bounds[-1][0] + self.piece_bytes <= position:
                bounds.append((position, index))
        return _between([*bounds, (part.end_position, part.end_index)], part)

    def _is_before(self, position: int, before_ns: int) -> bool:
        # Whether no record before this position is wanted; they were published by before_ns.
        return any(
            condition.low is not None and condition.low > latest
            for field, latest in (("published_ns", before_ns), ("position", position - 1))
            for condition in self._about(field)
        )

    def _is_beyond(self, position: int) -> bool:
        return any(
            condition.high is not None and condition.high < position
            for condition in self._about("position")
        )

    def batches(self, piece: Part) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece, in the order of the journal.

        Raises
        ------
        FormatError
            Records are damaged or have been removed.
        """
        if self.schema:
            yield from self._sbe_batches(piece)
        elif self.table == "races":
            yield from self._race_batches(piece)
        elif self.table == "latency":
            yield from self._latency_batches(piece)
        else:
            yield from self._record_batches(piece)

    def _record_batches(self, piece: Part) -> Iterator[pa.RecordBatch]:
        table = table_of(self.table)
        selection = Selection(
            table,
            self.feed or feed_name(piece.name, Path(self.journal)),
            self.columns or table.column_names,
            self.payloads,
            dictionaries=False,
            inputs=input_names(self.directory),
        )
        blocks = self._blocks(piece)
        for block, names in blocks:
            yield from self._hole_batches(blocks, selection)
            batch = record_batch(block, names, selection, self._keep(table, block, names))
            if batch.num_rows:
                yield batch
        yield from self._hole_batches(blocks, selection)
        self._check_whole(piece, blocks.records)
        if blocks.nameless and not self.skip_damage:
            raise FormatError(
                f"{segment_path(self.directory, piece.number)}: expected the file of names that "
                "its records refer to, found none that can be read: their instruments are unknown"
            )

    def _hole_batches(self, blocks: Blocks, selection: Selection) -> Iterator[pa.RecordBatch]:
        # If damage is skipped, report missing records as events, as an export does.
        if selection.table.name == "events" and self.skip_damage:
            for hole in blocks.holes:
                block, names = hole.block(), Names()
                keep = self._keep(selection.table, block, names)
                batch = record_batch(block, names, selection, keep)
                if batch.num_rows:
                    yield batch
        blocks.holes.clear()

    def _sbe_batches(self, piece: Part) -> Iterator[pa.RecordBatch]:
        tables = self._sbe()
        feed = self.feed or feed_name(piece.name, Path(self.journal))
        inputs = input_names(self.directory)
        columns = self.columns or self.arrow_schema().names
        blocks = self._blocks(piece)
        for block, names in blocks:
            kept = self._keep(self._own(), block, names)
            codes, partitions = block.partitions()
            for code, partition in enumerate(partitions):
                keep = codes == code if len(partitions) > 1 else None
                found = tables.walk(block, both(keep, kept))
                for position, reason in () if self.skip_damage else found.damaged.items():
                    raise FormatError(
                        f"{segment_path(self.directory, piece.number)}: record at {position}: "
                        f"expected a message of {self.schema}, found: {reason}"
                    )
                batch = found.batch(self.table, feed_of(feed, inputs, partition[2]))
                if batch.num_rows:
                    yield _with_partition(batch, partition).select(columns)
        self._check_whole(piece, blocks.records)

    def _blocks(self, piece: Part) -> Blocks:
        bounds = (piece.position, piece.end_position)
        return Blocks(self.directory, piece.journal, *bounds, part=piece)

    def _keep(self, table: Table, block: Block, names: Names) -> NDArray[np.bool_] | None:
        # Return by record whether all filters accept it; None: there are no filters.
        keep: list[Any] = []
        headers = block.headers
        for condition in self.conditions:
            values = headers[condition.field]
            if condition.low is not None:
                keep.append(_at_least(values, condition.low))
            if condition.high is not None:
                keep.append(~_at_least(values, condition.high + 1))
        if self.kinds is not None:
            wanted = np.zeros(64, np.bool_)
            wanted[[Kind[name].value for name in self.kinds]] = True
            keep.append(wanted[np.minimum(headers["kind"], 63)])
        if self.symbols is not None or self.exchanges is not None:
            for ids, words in zip(block.ids(), (self.exchanges, self.symbols), strict=True):
                if words is not None:
                    known = names.known(words)
                    keep.append(known[np.minimum(ids, len(known) - 1)])
        return np.logical_and.reduce(keep) if keep else None

    def _check_whole(self, piece: Part, records: int) -> None:
        expected = piece.end_index - piece.index
        if self.skip_damage or records == expected:
            return
        path = segment_path(self.directory, piece.number)
        if not path.exists():
            raise FormatError(f"{path}: was removed before it was read (record.keep_bytes)")
        raise FormatError(
            f"{path}: expected all records from {piece.index} to {piece.end_index}, found "
            f"{records} of {expected}: the others are damaged (udpfast verify says more)"
        )

    def _latency_batches(self, piece: Part) -> Iterator[pa.RecordBatch]:
        hops = HopCounts()
        blocks = self._blocks(piece)
        for block, _ in blocks:
            hops.add(block)
        self._check_whole(piece, blocks.records)
        feed = self.feed or feed_name(piece.name, Path(self.journal))
        columns = self.columns or table_of(self.table).column_names
        rows, inputs = hops.take(), input_names(self.directory)
        for partition, batch in latency_batches(rows, feed, piece.number, inputs).items():
            yield _with_partition(batch, partition).select(columns)

    def _race_batches(self, piece: Part) -> Iterator[pa.RecordBatch]:
        races, records, _ = part_races(self.directory, piece)
        self._check_whole(piece, records)
        feed = self.feed or feed_name(piece.name, Path(self.journal))
        columns = self.columns or table_of(self.table).column_names
        for partition, found in split_races(races).items():
            lines = races.lines[partition[1]]
            for begin in range(0, len(found), _RACES):
                rows = found[begin : begin + _RACES]
                yield race_batch(rows, partition, lines, feed, columns)


@cache
def sbe_tables(schema: str, framing: str) -> SbeTables:
    """Return the tables of a schema; each schema is read only once."""
    return SbeTables(schema, framing)


def _clipped(part: Part, start: Place, end: Place | None) -> Part:
    # Return the part of a segment between two places.
    if start.position > part.position:
        part = replace(part, position=start.position, index=start.index, before=None)
    if end is not None and end.position < part.end_position:
        part = replace(part, end_position=end.position, end_index=end.index, behind=None)
    return part


def _between(bounds: list[tuple[int, int]], part: Part) -> list[Part]:
    return [
        replace(
            part,
            position=begin[0],
            index=begin[1],
            end_position=end[0],
            end_index=end[1],
            before=part.before if begin[1] == part.index else None,
            behind=part.behind if end[1] == part.end_index else None,
        )
        for begin, end in itertools.pairwise(bounds)
    ]


def _with_partition(batch: pa.RecordBatch, partition: Partition) -> pa.RecordBatch:
    import pyarrow as pa

    for name, column in partition_columns(partition, batch.num_rows).items():
        batch = batch.append_column(pa.field(name, column.type), column)
    return batch


def _check(name: str, known: tuple[str, ...], what: str) -> None:
    if name not in known:
        raise ConfigError(f"{what} must be one of {', '.join(known)}, was {name!r}")


def _at_least(values: NDArray[Any], bound: int) -> NDArray[np.bool_]:
    # Compare with a bound that may exceed the range of the field's type.
    info = np.iinfo(values.dtype)
    if bound <= info.min:
        return np.ones(len(values), np.bool_)
    if bound > info.max:
        return np.zeros(len(values), np.bool_)
    found: NDArray[np.bool_] = values >= values.dtype.type(bound)
    return found
