"""Finished segments of a journal into Parquet: each once, however often it is asked for."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from udpfast.errors import ConfigError, FormatError, WriterExistsError
from udpfast.export.columns import Partition, Selection, latency_batches, record_batch
from udpfast.export.hops import HopCounts
from udpfast.export.manifest import SCHEMA_HASH, Entry, entry_path, read_entry, write_entry
from udpfast.export.parquet import ROW_GROUP, PartitionFile, WrittenFile, sync_directory
from udpfast.export.race_rows import part_races, race_batch, raced_parts, split_races
from udpfast.export.schema import TABLES, Table, table_of
from udpfast.export.segments import Blocks, Part, is_closed, journal_parts
from udpfast.shm.segment import segment_path

__all__ = ["Exported", "Exporter", "feed_name"]

_FEED = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of one segment in one pass.

    Attributes
    ----------
    entry : Entry
    written : bool
        False: it had been exported before, and is as it was.
    """

    entry: Entry
    written: bool


def feed_name(part: Part, journal: Path) -> str:
    """Return what a journal's records are called: by the instance, or the journal's directory."""
    return part.name if _FEED.fullmatch(part.name) else journal.resolve().name


class Exporter:
    """Make Parquet of a journal. One at a time for each feed of an export.

    Parameters
    ----------
    journal : Path
        Directory of the journal.
    root : Path
        Of the export; several feeds may share it.
    feed : str, optional
        Name that the journal's records get; by default that of the instance recorded.
    tables : sequence of str
    payloads : bool
        Keep the payloads in `messages`.
    replace : bool
        Write anew what another journal of the same name has left.
    threads : int
        That compress files of one segment at the same time.

    Attributes
    ----------
    unfinished : int
        Segments that the last pass left for later: they are still written to.
    """

    def __init__(
        self,
        journal: Path,
        root: Path,
        *,
        feed: str = "",
        tables: tuple[str, ...] = tuple(TABLES),
        payloads: bool = False,
        replace: bool = False,
        threads: int = 1,
    ) -> None:
        self.journal = journal
        self.root = root
        self._feed = feed
        self._tables = [table_of(name) for name in tables]
        self._payloads = payloads
        self._replace = replace
        self._threads = threads
        self._done: set[tuple[bool, int]] = set()
        self.unfinished = 0
        if feed and not _FEED.fullmatch(feed):
            raise ConfigError(f"feed must have letters, digits, '.', '_' and '-', was {feed!r}")

    def run(self, dead: bool = True) -> Iterator[Exported]:
        """Export every finished segment; a second run goes on where the first one ended.

        Parameters
        ----------
        dead : bool
            What a writer that died has left is finished. Without it, the last segment waits for
            who goes on with it.

        Raises
        ------
        WriterExistsError
            Another process exports the same feed to the same place.
        FormatError
            The place holds what another journal of this name became.
        """
        self.unfinished = 0
        for raw in (False, True):
            tables = tuple(table for table in self._tables if table.raw == raw)
            directory = self.journal / "raw" if raw else self.journal
            if not tables or not directory.is_dir():
                continue
            known = {number for of_raw, number in self._done if of_raw == raw}
            closed = is_closed(
                directory, dead
            )  # before the segments: what follows can only be more
            parts = journal_parts(directory, dead=dead, known=() if raw else known)
            ready = raced_parts(directory, parts, closed) if raw else parts
            self.unfinished += len(parts) - len(ready)
            for part in ready:
                if part.number in known:
                    continue
                if not part.finished:
                    self.unfinished += 1
                    continue
                feed = self._feed or feed_name(part, self.journal)
                with _lock(self.root, feed):
                    try:
                        exported = self._export(directory, part, feed, tables, raw)
                    except (FormatError, FileNotFoundError):
                        if segment_path(directory, part.number).exists():
                            raise
                        continue  # removed meanwhile, to make room: as if it had been before
                    yield exported
                self._done.add((raw, part.number))

    def _export(
        self, directory: Path, part: Part, feed: str, tables: tuple[Table, ...], raw: bool
    ) -> Exported:
        names = tuple(table.name for table in tables)
        before = read_entry(entry_path(self.root, feed, part.number, raw))
        if before is not None:
            if before.opened_ns != part.opened_ns and not self._replace:
                raise FormatError(
                    f"{self.root}: expected segment {part.number} of {feed!r} as begun at "
                    f"{part.opened_ns} (UNIX ns), found that of another journal, begun at "
                    f"{before.opened_ns}: choose another directory or feed name, or replace it"
                )
            if self._is_same(before, part, names):
                return Exported(before, False)
        for table in self._tables:  # one without rows is there as well, for who reads it
            (self.root / table.directory).mkdir(parents=True, exist_ok=True)
        entry = self._write(directory, part, feed, tables, raw)
        if before is not None:
            for path in {file.path for file in before.files} - {file.path for file in entry.files}:
                (self.root / path).unlink(missing_ok=True)
        return Exported(entry, True)

    def _is_same(self, entry: Entry, part: Part, tables: tuple[str, ...]) -> bool:
        return (
            entry.opened_ns == part.opened_ns
            and (entry.position, entry.end_position) == (part.position, part.end_position)
            and (entry.tables, entry.payloads) == (tables, self._payloads)
            and entry.schema == SCHEMA_HASH
            and entry.holds(self.root)
        )

    def _write(
        self, directory: Path, part: Part, feed: str, tables: tuple[Table, ...], raw: bool
    ) -> Entry:
        files = _Files(self.root, f"part-{feed}-{part.number:08}.parquet")
        try:
            if raw:
                records, missing = _append_races(files, directory, part, feed)
            else:
                records, missing = _append_records(
                    files, directory, part, feed, tables, self._payloads
                )
            written = files.finish(self._threads)
        except BaseException:
            files.discard()
            raise
        entry = Entry(
            feed=feed,
            journal=str(directory.resolve()),
            raw=raw,
            segment=part.number,
            opened_ns=part.opened_ns,
            position=part.position,
            end_position=part.end_position,
            records=records,
            missing=missing,
            tables=tuple(table.name for table in tables),
            payloads=self._payloads,
            files=tuple(written),
        )
        write_entry(self.root, entry)
        return entry


def _append_records(
    files: _Files,
    directory: Path,
    part: Part,
    feed: str,
    tables: tuple[Table, ...],
    payloads: bool,
) -> tuple[int, int]:
    # Returns how many records there were, and how many are missing.
    blocks = Blocks(directory, ("position", part.position), ("position", part.end_position))
    latency = TABLES["latency"]
    hops = HopCounts()
    selections = [
        Selection(table, feed, payloads=payloads) for table in tables if table is not latency
    ]
    records = 0
    for block, names in blocks:
        records += block.count
        codes, partitions = block.partitions()
        for code, partition in enumerate(partitions):
            keep = codes == code if len(partitions) > 1 else None
            for selection in selections:
                batch = record_batch(block, names, selection, keep)
                if batch.num_rows:
                    files.file(selection.table, partition).append(batch)
        if latency in tables:
            hops.add(block)
    if blocks.position < part.end_position and not blocks.missing:
        raise FormatError(
            f"{segment_path(directory, part.number)}: expected records up to position "
            f"{part.end_position}, found none behind {blocks.position}"
        )
    for partition, batch in latency_batches(hops.take(), feed, part.number).items():
        files.file(latency, partition).append(batch)
    return records, blocks.missing


def _append_races(files: _Files, directory: Path, part: Part, feed: str) -> tuple[int, int]:
    races, records = part_races(directory, part)
    for partition, found in split_races(races).items():
        lines = races.lines[partition[1]]
        for begin in range(0, len(found), ROW_GROUP):
            rows = found[begin : begin + ROW_GROUP]
            files.file(TABLES["races"], partition).append(race_batch(rows, partition, lines, feed))
    return records, part.end_index - part.index - records


class _Files:
    """The files that a segment becomes: shown together, when all are complete."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name
        self._files: dict[tuple[str, Partition], PartitionFile] = {}

    def file(self, table: Table, partition: Partition) -> PartitionFile:
        key = (table.name, partition)
        if key not in self._files:
            self._files[key] = PartitionFile(self._root, table, partition, self._name)
        return self._files[key]

    def finish(self, threads: int) -> list[WrittenFile]:
        with ThreadPoolExecutor(threads) as pool:
            written = list(pool.map(PartitionFile.finish, self._files.values()))
        for file in self._files.values():
            file.show()
        for directory in {file.directory for file in self._files.values()}:
            sync_directory(directory)
        return written

    def discard(self) -> None:
        for file in self._files.values():
            file.discard()


@contextmanager
def _lock(root: Path, feed: str) -> Iterator[None]:
    directory = root / "_manifest" / feed
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WriterExistsError(
                f"{directory}: another process exports {feed!r} to this place"
            ) from None
        yield
    finally:
        os.close(fd)
