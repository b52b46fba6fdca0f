"""Damaged journals as tables: by `export --follow`, and through Spark's data source.

`check_follows` exports a journal that is written, damaged and continued meanwhile, by processes
that are killed with -9 at any moment. Rows, and records reported missing or lost, must add up to
the records that were written. `check_sources` reads damaged journals through the data source, as a
batch and as a stream, like Spark: with a new reader for each call, offsets as JSON, and batches
read twice. A query that allows no damage gets every record or an error; one that does gets the same
records as a cursor, also when a batch is repeated.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from udpfast.core.layout import Kind
from udpfast.errors import FormatError
from udpfast.export.exporter import Exporter
from udpfast.export.manifest import read_entries
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_state import journal_identity
from udpfast.log.segment import segments_identities
from udpfast.market.updates import LAYOUTS

from .children import in_child
from .journals import (
    BASE_NS,
    SEGMENT,
    Journals,
    content,
    damage,
    each_seed,
    expect,
)

__all__ = ["check_follows", "check_sources"]

#: How long a process follows before it is killed.
LIFE_S = 0.3
#: How long a process may follow a closed journal before it must have ended.
PATIENCE_S = 60.0
#: Damages of a seed that has any.
DAMAGED = 0.7
#: How the child ends if the export said, by exit code 1, that it lacks records; 1 is a crash.
LACKS = 5


# --- export --follow -----------------------------------------------------------------------------


def check_follows(work: Path, seeds: int, seed: int) -> int:
    """Follow journals by exporters that are killed."""
    pool = Journals(work)
    return each_seed(
        "follows", seeds, seed, lambda each: _check_follow(work, pool, random.Random(each))
    )


def _check_follow(work: Path, pool: Journals, draw: random.Random) -> None:
    journal, root = work / "followed", work / "root"
    for directory in (journal, root):
        shutil.rmtree(directory, ignore_errors=True)
    rounds = draw.randrange(2, 5)
    damaged_in = draw.randrange(rounds) if draw.random() < DAMAGED else -1
    done: list[str] = []
    header = False
    try:
        for each in range(rounds):
            _write_on(journal, draw, draw.choice(("sync", "die", "close")))
            if each == damaged_in:
                other = pool[draw.randrange(Journals.COUNT)]
                identity = journal_identity(journal)
                done, header = damage(journal, draw, other.directory)
                if not segments_identities(journal)[identity]:
                    return  # another journal continues there
            child = _follow(journal, root)
            _write_on(journal, draw, "die")
            time.sleep(draw.random() * LIFE_S)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        written = _write_on(journal, draw, "close")
        status = _wait_for(_follow(journal, root), (0, LACKS))
        _check_rows(journal, root, None if header else written, status)
    except Exception as failure:
        raise AssertionError(f"{'; '.join(done)}: {failure!r}") from failure


def _wait_for(child: int, expected: tuple[int, ...] = (0,)) -> int:
    # Return the exit code.
    until = time.monotonic() + PATIENCE_S
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            expect(code in expected, f"exit code {expected}, not {code}")
            return code
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"expected it to end within {PATIENCE_S} s")
        time.sleep(0.002)


def _write_on(directory: Path, draw: random.Random, ending: str) -> int:
    # Some records more, each with its index in every byte; returns how many there are then.
    count, chance = draw.randrange(1, 300), random.Random(draw.random())
    told, tell = os.pipe()

    def write() -> None:
        journal = Journal.open(directory, LAYOUTS, name="feed", segment_bytes=SEGMENT)
        for _ in range(count):
            number = journal.index
            journal.append(
                Kind.MESSAGE, content(number), received_ns=number, published_ns=BASE_NS + number
            )
            if chance.random() < 0.02:
                journal.prepare()
                journal.roll(number, unix_ns=number)
        if ending == "sync":
            journal.sync(BASE_NS)
        elif ending == "close":
            journal.close(BASE_NS)
        os.write(tell, b"%d" % (number + 1))

    try:
        _wait_for(in_child(write))
        return int(os.read(told, 20))
    finally:
        os.close(told)
        os.close(tell)


def _follow(journal: Path, root: Path) -> int:
    def follow() -> None:
        from udpfast.cli.main import cli

        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        arguments = ["export", str(journal), str(root), "--table", "messages", "--payloads"]
        try:
            cli.main([*arguments, "--follow", "--look-s", "0.01"], standalone_mode=False)
        except SystemExit as end:
            os._exit(LACKS if end.code == 1 else 1)

    return in_child(follow)


def _check_rows(journal: Path, root: Path, written: int | None, status: int) -> None:
    import pyarrow.parquet as pq

    indices: list[int] = []
    for path in root.glob("messages/date=*/**/part-*.parquet"):
        table = pq.read_table(path, columns=["index", "payload"], partitioning=None)
        for index, payload in zip(*(column.to_pylist() for column in table.columns), strict=True):
            expect(payload == content(index), f"row {index} is the record that was written")
            indices.append(index)
    expect(len(indices) == len(set(indices)), "no row twice")
    entries = read_entries(root)
    expect(len(indices) == sum(entry.records for entry in entries), "the manifest has the rows")
    if written is None:  # nothing is left that knows how much there was
        return
    missing = sum(entry.missing for entry in entries)
    lost = sum(each.records for each in Exporter(journal, root, tables=("messages",)).lost())
    expect(
        len(indices) + missing + lost == written,
        f"{len(indices)} rows, {missing} missing and {lost} lost are {written}",
    )
    expect(status == (LACKS if missing + lost else 0), f"exit code for what is missing: {status}")


# --- Spark's data source -------------------------------------------------------------------------


def check_sources(work: Path, seeds: int, seed: int) -> int:
    """Read damaged journals as Spark does."""
    pool = Journals(work)
    return each_seed(
        "sources", seeds, seed, lambda each: _check_source(work, pool, random.Random(each))
    )


def _check_source(work: Path, pool: Journals, draw: random.Random) -> None:
    number, other = draw.sample(range(Journals.COUNT), 2)
    directory = work / "read"
    shutil.rmtree(directory, ignore_errors=True)
    written = pool.write(number, directory)
    identity = journal_identity(directory)
    streamed = draw.random() < 0.5
    before = _Stream(directory, draw, strict=False)
    if streamed:
        before.read(draw.randrange(3))
    done, header = (
        damage(directory, draw, pool[other].directory) if draw.random() < 0.95 else ([], False)
    )
    if not segments_identities(directory)[identity]:
        return
    wanted = list(range(written.first, written.records))
    try:
        found = _by_cursor(directory)
        expect(found is not None or header, "a cursor reads it")
        _expect_all_or_error(lambda: _batch(directory, strict=True), wanted, "batch")
        _expect_all_or_error(lambda: _Stream(directory, draw, strict=True).read(), wanted, "stream")
        if found is None:  # the journal itself reports that its end is unknown
            return
        expect(_batch(directory, strict=False) == found, "a batch has what a cursor reads")
        stream = _Stream(directory, draw, strict=False)
        expect(stream.read() == found, "a stream has what a cursor reads")
        if streamed:
            rows = before.read()
            expect(rows == sorted(set(rows)), "a stream has no row twice, and all in order")
            missing = set(found) - set(rows)
            expect(not missing, f"a stream has what is there, not without {missing}")
        _check_stream_on(directory, stream, None if header else written.records)
    except Exception as failure:
        raise AssertionError(f"journal {number}: {'; '.join(done)}: {failure!r}") from failure


def _expect_all_or_error(read: Callable[[], list[int]], wanted: list[int], what: str) -> None:
    try:
        found = read()
    except (FormatError, FileNotFoundError):
        return
    expect(found == wanted, f"a {what} that allows no damage has all, not {len(found)} of "
           f"{len(wanted)}")  # fmt: skip


def _check_stream_on(directory: Path, stream: _Stream, records: int | None) -> None:
    # The stream that began before gets the next writer's records.
    try:
        with Journal.open(directory, LAYOUTS, segment_bytes=SEGMENT) as journal:
            first = journal.index
            expect(records in (None, first), f"it goes on behind {records}, not {first}")
            for number in range(first, first + 5):
                journal.append(
                    Kind.MESSAGE, content(number), received_ns=number, published_ns=BASE_NS
                )
    except FormatError:
        return
    with suppress(FormatError):  # the stream says that it is another one, or was cut
        rows = stream.read()
        expect(rows[-5:] == list(range(first, first + 5)), "a stream goes on with what follows")


def _by_cursor(directory: Path) -> list[int] | None:
    # Numbers of the readable records; None: it is unknown whether these are all.
    numbers: list[int] = []
    try:
        with JournalCursor.attach(directory, follow=False) as cursor:
            while count := cursor.poll():
                numbers += cursor.headers["index"][:count].tolist()
    except (FormatError, FileNotFoundError):
        return None
    return numbers


def _source(directory: Path, strict: bool) -> tuple[Any, Any]:
    # The data source and its schema.
    from udpfast.spark.source import UdpfastSource

    options = {"path": str(directory), "columns": "index,payload", "payloads": "true"}
    if not strict:
        options |= {"skip_damage": "true", "skip_loss": "true"}
    source = UdpfastSource(options)
    return source, source.schema()


def _rows(reader: Any, partitions: list[Any]) -> list[int]:
    found = []
    for partition in partitions:
        for batch in reader.read(partition):
            for index, payload in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                expect(payload == content(index), f"row {index} is the record that was written")
                found.append(index)
    return found


def _batch(directory: Path, *, strict: bool) -> list[int]:
    source, schema = _source(directory, strict)
    partitions = source.reader(schema).partitions()
    return _rows(source.reader(schema), partitions)


class _Stream:
    # A query with a checkpoint.

    def __init__(self, directory: Path, draw: random.Random, *, strict: bool) -> None:
        self._directory = directory
        self._draw = draw
        self._strict = strict
        self._offset: str | None = None
        self._rows: list[int] = []

    def _reader(self) -> Any:
        source, schema = _source(self._directory, self._strict)
        if self._draw.random() < 0.5:
            source.options["max_records"] = str(self._draw.choice((1, 40, 1000)))
        return source.streamReader(schema)

    def read(self, batches: int = 1 << 30) -> list[int]:
        """Read so many batches, or all that there is; return all rows ever read."""
        for _ in range(batches):
            if self._offset is None:
                self._offset = json.dumps(self._reader().initialOffset())
            start = json.loads(self._offset)
            reader = self._reader()
            end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
            if end == start:
                break
            batch = [
                _rows(self._reader(), self._reader().partitions(start, end))
                for _ in range(self._draw.choice((1, 1, 2)))
            ]
            expect(batch[0] == batch[-1], "a batch has the same rows again")
            self._rows += batch[0]
            self._offset = json.dumps(end)
        return self._rows
