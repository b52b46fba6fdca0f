"""Export the finished parts of a journal to Parquet; repeated runs export each part only once."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from udpfast.archive.feed_settings import copy_feed
from udpfast.archive.recorded_feed import FEED_NAME, feed_name, feed_of, input_names
from udpfast.errors import ConfigError, FormatError, WriterExistsError
from udpfast.export.columns import (
    Names,
    Partition,
    Selection,
    latency_batches,
    record_batch,
)
from udpfast.export.definitions import Definitions, exported_instruments
from udpfast.export.hops import HopCounts
from udpfast.export.manifest import (
    SCHEMA_HASH,
    Entry,
    begin_export,
    read_entries,
    remove_entry,
    settle_entries,
    write_entry,
    writing_directory,
)
from udpfast.export.parquet import ROW_GROUP, PartitionFile, WrittenFile
from udpfast.export.race_rows import part_races, race_batch, raced_parts, split_races, unraced
from udpfast.export.sbe_tables import SbeTables
from udpfast.export.schema import FROM_ALL, TABLES, Table, table_of
from udpfast.export.segments import (
    Blocks,
    Part,
    after,
    check_journal,
    is_closed,
    is_end_known,
    journal_begin,
    journal_parts,
    last_record,
    state_of,
)
from udpfast.export.wanted import ALL, Wanted, both
from udpfast.log.journal_state import journal_identity
from udpfast.log.segment import segment_path

__all__ = ["INPUTS", "Exported", "Exporter", "Lost"]

#: File in the settings of an export: the names of a composite's inputs.
INPUTS = "inputs.json"


class Exported(Struct, frozen=True):
    """The result of one part in one pass.

    Attributes
    ----------
    entry : Entry
        The manifest's entry of the part.
    written : bool
        False: the part had been exported before and is unchanged.
    """

    entry: Entry
    written: bool


class Lost(Struct, frozen=True):
    """Records of a journal that neither the journal nor the export has.

    Attributes
    ----------
    raw : bool
        Whether they are of its raw capture.
    index, end_index : int
        Index of the first record, and behind the last.
    removed : bool
        The recorder removed them to make room. Otherwise their segment is damaged or gone.
    """

    raw: bool
    index: int
    end_index: int
    removed: bool

    @property
    def records(self) -> int:
        """Number of lost records."""
        return self.end_index - self.index


class Exporter:
    """Exports a journal to Parquet. Only one process at a time may export a feed to a directory.

    A part is the content of a segment that is not exported yet. If a segment's writer left it open,
    its present content is a part, and records appended later are a further part.

    Parameters
    ----------
    journal : Path
        Directory of the journal.
    root : Path
        Directory of the export; several feeds may share it.
    feed : str, optional
        Name of the feed in the export; by default that of the recorded instance.
    tables : sequence of str
        Tables to export; others are left as they are. `races` are left out if the journal's raw
        capture cannot make them: `left_out`.
    payloads : bool
        Keep the payloads in `messages`.
    replace : bool
        Remove the export of another journal with the same feed name.
    threads : int
        Number of threads that compress the files of a part.
    sbe : SbeTables, optional
        Export tables of the SBE messages in payloads, too.
    wanted : Wanted
        Export only these records; not for `races` and `latency`, which are made of all records.

    Attributes
    ----------
    unfinished : int
        Number of segments that the last pass left out because they are still being written.
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
        sbe: SbeTables | None = None,
        wanted: Wanted = ALL,
    ) -> None:
        self.journal = journal
        self.root = root
        self._feed = feed
        self._sbe = sbe
        self._wanted = wanted
        for name in set(FROM_ALL).intersection(tables) if wanted else ():
            raise ConfigError(
                f"{name} is made from all records: expected no choice of records, found"
                f"{wanted}: leave the table out, or export all and filter its rows"
            )
        typed = () if sbe is None else tuple(sbe.tables.values())
        self._tables = [*(table_of(name) for name in tables), *typed]
        self._known = TABLES | {table.name: table for table in typed}
        self._payloads = payloads
        self._replace = replace
        self._threads = threads
        self._journals: dict[bool, str] = {}
        self._done: set[tuple[bool, int]] = set()
        #: For the journal and its raw capture: index and position behind the last part examined.
        self._ends: dict[bool, tuple[int, int]] = {}
        #: Feed, journal and index behind the last part written, and the search for definitions.
        self._defined: tuple[tuple[str, str, int] | tuple[()], Definitions] | None = None
        self.unfinished = 0
        if feed and not FEED_NAME.fullmatch(feed):
            raise ConfigError(f"feed must have letters, digits, '.', '_' and '-', was {feed!r}")

    def run(self, dead: bool = True) -> Iterator[Exported]:
        """Export the finished parts; a second run continues where the first one ended.

        Parameters
        ----------
        dead : bool
            True: the last segment of a dead writer counts as finished. False: it waits for the
            writer that continues it.

        Raises
        ------
        WriterExistsError
            Another process is exporting the same feed to the same directory.
        FormatError
            The directory has the export of another journal with this name, or records that this
            journal no longer has; or the journal was replaced since the last run.
        """
        self.unfinished = 0
        wanted = self._wanted
        with ExitStack() as open_feeds:
            feeds: dict[str, _Feed] = {}
            for raw, directory, journal, tables in self._sources():
                check_journal(directory, self._journals.setdefault(raw, journal))
                for part in self._ready(directory, raw, dead):
                    feed = self._feed or feed_name(part.name, self.journal)
                    if feed not in feeds:
                        feeds[feed] = open_feeds.enter_context(_Feed(self.root, feed))
                        feeds[feed].keep_settings(self.journal)
                    own = feeds[feed].entries_of(journal, raw, str(wanted), self._replace)
                    part = self._placed(directory, raw, part, own)  # noqa: PLW2901
                    if wanted.reaches(part):
                        yield from self._export(directory, part, feeds[feed], own, tables)
                    if part.sealed:
                        self._done.add((raw, part.number))

    def _placed(self, directory: Path, raw: bool, part: Part, entries: list[Entry]) -> Part:
        # Let a part begin behind the exported records, so that records missing in between count as
        # missing. Records removed before anything was exported do not count.
        ends = [(entry.end_index, entry.end_position) for entry in entries]
        ends += [self._ends[raw]] if raw in self._ends else []
        begin = journal_begin(directory)
        known = [end for end in ends if end[0] <= part.index] or [(begin.index, begin.position)]
        index, position = max(known)
        self._ends[raw] = (part.end_index, part.end_position)
        return after(part, position, index)

    def _sources(self) -> Iterator[tuple[bool, Path, str, tuple[Table, ...]]]:
        # Yield the journal and its raw capture, if they exist, with the wanted tables of each that
        # can be made.
        for raw in (False, True):
            tables = tuple(table for table in self._tables if table.raw == raw)
            directory = self.journal / "raw" if raw else self.journal
            if tables and not (raw and self.left_out()):
                with suppress(FileNotFoundError):
                    yield raw, directory, journal_identity(directory).hex(), tables

    def _ready(self, directory: Path, raw: bool, dead: bool) -> list[Part]:
        # Return the finished parts that this exporter has not handled before.
        done = {number for of_raw, number in self._done if of_raw == raw}
        closed = is_closed(directory, dead)  # read before the parts, which can only grow
        parts = journal_parts(directory, dead=dead, known=() if raw else done)
        ready = raced_parts(directory, parts, closed) if raw else parts
        ready = [part for part in ready if part.finished]
        self.unfinished += len(parts) - len(ready)
        return [part for part in ready if part.number not in done]

    def _export(
        self,
        directory: Path,
        part: Part,
        feed: _Feed,
        entries: list[Entry],
        tables: tuple[Table, ...],
    ) -> Iterator[Exported]:
        pieces = list(_pieces(directory, part, entries))
        if any(entry is not None and not same for entry, _, same in pieces):
            if not self._replace:
                raise FormatError(
                    f"{self.root}: expected records of {segment_path(directory, part.number)} as "
                    "they were exported, found others: the journal was cut and then continued; "
                    "choose another directory, or replace them"
                )
            for each in entries:
                if each.segment == part.number:
                    feed.remove(each)
            pieces = [(None, part, True)]
        for entry, piece, _ in pieces:
            try:
                exported = self._export_piece(directory, piece, feed.name, entry, tables)
            except (FormatError, FileNotFoundError):
                if segment_path(directory, part.number).exists():
                    raise
                return  # removed meanwhile to make room: treat it as removed before
            yield exported

    def _export_piece(
        self,
        directory: Path,
        part: Part,
        feed: str,
        before: Entry | None,
        tables: tuple[Table, ...],
    ) -> Exported:
        asked = {table.name for table in tables}
        kept = set() if before is None else set(before.tables)
        wanted = asked - kept
        payloads = self._payloads
        if before is not None:
            wanted |= asked & before.lacks(self.root)
            if before.schema != SCHEMA_HASH:
                wanted |= kept & TABLES.keys()
            if self._sbe is not None and before.sbe != self._sbe.identity:
                wanted |= asked - TABLES.keys()
            if payloads and not before.payloads:
                wanted |= asked & {"messages"}
            payloads |= before.payloads
            if not wanted:
                return Exported(before, False)
            if "messages" not in wanted:  # its existing file stays as it is
                payloads = before.payloads
        for table in self._tables:  # create directories of empty tables, too: readers expect them
            (self.root / table.name).mkdir(parents=True, exist_ok=True)
        entry = Entry(
            feed=feed,
            journal=part.journal,
            directory=str(directory.resolve()),
            raw=tables[0].raw,
            segment=part.number,
            index=part.index,
            end_index=part.end_index,
            position=part.position,
            end_position=part.end_position,
            records=0,
            missing=part.end_index - part.index,
            last=None,
            nameless=False,
            tables=(
                *(name for name in self._known if name in kept | wanted),
                *sorted(kept - self._known.keys()),
            ),
            payloads=payloads,
            files=(),
            sbe="" if before is None else before.sbe,
            wanted=str(self._wanted),
            damaged=0 if before is None else before.damaged,
        )
        entry = self._write(directory, part, entry, wanted)
        if before is not None:
            files = tuple(file for file in before.files if file.table not in wanted)
            entry = replace(entry, files=files + entry.files)
        write_entry(self.root, entry)
        return Exported(entry, True)

    def _write(self, directory: Path, part: Part, entry: Entry, wanted: set[str]) -> Entry:
        # Write the files of an entry, and return it with them; they are not visible yet.
        tables = [table for name, table in self._known.items() if name in wanted]
        sbe = self._sbe if any(name not in TABLES for name in wanted) else None
        damaged = 0
        writing = writing_directory(self.root, entry.feed)
        files = _Files(writing, f"part-{entry.feed}-{entry.name}.parquet")
        try:
            if entry.raw:
                records, last = _append_races(files, directory, part, entry.feed)
                nameless = False
            else:
                definitions = self._definitions_before(directory, part, entry.feed, wanted)
                records, last, nameless, damaged = _append_records(
                    files,
                    directory,
                    part,
                    entry.feed,
                    tables,
                    entry.payloads,
                    sbe,
                    self._wanted,
                    definitions,
                )
            missing = part.end_index - part.index - records
            if missing and not segment_path(directory, part.number).exists():
                raise FileNotFoundError(f"{directory}: segment {part.number} was removed")
            written = files.finish(self._threads)
        except BaseException:
            files.discard()
            raise
        entry = replace(entry, records=records, missing=missing, last=last, nameless=nameless)
        if sbe is not None:
            entry = replace(entry, sbe=sbe.identity, damaged=damaged)
        return replace(entry, files=tuple(written))

    def _definitions_before(
        self, directory: Path, part: Part, feed: str, wanted: set[str]
    ) -> Definitions | None:
        # Return what finds the definitions that a part lacks: that of the part before, or one that
        # knows what the parts before it have.
        if self._wanted.start_ns is None or "instruments" not in wanted:
            return None
        before = self._defined
        if before is None or before[0] != (feed, part.journal, part.index):
            files = [
                self.root / file.path
                for entry in read_entries(self.root, feed)
                if entry.journal == part.journal and entry.end_index <= part.index
                for file in entry.files
                if file.table == "instruments"
            ]
            selection = Selection(TABLES["instruments"], feed, inputs=input_names(directory))
            defined = exported_instruments(files)
            before = (), Definitions(directory, self._wanted, selection, defined)
        self._defined = (feed, part.journal, part.end_index), before[1]
        return before[1]

    def lost(self) -> list[Lost]:
        """Return the records that are in no file of the export and in no segment any more."""
        found: list[Lost] = []
        for raw, directory, journal, tables in self._sources():
            state = state_of(directory)  # read before the segments, which can only grow
            asked = {table.name for table in tables}
            spans = [(part.index, part.end_index) for part in journal_parts(directory)]
            spans += [
                (entry.index, entry.end_index)
                for entry in read_entries(self.root, self._feed or "*")
                if entry.journal == journal and asked <= set(entry.tables)
            ]
            begin = journal_begin(directory).index  # last: what is removed meanwhile is no damage
            # Segments out of a wanted time were not exported, and may be removed by now.
            end = begin if self._wanted else 0
            for index, end_index in sorted([*spans, (state.index if state else 0,) * 2]):
                if end < min(index, begin):
                    found.append(Lost(raw, end, min(index, begin), removed=True))
                if max(end, begin) < index:
                    found.append(Lost(raw, max(end, begin), index, removed=False))
                end = max(end, end_index)
        return found

    def left_out(self) -> str:
        """Return why the table `races` is left out, as a sentence; "": it is not."""
        return unraced(self.journal) if TABLES["races"] in self._tables else ""

    def withdraw(self) -> None:
        """Remove what is exported of these wanted records, so that others can be exported."""
        journals = set(self._journals.values())
        own = [
            each for each in read_entries(self.root, self._feed or "*") if each.journal in journals
        ]
        for name in {entry.feed for entry in own}:
            with _Feed(self.root, name) as feed:
                feed.withdraw(journals, str(self._wanted))

    def doubts(self) -> list[str]:
        """Return a sentence for each journal whose end is unknown, so that records may be lost."""
        return [
            f"{directory}: its file `journal` cannot be read, and its last segment does not say "
            "that it is the last: more records may have been lost"
            for _, directory, _, _ in self._sources()
            if not is_end_known(state_of(directory), journal_parts(directory))
        ]


def _records(wanted: str) -> str:
    return f"records{wanted}" if wanted else "all records"


def _pieces(
    directory: Path, part: Part, entries: list[Entry]
) -> Iterator[tuple[Entry | None, Part, bool]]:
    # Yield the exported pieces of a segment (with their entry, and whether the segment still has
    # the same records) and those that are not exported yet, in order.
    index, position = part.index, part.position
    for entry in entries:
        if entry.end_index <= part.index or entry.index >= part.end_index:
            continue
        if index < entry.index:
            rest = _rest(part, position, index)
            rest = replace(rest, end_index=entry.index, end_position=entry.position, behind=None)
            yield None, rest, True
        index, position = entry.end_index, entry.end_position
        piece = _rest(part, entry.position, entry.index)
        behind = part.behind if index == part.end_index else None
        piece = replace(piece, end_index=index, end_position=position, behind=behind)
        yield entry, piece, index <= part.end_index and _is_as_exported(directory, entry)
    if index < part.end_index:
        yield None, _rest(part, position, index), True


def _rest(part: Part, position: int, index: int) -> Part:
    before = part.before if index == part.index else None
    return replace(part, position=position, index=index, before=before)


def _is_as_exported(directory: Path, entry: Entry) -> bool:
    # Compare the last record: a journal that was cut continues with other records. A record that
    # is damaged by now was sound when it was exported, so it does not count as another one.
    if entry.last is None:
        return True
    position, checksum = entry.last
    raw = entry.raw
    return all(
        int(block.headers["checksum"][0]) == checksum
        for block, _ in Blocks(directory, entry.journal, position, position + 1, raw=raw)
    )


def _append_records(
    files: _Files,
    directory: Path,
    part: Part,
    feed: str,
    tables: list[Table],
    payloads: bool,
    sbe: SbeTables | None,
    wanted: Wanted,
    definitions: Definitions | None,
) -> tuple[int, tuple[int, int] | None, bool, int]:
    # Return the number of records, position and checksum of the part's last record, whether names
    # are missing, and how many payloads are not sound SBE messages.
    blocks = Blocks(directory, part.journal, part.position, part.end_position, part=part)
    latency, events = TABLES["latency"], TABLES["events"]
    hops = HopCounts()
    inputs = input_names(directory)
    selections = [
        Selection(table, feed, payloads=payloads, inputs=inputs)
        for table in tables
        if table is not latency and table.name in TABLES
    ]
    damaged = 0
    last = None

    def say_holes() -> None:
        if events in tables:
            for hole in blocks.holes:
                block = hole.block()
                chosen = wanted.keep(block, Names())
                batch = record_batch(block, Names(), Selection(events, feed), chosen)
                if batch.num_rows:
                    files.file(events, block.partitions()[1][0]).append(batch)
        blocks.holes.clear()

    for block, names in blocks:
        say_holes()
        chosen = wanted.keep(block, names)
        if definitions is not None:
            for partition, row in definitions.before(block, names, chosen):
                files.file(TABLES["instruments"], partition).append(row, earlier=True)
        codes, partitions = block.partitions()
        for code, partition in enumerate(partitions):
            keep = both(codes == code if len(partitions) > 1 else None, chosen)
            for selection in selections:
                batch = record_batch(block, names, selection, keep)
                if batch.num_rows:
                    files.file(selection.table, partition).append(batch)
            if sbe is not None:
                found = sbe.walk(block, keep)
                damaged += len(found.damaged)
                for path in found.levels():
                    own = feed_of(feed, inputs, partition[2])
                    files.file(sbe.tables[path], partition).append(found.batch(path, own))
        if latency in tables:
            hops.add(block)
        last = last_record(block, part)
    say_holes()
    for partition, batch in latency_batches(hops.take(), feed, part.number, inputs).items():
        files.file(latency, partition).append(batch)
    return blocks.records, last, blocks.nameless, damaged


def _append_races(
    files: _Files, directory: Path, part: Part, feed: str
) -> tuple[int, tuple[int, int] | None]:
    races, records, last = part_races(directory, part)
    for partition, found in split_races(races).items():
        lines = races.lines[partition[1]]
        for begin in range(0, len(found), ROW_GROUP):
            rows = found[begin : begin + ROW_GROUP]
            files.file(TABLES["races"], partition).append(race_batch(rows, partition, lines, feed))
    return records, last


class _Files:
    """The files of a part, in a directory where readers do not look."""

    def __init__(self, writing: Path, name: str) -> None:
        self._writing = writing
        self._name = name
        self._files: dict[tuple[str, Partition], PartitionFile] = {}

    def file(self, table: Table, partition: Partition) -> PartitionFile:
        key = (table.name, partition)
        if key not in self._files:
            self._files[key] = PartitionFile(self._writing, table, partition, self._name)
        return self._files[key]

    def finish(self, threads: int) -> list[WrittenFile]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(PartitionFile.finish, self._files.values()))

    def discard(self) -> None:
        for file in self._files.values():
            file.discard()


class _Feed:
    """The part of an export that belongs to a feed; locked while it is entered."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self._root = root

    def __enter__(self) -> Self:
        directory = self._root / "_manifest" / self.name
        directory.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            begin_export(self._root)
            settle_entries(self._root, self.name)
            self._entries = read_entries(self._root, self.name)
        except BlockingIOError:
            os.close(self._fd)
            raise WriterExistsError(
                f"{directory}: another process exports {self.name!r} to this place"
            ) from None
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # If an interruption left files that are complete but not visible, make them visible now:
        # their segments may be gone by the next run.
        try:
            settle_entries(self._root, self.name)
        finally:
            os.close(self._fd)

    def keep_settings(self, journal: Path) -> None:
        """Copy the settings with the names of a feed's lines or a composite's inputs."""
        directory = self._root / "_manifest" / self.name / "settings"
        directory.mkdir(exist_ok=True)
        copy_feed(journal, directory)
        if names := input_names(journal):
            (directory / INPUTS).write_text(json.dumps(names) + "\n")

    def entries_of(self, journal: str, raw: bool, wanted: str, replace: bool) -> list[Entry]:
        """Return a journal's entries in order.

        `replace` removes those of another journal, and those of other wanted records.
        """
        for entry in [each for each in self._entries if each.raw == raw]:
            if entry.journal == journal and entry.wanted == wanted:
                continue
            if not replace:
                found = f"one of another journal, {entry.journal} ({entry.directory})"
                if entry.journal == journal:
                    found = f"one of {_records(entry.wanted)}"
                raise FormatError(
                    f"{self._root}: expected an export of {_records(wanted)} of journal {journal} "
                    f"as {self.name!r}, found {found}: choose "
                    "another directory or another `feed` (--feed), or `replace` it (--replace)"
                )
            self.remove(entry)
        return [entry for entry in self._entries if entry.journal == journal]

    def withdraw(self, journals: set[str], wanted: str) -> None:
        """Remove the entries of journals, and of these wanted records."""
        for entry in list(self._entries):
            if entry.journal in journals and entry.wanted == wanted:
                self.remove(entry)

    def remove(self, entry: Entry) -> None:
        """Remove an entry and its files."""
        remove_entry(self._root, entry)
        self._entries.remove(entry)
