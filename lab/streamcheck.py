"""Kill a streaming query again and again while its journal grows: each record once, none twice.

    udpfast lab streamcheck --kills 3 --seed 7

A recorder writes a journal; a process of its own streams it by the format "udpfast" into Parquet,
a few thousand records a batch, and is killed with -9, JVM and workers too, at a random moment
after its first batch. Then the next one goes on from the checkpoint. At the end the sink must hold
every record of the journal exactly once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import click
import numpy as np

from udpfast.agents.feed.recorder import Recorder
from udpfast.config import RecordConfig
from udpfast.core.agent import AgentRunner
from udpfast.core.layout import Kind
from udpfast.log.journal_state import journal_state
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH

from .program import program

__all__ = ["main"]

START_S = 600  # a query on a host that is busy with something else
LAST_BATCH = 4_000_000  # records: what the killed queries did not get to takes a few batches
PAYLOAD = bytes(40)


@program
@click.option("--kills", type=click.IntRange(1), default=20, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--rate", type=click.IntRange(1), default=20_000, help="Records per second.")
@click.option("--batch", type=click.IntRange(1), default=20_000, help="Records of one batch.")
@click.option("--stream", "streamed", nargs=2, type=click.Path(path_type=Path), hidden=True)
@click.option("--now", is_flag=True, hidden=True)
def main(
    kills: int, seed: int, rate: int, batch: int, streamed: tuple[Path, Path] | None, now: bool
) -> int:
    """Run the check, or be the query that is killed; 0 if the sink holds every record once."""
    if streamed:
        stream(*streamed, batch, now)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        return check(Path(directory), kills, seed, rate, batch)


def stream(journal: Path, sink: Path, batch: int, now: bool) -> None:
    """Be the query: until killed, or (`now`) until all that is there is in the sink."""
    from udpfast.spark import open_session

    spark = open_session("local[2]", name="streamcheck", memory="1g")
    source = spark.readStream.format("udpfast").option("max_records", batch)
    writer = (
        source.load(str(journal))
        .select("position", "index", "number", "kind", "size")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(sink / "checkpoint"))
    )
    trigger = (
        writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")
    )
    trigger.start(str(sink / "rows")).awaitTermination()


class _Traffic:
    """A ring that fills at a rate, and its recorder."""

    def __init__(self, directory: Path, rate: int) -> None:
        instance = directory / "feed"
        instance.mkdir(mode=0o700)
        self._ring = Ring.create(instance, 1 << 24, PAYLOAD_HASH)
        self._rate = rate
        self.journal = directory / "journal"
        config = RecordConfig(directory=str(self.journal), segment_bytes=1 << 22, sync_ms=50)
        self._recorder = AgentRunner(Recorder(config, instance, "feed"))
        self._recorder.start()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        count = 0
        began = time.monotonic()
        while not self._stopping.wait(0.01):
            due = int((time.monotonic() - began) * self._rate)
            for number in range(count, due):
                now_ns = time.time_ns()
                self._ring.append(Kind.MESSAGE, PAYLOAD, 0, now_ns, now_ns, number=number)
            self._ring.flush()
            count = max(count, due)

    def stop(self) -> None:
        """End the traffic; the recorder takes the rest and closes the journal."""
        self._stopping.set()
        self._thread.join()
        self._ring.close()
        while not self._recorder.join(0.1):
            pass


def check(directory: Path, kills: int, seed: int, rate: int, batch: int) -> int:
    """Kill, restart, compare."""
    chance = random.Random(seed)
    traffic = _Traffic(directory, rate)
    sink = directory / "sink"
    for number in range(kills):
        query = _start(traffic.journal, sink, batch)
        before = _commits(sink)
        _wait_for_commit(query, sink, before)
        time.sleep(chance.uniform(0.0, 2.0))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(query.pid, signal.SIGKILL)
        query.wait()
        print(f"kill {number + 1}: after {_commits(sink) - before} batches", flush=True)
    traffic.stop()
    if _start(traffic.journal, sink, LAST_BATCH, now=True).wait() != 0:
        print("the last query failed")
        return 1
    return _compare(traffic.journal, sink)


def _start(journal: Path, sink: Path, batch: int, now: bool = False) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "udpfast", "lab", "streamcheck", "--batch", str(batch)]
    command += ["--stream", str(journal), str(sink)] + ["--now"] * now
    with (sink.parent / "query.log").open("wb") as log:
        return subprocess.Popen(command, start_new_session=True, stderr=log)


def _commits(sink: Path) -> int:
    # The number of the last batch that is done, plus 1.
    directory = sink / "checkpoint" / "commits"
    names = [path.name for path in directory.glob("[0-9]*")]
    return max((int(name) for name in names if name.isdecimal()), default=-1) + 1


def _wait_for_commit(query: subprocess.Popen[bytes], sink: Path, before: int) -> None:
    until = time.monotonic() + START_S
    while _commits(sink) <= before:
        if query.poll() is not None:
            log = (sink.parent / "query.log").read_text(errors="replace")
            raise RuntimeError(f"the query ended with code {query.returncode}:\n{log[-4000:]}")
        if time.monotonic() > until:
            raise RuntimeError(f"expected a batch within {START_S} s, found none")
        time.sleep(0.05)


def _compare(journal: Path, sink: Path) -> int:
    import pyarrow.parquet as pq

    # As Spark reads a sink: the files that its log names.
    log = sorted((sink / "rows" / "_spark_metadata").glob("[0-9]*"), key=_number)
    paths: dict[str, None] = {}
    for entry in log:
        for line in entry.read_text().splitlines()[1:]:
            paths[line.partition('"path":"file://')[2].partition('"')[0]] = None
    indices = np.concatenate([pq.read_table(path)["index"].to_numpy() for path in paths])
    records = journal_state(journal).index
    twice = len(indices) - len(np.unique(indices))
    print(
        f"{records:,} records, {len(indices):,} rows in the sink, {twice:,} twice, "
        f"{records - len(np.unique(indices)):,} missing"
    )
    return 0 if twice == 0 and len(indices) == records else 1


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])
