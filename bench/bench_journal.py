"""What does keeping a record cost, and what does the live ring feel of it?

    records --> segment_append --> mapped segment     beside --> memcpy + store(release)
    datagrams --> engine --> ring [--> append in the same thread | --> recorder's thread]
                             [--> capture ring]

The journal's pages are touched before, as its keeper does; `synced` has a thread that syncs every
100 ms meanwhile. In the path: the same loop appends each record that it published, which udpfast
does not do (a recorder has a process of its own), but a bus will. The live ring leaves out the
moments in which the writer's core did something else (its looks at the clock further apart than
20 us): what the kernel does for a disk belongs on another core, and here there are two.

Usage: udpfast bench run journal [--quick]
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import RECORD
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.readers import list_readers
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.histogram import LatencyHistogram

from .lab_parts import datagram
from .loops.engine_cost import engine_cost_ns
from .loops.hostprobe import pinned
from .loops.journal_cost import append_cost_ns, copy_cost_ns, publish_lateness_ns
from .result import Row
from .trials import Benchmark, Outcome, Settings, Trials, interleave
from .wire_trial import AWAY_NS

__all__ = ["BENCHMARK"]

NAME = "journal"
FLOOR = "memcpy + release"
LESS = "no checksum, no index, no position, one segment"
SIZES = (64, 128, 256)
SYNC_NEVER = 0
SYNC_MS = 100
LIVE_RATE = 100_000
LIVE_SIZE = 192

NOBODY = "nobody reads"
READ = "a spinning reader"

#: What reads the live ring: a reader that counts, or a recorder.
PARTNER = """
import sys
from pathlib import Path
import udpfast
from udpfast.agents.feed.recorder import Recorder
from udpfast.config import RecordConfig
from udpfast.core.agent import AgentRunner
from udpfast.log.journal_state import journal_state

instance, directory, what, core = sys.argv[1:]
if what == "a spinning reader":
    import os
    os.sched_setaffinity(0, {int(core)})
    count = 0
    with udpfast.Reader(f"ring:{instance}", start="begin", idle="spin") as reader:
        while True:
            try:
                count += len(reader.poll(timeout=1.0))
            except udpfast.RingClosedError:
                break
else:
    config = RecordConfig(directory=directory, sync=what)
    runner = AgentRunner(Recorder(config, Path(instance), "live"), core=int(core))
    runner.start()
    runner.join()
    count = journal_state(directory).index
print(count)
"""


def run(settings: Settings) -> Iterator[Row]:
    """Measure appends for each size, then the loop."""
    part = 10 if settings.quick else 1
    for size in SIZES:
        yield from appends(size, 1_000_000 // part, settings)
    yield from loop(4_000 // part, settings)
    yield from live(1.0 / part, settings)


def appends(size: int, count: int, settings: Settings) -> Iterator[Row]:
    """Measure appending records of one size, header included, with and without syncs."""
    with tempfile.TemporaryDirectory() as work:
        variants: dict[str, Callable[[], float | Outcome]] = {
            FLOOR: partial(copy, Path(work), size, count),
            "udpfast": partial(append, Path(work), size, count, SYNC_NEVER),
            "udpfast, synced": partial(append, Path(work), size, count, SYNC_MS),
        }
        trials = interleave(
            variants, settings, label=f"{size} B", two_cores=False, rounds=min(settings.rounds, 7)
        )
        yield from trials.rows(
            NAME,
            "ns/record",
            {"size": size},
            base=FLOOR,
            goals={"udpfast": "P19: <= 2.0"},
            less={FLOOR: LESS},
        )


def copy(work: Path, size: int, count: int) -> Outcome:
    """Return the floor's cost of a record, after counting the words that say it is there."""
    path = work / "floor"
    cost = copy_cost_ns(path, size, count)
    words = np.fromfile(path, np.uint64)
    path.unlink()
    found = int(np.count_nonzero(words == size))
    if found != count:
        raise ValueError(f"expected {count} records, found {found}")
    return Outcome(cost, verified=f"{count:,} copied = {found:,} found")


def append(work: Path, size: int, count: int, sync_ms: int) -> Outcome:
    """Return the journal's cost of a record, after reading all of them back."""
    directory = work / "journal"
    room = (size + 8) * count + (1 << 18) + 4095 & ~4095
    with Journal.open(directory, segment_bytes=room, durable=sync_ms != SYNC_NEVER) as journal:
        journal.prepare()
        journal.populate(room)
        journal.roll(0)
        stop = threading.Event()
        syncing = threading.Thread(target=keep, args=(journal, sync_ms, stop))
        syncing.start()
        cost = append_cost_ns(journal, size, count)
        stop.set()
        syncing.join()
    with JournalCursor.attach(directory, follow=False, limit=65_536) as cursor:
        found = 0
        while not cursor.ended:
            found += cursor.poll()
    shutil.rmtree(directory)
    if found != count:
        raise ValueError(f"expected {count} valid records, found {found}")
    return Outcome(cost, verified=f"{count:,} appended = {found:,} read, checksums right")


def keep(journal: Journal, sync_ms: int, stop: threading.Event) -> None:
    """Sync every so often."""
    while sync_ms != SYNC_NEVER and not stop.wait(sync_ms / 1e3):
        journal.sync(1)


def loop(batches: int, settings: Settings) -> Iterator[Row]:
    """Measure the engine's cost of a datagram: alone, with a journal in its loop, with capture."""
    datagrams = [datagram(bytes(64), seqno=number + 1, control=1) for number in range(64)]
    raw = {"record": {"what": "raw"}}
    with tempfile.TemporaryDirectory() as work:
        variants: dict[str, Callable[[], float | Outcome]] = {
            "engine": partial(engine, datagrams, batches),
            "engine, journal in the path": partial(in_path, Path(work), datagrams, batches),
            "engine, raw capture": partial(engine, datagrams, batches, raw),
        }
        trials = interleave(
            variants, settings, label="loop", two_cores=False, rounds=min(settings.rounds, 7)
        )
        yield from trials.rows(NAME, "ns/datagram", {"payload": 64}, base="engine")


def engine(datagrams: list[bytes], batches: int, settings: dict[str, Any] | None = None) -> Outcome:
    """Return the engine's cost of a datagram."""
    cost = engine_cost_ns(datagrams, batches=batches, settings=settings or {})
    return Outcome(cost, verified=f"{batches * len(datagrams):,} datagrams = records")


def in_path(work: Path, datagrams: list[bytes], batches: int) -> Outcome:
    """Return the engine's cost of a datagram with a journal in its loop."""
    directory = work / "journal"
    records = batches * len(datagrams)
    record = RECORD.itemsize + len(datagrams[0]) + 8  # a frame and its payload behind the header
    room = records * record + (1 << 20)
    with Journal.open(directory, segment_bytes=room, durable=False) as journal:
        journal.prepare()
        journal.populate(room)
        journal.roll(0)
        cost = engine_cost_ns(datagrams, batches=batches, journal=journal)
        found = journal.index
    shutil.rmtree(directory)
    return Outcome(cost, verified=f"{records:,} datagrams = {found:,} recorded")


def live(seconds: float, settings: Settings) -> Iterator[Row]:
    """Measure how late records are in a ring that nobody reads, that is read, and recorded."""
    variants: dict[str, Callable[[], float | Outcome]] = {
        NOBODY: partial(lateness, seconds, settings.cores, None),
        READ: partial(lateness, seconds, settings.cores, READ),
        "recorded, sync none": partial(lateness, seconds, settings.cores, "none"),
        "recorded, sync interval": partial(lateness, seconds, settings.cores, "interval"),
        "recorded, sync batch": partial(lateness, seconds, settings.cores, "batch"),
    }
    trials = interleave(variants, settings, label="live ring", rounds=min(settings.rounds, 9))
    for percentile in (50.0, 90.0, 99.0):
        kept = [
            dataclasses.replace(
                trial,
                outcome=Outcome(
                    float(trial.outcome.histogram.percentile(percentile)),
                    verified=trial.outcome.verified,
                ),
            )
            for trial in trials.kept
            if trial.outcome.histogram is not None
        ]
        yield from Trials(tuple(variants), kept, trials.dropped).rows(
            NAME,
            "ns",
            {"rate": LIVE_RATE, "size": LIVE_SIZE, "percentile": f"p{percentile:g}"},
            base=READ,
        )


def lateness(seconds: float, cores: tuple[int, int], reader: str | None) -> Outcome:
    """Return how late records were; the ring's writer has one core, what reads it the other."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shm, tempfile.TemporaryDirectory() as disk:
        instance, directory = Path(shm), Path(disk) / "journal"
        count = int(seconds * LIVE_RATE)
        with Ring.create(instance / "ring", 1 << 26, PAYLOAD_HASH) as ring:
            process = None
            if reader is not None:
                process = start(reader, instance, directory, cores[1])
            with pinned(cores[0]), before_others():
                late = publish_lateness_ns(
                    ring, LIVE_SIZE, count, 1_000_000_000 // LIVE_RATE, AWAY_NS
                )
            verified = f"{ring.index:,} published"
        if process is not None:
            read = int(process.communicate()[0])
            if read != count:
                raise ValueError(f"expected {count} records read, found {read}")
            verified = f"{count:,} published = {read:,} read"
    present = late[late >= 0]
    verified += f"; {count - len(present):,} left out: the core was away"
    histogram = LatencyHistogram()
    for each in present.tolist():
        histogram.record(each)
    return Outcome(float(np.percentile(present, 99)), histogram=histogram, verified=verified)


@contextlib.contextmanager
def before_others() -> Iterator[None]:
    """Have this thread go before others, as a feed's does, where that is allowed.

    Two cores that spin leave none for anything else: what the kernel does for the disk would
    otherwise take turns with the writer.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def start(reader: str, instance: Path, directory: Path, core: int) -> subprocess.Popen[str]:
    """Start what reads the ring, in a process of its own that prints how many records it read."""
    arguments = [str(instance), str(directory), reader, str(core)]
    process = subprocess.Popen(
        [sys.executable, "-c", PARTNER, *arguments], stdout=subprocess.PIPE, text=True
    )
    deadline_ns = monotonic_ns() + 20_000_000_000
    while not list_readers(instance):
        if process.poll() is not None or monotonic_ns() > deadline_ns:
            process.kill()
            raise RuntimeError("expected a reader of the ring, found none")
        time.sleep(0.01)
    return process


BENCHMARK = Benchmark(
    name=NAME,
    question="What does keeping a record cost, and what does the live ring feel of it?",
    topology="""
records --> segment_append --> mapped segment     beside --> memcpy + store(release)
datagrams --> engine --> ring [--> append in the same thread] [--> capture ring]
core A: writer --> ring in shared memory --> core B: recorder --> journal on the disk
""",
    run=run,
    seconds=40.0,
)
