"""Repeated exports by processes that are killed, compared with a list of the written records.

    udpfast lab export-runs --seeds 20 --seed 7

Two journals, sometimes of instances with one name, are written, killed, continued, and exported
into two directories: with more tables or fewer, twice, both at once, with payloads or without, each
time by a process that may be killed with -9. A table never loses rows, never has a row twice, and
never has a row that was not written; a requested table is complete. An export of another journal
with the same name is refused, unless it is to be replaced. A seed that fails is printed as the
command that repeats it.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from udpfast.core.layout import GAP, Kind
from udpfast.errors import FormatError, WriterExistsError
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS

from .children import in_child
from .program import by_seeds, memory

__all__ = ["check_seed", "main"]

BEGIN_NS = 1_800_000_000 * 10**9
SEGMENT_BYTES = 1 << 18
STEPS = (5, 11)
#: How long exporters live; the moment is within the first milliseconds of most.
KILLED = 0.4
LIFE_S = 0.15
#: The seeds whose two instances have one name.
ONE_NAME = 0.3
REPLACED = 0.2
#: A GAP, which two tables have, every so many records; the others are in `messages` alone.
GAP_EVERY = 5
TABLES = (("messages",), ("gaps",), ("messages", "gaps"), ("gaps", "latency"))
ROW_TABLES = ("messages", "gaps")
REFUSED = 3
TEXT_MAX = 300

#: By index what a row tells: in `messages` its payload (None: not asked for), in `gaps` a number.
Rows = dict[int, bytes | int | None]


def check_seed(seed: int) -> None:
    """Run one seed; raise AssertionError with what is wrong."""
    with tempfile.TemporaryDirectory(prefix="udpfast-runs-", dir=memory()) as directory:
        _World(Path(directory), random.Random(seed)).run()


def expect(truth: object, what: str) -> None:
    """Raise unless it is so."""
    if not truth:
        raise AssertionError(f"expected: {what}")


class _Kept:
    """A journal, and what was written to it."""

    def __init__(self, directory: Path, name: str, salt: int) -> None:
        self.directory = directory
        self.name = name
        self.salt = salt
        self.written = 0

    def payload(self, index: int) -> bytes:
        """Return the payload of record `index`."""
        if index % GAP_EVERY:
            return random.Random(index ^ self.salt).randbytes(index * 7 % 200)
        found = struct.pack("<QQQqII", index, index, 1, self.salt, 0, 0)
        assert len(found) == GAP.itemsize
        return found

    def rows(self, table: str) -> Rows:
        """Return the rows that a table must have."""
        if table == "gaps":
            return dict.fromkeys(range(0, self.written, GAP_EVERY), self.salt)
        return {index: self.payload(index) for index in range(self.written)}


class _World:
    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.chance = chance
        names = ["same", "same"] if chance.random() < ONE_NAME else ["alpha", "beta"]
        self.journals = [
            _Kept(directory / f"journal-{number}", name, 1000 + number)
            for number, name in enumerate(names)
        ]
        self.roots = [directory / "a", directory / "b"]
        #: Whose rows a feed of a root has.
        self.owners: dict[tuple[Path, str], _Kept] = {}

    def run(self) -> None:
        for journal in self.journals:
            self.write(journal)
        for _ in range(self.chance.randint(*STEPS)):
            journal = self.chance.choice(self.journals)
            root = self.chance.choice(self.roots)
            step = self.chance.randrange(4)
            if step == 0:
                self.write(journal)
            elif step == 1 and self.journals[0].name != self.journals[1].name:
                self.export([(each, root) for each in self.journals])
            elif step == 2:
                self.export([(journal, each) for each in self.roots])
            else:
                self.export([(journal, root)])
        for journal in self.journals:
            self.write(journal, "close")
            for root in self.roots:
                if self.owners.setdefault((root, journal.name), journal) is journal:
                    self.export([(journal, root)], last=True)

    def write(self, journal: _Kept, ending: str = "") -> None:
        """Continue a journal, in a process of its own."""
        count = self.chance.randint(1, 200)
        ending = ending or self.chance.choice(("close", "sync", "die", "die"))
        rolls = {self.chance.randrange(count) for _ in range(self.chance.randrange(3))}

        def write() -> None:
            kept = Journal.open(
                journal.directory, LAYOUTS, name=journal.name, segment_bytes=SEGMENT_BYTES
            )
            for number in range(count):
                index = kept.index
                kind = Kind.MESSAGE if index % GAP_EVERY else Kind.GAP
                kept.append(
                    kind, journal.payload(index), received_ns=index, published_ns=BEGIN_NS + index
                )
                if number in rolls:
                    kept.prepare()
                    kept.roll(number, unix_ns=BEGIN_NS)
            if ending == "sync":
                kept.sync(BEGIN_NS)
            elif ending == "close":
                kept.close(BEGIN_NS)

        expect(_ended(in_child(write)) == 0, "a writer comes to its end")
        journal.written += count

    def export(self, asked: list[tuple[_Kept, Path]], last: bool = False) -> None:
        """Export one or two at the same time; compare each table before and after."""
        tables = ("messages", "gaps") if last else self.chance.choice(TABLES)
        runs = []
        before = {root: _tables(root) for _, root in asked}
        for journal, root in asked:
            replace = self.chance.random() < REPLACED and not last
            run = _Run(journal, root, tables, self.chance.random() < 0.4, replace)
            killed = self.chance.random() < KILLED and not last
            runs.append((run, self.chance.random() * LIFE_S if killed else None, run.start()))
        ended = []
        for run, life_s, child in runs:
            if life_s is not None:
                time.sleep(life_s)
                os.kill(child, signal.SIGKILL)
            ended.append((run, _ended(child)))
        for run, status in ended:
            self._check(run, status, before[run.root])

    def _check(self, run: _Run, status: int, before: dict[str, dict[str, Rows]]) -> None:
        journal, feed = run.journal, run.journal.name
        owner = self.owners.get((run.root, feed))
        others = owner not in (None, journal)
        if os.WIFSIGNALED(status) and len({each.name for each in self.journals}) == 1:
            _check_written(_tables(run.root), [each for each in (journal, owner) if each], feed)
            status = _ended(run.start())  # so that one of the two has the name
        refused = others and not run.replace
        if not os.WIFSIGNALED(status):
            wanted = REFUSED if refused else 0
            expect(os.WEXITSTATUS(status) == wanted, f"exit code {wanted}, not {status}")
        found = _tables(run.root)
        if refused:
            expect(found == before, "nothing is changed where another journal has the name")
            return
        self.owners[run.root, feed] = journal
        _check_written(found, [journal], feed)
        for table in ROW_TABLES:
            rows, had = found[table].get(feed, {}), before[table].get(feed, {})
            if not others:
                gone = len(set(had) - set(rows))
                expect(not gone, f"{table}: no row is gone, as {gone} are")
            if table in run.tables and status == 0:
                wanted_rows = journal.rows(table)
                expect(
                    set(rows) == set(wanted_rows),
                    f"{table}: {len(wanted_rows)} rows of {feed}, not {len(rows)}",
                )
                expect(not run.payloads or rows == wanted_rows, f"{table}: with their payloads")


@dataclass(frozen=True)
class _Run:
    """An export, as a user requests it."""

    journal: _Kept
    root: Path
    tables: tuple[str, ...]
    payloads: bool
    replace: bool

    def start(self) -> int:
        """Return the process that makes it."""
        return in_child(self._export)

    def _export(self) -> None:
        from udpfast.cli.main import cli

        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        arguments = ["export", str(self.journal.directory), str(self.root)]
        arguments += [word for table in self.tables for word in ("--table", table)]
        arguments += ["--payloads"] * self.payloads + ["--replace"] * self.replace
        try:
            cli.main(arguments, standalone_mode=False)
        except (FormatError, WriterExistsError):
            os._exit(REFUSED)


def _check_written(found: dict[str, dict[str, Rows]], journals: list[_Kept], feed: str) -> None:
    for table in ROW_TABLES:
        written = [journal.rows(table) for journal in journals]
        for index, content in found[table].get(feed, {}).items():
            expect(
                any(index in rows and content in (rows[index], None) for rows in written),
                f"{table}: row {index} of {feed} is one that was written",
            )


def _ended(child: int) -> int:
    return os.waitpid(child, 0)[1]


def _tables(root: Path) -> dict[str, dict[str, Rows]]:
    return {table: _found(root, table) for table in ROW_TABLES}


def _found(root: Path, table: str) -> dict[str, Rows]:
    # The rows that a reader of the directory finds, by feed, whatever is in the manifest.
    import pyarrow.parquet as pq

    found: dict[str, Rows] = {}
    place, column = root / table, "payload" if table == "messages" else "waited_ns"
    for path in place.glob("date=*/**/part-*.parquet"):
        columns = pq.read_table(path, columns=["feed", "index", column], partitioning=None)
        for feed, index, content in zip(
            *(each.to_pylist() for each in columns.columns), strict=True
        ):
            rows = found.setdefault(feed, {})
            expect(index not in rows, f"{table}: no row twice, as {index} of {feed} is")
            rows[index] = content
    return found


main = by_seeds(__name__, check_seed, 500)
