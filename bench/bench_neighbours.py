"""Do seven slow, stopped or dying readers cost a fast one anything?

    core A: writer --> ring --> core B: 1 fast reader, spins, in C
                          \\---> core C: 7 neighbours (core B where there is no third)

The neighbours of one trial read 1 % of the records and are lapped again and again; or were stopped
(SIGSTOP) while they read; or read 1 % and are killed (kill -9) one after the other, in the middle
of what they do, and replaced. Each that lives to the end proves that what it read and what it was
told to have missed add up to what was written; the fast one, that it got every record.

Where there are only two cores, the neighbours take time from the fast reader's own core, which is
the scheduler's doing and not the ring's. Slow ones look ten times a second: 0.5 % of the time.
Making and killing processes takes more, so that has a twin, "elsewhere": the same processes do
the same with a ring of their own that nobody writes. Against the twin the ring's part is seen.
Latency leaves out the moments in which the writer's or the fast reader's core did something else
(looks, or a record and its due time, further apart than 5 us: no look or append takes so long, but
a tick of the clock in a virtual machine does, and what ticks hit is about one record in a hundred,
so that without this the p99 would be theirs); each row says how many those were.

Usage: udpfast bench run neighbours [--quick]
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.errors import RingClosedError
from udpfast.log.cursor import RingCursor
from udpfast.log.readers import ReaderRegistration
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.histogram import LatencyHistogram

from .loops.hostprobe import pinned
from .loops.ring_hop import read_attended, read_fast, write_bursts
from .partner import Partner
from .result import Row
from .ring_trial import (
    close_ring,
    open_progress,
    open_ring,
    ring_throughput,
    write_all,
    write_due,
)
from .trials import Benchmark, Outcome, Settings, Trials, interleave
from .wire_trial import WARM_SHARE, memory_directory

__all__ = ["BENCHMARK"]

NAME = "neighbours"
NEIGHBOURS = 7
SIZE = 64
CAPACITY_BYTES = 1 << 21  # 16,384 records: a reader at 1 % is lapped, the fast one has 160 ms
RATE = 100_000
SECONDS = 0.5
AWAY_NS = 5_000
#: The p99 of a trial is seldom that of the next one.
ROUNDS_P99 = 3
PACE_RECORDS = 500_000
PAUSE_S = 0.1
SHARE = 0.01
KILL_EVERY_S = 0.05
ALONE = "alone"
SLOW = "7 at 1 %"
STOPPED = "7 stopped"
KILLED = "7 killed"
ELSEWHERE = "7 killed, elsewhere"
#: Base of the ratios -> what is set against it, and which test of the fast reader that is.
TESTS = {ALONE: {STOPPED: "T-Q1", SLOW: "T-Q1"}, ELSEWHERE: {KILLED: "T-Q2"}}


def run(settings: Settings) -> Iterator[Row]:
    """Measure the fast reader alone and beside each kind of neighbour, in turns."""
    part = 5 if settings.quick else 1
    third = sorted(os.sched_getaffinity(0) - set(settings.cores))
    if not third:
        settings.note("neighbours share the fast reader's core: there is no third one")
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(Partner(settings.cores[0]))
        core = third[0] if third else settings.cores[1]
        neighbours = [stack.enter_context(Partner(core)) for _ in range(NEIGHBOURS)]
        for neighbour in neighbours:
            neighbour.start(tell_pid)
        pids = [neighbour.result() for neighbour in neighbours]
        yield from _compare(
            settings, "p99", partial(_latency, SECONDS / 2 / part), writer, neighbours, pids
        )
        yield from _compare(
            settings,
            "throughput",
            partial(_throughput, SECONDS / part),
            writer,
            neighbours,
            pids,
        )


def _compare(
    settings: Settings,
    measure: str,
    trial: Callable[..., Outcome],
    writer: Partner,
    neighbours: list[Partner],
    pids: list[int],
) -> Iterator[Row]:
    ways: dict[str, Callable[..., Any]] = {
        ALONE: _nobody,
        STOPPED: partial(_stopped, neighbours, pids),
        SLOW: partial(_slow, neighbours),
        KILLED: partial(_killed, neighbours, False),
        ELSEWHERE: partial(_killed, neighbours, True),
    }
    variants: dict[str, Callable[[], float | Outcome]] = {
        name: partial(trial, settings.cores[1], writer, company) for name, company in ways.items()
    }
    slow = measure == "p99"
    rounds = settings.rounds * ROUNDS_P99 if slow and not settings.quick else None
    trials = interleave(variants, settings, label=measure, rounds=rounds)
    parameters: dict[str, int | float | str] = {"measure": measure, "size": SIZE}
    if slow:
        parameters["rate"] = RATE
    limit = "<= 1.1" if slow else ">= 0.9"
    for base, tests in TESTS.items():
        chosen = Trials((base, *tests), trials.kept, trials.dropped)
        yield from chosen.rows(
            NAME,
            "ns" if slow else "records/s",
            parameters,
            base=base,
            goals={name: f"{test}: {limit}" for name, test in tests.items()},
            lower_is_better=slow,
        )


def _latency(seconds: float, core: int, writer: Partner, company: Callable[..., Any]) -> Outcome:
    records = int(seconds * RATE)
    skip = int(records * WARM_SHARE)
    offsets_ns = (np.arange(records) * (1e9 / RATE)).astype(np.int64)
    histogram = LatencyHistogram()
    with _ring(writer) as directory, _cursor(directory) as cursor:
        with company(directory, records) as found, pinned(core):
            writer.start(write_due, str(directory), offsets_ns, SIZE)
            seen, wrong, away = read_attended(
                cursor, records, histogram, away_ns=AWAY_NS, skip=skip
            )
            writer.result()
            writer.call(close_ring)
        verified = _verify(records, seen, wrong, found)
        verified += f"; {away:,} left out: a core was away"
    return Outcome(float(histogram.percentile(99.0)), histogram, verified)


def _throughput(seconds: float, core: int, writer: Partner, company: Callable[..., Any]) -> Outcome:
    # Twenty times as many pass between the threads of one core as between cores far apart.
    pace = ring_throughput(writer, core, "Cython cursor", PACE_RECORDS, SIZE)
    records = int(seconds * pace.value)
    with _ring(writer) as directory, _cursor(directory) as cursor:
        progress = open_progress(directory, 1)
        with company(directory, records) as found, pinned(core):
            writer.start(write_all, str(directory), records, SIZE)
            seen, wrong, elapsed_ns = read_fast(cursor, progress, records)
            writer.result()
            writer.call(close_ring)
        verified = _verify(records, seen, wrong, found)
    return Outcome((records - 1) * 1e9 / elapsed_ns, verified=verified)


def _verify(records: int, seen: int, wrong: int, found: list[str]) -> str:
    if seen != records or wrong:
        raise ValueError(f"expected {records:,} records in order, found {seen:,}, {wrong} wrong")
    return f"{records:,} written = {seen:,} read in order" + "".join(f"; {text}" for text in found)


@contextlib.contextmanager
def _ring(writer: Partner) -> Iterator[Path]:
    with memory_directory() as directory:
        writer.call(open_ring, str(directory), CAPACITY_BYTES)
        yield directory


def _cursor(directory: Path) -> RingCursor:
    return RingCursor.attach(directory, "begin", limit=256, payload_hash=PAYLOAD_HASH)


# --- company for the fast reader: each yields what it has to say when the ring is closed --------


@contextlib.contextmanager
def _nobody(directory: Path, records: int) -> Iterator[list[str]]:
    yield []


@contextlib.contextmanager
def _slow(neighbours: list[Partner], directory: Path, records: int) -> Iterator[list[str]]:
    """Neighbours at 1 %; they and their laps must add up to all that was written."""
    found: list[str] = []
    for neighbour in neighbours:
        neighbour.start(read_slowly, str(directory), str(directory / "stop"))
    _await_readers(directory, len(neighbours))
    yield found
    (directory / "stop").touch()
    counts = [neighbour.result() for neighbour in neighbours]
    for received, lapped in counts:
        if received + lapped != records:
            raise ValueError(f"expected {records:,}, found {received:,} read + {lapped:,} missed")
    received, lapped = map(sum, zip(*counts, strict=True))
    found.append(f"7 x {records:,} = {received:,} read + {lapped:,} told to be missed")


@contextlib.contextmanager
def _stopped(
    neighbours: list[Partner], pids: list[int], directory: Path, records: int
) -> Iterator[list[str]]:
    """Neighbours that were stopped while they read."""
    found: list[str] = []
    for neighbour in neighbours:
        neighbour.start(read_slowly, str(directory), str(directory / "stop"))
    _await_readers(directory, len(neighbours))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield found
    finally:
        (directory / "stop").touch()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    for received, lapped in [neighbour.result() for neighbour in neighbours]:
        if received + lapped != records:
            raise ValueError(f"expected {records:,}, found {received:,} read + {lapped:,} missed")
    found.append("all 7 woke up and were told exactly what they missed")


@contextlib.contextmanager
def _killed(
    neighbours: list[Partner], elsewhere: bool, directory: Path, records: int
) -> Iterator[list[str]]:
    """Neighbours that are killed, one each 50 ms, and replaced."""
    found: list[str] = []
    with _place(elsewhere, directory) as place:
        neighbours[0].start(kill_readers, str(place), str(directory / "stop"))
        _await_readers(place, NEIGHBOURS)
        yield found
        (directory / "stop").touch()
        kills = neighbours[0].result()
    found.append(f"{kills} killed")


@contextlib.contextmanager
def _place(elsewhere: bool, directory: Path) -> Iterator[Path]:
    # The ring of the trial; or one of the same size, full, that nobody writes any more.
    if not elsewhere:
        yield directory
        return
    with memory_directory() as other, Ring.create(other, CAPACITY_BYTES, PAYLOAD_HASH) as ring:
        write_bursts(ring, 1, CAPACITY_BYTES // 2 // (64 + SIZE), 0, SIZE)
        ring.flush()
        yield other


def _await_readers(directory: Path, count: int) -> None:
    while len(list(directory.glob("readers/*"))) < count:
        time.sleep(0.001)


# --- what partners do ---------------------------------------------------------------------------


def tell_pid(state: dict[str, Any]) -> int:
    """Return who this is, with everything imported."""
    return os.getpid()


def read_slowly(state: dict[str, Any], directory: str, stop: str) -> tuple[int, int]:
    """Read 1 % of what comes until told to stop, then the rest; return read and missed."""
    received = lapped = 0
    for count, missed in _look_again_and_again(Path(directory), Path(stop), PAUSE_S):
        received += count
        lapped += missed
    return received, lapped


def kill_readers(state: dict[str, Any], directory: str, stop: str) -> int:
    """Keep 7 readers; kill one after the other with SIGKILL, wherever it is; return how many."""
    rng = random.Random(1)
    victims = [_fork_reader(directory, stop) for _ in range(NEIGHBOURS)]
    kills = 0
    while not Path(stop).exists():
        time.sleep(rng.uniform(0.5, 1.5) * KILL_EVERY_S)
        _kill(victims.pop(0))
        kills += 1
        victims.append(_fork_reader(directory, stop))
    for pid in victims:
        _kill(pid)
    return kills + len(victims)


def _fork_reader(directory: str, stop: str) -> int:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            for _ in _look_again_and_again(Path(directory), Path(stop), PAUSE_S / 4):
                pass
        os._exit(0)
    return pid


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _look_again_and_again(directory: Path, stop: Path, pause_s: float) -> Iterator[tuple[int, int]]:
    # Yield records read and missed, 1 % of what comes look by look, all that is left at the end.
    limit = int(RATE * pause_s * SHARE)
    with (
        RingCursor.attach(directory, "begin", limit=4096, payload_hash=PAYLOAD_HASH) as cursor,
        ReaderRegistration.create(directory, "neighbour", 0, realtime_ns()) as registration,
        contextlib.suppress(RingClosedError),
    ):
        deadline_ns = monotonic_ns() + 60_000_000_000
        while monotonic_ns() < deadline_ns:
            last = stop.exists()
            count = cursor.poll(None if last else limit)
            yield count, cursor.lapped
            registration.report(cursor, realtime_ns())
            if last and not count:
                return
            if not last:
                time.sleep(pause_s)


BENCHMARK = Benchmark(
    name=NAME,
    question="Do seven slow, stopped or dying readers cost a fast one anything?",
    topology="""
core A: writer --> ring --> core B: 1 fast reader, spins, in C
                      \\---> core C (or B): 7 neighbours at 1 %, stopped, or killed and replaced
""",
    run=run,
    seconds=55.0,
)
