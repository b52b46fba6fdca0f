"""The rows of a journal's tables in the order of its records, for formats with one file."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from udpfast.core.layout import Kind, RecordFlag, Stream
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
#: Kinds of records after which books may be wrong.
_DOUBTS = ("GAP", "STALE", "LAPPED")


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
    words : Words
        What the feed says of its objects.
    headless : int
        Number of books so far whose first updates build on others from before the wanted time, as
        `Clears` found.
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
        self.words = Words(directory)
        self.headless = 0
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


class Words:
    """What the feed says of its objects after a loss, found without what follows being read first.

    Parameters
    ----------
    directory : Path
        Directory of the journal, which is read only once somebody asks.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._said: dict[Hashable, list[tuple[int, bool]]] | None = None

    def continues(self, book: Hashable, index: int) -> bool:
        """Return whether the next word of the feed is that nothing of a book was lost.

        Parameters
        ----------
        book : tuple
            Stream, object, exchange and symbol.
        index : int
            Only words behind the record of this index count.
        """
        if self._said is None:
            self._said = self._read()
        said = self._said.get(book, [])
        at = bisect_right(said, (index, True))
        return at < len(said) and said[at][1]

    def _read(self) -> dict[Hashable, list[tuple[int, bool]]]:
        chosen = ("index", "stream", "exchange", "symbol", "kind", "continues")
        selection = Selection(TABLES["events"], "", chosen, dictionaries=False)
        found: dict[Hashable, list[tuple[int, bool]]] = defaultdict(list)
        for part in journal_parts(self._directory, dead=True):
            bounds = (part.position, part.end_position)
            for block, names in Blocks(self._directory, part.journal, *bounds):
                keep = np.isin(block.headers["kind"], [Kind.STALE, Kind.RECOVERED])
                if not keep.any():
                    continue
                objects = block.headers["object"][keep].tolist()
                rows = record_batch(block, names, selection, keep).to_pylist()
                for number, row in zip(objects, rows, strict=True):
                    sound = row["kind"] == "RECOVERED" and bool(row["continues"])
                    found[_book(row | {"object": number})].append((row["index"], sound))
        return found


class Clears:
    """Finds the records that empty books: complete states, sessions, restarts and losses.

    A session empties all books of its stream and a restart all, as in `udpfast.Books`. A book that
    may be wrong is emptied, too, and its row has RecordFlag.DOUBT in `flags`: at STALE; at LAPPED;
    at a GAP of its stream, unless the feed then finds that nothing of the book was lost; and at
    its first update if that builds on others from before the wanted time.

    Parameters
    ----------
    kind : Kind
        Kind of the updates that books are made of.
    rows : JournalRows, optional
        What the records are read by. None: nothing came before them, and every GAP counts.

    """

    def __init__(self, kind: Kind, rows: JournalRows | None = None) -> None:
        self._kind = kind.name
        self._books: dict[tuple[str | None, str | None], Hashable] = {}  # by exchange, symbol
        self._rows = rows
        self._known: set[tuple[str | None, str | None]] = set()
        self._begun: set[int] = set()  # streams whose session began within the wanted time

    def take(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return a row of `messages` for each book that is emptied; a snapshot may be empty."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found, first = [messages.slice(0, 0)], 0
        ends = _ends(messages)
        said = messages.filter(ends).to_pylist()
        places = np.flatnonzero(np.asarray(ends)).tolist()
        for at, end in zip([*places, messages.num_rows], [*said, None], strict=True):
            part = messages.slice(first, at - first)
            part = part.filter(pc.equal(part["kind"], self._kind))
            if part.num_rows:  # between most losses, one instrument has no update
                found.append(self._note(part))
                found.append(part.filter(part["snapshot"]))
            if end is not None and (gone := self._emptied(end)):
                found.append(pa.RecordBatch.from_pylist(gone, messages.schema))
            first = at + 1
        rows = pa.Table.from_batches(found).sort_by("index").combine_chunks().to_batches()
        return rows[0] if rows else messages.slice(0, 0)

    def _note(self, updates: pa.RecordBatch) -> pa.RecordBatch:
        # Return a row for each book that begins without what its first update builds on.
        import pyarrow as pa

        keys = ["exchange", "symbol", "stream", "object"]
        books = pa.Table.from_batches([updates.select(keys)]).group_by(keys).aggregate([])
        for row in books.to_pylist():
            self._books[row["exchange"], row["symbol"]] = _book(row)
        if self._rows is None or self._rows.wanted.start_ns is None:
            return updates.slice(0, 0)
        headless = []
        firsts = pa.Table.from_batches([updates]).group_by(["exchange", "symbol"])
        lowest = firsts.aggregate([("index", "min")]).to_pylist()
        begins = {
            row["index_min"]
            for row in lowest
            if (row["exchange"], row["symbol"]) not in self._known
        }
        for row in updates.filter(_is_in(updates["index"], begins)).to_pylist():
            self._known.add((row["exchange"], row["symbol"]))
            whole = row["snapshot"] or row["flags"] & RecordFlag.FIRST
            if not whole and _own(row["stream"]) not in self._begun:
                headless.append(row | {"flags": row["flags"] | RecordFlag.DOUBT})
        self._rows.headless += len(headless)
        return pa.RecordBatch.from_pylist(headless, updates.schema)

    def _emptied(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        gone = [name for name, book in self._books.items() if self._empties(row, book)]
        for name in gone:
            del self._books[name]
        if row["kind"] == "SESSION":
            self._begun.add(_own(row["stream"]))
        if row["kind"] not in _BEGIN:
            row["flags"] |= RecordFlag.DOUBT
        return [row | {"exchange": exchange, "symbol": symbol} for exchange, symbol in gone]

    def _empties(self, row: dict[str, Any], book: Any) -> bool:
        kind = row["kind"]
        if kind == "STALE":
            return bool(book == _book(row))
        if kind in ("RESTART", "LAPPED"):
            return True
        if kind == "GAP" and row["stream"] == Stream.SNAPSHOT:
            return False  # it costs no update
        if book[0] != _own(row["stream"]):
            return False
        if kind != "GAP" or self._rows is None:
            return True
        return not self._rows.words.continues(book, row["index"])


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


def _ends(messages: pa.RecordBatch) -> pa.BooleanArray:
    return _is_in(messages["kind"], (*_BEGIN, *_DOUBTS))


def _is_in(column: pa.Array, values: Collection[Any]) -> pa.BooleanArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(column, value_set=pa.array(list(values), column.type))


def _book(row: dict[str, Any]) -> tuple[int, int, str | None, str | None]:
    return _own(row["stream"]), row["object"], row["exchange"], row["symbol"]


def _own(stream: int) -> int:
    # Roq's snapshots are of the books of its other stream.
    return 0 if stream == Stream.SNAPSHOT else stream
