"""The rows of a journal's tables in the order of its records, for formats with one file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from udpfast.core.layout import Kind, Stream
from udpfast.export.columns import Names, Selection, record_batch
from udpfast.export.definitions import Definitions
from udpfast.export.schema import TABLES
from udpfast.export.segments import Blocks, after, journal_begin, journal_parts, state_of
from udpfast.export.wanted import ALL, Wanted
from udpfast.market.block import Block

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Clears", "JournalRows"]

#: Kinds of records that empty all books, of a stream or of the feed.
_BEGIN = ("SESSION", "RESTART")


class JournalRows:
    """Iterates over tables of a journal, block by block.

    Parameters
    ----------
    directory : Path
        Directory of the journal. Segments that are still being written are left out.
    tables : collection of str
        Names of the tables. Rows of `orders` also have `more`: whether the update is continued in
        the next update of its book. Rows of `messages` also have `stream`. Rows of `instruments`
        begin with the definitions in force when the wanted time begins.
    wanted : Wanted
        Which records.

    Attributes
    ----------
    doubts : int
        Number of records read so far that report missing ones (GAP, LAPPED).
    missing : int
        Number of records found so far that damage keeps from being read.
    nameless : bool
        Names of some records read so far are lost or damaged.
    wanted : Wanted
        As above.
    """

    def __init__(
        self,
        directory: Path,
        tables: Collection[str],
        wanted: Wanted = ALL,
    ) -> None:
        self.doubts = 0
        self.missing = 0
        self.nameless = False
        self._directory = directory
        self._selections = {
            name: Selection(TABLES[name], "", _columns(name), dictionaries=False) for name in tables
        }
        self.wanted = wanted
        self._definitions = None
        if "instruments" in self._selections:
            chosen = self._selections["instruments"]
            self._definitions = Definitions(directory, wanted, chosen)

    def __iter__(self) -> Iterator[dict[str, pa.RecordBatch]]:
        """Yield the rows of each block by table, in the order of its records."""
        state = state_of(self._directory)  # read before the parts, which can only grow
        parts = journal_parts(self._directory, dead=True)
        begin = journal_begin(self._directory)  # read last: what is removed meanwhile is no damage
        position, index = begin.position, begin.index
        for part in parts:
            if not part.finished:
                continue
            # Records of a segment that is lost are missing before the next one.
            found = after(part, position, index)
            position, index = part.end_position, part.end_index
            blocks = Blocks(
                self._directory, part.journal, part.position, part.end_position, part=found
            )
            for block, names in blocks:
                keep = self.wanted.keep(block, names)
                doubts = np.isin(block.headers["kind"], [Kind.GAP, Kind.LAPPED])
                self.doubts += int((doubts if keep is None else doubts & keep).sum())
                tables = {
                    name: _batch(block, names, selection, keep)
                    for name, selection in self._selections.items()
                }
                if self._definitions is not None:
                    earlier = [row for _, row in self._definitions.before(block, names, keep)]
                    tables["instruments"] = _joined([*earlier, tables["instruments"]])
                yield tables
            self.nameless |= blocks.nameless
            self.missing += sum(hole.records for hole in blocks.holes)
            index = part.behind or index
        # Only the writer's file tells of segments that nothing can be read of.
        if state is not None and not state.alive:
            self.missing += max(state.index - index, 0)


class Clears:
    """Finds the records that empty books: complete states, sessions and restarts.

    A session empties all books of its stream and a restart all, as in `udpfast.Books`.

    Parameters
    ----------
    kind : Kind
        Kind of the updates that books are made of.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind.name
        self._books: dict[tuple[str | None, str | None], int] = {}  # stream by exchange, symbol

    def take(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return a row of `messages` for each book that is emptied; a snapshot may be empty."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found, first = [], 0
        begins = np.flatnonzero(np.asarray(_begins(messages)))
        for at in [*begins.tolist(), messages.num_rows]:
            part = messages.slice(first, at - first)
            part = part.filter(pc.equal(part["kind"], self._kind))
            self._note(part)
            found.append(part.filter(part["snapshot"]))
            if at < messages.num_rows:
                found.append(self._emptied(messages.slice(at, 1)))
            first = at + 1
        rows = pa.Table.from_batches(found).combine_chunks().to_batches()
        return rows[0] if rows else messages.slice(0, 0)

    def _note(self, updates: pa.RecordBatch) -> None:
        import pyarrow as pa

        keys = ["exchange", "symbol", "stream"]
        books = pa.Table.from_batches([updates.select(keys)]).group_by(keys).aggregate([])
        for row in books.to_pylist():
            self._books[row["exchange"], row["symbol"]] = _own(row["stream"])

    def _emptied(self, record: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        row = record.to_pylist()[0]
        gone = [
            book
            for book, stream in self._books.items()
            if row["kind"] == "RESTART" or stream == _own(row["stream"])
        ]
        for book in gone:
            del self._books[book]
        named = [row | {"exchange": exchange, "symbol": symbol} for exchange, symbol in gone]
        return pa.RecordBatch.from_pylist(named, record.schema)


def _batch(
    block: Block, names: Names, selection: Selection, keep: NDArray[np.bool_] | None
) -> pa.RecordBatch:
    import pyarrow as pa

    batch = record_batch(block, names, selection, keep)
    if selection.table.name != "orders":
        return batch
    more = block.select(1 << Kind.ORDERS, True, keep).goes_on()
    return batch.append_column("more", pa.array(more, pa.bool_()))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    rows = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return rows[0] if rows else batches[-1]


def _columns(table: str) -> tuple[str, ...]:
    return TABLES[table].column_names if table == "messages" else ()


def _begins(messages: pa.RecordBatch) -> pa.BooleanArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(messages["kind"], value_set=pa.array(_BEGIN))


def _own(stream: int) -> int:
    # Roq's snapshots are of the books of its other stream.
    return 0 if stream == Stream.SNAPSHOT else stream
