"""Read journals and their rings as one stream, whatever becomes of either, against a slow model.

    udpfast lab seamcheck --seeds 2000

A feed publishes, is stopped in good order, killed, started again with another size of ring, or its
ring is lost; its recorder works, is away, comes back, its journal is lost or damaged. Readers are
opened at any moment, from a beginning, a time, a position or the tail, with filters and batches of
any size. The model is a list of all records ever published, what the journal was told, and what
the ring still has: each record comes once, in order; what is missing is said to the record, and is
nowhere to be had.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from udpfast.agents.recorder import Recorder
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig
from udpfast.core.layout import Kind, LappedReason
from udpfast.errors import ConfigError, FormatError, RegionError, RingClosedError
from udpfast.lab.program import by_seeds
from udpfast.log.cursor import RingCursor
from udpfast.log.ring import Ring
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.names import create_names, names_table

__all__ = ["check", "main"]

#: Before now: a recorder stamps what it says is missing with the clock.
_START_NS = 1_700_000_000_000_000_000
_STEPS = 40
_SEGMENT = 1 << 18
#: A recorder that has nothing to do for so many turns has done all.
_IDLE = 4
_TURNS = 10_000


class World:
    """A feed, its recorder, and all that was ever published: each record says its number."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory, self.rng = directory, rng
        self.instance, self.journal = directory / "feed", directory / "journal"
        self.instance.mkdir(mode=0o700)
        self.count = 0
        self.recorder: Recorder | None = None
        self.now_ns = 0
        self.trace: list[str] = []
        self.lost: list[int] = []
        self.journal_lost = False
        self.names: Any = None
        self.start_feed()

    def start_feed(self) -> None:
        """Begin a ring, or go on in the one that is there."""
        if self.names is not None:
            self.names.close()
        self.names = create_names(self.instance / "names", name_table_size(16))
        NameTable(names_table(self.names), capacity=16)
        self.names.mark_ready()
        size = 1 << self.rng.choice((14, 16, 18))
        self.ring = Ring.create(self.instance, size, PAYLOAD_HASH)
        self.trace.append(f"feed starts, {size} bytes, at {self.count}")

    def publish(self, count: int) -> None:
        """Publish records of two kinds and of any size."""
        for number in range(self.count, self.count + count):
            kind = Kind.MESSAGE if number % 3 else Kind.GAP
            self.ring.append(
                kind, bytes(self.rng.choice((24, 24, 24, 500))), number=number,
                published_ns=_START_NS + number,
            )  # fmt: skip
        self.ring.flush()
        self.count += count
        self.trace.append(f"publish {count} -> {self.count}")

    def end_feed(self, how: str) -> None:
        """Stop it in good order, or leave what a killed process leaves; then go on."""
        self.trace.append(f"feed {how}")
        if how == "stopped":
            self.ring.close()
        else:
            self.ring.region.close()
        if how == "lost":
            self.lost.append(self.count)
            (self.instance / "ring").unlink()
        self.start_feed()

    def start_recorder(self) -> None:
        """Begin to record, or go on."""
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
        self.recorder = None
        self.trace.append("recorder stops")

    def oldest(self) -> int:
        """Return the number of the oldest record that the ring has, or of the next one."""
        with RingCursor.attach(self.instance, "oldest", 4096, payload_hash=PAYLOAD_HASH) as cursor:
            return int(cursor.headers["number"][0]) if cursor.poll() else self.count

    def recorded(self) -> set[int]:
        """Return the numbers of all records that the journal has."""
        try:
            with Reader(f"journal:{self.journal}", end=("position", 1 << 62)) as reader:
                found = set()
                while reader.wait(0):
                    record = next(reader)
                    found |= {record.number} - {0 if record.kind is Kind.LAPPED else -1}
                return found
        except (FileNotFoundError, ConfigError):
            return set()

    def close(self) -> None:
        """Let go of everything."""
        if self.recorder is not None:
            self.stop_recorder()
        self.ring.close()
        self.names.close()


class Check:
    """One reader, and what it must see from where it begins."""

    def __init__(
        self, world: World, reader: Reader, kinds: set[Kind] | None, since: int, tail: bool
    ) -> None:
        self.world, self.reader, self.kinds, self.since = world, reader, kinds, since
        self.next: int | None = None
        kept = [each for each in world.recorded() if each >= since and self._passes(each)]
        self.first_at_most = min(kept, default=None)  # begins there, or before
        self.missed = self.got = 0
        self.unknown = self.ended = False
        self.tail = tail

    def take(self, most: int) -> None:
        """Read so many, or what is there; each must be the next, or said to be missing."""
        try:
            self._read(most)
        except RegionError:  # who began in the middle of a segment is told that it was removed
            assert self.world.journal_lost
            self.ended = True

    def _read(self, most: int) -> None:
        for _ in range(most):
            if not self.reader.wait(0):
                # Who only asks is not told of the end.
                try:
                    batch = self.reader.poll(limit=1, timeout=0)
                except RingClosedError:
                    self.ended = True
                    return
                self.unknown |= batch.lapped > 0  # a batch does not say why
                if not len(batch) and not batch.lapped:
                    return
                self.missed += batch.lapped
                for header in batch.headers:
                    if header["kind"] not in (Kind.LAPPED, Kind.CONNECTION, Kind.RESTART):
                        self._take(int(header["number"]))
                continue
            record = next(self.reader)
            if record.kind is Kind.LAPPED:
                self.missed += record.lapped
                assert record.data is not None
                self.unknown |= record.data["reason"] == LappedReason.UNKNOWN
            elif record.kind not in (Kind.CONNECTION, Kind.RESTART):
                self._take(record.number)

    def _take(self, number: int) -> None:
        first = self.since if self.next is None else self.next
        assert number >= first, f"record {number} again, or before {first}"
        wanted = [each for each in range(first, number) if self._passes(each)]
        if self.next is None and self.first_at_most is not None and not self.missed:
            assert number <= self.first_at_most, f"begins at {number}, not at {self.first_at_most}"
        asks = self.next is not None and wanted and not self.tail
        there = self.world.recorded() if asks else set()
        # How far a log went that is lost, nobody knows.
        self.unknown |= any(first <= each <= number for each in self.world.lost)
        assert not there.intersection(wanted), (
            f"before {number} {self.missed} are said to be missing, but the journal has "
            f"{len(there.intersection(wanted))} of them, {min(there.intersection(wanted))} first"
        )
        if self.next is not None and wanted and not self.unknown:
            assert self.missed >= len(wanted), (
                f"{len(wanted)} before {number} are missing, said are {self.missed}"
            )
        assert self.unknown or self.next is None or self.missed <= number - first, (
            f"before {number} said to be missing are {self.missed}, but there are {number - first}"
        )
        self.next, self.missed, self.unknown = number + 1, 0, False
        self.got += 1

    def _passes(self, number: int) -> bool:
        kind = Kind.MESSAGE if number % 3 else Kind.GAP
        return self.kinds is None or kind is Kind.GAP or kind in self.kinds


def check(seed: int) -> dict[str, int]:
    """Run one seed; AssertionError says what is wrong, and what happened before it."""
    rng = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="udpfast-seam-"))
    world = World(directory, rng)
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
        world.end_feed(rng.choice(("stopped", "stopped", "killed", "lost")))
    elif what < 0.65:
        _step_recorder(world)
    elif what < 0.8:
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
    world.stop_recorder()
    if world.rng.random() < 0.2:
        shutil.rmtree(world.journal)
        world.journal_lost = True
        world.trace.append("journal lost")


def _open(world: World) -> list[Check]:
    rng = world.rng
    options: dict[str, Any] = {"batch": rng.choice((1, 5, 4096))}
    kinds = rng.choice((None, None, {Kind.MESSAGE}, {Kind.TRADES}))
    if kinds is not None:
        options["kinds"] = kinds
    since = rng.choice((0, rng.randrange(world.count + 1), world.count))
    start = rng.choice((None, "begin", ("position", 0), _START_NS + since, "tail"))
    timed, tail = isinstance(start, int), start == "tail"
    address: Any = [f"journal:{world.journal}", f"ring:{world.instance}"]
    if timed and rng.random() < 0.5:
        address = address[1]
    elif rng.random() < 0.5:
        address.reverse()
    try:
        reader = Reader(address, start=start, **options)
    except (ConfigError, FileNotFoundError, FormatError) as refused:
        world.trace.append(f"open {start}: {refused}")
        return []
    world.trace.append(f"open {address if timed else 'both'} from {start}, {options}")
    first = since if timed else world.count if tail else 0
    return [Check(world, reader, kinds, first, tail)]


def _finish(world: World, checks: list[Check]) -> None:
    # What comes last passes every filter: by then all that was missed must have been said.
    for each in checks:
        if not each.ended:
            each.take(1 << 30)
    last = world.count + 2 - world.count % 3
    world.publish(last + 2 - world.count)
    for each in checks:
        if not each.ended:
            each.take(1 << 30)
            assert each.ended or (each.next is not None and each.next > last), (
                f"a reader stands at {each.next} of {world.count}"
            )


main = by_seeds(__name__, check, seeds=200)

if __name__ == "__main__":
    main()
