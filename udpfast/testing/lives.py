"""Lives of an instance, one after the other, by a seed: starts that fail or are killed at any call.

    python -m udpfast.testing.lives --seeds 100 --seed 1

Each life is a process that starts as a feed does, with settings of its own, writes records and
names, and ends: cleanly, by kill -9, or at the n-th call to the system that its start makes (which
then fails, or is its last). A reader and a recorder look on, in time or late. What must hold:

- a start that fails, or is killed, leaves ring, names and permissions as they were before or as
  they are after: never neither;
- what a reader was given and what it was told to have missed is all that was written, in order;
- so is what the journal holds.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import signal
import stat
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from udpfast.agents.engine import Engine
from udpfast.agents.recorder import Recorder
from udpfast.agents.ring_names import RingNames
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig, parse_feed
from udpfast.core import oserr
from udpfast.core.layout import Kind
from udpfast.market.names import NAMES_REGION_KIND, NameTable
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.cursor import RingCursor
from udpfast.shm.instance import admit_group, instance_directory
from udpfast.shm.journal_cursor import JournalCursor
from udpfast.shm.region import Region

__all__ = ["main", "run_seed"]

_PAGE = 4096
#: Calls that a start makes; each may be the last one, or fail.
_CALLS = ("open", "posix_fallocate", "fchmod", "ftruncate", "fchown", "close", "lstat", "pread")
_SECONDS = 0.05


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
    """

    capacity: int
    names: int
    records: int
    interned: int
    ends: str
    call: int
    group: str


def draw_life(rng: random.Random) -> Life:
    """Return what the next process does."""
    return Life(
        capacity=1 << rng.choice((22, 22, 23)),
        names=rng.choice((1024, 1024, 4096)),
        records=rng.choice((0, 1, 10, 100, 3000)),
        interned=rng.choice((0, 1, 3)),
        ends=rng.choice(("closed", "killed", "killed", "failed", "cut", "cut")),
        call=rng.randrange(1, 120),
        group=rng.choice(("", "", str(os.getegid()))),
    )


def _live(directory: Path, life: Life, first: int) -> None:
    # In a process of its own; does not return.
    calls = 0

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == life.call and life.ends == "cut":
                os.kill(os.getpid(), signal.SIGKILL)
            if calls >= life.call and life.ends == "failed" and name in ("open", "posix_fallocate"):
                oserr.check(-errno.ENOSPC, name, str(arguments[0]))
            return call(*arguments, **options)

        return counting

    for name in _CALLS:
        setattr(os, name, counted(name, getattr(os, name)))
    rename = Path.rename
    Path.rename = counted("rename", rename)  # type: ignore[method-assign]
    config = parse_feed(
        {
            "name": "feed",
            "ring": {"capacity_bytes": life.capacity, "names": life.names},
            "window": {"size": 64, "slab_cells": 2048},
            "objects": {"max": 64, "collect_bytes": 1 << 16, "collect_messages": 16},
            "incremental": {"lines": [{"name": "A", "address": "127.0.0.1:39041"}]},
        }
    )
    engine = Engine(config, directory, publish=False)
    if life.ends == "failed":  # its lines could not be opened
        engine.close()
        os._exit(0)
    admit_group(directory, life.group)
    engine.publish()
    engine.announce_restart(1)
    table = NameTable(
        Region.attach(directory / "names", NAMES_REGION_KIND, PAYLOAD_HASH, writable=True).view()[
            _PAGE:
        ]
    )
    for _ in range(life.interned):
        table.intern(f"S{len(table)}")
    for number in range(life.records):
        engine.ring_face.append(Kind.MESSAGE, (first + number).to_bytes(8, "little") * 40)
    if life.ends == "closed":
        engine.close()
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def _run(directory: Path, life: Life, first: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            _live(directory, life, first)
        except BaseException:
            if life.ends != "failed":
                traceback.print_exc()
            os._exit(1)
    os.waitpid(child, 0)


def _modes(directory: Path) -> dict[str, int]:
    found = {}
    for name in (".", "readers", "ring", "names", "counters", "latency"):
        with suppress(FileNotFoundError):
            found[name] = stat.S_IMODE((directory / name).stat().st_mode)
    return found


def _names(directory: Path) -> list[bytes]:
    names = RingNames(directory)
    names.renew()
    names.learn(0)
    return names.texts


@dataclass
class _Ring:
    """What there is between two lives."""

    log: bytes = b""
    index: int = 0
    epoch: int = 0
    closed: bool = True

    @staticmethod
    def look(directory: Path) -> _Ring:
        try:
            cursor = RingCursor.attach(directory, "tail", payload_hash=PAYLOAD_HASH)
        except FileNotFoundError:
            return _Ring()
        with cursor:
            return _Ring(cursor.log, cursor.index, cursor.epoch, cursor.closed_by_writer)


class _Witness:
    """A reader that looks on, and counts what it got and what it was told to have missed."""

    def __init__(self, directory: Path, filtered: bool) -> None:
        self._kinds = [Kind.MESSAGE] if filtered else None
        self._directory = directory
        self._reader: Reader | None = None
        self._at = 0
        self.said_dead = 0

    def look(self, rounds: int) -> None:
        """Read what is there; open a reader if there is none."""
        if self._reader is None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # its writer is dead: we know
                    self._reader = Reader(
                        f"ring:{self._directory}", start="oldest", kinds=self._kinds, batch=64
                    )
            except FileNotFoundError:
                return
            self._at = self._reader.index
        empty = 0
        while empty < rounds:
            try:
                batch = self._reader.poll(timeout=_SECONDS)
            except Exception as end:
                # Its writer closed the ring: all of it was told.
                if type(end).__name__ != "RingClosedError":
                    raise
                self._check_end()
                return
            empty = 0 if len(batch) or batch.lapped else empty + 1
            self._take(batch)

    def _take(self, batch: Any) -> None:
        own = batch.headers["channel"] == 255
        self.said_dead += int(own.sum())
        indices = batch.headers["index"][~own]
        if self._kinds is None:
            self._at += batch.lapped
            for index in indices.tolist():
                assert index == self._at, f"reader: expected record {self._at}, found {index}"
                self._at += 1

    def _check_end(self) -> None:
        assert self._reader is not None
        if self._kinds is None:
            end = self._reader.index
            assert self._at == end, f"reader: got {self._at} of {end} records"
        self._reader.close()
        self._reader = None

    def finish(self, index: int) -> None:
        """Read to the end of a log that was closed behind this index."""
        self.look(10)
        if self._reader is None and self._kinds is None and self._at < index:
            # What ended was an earlier life's file, which that one closed: the next is another's.
            self.look(10)
        if self._reader is not None:
            raise AssertionError("reader: expected the end of the log")
        if self._kinds is None:
            assert self._at in (0, index), f"reader: got {self._at} of {index} records"


class _Kept:
    """A recorder that looks on, is started again, or is late."""

    def __init__(self, directory: Path, journal: Path) -> None:
        self._directory = directory
        self._journal = journal
        self._recorder: Recorder | None = None
        self._begin: int | None = None

    def look(self, turns: int = 200_000) -> None:
        """Record what is there."""
        if self._recorder is None:
            config = RecordConfig(directory=str(self._journal), segment_bytes=1 << 18, sync="none")
            recorder = Recorder(config, self._directory, "feed")
            try:
                recorder.on_start()
            except FileNotFoundError:
                return
            self._recorder = recorder
            if self._begin is None:
                self._begin = recorder.recordings[0].cursor.index
        idle = 0
        for turn in range(turns):
            done = self._recorder.work(turn * 60_000_000)
            failure = self._recorder.recordings[0].failure
            assert failure is None, f"recorder: {failure!r}"
            idle = 0 if done > 0 else idle + 1
            if idle > 5:
                break
            if idle:
                self._recorder.keep()
        if self._recorder.recordings[0].ended:
            self.stop()

    def stop(self) -> None:
        """End it as it is."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            with suppress(TimeoutError):  # it is behind: the next one goes on
                recorder.on_stop()

    def finish(self, index: int) -> None:
        """Check that the journal holds, or says to lack, all records up to this index."""
        self.look()
        if self._recorder is None:  # it ended with an earlier life's file, which that one closed
            self.look()
        self.stop()
        if self._begin is None:
            return
        at = self._begin
        with JournalCursor.attach(self._journal, follow=False, payload_hash=PAYLOAD_HASH) as cursor:
            while not cursor.ended:
                for i in range(cursor.poll()):
                    payload = bytes(cursor.payload(i))
                    if cursor.headers[i]["kind"] == Kind.LAPPED:
                        at += int.from_bytes(payload[:8], "little")
                        continue
                    if cursor.headers[i]["kind"] == Kind.MESSAGE:
                        found = int.from_bytes(payload[:8], "little")
                        assert found == at, f"journal: expected record {at}, found {found}"
                    at += 1
        assert at == index, f"journal: holds and says {at} of {index} records"


def run_seed(seed: int) -> int:
    """Run the lives of one seed; return how many. AssertionError: what did not hold."""
    rng = random.Random(seed)
    root = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="udpfast-lives-", dir=root) as scratch:
        os.environ["UDPFAST_SHM"] = f"{scratch}/shm"
        directory = instance_directory("feed", create=True)
        witness = _Witness(directory, rng.random() < 0.3)
        kept = _Kept(directory, Path(scratch) / "journal")
        lives = [draw_life(rng) for _ in range(rng.randrange(3, 9))]
        lives.append(Life(1 << 22, 4096, 10, 0, "closed", 0, ""))
        for life in lives:
            _check_life(directory, life)
            if rng.random() < 0.5:
                witness.look(rng.choice((1, 6)))
            if rng.random() < 0.5:
                kept.look()
            if rng.random() < 0.3:
                kept.stop()
        end = _Ring.look(directory)
        witness.finish(end.index)
        kept.finish(end.index)
        return len(lives)


def _check_life(directory: Path, life: Life) -> None:
    before, names, modes = _Ring.look(directory), _names(directory), _modes(directory)
    first = before.index + (bool(before.log) and not before.closed)  # behind its RESTART
    _run(directory, life, first)
    after = _Ring.look(directory)
    assert not before.log or after.log == before.log, f"{life}: another log"
    found = _names(directory)
    assert found[: len(names)] == names, f"{life}: names {names} became {found}"
    if life.ends == "failed":
        assert after == before, f"{life}: {before} became {after}"
        assert _modes(directory) == modes, f"{life}: {modes} became {_modes(directory)}"
    elif life.ends == "cut" and after.epoch == before.epoch:
        assert after.index == before.index, f"{life}: {before} became {after}"
    elif life.ends in ("closed", "killed"):
        assert after.index == first + life.records, f"{life}: {before} became {after}"
        wanted = 0o640 if life.group else 0o600
        assert _modes(directory)["ring"] == wanted, f"{life}: {_modes(directory)}"


def main() -> int:
    """Run seeds; say the command that repeats the one that fails."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    options = parser.parse_args()
    count = 0
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            count += run_seed(seed)
        except AssertionError as failure:
            print(
                f"seed {seed}: {failure}\n"
                f"repeat it: python -m udpfast.testing.lives --seed {seed} --seeds 1"
            )
            return 1
    print(f"{options.seeds} seeds, {count} lives: all that was written is accounted for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
