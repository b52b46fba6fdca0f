"""Definitions of instruments from before the time that an export is of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from udpfast.archive.recorded_feed import feed_of
from udpfast.core.layout import Kind
from udpfast.export.columns import Names, Partition, Selection, record_batch
from udpfast.export.segments import Blocks, Part, journal_parts
from udpfast.export.wanted import Wanted
from udpfast.market.block import Block
from udpfast.market.tables import RECORD_TABLES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Definitions", "Instrument", "exported_instruments"]

#: Names of feed, exchange and symbol.
Instrument = tuple[str | None, ...]
_DEFINITION = Kind[RECORD_TABLES["instruments"].kinds[0]]
#: Columns of an instrument.
_KEY = ("feed", "exchange", "symbol")
#: A row of `instruments`, with the partition that it belongs to.
Row = tuple[Partition, "pa.RecordBatch"]


class Definitions:
    """Finds the definitions in force at the beginning of a time, of instruments that follow.

    A definition is taken if the instrument's first update of the time does not follow one of the
    time itself. The journal is searched backwards from there, segment by segment, and no further
    than it takes to find those that are missing.

    Parameters
    ----------
    directory : str or path
        Directory of the journal.
    wanted : Wanted
        Which records are exported.
    selection : Selection
        What to return of the table `instruments`.
    defined : iterable of Instrument
        Instruments whose definitions were exported before.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        wanted: Wanted,
        selection: Selection,
        defined: Iterable[Instrument] = (),
    ) -> None:
        self._directory = directory
        self._wanted = wanted
        self._selection = selection
        self._defined = set(defined)
        self._found: dict[Instrument, Row] = {}
        self._earlier: list[Part] | None = None  # parts not searched yet, in order

    def before(self, block: Block, names: Names, keep: NDArray[np.bool_] | None) -> list[Row]:
        """Return the definitions that a block's instruments lack, in the order of the journal.

        Parameters
        ----------
        block : Block
            The next records of the export.
        names : Names
            Names of the ids in them.
        keep : numpy.ndarray or None
            Which of them are exported, as `Wanted.keep` returns it.
        """
        if self._wanted.start_ns is None:
            return []
        begun = dict(_first_updates(block, names, keep, self._selection))
        lacking = [each for each, kind in begun.items() if kind != _DEFINITION]
        lacking = [each for each in lacking if each not in self._defined]
        self._defined |= begun.keys()
        self._search(set(lacking), self._wanted.start_ns)
        rows = [self._found.pop(each) for each in lacking if each in self._found]
        return sorted(rows, key=lambda row: row[1]["position"][0].as_py())

    def _search(self, lacking: set[Instrument], start_ns: int) -> None:
        # Search older and older parts until all are found.
        if self._earlier is None:
            parts = journal_parts(self._directory)
            self._earlier = [part for part in parts if part.first_ns < start_ns]
        while self._earlier and lacking - self._found.keys():
            found = dict(self._definitions(self._earlier.pop(), start_ns))
            self._found = found | self._found  # of two, the later one is in force

    def _definitions(self, part: Part, start_ns: int) -> Iterator[tuple[Instrument, Row]]:
        bounds = (part.position, part.end_position)
        for block, names in Blocks(self._directory, part.journal, *bounds):
            headers = block.headers
            keep = headers["kind"] == _DEFINITION
            keep &= headers["published_ns"] < start_ns
            if not keep.any():
                continue
            batch = record_batch(block, names, self._selection, keep)
            codes, partitions = block.partitions()
            instruments = zip(*(batch[name].to_pylist() for name in _KEY), strict=True)
            for row, instrument in enumerate(instruments):
                yield instrument, (partitions[int(codes[keep][row])], batch.slice(row, 1))


def exported_instruments(paths: Iterable[Path]) -> set[Instrument]:
    """Return the instruments that exported files of the table `instruments` have."""
    import pyarrow.parquet as pq

    found: set[Instrument] = set()
    for path in paths:
        rows = pq.ParquetFile(path).read(columns=list(_KEY))
        found.update(zip(*(rows[name].to_pylist() for name in _KEY), strict=True))
    return found


def _first_updates(
    block: Block, names: Names, keep: NDArray[np.bool_] | None, selection: Selection
) -> Iterator[tuple[Instrument, int]]:
    # Yield each instrument that a block has an update of, and the kind of the first one.
    headers = block.headers
    kinds, sessions = headers["kind"], headers["session"]
    updates = (kinds >= Kind.BOOK) & (kinds < Kind.BUS)
    if keep is not None:
        updates &= keep
    exchange_ids, symbol_ids = (ids.astype(np.uint64) for ids in block.ids())
    keys, words = exchange_ids << 32 | symbol_ids, names.words()
    feeds = {
        each: feed_of(selection.feed, selection.inputs, each) for each in set(sessions.tolist())
    }
    for feed in set(feeds.values()):  # inputs of a composite may have instruments of one name
        own = [session for session, of in feeds.items() if of == feed]
        at = np.flatnonzero(updates & np.isin(sessions, own) if selection.inputs else updates)
        pairs, first = np.unique(keys[at], return_index=True)
        for pair, place in zip(pairs.tolist(), first.tolist(), strict=True):
            exchange_id, symbol_id = pair >> 32, pair & 0xFFFFFFFF
            if symbol_id and max(exchange_id, symbol_id) < len(words):
                yield (feed, words[exchange_id], words[symbol_id]), int(kinds[at[place]])
