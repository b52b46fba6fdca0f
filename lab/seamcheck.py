"""Read journals and their rings as one stream, whatever becomes of either, against a slow model.

    udpfast lab seamcheck --seeds 2000

A feed publishes, is stopped in good order, killed, started again with another size of ring, or its
ring is lost; its recorder works, is away, is killed, comes back; its journal is lost, or damaged: a
record within it, the tail of its last segment, a whole segment. Readers are opened at any moment,
also before there is a ring or a journal, from a beginning, a time, a position or the tail, with
filters and batches of any size; some pause before they read, as they look round by the clock, which
is the seed's (seeded_clock). The model is a list of all records ever published, what the journal
can be read of, and what the ring still has: each record comes once, in order; what is missing is
said to the record, and is nowhere to be had.
"""

from __future__ import annotations

import bisect
import contextlib
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from udpfast.agents.feed.recorder import Recorder
from udpfast.client import appearing
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig
from udpfast.core.layout import OBJECT_STATE, Kind, LappedReason
from udpfast.errors import ConfigError, FormatError, RingClosedError
from udpfast.log.cursor import RingCursor
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_state import journal_state
from udpfast.log.ring import Ring
from udpfast.log.segment import Segment, segment_file_bytes
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import LAYOUTS, PAYLOAD_HASH
from udpfast.shm.names import create_names, names_table

from .program import by_seeds, memory
from .seeded_clock import seeded_time, with_seeded_time

__all__ = ["check", "main"]

#: Before now: a recorder stamps what it says is missing with the clock.
_START_NS = 1_700_000_000_000_000_000
_STEPS = 40
_SYMBOL = "BTC-PERPETUAL"
_NAMES = 64
_SEGMENT = 1 << 18
#: As position in the ring: its writer closed it, and the journal has all.
_ENDED = (1 << 64) - 1
#: Where a region's header says when it was created.
_CREATED_AT = 32
#: A recorder that has nothing to do for so many turns has done all.
_IDLE = 4
_TURNS = 10_000
#: Seconds before a read: below and above what lies between two looks at a journal's writer (10 ms),
#: at what a reader reads from (20 ms), and at a file in a ring's place (50 ms).
_PAUSES = (0.002, 0.012, 0.025, 0.06, 0.2)


class World:
    """A feed, its recorder, and all that was ever published: each record says its number."""

    def __init__(self, directory: Path, rng: random.Random, pauses: random.Random) -> None:
        self.directory, self.rng = directory, rng
        self.pauses = pauses
        self.instance, self.journal = directory / "feed", directory / "journal"
        self.instance.mkdir(mode=0o700)
        self.count = 0
        self.recorder: Recorder | None = None
        self.now_ns = 0
        self.trace: list[str] = []
        self.logs: list[int] = []  # where each log begins that a lost one made necessary
        self.begins: dict[bytes, int] = {}  # where each log begins, by its identity
        self.ends: set[int] = set()  # where a recorder said that it has all
        self.journals = 1  # one more for each that was lost
        self.damages = 0
        self.lost_uncounted: set[int] = set()  # in files that a reader may have mapped
        self.restarts: set[int] = set()
        self.files: list[range] = []  # what each file of the ring had in the end
        self.lives: list[int] = []  # where each run of the feed begins ...
        self.symbols: list[str] = []  # ... and what its records are of
        self.file = 0, b""
        self.down = ""
        self.names: Any = None
        self.start_feed()

    def start_feed(self) -> None:
        """Begin a ring, or go on in the one that is there."""
        if self.names is None:
            self.names = create_names(self.instance / "names", name_table_size(_NAMES))
            self.table = NameTable(names_table(self.names), capacity=_NAMES)
            self.names.mark_ready()
        # Each run publishes other names: a table that took another one's place has other ids.
        symbol = f"{_SYMBOL}-{len(self.lives)}"
        state = np.zeros(1, OBJECT_STATE)
        state["symbol_id"] = self.table.intern(symbol)
        self.state = state.tobytes()
        size = 1 << self.rng.choice((14, 16, 18))
        self.ring = Ring.create(self.instance, size, PAYLOAD_HASH)
        # Created by the clock that its records are published by: what is older is of before.
        with (self.instance / "ring").open("r+b") as file:
            file.seek(_CREATED_AT)
            file.write((_START_NS + self.count).to_bytes(8, "little"))
        self.begins.setdefault(self.ring.log, self.count)
        self.down = ""
        status = (self.instance / "ring").stat()
        if self.file != (status.st_ino, self.ring.log):  # else it goes on in the same one
            self.file = status.st_ino, self.ring.log
            self.files.append(range(0))
        self.files[-1] = range(0)
        self.lives.append(self.count)
        self.symbols.append(symbol)
        self.trace.append(f"feed starts, {size} bytes, at {self.count}")

    def publish(self, count: int) -> None:
        """Publish records of two kinds and of any size; a feed that was started says so first."""
        if self.down:
            self.start_feed()
        for number in range(self.count, self.count + count):
            restart = number == self.lives[-1] and number > 0
            self.restarts |= {number} if restart else set()
            payload = bytes(self.rng.choice((24, 24, 24, 500)))
            self.ring.append(
                self.kind(number), self.state if self.kind(number) is Kind.STALE else payload,
                number=number, published_ns=_START_NS + number,
            )  # fmt: skip
        self.ring.flush()
        self.count += count
        self.trace.append(f"publish {count} -> {self.count}")

    def kind(self, number: int) -> Kind:
        """Return which kind a record is of."""
        if number in self.restarts:
            return Kind.RESTART
        return Kind.MESSAGE if number % 3 else Kind.STALE

    def end_feed(self, how: str) -> None:
        """Stop it in good order, or leave what a killed process leaves."""
        self.trace.append(f"feed {how}")
        self.files[-1] = range(self.oldest(), self.count)
        if how == "stopped":
            self.ring.close()
        else:
            self.ring.region.close()
        self.down = how
        if how == "lost":
            self.logs.append(self.count)
            (self.instance / "ring").unlink()
            (self.instance / "names").unlink()
            self.names.close()
            self.names = None

    def start_recorder(self) -> None:
        """Begin to record, or go on."""
        if self.down:
            self.start_feed()
        config = RecordConfig(directory=str(self.journal), segment_bytes=_SEGMENT, sync="none")
        self.recorder = Recorder(config, self.instance, "feed")
        self.recorder.on_start()
        self.trace.append("recorder starts")

    def record(self) -> None:
        """Let the recorder take all that is there."""
        assert self.recorder is not None
        idle = 0
        for _ in range(_TURNS):
            self.now_ns += 200_000_000  # it looks for another file each time
            idle = 0 if self.recorder.work(self.now_ns) > 0 else idle + 1
            assert self.recorder.recordings[0].failure is None
            self.recorder.keep()
            if idle > _IDLE:
                break
        self.trace.append(f"recorded up to {self.count}")

    def stop_recorder(self) -> None:
        """End it in good order."""
        assert self.recorder is not None
        try:
            self.recorder.on_stop()
        except TimeoutError as left:  # the ring was closed, and it was not through
            self.trace.append(f"recorder: {left}")
        self._note_end()
        self.recorder = None
        self.trace.append("recorder stops")

    def kill_recorder(self) -> None:
        """Leave what a killed process leaves: what it does at its end is undone."""
        before = {path: path.read_bytes() for path in self.journal.iterdir() if path.is_file()}
        recorder, self.recorder = self.recorder, None
        assert recorder is not None
        with contextlib.suppress(TimeoutError):
            recorder.on_stop()
        for path in self.journal.iterdir():
            if path not in before and path.is_file():
                path.unlink()
        for path, content in before.items():
            if path.name != "next.segment":
                _overwrite(path, 0, content)
        self.trace.append("recorder killed")

    def damage(self) -> None:
        """Damage its journal: bytes amid it, the tail of its last segment, or a whole one."""
        segments = [path for path in sorted(self.journal.glob("*.segment")) if path.stem.isdigit()]
        how = self.rng.choice(("bytes", "tail", "segment"))
        if not segments or (how != "bytes" and self.recorder is not None):
            return
        path = segments[-1] if how == "tail" else self.rng.choice(segments)
        self.damages += 1
        if how == "segment":
            self.lost_uncounted |= self.uncounted(path)
            path.unlink()
            self.trace.append(f"lost {path.name}")
            return
        info = Segment.open(path).info()
        end = info.end_position  # None: it is not sealed
        used = (journal_state(self.journal).position if end is None else end) - info.position
        if used <= 0:
            return
        first = segment_file_bytes(info.capacity_bytes) - info.capacity_bytes
        at = self.rng.randrange(used)
        size = min(self.rng.choice((1, 8, 100, 3000)), used - at)
        if how == "tail":
            size = info.capacity_bytes - at
        bad = bytes(size) if how == "tail" else self.rng.randbytes(size)
        _overwrite(path, first + at, bad)
        self.trace.append(f"{size} bytes {how} of {path.name} damaged from {at} of {used} on")

    def oldest(self) -> int:
        """Return the number of the oldest record that the ring has, or of the next one."""
        with RingCursor.attach(self.instance, "oldest", 4096, payload_hash=PAYLOAD_HASH) as cursor:
            with contextlib.suppress(RingClosedError):
                return int(cursor.headers["number"][0]) if cursor.poll() else self.count
            return self.count

    def recorded(self) -> set[int]:
        """Return the numbers of all records that the journal has."""
        try:
            with JournalCursor.attach(self.journal, follow=False, layouts=LAYOUTS) as cursor:
                found: set[int] = set()
                while count := cursor.poll():
                    headers = cursor.headers[:count]
                    kept = headers["number"][headers["kind"] != Kind.LAPPED]
                    found.update(kept.tolist())
                return found
        except FileNotFoundError:
            return set()

    def uncounted(self, lost: Path | None = None) -> set[int]:
        """Return the numbers of all records whose index in their log the journal does not say.

        Damage may hide a LAPPED, which stands for any number of records. Behind it, records are
        counted back from where the next segment says that it begins, or the recorder where it goes
        on. They cannot be if there is more damage before that place, or if it is of another log.
        Then nobody knows which of the ring's records come next.

        Parameters
        ----------
        lost : Path, optional
            A segment that is about to be lost, or the journal.
        """
        if not self.damages or not self.journal.exists():
            return set()
        paths = [path for path in sorted(self.journal.glob("*.segment")) if path.stem.isdigit()]
        infos = [Segment.open(path).info() for path in paths]
        state = journal_state(self.journal)
        found: set[int] = set()
        with JournalCursor.attach(self.journal, follow=False, layouts=LAYOUTS) as cursor:
            numbers: dict[int, int | None] = {}  # of what can be read; None: a LAPPED
            while count := cursor.poll():
                for each in cursor.headers[:count]:
                    lapped = each["kind"] == Kind.LAPPED
                    numbers[int(each["index"])] = None if lapped else int(each["number"])
        places = [(info.index, info.source) for info in infos]
        places.append((state.resume_index, state.source))
        for at, info in enumerate(infos):
            end = info.end_index
            if end is None:
                end = state.index if info is infos[-1] else places[at + 1][0]
            counted = places[at + 1] == (end, info.source)
            if lost in (self.journal, *paths[at : at + 2]):
                counted = False
            damaged = [each for each in range(info.index, end) if each not in numbers]
            if damaged:
                behind = range(damaged[0], damaged[-1] if counted else end)
                found.update(n for each in behind if (n := numbers.get(each)) is not None)
        return found

    def recorded_from(self, begin: int) -> int | None:
        """Return which record of the log that begins there is the first one of the journal.

        As its segments state it, also of records that it lacks or that are damaged since. None: it
        has none of that log.
        """
        found = []
        for path in self.journal.glob("*.segment"):
            if path.stem.isdigit():
                info = Segment.open(path).info()
                if self.begins.get(info.source) == begin:
                    found.append(begin + info.source_index)
        return min(found, default=None)

    def there(self, file: int, since: int) -> set[int]:
        """Return the numbers of all records that a reader can have.

        Parameters
        ----------
        file : int
            Of the ring, that it was opened with.
        since : int
            What it has read up to.
        """
        found = self.recorded()
        if not self.down or self.down != "lost":
            found.update(range(self.oldest(), self.count))
        found.update(self.files[file])
        return {number for number in found if number >= since}

    def close(self) -> None:
        """Let go of everything."""
        if self.recorder is not None:
            self.stop_recorder()
        self.ring.close()
        if self.names is not None:
            self.names.close()

    def silent(self, begin: int) -> int | None:
        """Return where a recorder said that it had all of the log before, which then went on.

        Nobody knows that it did, if it was not recorded and is lost. None: it is not so.

        Parameters
        ----------
        begin : int
            Where the log behind begins.
        """
        before = max((each for each in self.logs if each < begin), default=0)
        ends = [each for each in self.ends if before <= each < begin]
        since = max(ends) if ends else before
        if self.recorded().intersection(range(since, begin)):
            return None
        # Nobody knows of a log that nobody recorded.
        return max(ends) if ends else self.silent(before) if before else None

    def _note_end(self) -> None:
        # The journal says where: the recorder may have passed over a file that was stopped.
        state = journal_state(self.journal)
        if state.source_position == _ENDED:
            self.ends.add(self.begins[state.source] + state.source_index)


class Check:
    """One reader, and what it must see from where it begins."""

    def __init__(
        self,
        world: World,
        reader: Reader,
        kinds: set[Kind] | None,
        since: int,
        exact: bool,
        timed: bool,
        file: int,
    ) -> None:
        self.world, self.reader, self.kinds, self.next = world, reader, kinds, since
        self.file = file
        self.journals = world.journals  # the names of a lost one are lost, too
        self.damages = world.damages
        kept = [each for each in world.there(self.file, since) if self._passes(each)]
        self.first_at_most = min(kept, default=None)  # begins there, or before
        self.exact = exact  # what is missing before the first record is known
        self.timed = timed  # it is at least so much
        self.missed = self.unknown = self.got = 0
        self.damaged = False  # some of it is missing because it is damaged
        self.owed = 0  # missing before the first record, and to be said yet
        self.uncounted: set[int] = set()  # nobody knew their index when this was reading
        self.lost: set[int] = set()  # nowhere to be had when records were said to be missing
        self.ended = False

    def take(self, most: int) -> None:
        """Read so many, or what is there; each must be the next, or said to be missing."""
        self.uncounted |= self.world.uncounted() | self.world.lost_uncounted
        pauses = self.world.pauses
        pause_at = pauses.choice((0, 1, 5)) if pauses.random() < 0.15 else -1
        for taken in range(most):
            if taken == pause_at:
                time.sleep(pauses.choice(_PAUSES))
            try:
                if not self.reader.wait(0):
                    self.reader._look()  # as it does by the clock, when it finds nothing
                    if not self.reader.wait(0):
                        self._find_nothing()
                        return
            except RingClosedError:
                self.ended = True
                assert self.world.down == "lost", "told that the ring was removed"
                return
            record = next(self.reader)
            if record.kind is Kind.LAPPED:
                assert record.data is not None
                self.missed += record.lapped
                self.unknown += int(record.data["reason"] == LappedReason.UNKNOWN)
                self.damaged |= bool(record.data["reason"] == LappedReason.DAMAGE)
                there = self.world.there(self.file, self.next)
                self.lost |= set(range(self.next, self.world.count)) - there
            elif record.kind is not Kind.CONNECTION:
                self._take(record.number)
                assert record.kind is self.world.kind(record.number)
                if record.kind is Kind.STALE:
                    life = bisect.bisect_right(self.world.lives, record.number) - 1
                    known: set[str | None] = {self.world.symbols[life]}
                    if self.journals != self.world.journals:
                        known.add(None)
                    assert record.symbol in known, f"{record.number} is of {record.symbol}"

    def _find_nothing(self) -> None:
        # Who only asks is not told of the end.
        try:
            batch = self.reader.poll(timeout=0)
            assert batch.lapped == 0 and set(batch.headers["kind"]) <= {Kind.CONNECTION}
        except RingClosedError:
            self.ended = True
            assert self.world.down in ("stopped", "lost"), "ended, but the feed works"
        if self.world.down == "stopped":
            assert self.ended, "the feed was stopped, but a reader does not end"
        left = [each for each in range(self.next, self.world.count) if self._passes(each)]
        there = self.world.there(self.file, self.next).intersection(left)
        if self.ended and self.world.down == "stopped" and left and (self.got or self.exact):
            later = [each for each in self.world.logs if each > self.next]
            lost = later and (self.unknown or any(self.world.silent(each) for each in later))
            assert (lost or self.missed >= len(left)) and not there, f"ended before {left[0]}"

    def _take(self, number: int) -> None:
        first, missed = self.next, self.missed
        assert number >= first, f"record {number} again, or before {first}"
        wanted = {each for each in range(first, number) if self._passes(each)}
        lost = (self.journals, self.damages) != (self.world.journals, self.world.damages)
        if self.got == 0 and self.first_at_most is not None and not missed and not lost:
            assert number <= self.first_at_most, f"begins at {number}, not at {self.first_at_most}"
        if self.got or self.exact:
            self._weigh(first, number, wanted)
        elif self.timed:
            begin = max((each for each in self.world.logs if each <= number), default=0)
            sure = len([each for each in wanted if each >= begin])
            told = f"{self.missed} are said to be missing from {first} on, where it begins"
            if number in self.uncounted:  # as many are said as are for sure
                self._owe(number)
            else:
                said = self.missed - self.unknown
                assert said >= sure, f"before {number} {told}, it must be {sure}"
        elif self.damaged or number in self.uncounted:
            self._owe(number)
        self.next, self.missed, self.unknown, self.damaged = number + 1, 0, 0, False
        self.lost = set()
        self.got += 1

    def _owe(self, number: int) -> None:
        # Damage at the beginning of a segment hides whether a LAPPED about another log was there:
        # as many records are said to be missing as are for sure, and the rest behind the first
        # record, where the count is known again.
        begin = max((each for each in self.world.logs if each <= number), default=0)
        since = self.world.recorded_from(begin)
        if since is not None:
            passed = self.world.recorded().intersection(range(since, number))  # by the filter
            said = self.missed - self.unknown
            self.owed = max(0, number - since - len(passed) - said)

    def _weigh(self, first: int, number: int, wanted: set[int]) -> None:
        # What was said to be missing, against what is.
        told = f"before {number} {self.missed} are said to be missing from {first} on"
        begins = [each for each in self.world.logs if first <= each <= number]
        silent = [each for each in begins if self.world.silent(each) is not None]
        if silent and not self.missed:  # nobody can say it
            self.lost = set(range(max(silent))) - self.world.there(self.file, first)
        # From where nobody knows which one comes next, it cannot be told from what was read.
        passed = self.uncounted.intersection(range(first - 1, number))
        there = {each for each in wanted - self.lost if each < min(passed, default=number)}
        assert not there, f"{told}, but {len(there)} of them are there, {min(there)}"
        assert self.unknown <= len(begins), f"{told}, {self.unknown} times nobody knows"
        sure = number - max(begins, default=first)  # of the last log
        if self.kinds is not None:
            sure = len([each for each in wanted if each >= number - sure])
        assert self.missed - self.unknown >= sure, f"{told}, it must be {sure}"
        late = max(0, self.missed - self.unknown - (number - first))
        assert late <= self.owed, f"{told}: too many"
        self.owed -= late
        if wanted and begins and not self.unknown and self.missed < len(wanted):
            assert silent, f"{told}, and nobody doubts it"

    def _passes(self, number: int) -> bool:
        kind = self.world.kind(number)
        return self.kinds is None or kind is not Kind.MESSAGE or kind in self.kinds


def _overwrite(path: Path, at: int, content: bytes) -> None:
    # In place: who has it mapped sees it.
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def check(seed: int) -> dict[str, int]:
    """Run one seed; AssertionError says what is wrong, and what happened before it."""
    rng = random.Random(seed)
    # So long a look at the clock takes: from often enough to each time that somebody asks.
    step_ns = random.Random(f"clock {seed}").choice((1_000, 100_000, 3_000_000, 30_000_000))
    with seeded_time(step_ns):
        return _check(seed, rng)


def _check(seed: int, rng: random.Random) -> dict[str, int]:
    directory = Path(tempfile.mkdtemp(prefix="udpfast-seam-", dir=memory()))
    world = World(directory, rng, random.Random(~seed))
    checks: list[Check] = []
    try:
        for _ in range(_STEPS):
            _step(world, checks)
        _finish(world, checks)
    except AssertionError as wrong:
        raise AssertionError("\n".join([*world.trace, str(wrong)])) from None
    finally:
        for each in checks:
            each.reader.close()
        world.close()
        shutil.rmtree(directory)
    return {"readers": len(checks), "records": sum(each.got for each in checks)}


def _step(world: World, checks: list[Check]) -> None:
    rng = world.rng
    what = rng.random()
    if what < 0.35:
        world.publish(rng.choice((1, 3, 30, 300, 1500)))
    elif what < 0.45:
        if not world.down:
            world.end_feed(rng.choice(("stopped", "stopped", "killed", "lost")))
        if rng.random() < 0.7:
            world.start_feed()
    elif what < 0.65:
        _step_recorder(world)
    elif what < 0.7:
        world.damage()
    elif what < 0.83:
        checks += _open(world)
    else:
        for each in checks:
            if rng.random() < 0.6 and not each.ended:
                each.take(rng.choice((1, 10, 300, 1 << 30)))


def _step_recorder(world: World) -> None:
    if world.recorder is None:
        world.start_recorder()
        return
    if world.rng.random() < 0.7:
        world.record()
        return
    if world.rng.random() < 0.3:
        world.kill_recorder()
    else:
        world.stop_recorder()
    if world.rng.random() < 0.2:
        world.lost_uncounted |= world.uncounted(world.journal)
        shutil.rmtree(world.journal)
        world.journals += 1
        world.trace.append("journal lost")


class _Meanwhile:
    """In place of `time`: while a reader waits for what is not there yet, the world goes on."""

    def __init__(self, world: World) -> None:
        self.world, self.looks = world, 0

    def monotonic(self) -> float:
        return float(self.looks)

    def sleep(self, _seconds: float) -> None:
        self.looks += 1
        world, what = self.world, self.world.rng.random()
        if what < 0.3 and world.down:
            world.start_feed()
        elif what < 0.6 and world.recorder is None:
            world.start_recorder()
        elif what < 0.8 and not world.down:
            world.publish(world.rng.choice((1, 30, 300)))


def _open(world: World) -> list[Check]:
    rng = world.rng
    options: dict[str, Any] = {"batch": rng.choice((1, 5, 4096))}
    kinds = rng.choice((None, None, {Kind.MESSAGE}, {Kind.TRADES}))
    if kinds is not None:
        options["kinds"] = kinds
    since = rng.choice((0, rng.randrange(world.count + 1), world.count))
    start = rng.choice((None, "begin", ("position", 0), _START_NS + since, "tail"))
    timed, tail = isinstance(start, int), start == "tail"
    # The file that it attaches to: the one that is there, else the next.
    file = len(world.files) - (world.down != "lost")
    address: Any = [f"journal:{world.journal}", f"ring:{world.instance}"]
    if timed and rng.random() < 0.5:
        address = address[1]
    elif rng.random() < 0.5:
        address.reverse()
    # So many looks. What comes meanwhile is in a tail or not: its ring is there first.
    options["timeout"] = 0.0 if tail else rng.choice((0.0, 8.0))
    try:
        with mock.patch.object(appearing, "time", _Meanwhile(world)):
            reader = Reader(address, start=start, **options)
    except (ConfigError, FileNotFoundError, FormatError) as refused:
        world.trace.append(f"open {start}: {refused}")
        return []
    world.trace.append(f"open {address if timed else 'both'} from {start}, {options}")
    first = since if timed else world.count if tail else 0
    return [Check(world, reader, kinds, first, tail, timed, file)]


def _finish(world: World, checks: list[Check]) -> None:
    # What comes last passes every filter: by then all that was missed must have been said.
    for each in checks:
        if not each.ended:
            each.take(1 << 30)
    if world.down:
        world.start_feed()
    last = world.count + 2 - world.count % 3
    world.publish(last + 2 - world.count)
    for each in checks:
        if not each.ended:
            each.take(1 << 30)
            assert each.next > last, f"a reader stands at {each.next} of {world.count}"


main = by_seeds(__name__, check, seeds=200, before=with_seeded_time)

if __name__ == "__main__":
    main()
