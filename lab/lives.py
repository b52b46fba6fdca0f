"""Lives of an instance, one after the other, by a seed: starts that fail or are killed at any call.

    udpfast lab lives --seeds 100 --seed 1

Each life is a process that starts as a feed does, with settings of its own, writes records and
names, and ends: cleanly, by kill -9, or at the n-th call to the system that its start makes (which
then fails, or is its last). Some start at once, call by call in an order that is drawn; some leave
a forked child behind. A reader, a forked child of it, a recorder and a fan-out with a reader of its
own look on, in time or late. What must hold:

- a start that fails, or is killed, leaves ring, names and permissions as they were before or as
  they are after: never neither;
- of simultaneous starts exactly one succeeds;
- what a reader was given and what it was told to have missed is all that was written, in order;
- so is what the journal holds.
"""

from __future__ import annotations

import os
import random
import signal
import stat
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from udpfast.agents.feed.recorder import Recorder
from udpfast.agents.feed.ring_names import RingNames
from udpfast.agents.zmq.zmq_fanout import ZmqFanout
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig, ZmqConfig
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import Kind
from udpfast.errors import RingClosedError
from udpfast.log.cursor import RingCursor
from udpfast.log.journal_cursor import JournalCursor
from udpfast.market.updates import LAYOUTS, PAYLOAD_HASH
from udpfast.shm.instance import instance_directory

from .children import in_child
from .life import Life, draw_life, race, run
from .program import by_seeds

__all__ = ["main", "run_seed"]

_SECONDS = 0.05
_PATIENCE_S = 60


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
            except RingClosedError:  # by its writer: all of it was told
                self._check_end()
                return
            empty = 0 if len(batch) or batch.lapped else empty + 1
            self._take(batch)

    def look_forked(self) -> None:
        """Have a forked child read on from here, on its own."""
        if self._reader is None:
            return
        child = in_child(lambda: self.look(1))
        assert os.waitpid(child, 0)[1] == 0, "forked reader: failed, see above"

    def _take(self, batch: Any) -> None:
        own = batch.headers["kind"] == Kind.CONNECTION  # here all are the reader's own
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


class _Fanned:
    """A fan-out that turns when it is told to, and a reader of it."""

    def __init__(self, directory: Path, scratch: Path) -> None:
        self._directory = directory
        self._config = ZmqConfig(addresses=(f"ipc://{scratch}/zmq",), heartbeat_ms=60_000)
        self._fanout: ZmqFanout | None = None
        self._reader: Reader | None = None
        self._at = 0
        self._turns = 0

    def look(self) -> None:
        """Send what is there, and read it."""
        if self._fanout is None:
            if _Ring.look(self._directory).closed:
                return  # it waits for the next one
            self._fanout = ZmqFanout(self._config, self._directory)
            self._fanout.on_start()
            self._open(self._fanout)
        assert self._reader is not None
        idle = 0
        while idle < 5:
            self._turns += 1
            done = self._fanout.work(monotonic_ns() + self._turns * 60_000_000)
            idle = 0 if done > 0 else idle + 1
        empty = 0
        try:
            while empty < 3:
                batch = self._reader.poll(timeout=_SECONDS)
                empty = 0 if len(batch) or batch.lapped else empty + 1
                self._take(batch)
        except RingClosedError:
            self.close()

    def _open(self, fanout: ZmqFanout) -> None:
        with ThreadPoolExecutor(1) as pool:
            # Turns of a host that is busy with others are long.
            opened = pool.submit(Reader, f"zmq:{self._config.addresses[0]}", timeout=None)
            while not opened.done():
                fanout.work(monotonic_ns())
            self._reader = opened.result()
        self._at = self._reader.index

    def _take(self, batch: Any) -> None:
        self._at += batch.lapped
        for index in batch.headers["index"][batch.headers["kind"] != Kind.CONNECTION].tolist():
            assert index == self._at, f"fan-out: expected record {self._at}, found {index}"
            self._at += 1

    def finish(self, index: int) -> None:
        """Read to the end of a log that was closed behind this index."""
        until = time.monotonic() + _PATIENCE_S
        self.look()
        while self._reader is not None and self._at < index and time.monotonic() < until:
            self.look()
        assert self._reader is None or self._at == index, f"fan-out: {self._at} of {index} records"
        self.close()

    def close(self) -> None:
        """End both."""
        if self._reader is not None:
            self._reader.close()
        if self._fanout is not None:
            self._fanout.on_stop()
        self._reader = self._fanout = None


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
        with JournalCursor.attach(self._journal, follow=False, layouts=LAYOUTS) as cursor:
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


def run_seed(seed: int) -> dict[str, int]:
    """Run the lives of one seed; return how many of them. AssertionError: what did not hold."""
    rng = random.Random(seed)
    root = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="udpfast-lives-", dir=root) as scratch:
        os.environ["UDPFAST_SHM"] = f"{scratch}/shm"
        directory = instance_directory("feed", create=True)
        witness = _Witness(directory, rng.random() < 0.3)
        kept = _Kept(directory, Path(scratch) / "journal")
        fanned = _Fanned(directory, Path(scratch))
        lives = [draw_life(rng) for _ in range(rng.randrange(3, 9))]
        last = Life(1 << 22, 4096, 10, 0, "closed", 0, "")
        children: list[int] = []
        try:
            for life in lives:
                if rng.random() < 0.25:
                    _check_race(directory, [draw_life(rng) for _ in range(rng.choice((2, 3)))], rng)
                else:
                    _check_life(directory, life, children)
                if rng.random() < 0.2:
                    witness.look_forked()
                if rng.random() < 0.5:
                    witness.look(rng.choice((1, 6)))
                if rng.random() < 0.4:
                    fanned.look()
                if rng.random() < 0.5:
                    kept.look()
                if rng.random() < 0.3:
                    kept.stop()
            _check_life(directory, last, children)  # which closes the log
            end = _Ring.look(directory)
            witness.finish(end.index)
            fanned.finish(end.index)
            kept.finish(end.index)
        finally:
            fanned.close()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        return {"lives": len(lives) + 1}


def _check_race(directory: Path, lives: list[Life], rng: random.Random) -> None:
    before, names = _Ring.look(directory), _names(directory)
    won = race(directory, lives, rng)
    assert len(won) == 1, f"{lives}: {len(won)} of them succeeded"
    after = _Ring.look(directory)
    first = before.index + bool(before.log)
    assert not before.log or after.log == before.log, f"{lives}: another log"
    assert (after.index, after.closed) == (first, False), f"{lives}: {before} became {after}"
    assert after.epoch == before.epoch + 1, f"{lives}: {before} became {after}"
    assert _names(directory)[: len(names)] == names, f"{lives}: names {names}"
    wanted = 0o640 if won[0].group else 0o600
    assert _modes(directory)["ring"] == wanted, f"{lives}: {_modes(directory)}"


def _check_life(directory: Path, life: Life, children: list[int]) -> None:
    before, names, modes = _Ring.look(directory), _names(directory), _modes(directory)
    first = before.index + bool(before.log)  # behind its RESTART
    run(directory, life, first, children)
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


main = by_seeds(__name__, run_seed, 10)
