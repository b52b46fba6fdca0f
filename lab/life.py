"""One life of an instance: a process that starts as a feed does, writes, and ends as it is told.

Several may start at once, and then take turns call by call, in an order that is drawn: which of
them is refused is the same each time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from udpfast.agents.feed.engine import Engine
from udpfast.config import parse_feed
from udpfast.core import oserr
from udpfast.core.layout import Kind
from udpfast.errors import WriterExistsError
from udpfast.market.names import NameTable
from udpfast.shm.instance import admit_group
from udpfast.shm.names import attach_names, names_table

__all__ = ["Life", "draw_life", "race", "run"]

_PAGE = 4096
#: Calls that a start makes; each may be the last one, or fail, or come behind another start's.
_CALLS = (
    *("open", "posix_fallocate", "fchmod", "ftruncate", "fchown", "close", "lstat", "pread"),
    *("unlink",),
)
_LOCKS = ("flock", "fcntl")
#: A child that nobody killed ends by itself.
_ORPHAN_S = 600


@dataclass(frozen=True)
class Life:
    """What one process does.

    Attributes
    ----------
    capacity, names : int
        Of ring and table.
    records, interned : int
        So many it writes.
    ends : str
        "closed", "killed", "failed" or "cut": within its start, at call number `call`.
    group : str
        Who may read.
    lines : tuple of int
        Of both channels.
    what : str
        What is to be recorded: with datagrams there is a second ring.
    forks : bool
        A child of it goes on when it has ended.
    """

    capacity: int
    names: int
    records: int
    interned: int
    ends: str
    call: int
    group: str
    lines: tuple[int, int] = (1, 0)
    what: str = "records"
    forks: bool = False


def draw_life(rng: random.Random) -> Life:
    """Return what the next process does."""
    return Life(
        capacity=1 << rng.choice((22, 22, 23)),
        names=rng.choice((1024, 1024, 4096)),
        records=rng.choice((0, 1, 10, 100, 3000)),
        interned=rng.choice((0, 1, 3)),
        ends=rng.choice(("closed", "killed", "killed", "failed", "cut", "cut")),
        call=rng.randrange(1, 140),
        group=rng.choice(("", "", str(os.getegid()))),
        lines=rng.choice(((1, 0), (1, 0), (2, 1), (8, 2))),
        what=rng.choice(("records", "records", "both")),
        forks=rng.random() < 0.2,
    )


def run(directory: Path, life: Life, first: int, children: list[int]) -> None:
    """Live in a process of its own; the pids of children that outlive it are added."""
    tell, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tell)
        try:
            _live(directory, life, first, told)
        except BaseException:
            if life.ends != "failed":
                traceback.print_exc()
            os._exit(1)
    os.close(told)
    os.waitpid(child, 0)
    while text := os.read(tell, 4):
        children.append(int.from_bytes(text, "little"))
    os.close(tell)


def _live(directory: Path, life: Life, first: int, tell: int) -> None:
    calls = 0

    def step(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal calls
        calls += 1
        if calls == life.call and life.ends == "cut":
            os.kill(os.getpid(), signal.SIGKILL)
        if calls >= life.call and life.ends == "failed" and name in ("open", "posix_fallocate"):
            oserr.check(-errno.ENOSPC, name, str(arguments[0]))

    _watch_calls(step)
    engine = Engine(_config(life), directory, publish=False)
    if life.ends == "failed":  # its lines could not be opened
        engine.close()
        os._exit(0)
    _take_over(engine, directory, life)
    ring = engine.ring_face
    assert ring is not None
    for number in range(life.records):
        ring.append(Kind.MESSAGE, (first + number).to_bytes(8, "little") * 40)
    if life.forks:
        os.write(tell, _forked(tell).to_bytes(4, "little"))
    if life.ends == "closed":
        engine.close()
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def _watch_calls(step: Callable[[str, tuple[Any, ...]], None]) -> None:
    # From now on, for the rest of this process.
    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*arguments: Any, **options: Any) -> Any:
            step(name, arguments)
            return call(*arguments, **options)

        return watching

    for name in _CALLS:
        setattr(os, name, watched(name, getattr(os, name)))
    for name in _LOCKS:
        setattr(fcntl, name, watched(name, getattr(fcntl, name)))
    Path.rename = watched("rename", Path.rename)  # type: ignore[method-assign]


def _config(life: Life) -> Any:
    lines = [
        [
            {"name": f"L{number}", "address": f"127.0.0.1:{39041 + 20 * channel + number}"}
            for number in range(count)
        ]
        for channel, count in enumerate(life.lines)
    ]
    return parse_feed(
        {
            "name": "feed",
            "ring": {"capacity_bytes": life.capacity, "names": life.names},
            "window": {"size": 64, "slab_cells": 2048},
            "objects": {"max": 64, "collect_bytes": 1 << 16, "collect_messages": 16},
            "incremental": {"lines": lines[0]},
            "snapshot": {"lines": lines[1]},
            "record": {"what": life.what, "capture_bytes": 1 << 22},
        }
    )


def _take_over(engine: Engine, directory: Path, life: Life) -> None:
    admit_group(directory, life.group)
    engine.publish(1)
    table = NameTable(names_table(attach_names(directory / "names", writable=True)))
    for _ in range(life.interned):
        table.intern(f"S{len(table)}")


def _forked(tell: int) -> int:
    # A process that has all that this one has, and does nothing with it.
    child = os.fork()
    if child == 0:
        os.closerange(tell, tell + 1)
        signal.alarm(_ORPHAN_S)
        signal.pause()
        os._exit(0)
    return child


# --- several at once ------------------------------------------------------------------------------


class _Racer:
    """A start that makes its next call when it is told to."""

    def __init__(self, directory: Path, life: Life) -> None:
        asks, self._ask = os.pipe()
        self._go, goes = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(asks)
            os.close(goes)
            try:
                self._start(directory, life)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        os.close(self._ask)
        os.close(self._go)
        self._asks, self._goes = asks, goes
        self.said = self._listen()

    def _start(self, directory: Path, life: Life) -> None:
        read, write = os.read, os.write

        def step(_: str, __: tuple[Any, ...]) -> None:
            write(self._ask, b"?")
            if not read(self._go, 1):
                os._exit(1)  # nobody runs this race any more

        _watch_calls(step)
        try:
            engine = Engine(_config(life), directory, publish=False)
        except WriterExistsError:
            write(self._ask, b"r")
            os._exit(0)
        _take_over(engine, directory, life)
        write(self._ask, b"w")
        read(self._go, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    def step(self) -> None:
        """Let it make its next call, and wait for what it says then."""
        os.write(self._goes, b"!")
        self.said = self._listen()

    def end(self) -> None:
        """Have it killed, whatever it does."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._asks)
        os.close(self._goes)

    def _listen(self) -> str:
        return os.read(self._asks, 1).decode() or "failed"


def race(directory: Path, lives: list[Life], rng: random.Random) -> list[Life]:
    """Start several at once; return those that succeeded, and kill them."""
    racers = [_Racer(directory, life) for life in lives]
    try:
        while running := [racer for racer in racers if racer.said == "?"]:
            # In long runs and short ones: most calls of a start are far from those that decide.
            racer = rng.choice(running)
            for _ in range(rng.choice((1, 1, 2, 5, 20, 80))):
                if racer.said == "?":
                    racer.step()
        assert all(racer.said in "wr" for racer in racers), f"said {[r.said for r in racers]}"
        return [life for racer, life in zip(racers, lives, strict=True) if racer.said == "w"]
    finally:
        for racer in racers:
            racer.end()
