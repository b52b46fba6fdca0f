"""Try the ring with real processes.

    udpfast lab ringcheck --records 1000000 --kills 20

One process writes at full speed, another reads and checks every byte; then writers, and readers,
are killed with SIGKILL at random moments. Forbidden: a torn, repeated or unexplained record.
Fine: being lapped, as long as the number is exact.
"""

import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from udpfast.core.clock import realtime_ns
from udpfast.log.cursor import RingCursor
from udpfast.log.readers import ReaderRegistration, list_readers
from udpfast.log.ring import Ring

from .program import program
from .ringload import LoadResult, read_load, write_load

__all__ = [
    "Child",
    "Report",
    "check_load",
    "check_reader_kills",
    "check_writer_kills",
    "find_faults",
    "main",
    "read_all",
    "write_until_told",
]

#: A victim lives between 0 and this long; long enough for some hundred thousand records.
LIFE_MAX_NS = 6_000_000


@dataclass(frozen=True, slots=True)
class Report:
    """What one check found.

    Attributes
    ----------
    name : str
    written : int
        Records that the ring says were committed since the reader attached.
    result : LoadResult
        Of the reader that lived through all of it.
    write_ns : int
        For all records; 0 where writers were killed.
    faults : tuple of str
        Empty if all is well.
    """

    name: str
    written: int
    result: LoadResult
    write_ns: int
    faults: tuple[str, ...]

    def __str__(self) -> str:
        """Return two lines for people."""
        r = self.result
        lines = (
            f"{self.name}: {self.written} written = {r.received} received + {r.lapped} lapped;"
            f" torn {r.torn}, repeated {r.repeated}, skipped {r.skipped}, restarts {r.restarts}"
        )
        if self.write_ns:
            lines += (
                f"\n  write {self.write_ns / self.written:.1f} ns/record"
                f" ({self.written / self.write_ns * 1e3:.1f} M/s),"
                f" read {r.received / max(r.elapsed_ns, 1) * 1e3:.2f} M/s"
                f" ({100 * r.received / self.written:.1f} %)"
            )
        return lines + "".join(f"\n  FAULT: {fault}" for fault in self.faults)


def check_load(
    directory: Path, records: int, capacity_bytes: int, size_min: int = 0, size_max: int = 192
) -> Report:
    """Let one process write and another read, both at full speed.

    Parameters
    ----------
    directory : pathlib.Path
        For the ring; removed by the caller.
    records : int
    capacity_bytes : int
        Small: constant lapping. Large: hardly any.
    size_min, size_max : int
        Of the payloads, in bytes; in between by chance.
    """
    directory.mkdir()
    cores = sorted(os.sched_getaffinity(0))
    with Ring.create(directory, capacity_bytes) as ring:
        reader = Child(lambda child: read_all(directory, child, cores[-1]))
        reader.wait_started()
        os.sched_setaffinity(0, cores[:1])
        write_ns = write_load(ring, records, size_min, size_max)
        os.sched_setaffinity(0, cores)
        written = ring.index
    result = LoadResult(**reader.answer())
    name = f"load {capacity_bytes >> 10} KiB ring, payloads {size_min}-{size_max}"
    return Report(name, written, result, write_ns, tuple(find_faults(result, written)))


def check_writer_kills(
    directory: Path, kills: int, seed: int, capacity_bytes: int = 1 << 16
) -> Report:
    """Kill writer after writer at random moments; one reader lives through it and must be right.

    Parameters
    ----------
    directory : pathlib.Path
    kills : int
    seed : int
        Of the moments (what a moment hits is up to the machine).
    capacity_bytes : int
    """
    rng = random.Random(seed)
    faults = []
    directory.mkdir()
    first = Ring.create(directory, capacity_bytes)
    reader = Child(lambda child: read_all(directory, child))
    reader.wait_started()
    first.region.close()  # as a kill does: nothing is said to the readers
    for _ in range(kills):
        writer = Child(lambda child: _write_forever(directory, capacity_bytes, child))
        if rng.random() < 0.5:  # the other half may be hit while it takes the ring over
            writer.wait_started()
        writer.kill_within(rng.randrange(LIFE_MAX_NS))
    with Ring.create(directory, capacity_bytes) as last:
        if not last.restarted:
            faults.append("the last writer found no ring that it could take over")
        last.announce_restart(realtime_ns())
        write_load(last, 1000, 0, 100)
        written, epoch = last.index, last.epoch
    result = LoadResult(**reader.answer())
    if not 1 < epoch <= kills + 2:
        faults.append(f"expected 2 to {kills + 2} writers, found {epoch}")
    name = f"{kills} writers killed, seed {seed}, {epoch - 2} had taken over"
    return Report(name, written, result, 0, (*faults, *find_faults(result, written)))


def check_reader_kills(
    directory: Path, kills: int, seed: int, capacity_bytes: int = 1 << 16
) -> Report:
    """Kill reader after reader at random moments; writer and other readers must not notice.

    Parameters
    ----------
    directory : pathlib.Path
    kills : int
    seed : int
    capacity_bytes : int
    """
    rng = random.Random(seed)
    faults = []
    directory.mkdir()
    writer = Child(lambda child: write_until_told(directory, capacity_bytes, child))
    writer.wait_started()
    survivor = Child(lambda child: read_all(directory, child))
    survivor.wait_started()
    for _ in range(kills):
        reader = Child(lambda child: read_all(directory, child))
        if rng.random() < 0.5:
            reader.wait_started()
        reader.kill_within(rng.randrange(LIFE_MAX_NS))
    with ReaderRegistration.create(directory, "last"):
        left = len(list_readers(directory))
        if left != 2:
            faults.append(f"expected the entries of 2 living readers, found {left}")
    os.kill(writer.pid, signal.SIGTERM)
    written = writer.answer()["written"]
    result = LoadResult(**survivor.answer())
    written -= result.first
    faults += find_faults(result, written)
    return Report(f"{kills} readers killed, seed {seed}", written, result, 0, tuple(faults))


def find_faults(result: LoadResult, written: int) -> list[str]:
    """Return what is wrong with what a reader saw of so many records, one sentence each."""
    faults = [
        f"{getattr(result, what)} records {what}"
        for what in ("torn", "repeated", "skipped")
        if getattr(result, what)
    ]
    if result.received + result.lapped != written:
        faults.append(
            f"expected {written} records, found {result.received} received + {result.lapped} lapped"
        )
    if not result.closed:
        faults.append("the reader did not see the end")
    return faults


class Child:
    """A forked process that says when it has begun, and answers with one JSON object.

    Parameters
    ----------
    run : callable
        What it does; is given the child itself, and returns the answer.
    """

    def __init__(self, run: Callable[["Child"], dict[str, Any]]) -> None:
        self._from_child, self._to_parent = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                answer = run(self)
                os.write(self._to_parent, json.dumps(answer).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(self._to_parent)

    def started(self) -> None:
        """Say, in the child, that it has begun."""
        os.write(self._to_parent, b"\n")

    def wait_started(self) -> None:
        """Wait until it has said so, or is gone."""
        os.read(self._from_child, 1)

    def kill_within(self, life_ns: int) -> None:
        """Kill it after so many ns."""
        end = time.monotonic_ns() + life_ns
        while time.monotonic_ns() < end:
            pass
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._from_child)

    def answer(self) -> dict[str, Any]:
        """Wait for its end; return its answer."""
        with open(self._from_child, "rb") as pipe:  # noqa: PTH123 (a descriptor)
            text = pipe.read()
        os.waitpid(self.pid, 0)
        if not text:
            raise RuntimeError(f"process {self.pid} died without an answer")
        answer: dict[str, Any] = json.loads(text)
        return answer


def read_all(directory: Path, child: Child, core: int | None = None) -> dict[str, Any]:
    """Read and check, in a child, until the writer closes the ring."""
    result = LoadResult()
    if core is not None:
        os.sched_setaffinity(0, {core})
    with (
        RingCursor.attach(directory, start="tail") as cursor,
        ReaderRegistration.create(directory, "check") as registration,
    ):
        result.first = cursor.index
        child.started()
        while not result.closed:
            read_load(cursor, result)
            registration.report(cursor, realtime_ns())
            os.sched_yield()
    return asdict(result)


def _write_forever(directory: Path, capacity_bytes: int, child: Child) -> dict[str, Any]:
    ring = Ring.create(directory, capacity_bytes)
    if ring.restarted:
        ring.announce_restart(realtime_ns())
    child.started()
    while True:
        write_load(ring, 1000, 0, 200)


def write_until_told(directory: Path, capacity_bytes: int, child: Child) -> dict[str, Any]:
    """Write, in a child, until SIGTERM."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    with Ring.create(directory, capacity_bytes) as ring:
        child.started()
        while not told:
            write_load(ring, 1000, 0, 200)
        return {"written": ring.index}


@program
@click.option("--records", type=click.IntRange(1), default=10_000_000, help="Per load check.")
@click.option("--kills", type=int, default=200, help="Of writers, and of readers.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One object per check.")
def main(records: int, kills: int, seed: int, as_json: bool) -> int:
    """Run all checks; return how many faults there were."""
    faults = 0
    root = Path(tempfile.mkdtemp(prefix="udpfast-ringcheck-", dir="/dev/shm"))
    try:
        checks: tuple[Callable[[], Report], ...] = (
            lambda: check_load(root / "large", records, 1 << 28),
            lambda: check_load(root / "middle", records, 1 << 22),
            lambda: check_load(root / "tiny", records, 1 << 14),
            lambda: check_load(root / "64", records, 1 << 24, 0, 0),
            lambda: check_load(root / "256", records, 1 << 24, 192, 192),
            lambda: check_writer_kills(root / "writers", kills, seed),
            lambda: check_reader_kills(root / "readers", kills, seed),
        )
        for check in checks:
            report = check()
            click.echo(json.dumps(asdict(report)) if as_json else report)
            faults += len(report.faults)
            for path in root.iterdir():
                shutil.rmtree(path)
    finally:
        shutil.rmtree(root)
    return faults
