"""Journals for checks of their readers: of every kind, and with damaged files.

Only this program knows which records were written; the files do not.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from udpfast.core.layout import Kind
from udpfast.log.journal import Journal
from udpfast.log.journal_state import journal_state
from udpfast.log.segment import list_segments, segment_path
from udpfast.market.updates import LAYOUTS

__all__ = ["BASE_NS", "SEGMENT", "Journals", "Written", "content", "damage", "each_seed", "expect"]

SEGMENT = 1 << 18
BASE_NS = 1_800_000_000 * 10**9


def each_seed(option: str, seeds: int, seed: int, check: Callable[[int], None]) -> int:
    """Run a check for each seed; return how many.

    Raises
    ------
    AssertionError
        Some failed: the commands that repeat them.
    """
    failed = []
    for each in range(seed, seed + seeds):
        try:
            check(each)
        except Exception as failure:
            command = f"udpfast lab journalcheck --{option} 1 --seed {each}"
            failed.append(f"{command}: {failure!r}")
            print(failed[-1], flush=True)
    if failed:
        raise AssertionError("\n".join([f"{len(failed)} of {seeds} seeds failed", *failed]))
    return seeds


@dataclass(frozen=True)
class Written:
    """A journal as it was written, with facts that only its author knows.

    Attributes
    ----------
    directory : Path
    first : int
        The oldest record that was not removed to make room.
    records : int
        Number of records ever written.
    """

    directory: Path
    first: int
    records: int


def expect(truth: object, what: str) -> None:
    """Raise unless it is so."""
    if not truth:
        raise AssertionError(f"expected: {what}")


@functools.cache  # its generator takes longer than all else of a record
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
        journal = Journal.open(directory, LAYOUTS, segment_bytes=SEGMENT, durable=durable)
        for place, last in enumerate(ends):
            if place and end == "again" and place % 2 == 0:
                journal.close()
                journal = Journal.open(directory, LAYOUTS, segment_bytes=SEGMENT, durable=durable)
            elif place:
                journal.prepare()
                journal.roll(place, unix_ns=place)
            while number < last:
                at_ns = BASE_NS + number
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
    """Journals of every kind, each written when it is first needed.

    Parameters
    ----------
    work : Path
        Directory for the journals.
    """

    COUNT = 12

    def __init__(self, work: Path) -> None:
        self._work = work
        self._made: dict[int, Written] = {}

    def __getitem__(self, each: int) -> Written:
        """Return one of them."""
        if each not in self._made:
            self._made[each] = self.write(each, self._work / f"journal-{each}")
        return self._made[each]

    @staticmethod
    def write(each: int, directory: Path) -> Written:
        """Write one of them to a directory. (The next writer turns a copy into a new journal.)"""
        draw = random.Random(each)
        end = ("closed", "killed", "again")[each % 3]
        ends = sorted(draw.sample(range(1, 1500), 1 + each % 6))
        removed = draw.choice((0, 1, 2)) if len(ends) > 3 and end != "killed" else 0
        _write(directory, ends, end, removed, durable=each % 4 != 3)
        return Written(directory, journal_state(directory).oldest_index, ends[-1])


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
        # Header, seal, index and records with equal probability, whatever their sizes.
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
    """Damage one or two files; return how, and whether the file `journal` was among them."""
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
