"""Journals whose files are not what they were: what is read and what is said to be missing add up.

Each seed makes a copy of a journal (closed, killed, taken up again, with segments removed to make
room), does something to one or two of its files, and reads it by every way there is: from the
beginning, in parts, following, by `Reader`, by `replay`. Then the journal is written on. What was
written is known here, and nowhere in the files.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from udpfast.cli.replay_records import replay_records
from udpfast.cli.replay_target import Pacer
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, FormatError, RegionError, RingClosedError
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.journal import Journal, journal_identity, journal_state
from udpfast.shm.journal_cursor import JournalCursor
from udpfast.shm.journal_map import journal_map
from udpfast.shm.segment import Segment, list_segments, segment_path, segments_identities
from udpfast.shm.verify import verify_segments

__all__ = ["check_clocks", "check_corners", "check_live_copies"]

SEGMENT = 1 << 18
_PATIENCE_S = 20.0
_SECOND = 1_000_000_000
_HOUR = 3600 * _SECOND
_BASE_NS = 1_800_000_000 * _SECOND


@dataclass(frozen=True)
class Written:
    """A journal as it was written, and what nobody but its author knows.

    Attributes
    ----------
    directory : Path
    first : int
        The oldest record that was not removed to make room.
    records : int
        Written ever.
    """

    directory: Path
    first: int
    records: int


def expect(truth: object, what: str) -> None:
    """Raise unless it is so."""
    if not truth:
        raise AssertionError(f"expected: {what}")


@functools.cache
def content(number: int) -> bytes:
    """Return the payload of a record: its number in every byte."""
    return random.Random(number).randbytes(8 + number * 37 % 300)


def _write(directory: Path, ends: list[int], end: str, removed: int, durable: bool) -> None:
    # Records up to each of `ends` in a segment of their own, by one or more writers. In a process
    # of its own, which ends in between where it is to be killed.
    child = os.fork()
    if child:
        expect(os.waitpid(child, 0)[1] == 0, "the writer came to its end")
        return
    try:
        number = 0
        journal = Journal.open(directory, PAYLOAD_HASH, segment_bytes=SEGMENT, durable=durable)
        for place, last in enumerate(ends):
            if place and end == "again" and place % 2 == 0:
                journal.close()
                journal = Journal.open(
                    directory, PAYLOAD_HASH, segment_bytes=SEGMENT, durable=durable
                )
            elif place:
                journal.prepare()
                journal.roll(place, unix_ns=place)
            while number < last:
                at_ns = _BASE_NS + number
                journal.append(
                    Kind.MESSAGE, content(number), received_ns=number, published_ns=at_ns
                )
                number += 1
            if end != "killed" or place < len(ends) // 2:
                journal.sync(number)
        for _ in range(removed):
            journal.remove_oldest()
        if end != "killed":
            journal.close()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class Journals:
    """Journals of every kind, each written when it is first wanted.

    Parameters
    ----------
    work : Path
        Where they go.
    """

    COUNT = 12

    def __init__(self, work: Path) -> None:
        self._work = work
        self._made: dict[int, Written] = {}

    def __getitem__(self, each: int) -> Written:
        """Return one of them."""
        if each not in self._made:
            draw = random.Random(each)
            end = ("closed", "killed", "again")[each % 3]
            ends = sorted(draw.sample(range(1, 1500), 1 + each % 6))
            directory = self._work / f"journal-{each}"
            removed = draw.choice((0, 1, 2)) if len(ends) > 3 and end != "killed" else 0
            _write(directory, ends, end, removed, durable=each % 4 != 3)
            self._made[each] = Written(directory, journal_state(directory).oldest_index, ends[-1])
        return self._made[each]


def _flip(path: Path, at: int, draw: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1) or b"\0"
        file.seek(at)
        file.write(bytes([byte[0] ^ 1 << draw.randrange(8)]))


def _used(path: Path) -> int:
    return max(1, len(path.read_bytes().rstrip(b"\0")))


def _flip_somewhere(path: Path, draw: random.Random, _other: Path) -> str:
    if path.name == "journal":
        at = draw.choice((draw.randrange(128), 4096 + draw.randrange(592)))
    else:
        # Header, seal, index and records alike, however small a part of the file they are.
        at = draw.choice(
            (
                draw.randrange(192),
                512 + draw.randrange(80),
                4096 + draw.randrange(32),
                draw.randrange(_used(path)),
                draw.randrange(8192, max(8193, _used(path))),
            )
        )
    _flip(path, at, draw)
    return f"flipped a bit of byte {at}"


def _zero(path: Path, draw: random.Random, _other: Path) -> str:
    page = draw.randrange((_used(path) + 4095) // 4096)
    with path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(bytes(4096))
    return f"zeroed page {page}"


def _cut(path: Path, draw: random.Random, _other: Path) -> str:
    size = draw.choice((0, draw.randrange(8192), draw.randrange(_used(path))))
    os.truncate(path, size)
    return f"cut to {size} bytes"


def _delete(path: Path, _draw: random.Random, _other: Path) -> str:
    path.unlink()
    return "deleted"


def _replace(path: Path, draw: random.Random, other: Path) -> str:
    names = sorted(each.name for each in other.iterdir() if each.suffix == path.suffix)
    name = path.name if path.name in names and draw.random() < 0.7 else draw.choice(names)
    shutil.copy(other / name, path)
    return f"replaced by {name} of another journal"


def _exchange(path: Path, draw: random.Random, other: Path) -> str:
    names = sorted(each.name for each in path.parent.iterdir() if each.suffix == path.suffix)
    name = draw.choice(names)
    if name == path.name:
        return _replace(path, draw, other)
    if draw.random() < 0.5:
        shutil.copy(path.parent / name, path)
        return f"replaced by {name}"
    aside = path.with_name("aside")
    path.rename(aside)
    (path.parent / name).rename(path)
    aside.rename(path.parent / name)
    return f"exchanged with {name}"


def _rename(path: Path, draw: random.Random, _other: Path) -> str:
    if path.name == "journal":
        return _delete(path, draw, _other)
    number = draw.choice((0, draw.randrange(1, 12), 10**9))
    target = segment_path(path.parent, number)
    path.rename(target)
    return f"renamed to {target.name}"


DAMAGES: tuple[Callable[[Path, random.Random, Path], str], ...] = (
    _flip_somewhere,
    _flip_somewhere,
    _flip_somewhere,
    _zero,
    _cut,
    _delete,
    _replace,
    _exchange,
    _rename,
)


def damage(directory: Path, draw: random.Random, other: Path) -> tuple[list[str], bool]:
    """Do something to one or two files; return what, and whether the file `journal` was one."""
    done: list[str] = []
    header = False
    for _ in range(draw.choice((1, 1, 2))):
        names = [segment_path(directory, number) for number in list_segments(directory)]
        paths = [each for each in [directory / "journal", *names] if each.exists()]
        if not paths:
            break
        at = draw.choice((0, 1 % len(paths), len(paths) - 1, draw.randrange(len(paths))))
        path = paths[at]
        header |= path.name == "journal"
        done.append(f"{path.name}: {draw.choice(DAMAGES)(path, draw, other)}")
    return done, header


def _read(
    directory: Path, start: Any = "begin", end: Any = None, follow: bool = False
) -> tuple[list[int], int]:
    # By the cursor: numbers, and how many are said to be missing. Every record whole, in order.
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
    # As tasks do that know only positions: each a part, none of them more than its own.
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
    # The next writer deletes nothing, and its records come behind all that was ever written, as
    # far as anything still says how much that was.
    before = _inodes(directory)
    try:
        journal = Journal.open(directory, PAYLOAD_HASH, segment_bytes=SEGMENT)
    except RegionError:
        expect(header, "a journal with its file `journal` can be opened")
        return
    with journal:
        first = journal.index
        expect(before <= _inodes(directory), "nothing is deleted when it is opened")
        for number in range(first, first + 5):
            journal.append(
                Kind.MESSAGE, content(number), received_ns=number, published_ns=_BASE_NS + number
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
    # Whether it can still be told from the one that took its files' places.
    try:
        return journal_identity(directory) == identity
    except (FileNotFoundError, RegionError):
        return False


def check_corners(work: Path, seeds: int, seed: int) -> int:
    """Damage files of journals, one seed after the other."""
    pool = Journals(work)
    for each in range(seed, seed + seeds):
        draw = random.Random(each)
        written, other = (pool[number] for number in draw.sample(range(Journals.COUNT), 2))
        directory = work / "copy"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(written.directory, directory)
        done: list[str] = []
        try:
            if draw.random() < 0.95:
                done, header = damage(directory, draw, other.directory)
            else:
                header = False
            identity = journal_identity(written.directory)
            if not _is_told(directory, identity):
                continue  # nothing is left that says which journal it is
            own = segments_identities(directory)[identity] > 0
            _check_sums(written, directory, header or not own, draw)
            list(verify_segments(directory))
            _check_writing_on(written, directory, header or not own)
        except Exception as failure:
            raise AssertionError(
                f"seed {each}: {written.directory.name}: {'; '.join(done)}: {failure!r}\n"
                f"repeat: python -m udpfast.testing.journalcheck --corners 1 --seed {each}"
            ) from failure
    return seeds


def check_live_copies(work: Path, seeds: int, seed: int) -> int:
    """Copy a journal while it is written; wipe one and begin it anew under a reader."""
    for each in range(seed, seed + seeds):
        draw = random.Random(each)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True, mode=0o700)
        what = f"seed {each}"
        journal = Journal.open(work / "journal", PAYLOAD_HASH, segment_bytes=SEGMENT)
        number = 0
        for _ in range(draw.randrange(1, 6)):
            for _ in range(draw.randrange(1, 400)):
                journal.append(
                    Kind.MESSAGE, content(number), received_ns=number, published_ns=_BASE_NS
                )
                number += 1
            if draw.random() < 0.5:
                journal.sync(number)
        shutil.copytree(work / "journal", work / "copy")
        numbers, missing = _read(work / "copy", follow=True)
        expect(len(numbers) + missing == number, f"a copy ends, with all of it, {what}")
        expect(journal_identity(work / "copy") == journal.identity, f"a copy is the same, {what}")
        reader = JournalCursor.attach(work / "journal")
        seen = 0
        while seen < number:
            seen += reader.poll()
        shutil.rmtree(work / "journal")
        if draw.random() < 0.5:
            _close_wiped(journal)
        with Journal.open(work / "journal", PAYLOAD_HASH, segment_bytes=SEGMENT) as anew:
            for other in range(draw.randrange(1, 2 * number + 2)):
                anew.append(Kind.MESSAGE, content(other), received_ns=other, published_ns=_BASE_NS)
            expect(anew.identity != reader.identity, f"another journal, {what}")
        until = time.monotonic() + _PATIENCE_S
        try:
            while not reader.ended:
                expect(reader.poll() == 0, f"nothing of the new one is read, {what}")
                expect(time.monotonic() < until, f"it ends, {what}")
            expect(False, f"the reader is told, {what}")
        except RegionError:
            pass
        reader.close()
        _close_wiped(journal)
    return seeds


def _close_wiped(journal: Journal) -> None:
    # Its directory is gone, or another's by now.
    with suppress(FileNotFoundError):
        journal.close()


def check_clocks(work: Path, seeds: int, seed: int) -> int:
    """Read ranges of time from journals whose clock was set back and forward."""
    for each in range(seed, seed + seeds):
        draw = random.Random(each)
        directory = work / "clocks"
        shutil.rmtree(directory, ignore_errors=True)
        times = list(_times(draw))
        with Journal.open(directory, PAYLOAD_HASH, segment_bytes=SEGMENT) as journal:
            for number, at_ns in enumerate(times):
                journal.append(
                    Kind.MESSAGE, content(number), received_ns=number, published_ns=at_ns
                )
                if draw.random() < 0.01:
                    journal.prepare()
                    journal.roll(number, unix_ns=at_ns)
        for _ in range(8):
            start, end = sorted(draw.choice(times) + draw.choice((-1, 0, 1)) for _ in range(2))
            wanted = [number for number, at_ns in enumerate(times) if start <= at_ns < end]
            found, missing = _read(directory, ("time", start), ("time", end))
            what = f"seed {each}: {start} to {end}"
            expect((found, missing) == (wanted, 0), f"every record of the range, {what}")
            if wanted:
                result = replay_records(directory, "", Pacer(0.0), ("time", start), ("time", end))
                expect(result["records"] == len(wanted), f"replay has them, {what}")
    return seeds


def _times(draw: random.Random) -> Iterator[int]:
    at_ns = _BASE_NS
    for _ in range(draw.randrange(1, 400)):
        at_ns += draw.choice((0, 1, 1000, _SECOND))
        if draw.random() < 0.02:
            at_ns += draw.choice((-1, 1)) * draw.choice((1, _SECOND, 30 * _SECOND, _HOUR))
        yield at_ns
