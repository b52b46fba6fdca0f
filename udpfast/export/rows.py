"""The rows of a journal's tables in the order of its records, for formats with one file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from udpfast.core.layout import Kind
from udpfast.errors import shown
from udpfast.export.block import Block
from udpfast.export.columns import Names, Selection, record_batch
from udpfast.export.schema import TABLES
from udpfast.export.segments import Blocks, after, journal_begin, journal_parts

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JournalRows", "snapshots"]


class JournalRows:
    """Iterates over tables of a journal, block by block.

    Parameters
    ----------
    directory : Path
        Directory of the journal. Segments that are still being written are left out.
    tables : collection of str
        Names of the tables. Rows of `orders` also have `more`: whether the update is continued in
        the next update of its book.
    symbols, exchanges : collection of str
        Only rows of these; empty: all rows.

    Attributes
    ----------
    doubts : int
        Number of records read so far that report missing ones (GAP, LAPPED).
    missing : int
        Number of records found so far that damage keeps from being read.
    """

    def __init__(
        self,
        directory: Path,
        tables: Collection[str],
        symbols: Collection[str] = (),
        exchanges: Collection[str] = (),
    ) -> None:
        self.doubts = 0
        self.missing = 0
        self._directory = directory
        self._selections = {
            name: Selection(TABLES[name], "", dictionaries=False) for name in tables
        }
        self._wanted = {"symbol": list(symbols), "exchange": list(exchanges)}

    @property
    def wanted(self) -> str:
        """The filter as the end of a sentence about rows; empty if there is none."""
        words = [shown(word) for each in self._wanted.values() for word in each]
        return f" of {' and '.join(words)}" if words else ""

    def __iter__(self) -> Iterator[dict[str, pa.RecordBatch]]:
        """Yield the rows of each block by table, in the order of its records."""
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
                self.doubts += int(np.isin(block.headers["kind"], [Kind.GAP, Kind.LAPPED]).sum())
                yield {
                    name: self._filtered(_batch(block, names, selection))
                    for name, selection in self._selections.items()
                }
            self.missing += sum(hole.records for hole in blocks.holes)

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        for column, words in self._wanted.items():
            if words:
                batch = batch.filter(pc.is_in(batch[column], value_set=pa.array(words)))
        return batch


def _batch(block: Block, names: Names, selection: Selection) -> pa.RecordBatch:
    import pyarrow as pa

    batch = record_batch(block, names, selection)
    if selection.table.name != "orders":
        return batch
    more = block.select(1 << Kind.ORDERS, True).goes_on()
    return batch.append_column("more", pa.array(more, pa.bool_()))


def snapshots(messages: pa.RecordBatch, kind: Kind) -> pa.RecordBatch:
    """Return the rows of `messages` that are complete states, including those of empty books."""
    import pyarrow.compute as pc

    return messages.filter(pc.and_(pc.equal(messages["kind"], kind.name), messages["snapshot"]))
