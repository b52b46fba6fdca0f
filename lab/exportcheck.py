"""Exports and streams of damaged journals: every record is in them once, or reported missing.

    udpfast lab exportcheck --seeds 20 --seed 7

Each seed is a journal with a raw capture, written by processes which end normally or are killed.
Meanwhile the wall clock is set back and forward, old segments are removed to make room, exports of
some tables are killed between any two renames, and streams read some of their batches twice. At the
end a copy is damaged in one place. Rows + missing + lost must equal all records ever written; each
row must be a written record, and none may be there twice. Without leave to skip damage, a reader
gets all records or an error. A seed that fails is printed as the command that repeats it.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from udpfast.core.layout import Kind
from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.errors import FormatError, RegionError
from udpfast.export.exporter import Exporter
from udpfast.export.manifest import read_entries
from udpfast.export.scan import Scan
from udpfast.export.schema import TABLES
from udpfast.log.journal import Journal
from udpfast.log.segment import list_segments, segment_path
from udpfast.market.updates import LAYOUTS

from .children import in_child
from .program import by_seeds, memory

__all__ = ["check_seed", "main"]

BEGIN_NS = 1_800_000_000 * 10**9
SEGMENT_BYTES = 1 << 18
SESSION_ID = 77
STEPS = (5, 12)
CLOCK_STEPS_S = (-7200, -30, -2, 2, 30, 7200)
FOREIGN = "a foreign one over it"
DAMAGES = (
    *("flip", "flip header", "zero header", "delete", "cut", "no file journal"),
    *("zeros for journal", "another over it", FOREIGN),
)
TABLES_ASKED = (("messages",), ("races",), ("gaps", "latency"), tuple(TABLES))

#: Characters that are shown of a seed's failure.
TEXT_MAX = 300

#: Every so many datagrams the publisher begins anew with the same numbers, after two seconds.
RESTART_EVERY = 300


class KilledError(Exception):
    """Raised where an exporter is to end."""


def check_seed(seed: int) -> None:
    """Run one seed; raise AssertionError with what is wrong."""
    with tempfile.TemporaryDirectory(prefix="udpfast-export-", dir=memory()) as directory:
        _World(Path(directory), random.Random(seed)).run()


def expect(what: str, expected: object, found: object) -> None:
    """Compare."""
    if expected != found:
        raise AssertionError(f"{what}: expected {expected}, found {found}")


class _World:
    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.chance = chance
        self.journal = directory / "journal"
        self.directory = directory
        self.roots = [directory / "a", directory / "b"]
        self.written = 0
        self.oldest = 0
        self.streams = {name: _Stream(self.journal, name) for name in ("messages", "races")}

    def run(self) -> None:
        self.write()
        steps: list[Callable[[], None]] = [self.write, self.export, self.stream, self.look]
        for _ in range(self.chance.randint(*STEPS)):
            self.chance.choices(steps, (4, 4, 3, 1))[0]()
        self.write(close=True)
        for root in self.roots:
            self.check_export(root, self.journal)
        self.stream()
        for stream in self.streams.values():
            stream.check(self.written)
        self.damage()

    # --- what happens ----------------------------------------------------------------------------

    def write(self, close: bool = False) -> None:
        """Continue the journal and its raw capture, in a process of its own."""
        count = self.chance.randint(1, 250)
        ending = "close" if close else self.chance.choice(("close", "sync", "die", "die"))
        trim = self.chance.random() < 0.15
        seed = self.chance.random()
        child = in_child(
            lambda: _write(self.journal, self.written, count, ending, trim, random.Random(seed))
        )
        expect("exit code of a writer", 0, os.waitpid(child, 0)[1])
        self.written += count

    def export(self) -> None:
        """Export some tables to one of two places, and be killed at times."""
        tables = self.chance.choice(TABLES_ASKED)
        root = self.chance.choice(self.roots)
        exporter = Exporter(self.journal, root, tables=tables, payloads=self.chance.random() < 0.3)
        before = _files(root)
        left = self.chance.randrange(40) if self.chance.random() < 0.5 else 1 << 30
        rename = Path.replace

        def replace(path: Path, target: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledError
            return rename(path, target)

        try:
            with mock.patch.object(Path, "replace", replace):
                for _ in exporter.run(dead=self.chance.random() < 0.7):
                    pass
        except KilledError:
            pass
        gone = before - _files(root)
        expect("files that an export of other tables removed", set(), gone)

    def stream(self) -> None:
        """Let the streams read the new records, some of them twice."""
        for stream in self.streams.values():
            stream.read(self.chance)

    def look(self) -> None:
        """Read all current records at once."""
        indices = list(_rows(Scan(str(self.journal), columns=("index", "number"))))
        first = indices[0][0] if indices else self.written
        expect("records of a scan", list(range(first, self.written)), [row[0] for row in indices])

    # --- checks ----------------------------------------------------------------------------------

    def check_export(self, root: Path, journal: Path) -> None:
        """Export the rest; compare rows, missing and lost with what was written."""
        written = self.written
        list(Exporter(journal, root).run())
        for raw, table in ((False, "messages"), (True, "races")):
            lost = Exporter(journal, root, tables=(table,)).lost()
            entries = [entry for entry in read_entries(root) if entry.raw == raw]
            said = sum(entry.missing for entry in entries if table in entry.tables)
            said += sum(each.records for each in lost)
            records = sum(entry.records for entry in entries if table in entry.tables)
            expect(f"{table}: records + missing + lost", written, records + said)
            rows = sorted(_exported(root, table))
            expect(f"{table}: rows twice", len(rows), len(set(rows)))
            if table == "messages":
                expect("messages: rows", records, len(rows))
                expect("messages: rows of others", [], [r for r in rows if r[1] != _seqno(r[0])])
            elif not said:
                expect("races", [_seqno(n) for n in range(written)], [row[1] for row in rows])
        expect("what is left aside", [], list(root.rglob(".writing")))

    def check_refusal(self, root: Path, journal: Path, foreign: Path) -> None:
        """Export what has another journal's records and nothing else: it is said, not done."""
        before = sorted(journal.rglob("*"))
        try:
            list(Exporter(journal, root).run())
        except RegionError as error:
            expect(
                "what is refused", True, f"{foreign / 'journal'}: expected journal" in str(error)
            )
        else:
            raise AssertionError("records of another journal were exported")
        expect("what it leaves of a journal", before, sorted(journal.rglob("*")))
        scan = Scan(str(self.journal), columns=("index", "number"))
        whole = [] if foreign == journal else sorted(_rows(scan))
        expect("messages before the refusal", whole, sorted(_exported(root, "messages")))

    def damage(self) -> None:
        """Break one place of a copy; what is asked of it must add up all the same."""
        copy = self.directory / "copy"
        shutil.copytree(self.journal, copy)
        target = self.chance.choice((copy, copy / "raw"))
        what = _damage(target, self.chance)
        try:
            other = copy / "raw" if target == copy else copy
            if what.startswith(FOREIGN) and list_segments(target) == list_segments(other)[:1]:
                return self.check_refusal(self.directory / "damaged", copy, target)
            self.check_export(self.directory / "damaged", copy)
            for table in ("messages", "races"):
                scan = Scan(str(copy), table, columns=("position", "number"))
                whole = len(list(_rows(Scan(str(self.journal), table, columns=scan.columns))))
                try:
                    found = len(list(_rows(scan)))
                except (FormatError, RegionError, FileNotFoundError):
                    continue
                expect(f"{table}: rows of who allows no damage", whole, found)
        except AssertionError as error:
            raise AssertionError(f"{target.name} {what}: {error}") from None


class _Stream:
    """A query with a checkpoint, as Spark drives its reader."""

    def __init__(self, journal: Path, table: str) -> None:
        self.journal = journal
        self.table = table
        self.offset: dict[str, Any] | None = None
        self.rows: list[tuple[int, int]] = []
        self.lost = 0

    def read(self, chance: random.Random) -> None:
        """Read one batch or a few; one that was not committed is read again."""
        from udpfast.spark.stream import JournalStreamReader

        for _ in range(chance.randint(1, 3)):
            limit = chance.choice((None, 1, 40, 1000))
            column = "index" if self.table == "messages" else "position"
            scan = Scan(str(self.journal), self.table, columns=(column, "number"))
            reader = JournalStreamReader(scan, first="begin", max_records=limit, skip_loss=True)
            if self.offset is None:
                self.offset = reader.initialOffset()
                self.lost += self.offset["index"]
            start = self.offset
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            batch = None
            for _ in range(chance.choice((1, 1, 2))):
                again = [
                    row
                    for partition in reader.partitions(start, end)
                    for batch in reader.read(partition)
                    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
                ]
                if batch is not None:
                    expect(f"stream of {self.table}: the batch again", batch, again)
                batch = again
            self.rows += batch or []
            self.offset = end
            if self.table == "messages":
                self.lost += end["index"] - start["index"] - len(batch or [])

    def check(self, written: int) -> None:
        """Compare what came with what was written."""
        while self.offset is None or self.offset["index"] < written:
            before = self.offset
            self.read(random.Random(0))
            if self.offset == before:
                break
        expect(f"stream of {self.table}: end", written, (self.offset or {}).get("index"))
        expect(f"stream of {self.table}: rows twice", len(self.rows), len(set(self.rows)))
        if self.table == "messages":
            expect("stream: rows + lost", written, len(self.rows) + self.lost)
            others = [row for row in self.rows if row[1] != _seqno(row[0])]
            expect("stream: rows of others", [], others)


# --- journals ------------------------------------------------------------------------------------


def _seqno(number: int) -> int:
    return number % RESTART_EVERY


def _write(
    directory: Path, first: int, count: int, ending: str, trim: bool, chance: random.Random
) -> None:
    journals = [
        Journal.open(place, layouts, name="feed", segment_bytes=SEGMENT_BYTES)
        for place, layouts in ((directory, LAYOUTS), (directory / "raw", CONTROL_LAYOUTS))
    ]
    if trim:
        for journal in journals:
            if len(list_segments(journal.directory)) > 2:
                journal.remove_oldest()
    step_s = 0
    for number in range(first, first + count):
        if chance.random() < 0.02:
            step_s += chance.choice(CLOCK_STEPS_S)
        now_ns = number * 1_000_000 + number // RESTART_EVERY * 2 * 10**9
        wall_ns = BEGIN_NS + now_ns + step_s * 10**9
        frame = struct.pack("<BBBBHHII", 2, 0, 0, 1, 1, SESSION_ID, _seqno(number), 0)
        captured = struct.pack("<qII", now_ns, 0, 0) + frame + bytes(chance.randrange(400))
        contents = ((Kind.MESSAGE, bytes(2000)), (Kind.DATAGRAM, captured))
        for journal, (kind, content) in zip(journals, contents, strict=True):
            journal.append(
                kind, content, received_ns=wall_ns, published_ns=wall_ns, number=_seqno(number)
            )
        if chance.random() < 0.02:
            journals[chance.randrange(2)].sync(wall_ns)
    for journal in journals:
        if ending == "sync":
            journal.sync(BEGIN_NS)
        elif ending == "close":
            journal.close(BEGIN_NS)


def _damage(directory: Path, chance: random.Random) -> str:
    number = chance.choice(list_segments(directory))
    path = segment_path(directory, number)
    what = chance.choice(DAMAGES)
    if what == "no file journal":
        (directory / "journal").unlink()
    elif what == "zeros for journal":
        (directory / "journal").write_bytes(bytes((directory / "journal").stat().st_size))
    elif what == "another over it":
        path.write_bytes(
            segment_path(directory, chance.choice(list_segments(directory))).read_bytes()
        )
    elif what == FOREIGN:
        other = directory.parent if directory.name == "raw" else directory / "raw"
        path.write_bytes(segment_path(other, list_segments(other)[0]).read_bytes())
    elif what == "delete":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        if what == "cut":
            del content[chance.randrange(len(content)) :]
        elif what == "zero header":
            content[:4096] = bytes(4096)
        else:
            end = 4096 if what == "flip header" else len(content.rstrip(b"\0"))
            content[chance.randrange(end)] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
    return f"{what} {number} of {list_segments(directory)}"


# --- rows ----------------------------------------------------------------------------------------


def _rows(scan: Scan) -> Iterator[tuple[int, int]]:
    for piece in scan.pieces():
        for batch in scan.batches(piece):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _files(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("part-*.parquet") if "_manifest" not in path.parts}


def _exported(root: Path, table: str) -> Iterator[tuple[int, int]]:
    # What a reader of the directory finds, whatever the manifest says.
    import pyarrow.parquet as pq

    own = root / table
    for path in own.glob("date=*/**/part-*.parquet"):
        column = "index" if table == "messages" else "position"
        found = pq.read_table(path, columns=[column, "number"], partitioning=None)
        yield from zip(*(column.to_pylist() for column in found.columns), strict=True)


main = by_seeds(__name__, check_seed, 100)
