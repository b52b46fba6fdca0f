"""Journals with damaged files: the records read, and those reported missing, add up.

Each seed makes a copy of a journal (closed, killed, continued, with segments removed to make room),
damages one or two of its files, and reads it in every way: from the beginning, in parts, following,
by `Reader`, by `replay`. Then another writer continues the journal. Only this program knows which
records were written; the files do not.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from udpfast.cli.replay_records import replay_records
from udpfast.cli.replay_target import Pacer
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, FormatError, RegionError, RingClosedError
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_map import journal_map
from udpfast.log.journal_state import journal_identity
from udpfast.log.segment import Segment, segments_identities
from udpfast.log.verify import verify_segments
from udpfast.market.updates import LAYOUTS

from .journals import (
    BASE_NS,
    SEGMENT,
    Journals,
    Written,
    content,
    damage,
    each_seed,
    expect,
)

__all__ = ["check_clocks", "check_corners", "check_live_copies"]

_PATIENCE_S = 20.0
_SECOND = 1_000_000_000
_HOUR = 3600 * _SECOND


def _read(
    directory: Path, start: Any = "begin", end: Any = None, follow: bool = False
) -> tuple[list[int], int]:
    # Read by the cursor: numbers, and how many are reported missing. Each record is complete, in
    # order.
    numbers: list[int] = []
    until = time.monotonic() + _PATIENCE_S
    with JournalCursor.attach(directory, start, end, follow=follow) as cursor:
        while not cursor.ended:
            count = cursor.poll()
            for i in range(count):
                _take(numbers, cursor.headers[i], cursor.payload(i))
            expect(count or time.monotonic() < until, "it ends")
        return numbers, cursor.missed_total


def _take(numbers: list[int], header: Any, payload: memoryview | bytes) -> None:
    number = int(header["received_ns"])
    expect(bytes(payload) == content(number), f"record {number} is whole")
    expect(header["index"] == number, f"record {number} is in its place")
    expect(not numbers or number > numbers[-1], f"record {number} comes once and in order")
    numbers.append(number)


def _read_by_reader(address: str) -> tuple[list[int], int]:
    numbers: list[int] = []
    missing = 0
    until = time.monotonic() + _PATIENCE_S
    with Reader(address) as reader:
        while True:
            try:
                batch = reader.poll(timeout=0.05)
            except RingClosedError:
                return numbers, missing
            missing += batch.lapped
            for i in range(len(batch)):
                if batch.headers["kind"][i] == Kind.LAPPED:
                    missing += int.from_bytes(batch.payload(i)[:8], "little")
                else:
                    _take(numbers, batch.headers[i], batch.payload(i))
            expect(len(batch) or time.monotonic() < until, "it ends")


def _read_in_parts(directory: Path, draw: random.Random) -> tuple[list[int], int]:
    # Read as tasks that know only positions: each reads one part, and no more than that.
    found = journal_map(directory)
    edges = {part.position for part in found.parts[1:]}
    for part in found.parts:
        if part.end_position > part.position:
            edges |= {draw.randrange(part.position, part.end_position) & ~7 for _ in range(2)}
    numbers: list[int] = []
    missing = 0
    bounds: list[tuple[str, int] | None] = [None, *(("position", each) for each in sorted(edges))]
    for start, end in zip(bounds, [*bounds[1:], None], strict=True):
        some, missed = _read(directory, start or "begin", end)
        numbers += some
        missing += missed
    expect(numbers == sorted(set(numbers)), "parts do not overlap")
    return numbers, missing


@contextmanager
def _address(directory: Path, draw: random.Random) -> Iterator[str]:
    # The same journal by another path.
    before = Path.cwd()
    link = directory.with_name(f"{directory.name}-link")
    kind = draw.randrange(4)
    os.chdir(directory.parent)
    try:
        if kind == 3:
            link.unlink(missing_ok=True)
            link.symlink_to(directory)
        name = (str(directory), f"./{directory.name}", f"../{directory.parent.name}/"
                f"{directory.name}", f"./{link.name}")[kind]  # fmt: skip
        yield f"journal:{name}"
    finally:
        os.chdir(before)


def _check_sums(written: Written, directory: Path, may_fail: bool, draw: random.Random) -> None:
    wanted = written.records - written.first
    ways: dict[str, Callable[[], tuple[int, int]]] = {
        "cursor": lambda: _counted(_read(directory)),
        "follower": lambda: _counted(_read(directory, follow=True)),
        "parts": lambda: _counted(_read_in_parts(directory, draw)),
        "map": lambda: _mapped(directory),
        "replay": lambda: _replayed(directory),
    }
    with _address(directory, draw) as address:
        ways["reader"] = lambda: _counted(_read_by_reader(address))
        for name, way in ways.items():
            try:
                found, missing = way()
            except (FormatError, FileNotFoundError, ConfigError) as refusal:
                expect(may_fail, f"{name} fails only if `journal` is damaged: {refusal}")
                continue
            expect(
                found + missing == wanted,
                f"{name}: {found} records read and {missing} said missing are {wanted}",
            )


def _counted(result: tuple[list[int], int]) -> tuple[int, int]:
    return len(result[0]), result[1]


def _mapped(directory: Path) -> tuple[int, int]:
    found = journal_map(directory)
    for before, after in zip(found.parts, found.parts[1:], strict=False):
        expect(
            (before.end_position, before.end_index) == (after.position, after.index),
            "parts follow each other",
        )
    last = [part.path for part in found.parts if part.path][-1:]
    if found.state is None and (found.ignored or not last or not Segment.open(last[0]).info().last):
        raise RegionError("nobody knows the end")
    return sum(part.records for part in found.parts), 0


def _replayed(directory: Path) -> tuple[int, int]:
    result = replay_records(directory, "", Pacer(0.0), None, None)
    return result["kinds"].get("MESSAGE", 0), result["missed"]


def _inodes(directory: Path) -> set[int]:
    return {each.stat().st_ino for each in directory.iterdir() if each.name != "next.segment"}


def _check_writing_on(written: Written, directory: Path, header: bool) -> None:
    # The next writer deletes nothing, and its records follow all that were ever written, as far as
    # the files still show how many there were.
    before = _inodes(directory)
    try:
        journal = Journal.open(directory, LAYOUTS, segment_bytes=SEGMENT)
    except RegionError:
        expect(header, "a journal with its file `journal` can be opened")
        return
    with journal:
        first = journal.index
        expect(before <= _inodes(directory), "nothing is deleted when it is opened")
        for number in range(first, first + 5):
            journal.append(
                Kind.MESSAGE, content(number), received_ns=number, published_ns=BASE_NS + number
            )
    expect(before <= _inodes(directory), "nothing is deleted")
    if not header:
        expect(first == written.records, f"it goes on behind {written.records}, not {first}")
        _check_sums(
            Written(directory, written.first, written.records + 5),
            directory,
            False,
            random.Random(1),
        )
    numbers, _ = _read(directory)
    expect(numbers[-5:] == list(range(first, first + 5)), "the next writer's records follow")


def _is_told(directory: Path, identity: bytes) -> bool:
    # Whether it can still be distinguished from the journal that replaced its files.
    try:
        return journal_identity(directory) == identity
    except (FileNotFoundError, RegionError):
        return False


def check_corners(work: Path, seeds: int, seed: int) -> int:
    """Damage files of journals, one seed after the other."""
    pool = Journals(work)

    def check(each: int) -> None:
        draw = random.Random(each)
        written, other = (pool[number] for number in draw.sample(range(Journals.COUNT), 2))
        directory = work / "copy"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(written.directory, directory)
        done: list[str] = []
        header = False
        if draw.random() < 0.95:
            done, header = damage(directory, draw, other.directory)
        identity = journal_identity(written.directory)
        if not _is_told(directory, identity):
            return  # nothing is left that says which journal it is
        own = segments_identities(directory)[identity] > 0
        try:
            _check_sums(written, directory, header or not own, draw)
            list(verify_segments(directory))
            _check_writing_on(written, directory, header or not own)
        except Exception as failure:
            raise AssertionError(
                f"{written.directory.name}: {'; '.join(done)}: {failure!r}"
            ) from failure

    return each_seed("corners", seeds, seed, check)


def check_live_copies(work: Path, seeds: int, seed: int) -> int:
    """Copy a journal while it is written; wipe one and begin it anew under a reader."""
    return each_seed("copies", seeds, seed, lambda each: _check_live_copy(work, each))


def _check_live_copy(work: Path, seed: int) -> None:
    draw = random.Random(seed)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, mode=0o700)
    journal = Journal.open(work / "journal", LAYOUTS, segment_bytes=SEGMENT)
    number = 0
    for _ in range(draw.randrange(1, 6)):
        for _ in range(draw.randrange(1, 400)):
            journal.append(Kind.MESSAGE, content(number), received_ns=number, published_ns=BASE_NS)
            number += 1
        if draw.random() < 0.5:
            journal.sync(number)
    shutil.copytree(work / "journal", work / "copy")
    numbers, missing = _read(work / "copy", follow=True)
    expect(len(numbers) + missing == number, "a copy ends, with all of it")
    expect(journal_identity(work / "copy") == journal.identity, "a copy is the same")
    reader = JournalCursor.attach(work / "journal")
    seen = 0
    while seen < number:
        seen += reader.poll()
    shutil.rmtree(work / "journal")
    if draw.random() < 0.5:
        _close_wiped(journal)
    with Journal.open(work / "journal", LAYOUTS, segment_bytes=SEGMENT) as anew:
        for other in range(draw.randrange(1, 2 * number + 2)):
            anew.append(Kind.MESSAGE, content(other), received_ns=other, published_ns=BASE_NS)
        expect(anew.identity != reader.identity, "another journal")
    until = time.monotonic() + _PATIENCE_S
    with suppress(RegionError):
        while not reader.ended:
            expect(reader.poll() == 0, "nothing of the new one is read")
            expect(time.monotonic() < until, "it ends")
        expect(False, "the reader is told")
    reader.close()
    _close_wiped(journal)


def _close_wiped(journal: Journal) -> None:
    # Its directory was removed, or now belongs to another journal.
    with suppress(FileNotFoundError):
        journal.close()


def check_clocks(work: Path, seeds: int, seed: int) -> int:
    """Read ranges of time from journals whose clock was set back and forward."""
    return each_seed("clocks", seeds, seed, lambda each: _check_clock(work / "clocks", each))


def _check_clock(directory: Path, seed: int) -> None:
    draw = random.Random(seed)
    shutil.rmtree(directory, ignore_errors=True)
    times = list(_times(draw))
    with Journal.open(directory, LAYOUTS, segment_bytes=SEGMENT) as journal:
        for number, at_ns in enumerate(times):
            journal.append(Kind.MESSAGE, content(number), received_ns=number, published_ns=at_ns)
            if draw.random() < 0.01:
                journal.prepare()
                journal.roll(number, unix_ns=at_ns)
    for _ in range(8):
        start, end = sorted(draw.choice(times) + draw.choice((-1, 0, 1)) for _ in range(2))
        wanted = [number for number, at_ns in enumerate(times) if start <= at_ns < end]
        found, missing = _read(directory, ("time", start), ("time", end))
        what = f"{start} to {end}"
        expect((found, missing) == (wanted, 0), f"every record of the range, {what}")
        if wanted:
            result = replay_records(directory, "", Pacer(0.0), ("time", start), ("time", end))
            expect(result["records"] == len(wanted), f"replay has them, {what}")


def _times(draw: random.Random) -> Iterator[int]:
    at_ns = BASE_NS
    for _ in range(draw.randrange(1, 400)):
        at_ns += draw.choice((0, 1, 1000, _SECOND))
        if draw.random() < 0.02:
            at_ns += draw.choice((-1, 1)) * draw.choice((1, _SECOND, 30 * _SECOND, _HOUR))
        yield at_ns
