"""Stop a ZeroMQ subscriber for a while: the fan-out's memory stays bounded, what was missed exact.

    udpfast lab zmq-stall --seconds 10

A writer goes on at its rate while the subscriber's process is stopped (SIGSTOP). Afterwards it must
have every record that was written, or have been told of it, and the fan-out must not have held
more for it than its queue may.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import click

from udpfast.agents.zmq.zmq_fanout import ZmqFanout
from udpfast.cli.options import FiniteRange
from udpfast.client.reader import Reader
from udpfast.config import ZmqConfig
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import realtime_ns
from udpfast.core.layout import Kind
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH

from .program import memory, program

__all__ = ["StallOutcome", "stall"]

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: What the process may grow by besides the queue: buffers of sockets and allocator.
SLACK_BYTES = 48 << 20
TICK_S = 0.002
CAPACITY_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class StallOutcome:
    """What came of it.

    Attributes
    ----------
    written, seen, missed, unseen : int
        Records; `unseen`: missed by the fan-out itself.
    ordered : bool
        Whether no record came twice or late.
    grown_bytes, allowed_bytes : int
        Of the fan-out's process, at most.
    """

    written: int
    seen: int
    missed: int
    unseen: int
    ordered: bool
    grown_bytes: int
    allowed_bytes: int

    @property
    def sound(self) -> bool:
        """Whether nothing is unaccounted, and memory stayed bounded."""
        exact = self.seen + self.missed == self.written and self.ordered
        return exact and self.grown_bytes <= self.allowed_bytes


def stall(
    seconds: float, rate: int, size: int = 64, topic: str = "", **settings: int
) -> StallOutcome:
    """Run it once.

    Parameters
    ----------
    seconds : float
        For which the subscriber is stopped.
    rate : int
        Records per second.
    size : int
        Payload bytes.
    topic : str
        What the subscriber asks for; it must match records of kind MESSAGE.
    **settings
        Of `ZmqConfig`.
    """
    config = ZmqConfig(addresses=("ipc",), **settings)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        directory = Path(name)
        ring = Ring.create(directory, CAPACITY_BYTES, PAYLOAD_HASH)
        fanout = ZmqFanout(config, directory)
        runner = AgentRunner(fanout)
        runner.start()
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=_subscribe, args=(directory, topic, theirs), daemon=True)
        process.start()
        try:
            ours.recv()
            write = _Writer(ring, rate, size)
            write.during(min(0.2, seconds))
            before = _resident_bytes()
            assert process.pid is not None
            os.kill(process.pid, signal.SIGSTOP)
            try:
                largest = write.during(seconds)
            finally:
                os.kill(process.pid, signal.SIGCONT)
            write.during(min(0.5, seconds))
            ring.close()
            seen, missed, ordered = ours.recv()
            runner.join()
        finally:
            process.kill()
            process.join()
            runner.stop()
        return StallOutcome(
            written=write.count,
            seen=seen,
            missed=missed,
            unseen=fanout.statistics()["unseen"],
            ordered=ordered,
            grown_bytes=largest - before,
            allowed_bytes=config.queue_bytes + SLACK_BYTES,
        )


class _Writer:
    def __init__(self, ring: Ring, rate: int, size: int) -> None:
        self.ring, self.rate, self.size, self.count = ring, rate, size, 0

    def during(self, seconds: float) -> int:
        """Write what is due in so long; return the largest that this process was."""
        largest = 0
        first, began = self.count, time.monotonic()
        last = first + int(seconds * self.rate)
        while self.count < last:
            passed = time.monotonic() - began
            due = min(last, first + int(passed * self.rate)) - self.count
            for _ in range(due):
                self.ring.append(Kind.MESSAGE, bytes(self.size), published_ns=realtime_ns())
            self.ring.flush()
            self.count += due
            largest = max(largest, _resident_bytes())
            time.sleep(TICK_S)
        return largest


def _subscribe(directory: Path, topic: str, pipe: Connection) -> None:
    with Reader(f"zmq:ipc://{directory}/zmq#{topic}", timeout=60.0) as reader:
        pipe.send("ready")
        seen = missed = 0
        after, ordered = -1, True
        for record in reader:
            missed += record.lapped
            if record.kind not in (Kind.LAPPED, Kind.CONNECTION):  # of this reader's own
                seen += 1
                ordered = ordered and record.index > after
                after = record.index
        pipe.send((seen, missed, ordered))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


@program
@click.option("--seconds", type=FiniteRange(0), default=10.0, show_default=True)
@click.option("--rate", type=click.IntRange(1), default=100_000, help="Records per second.")
@click.option("--size", type=click.IntRange(0, 4096), default=200, help="Payload bytes.")
@click.option("--topic", default="", help="What the subscriber asks for.")
@click.option("--queue-bytes", type=int, default=1 << 26, show_default=True)
def main(seconds: float, rate: int, size: int, topic: str, queue_bytes: int) -> bool:
    """Run it once; return whether a record is unaccounted, or memory grew."""
    outcome = stall(seconds, rate, size, topic, queue_bytes=queue_bytes)
    click.echo(
        f"{seconds:g} s stopped at {rate:,}/s: {outcome.written:,} written = "
        f"{outcome.seen:,} seen + {outcome.missed:,} missed"
        f"{'' if outcome.ordered else ', not in order'} ({outcome.unseen:,} by the fan-out); "
        f"grew by {outcome.grown_bytes >> 20} MiB of {outcome.allowed_bytes >> 20} allowed: "
        f"{'sound' if outcome.sound else 'WRONG'}"
    )
    return not outcome.sound
