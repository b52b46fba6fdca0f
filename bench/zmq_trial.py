"""The ZeroMQ fan-out in the place of a peer: from a ring's writer to a Reader in another process.

partner A: ring writer, fan-out --> XPUB, ipc or tcp --> SUB, Reader("zmq:...") :partner B

Writer and fan-out take turns in one thread, as everything on that core must: what is written is
sent before more is written. A feed's fan-out has a thread of its own, and polls.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from udpfast.agents.zmq.zmq_fanout import ZmqFanout
from udpfast.client.reader import Reader
from udpfast.config import ZmqConfig
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import Kind
from udpfast.shm.histogram import LatencyHistogram

from .loops.ring_hop import note_batch, write_bursts
from .partner import Partner
from .peer_trial import IDLE_NS, WARM_SHARE, PeerSilentError, lead
from .ring_trial import open_ring
from .trials import Outcome

__all__ = ["FanoutEnds"]

CAPACITY_BYTES = 1 << 26
#: Records between two turns of the fan-out at full speed.
RUN_RECORDS = 256
#: Nothing may be dropped here: all of a trial fits.
QUEUE_BYTES = 1 << 30
DUE = struct.Struct("<q")


class FanoutEnds:
    """Both ends, each in a process of its own.

    Parameters
    ----------
    cores : (int, int)
        Writer's and reader's.
    size : int
        Payload bytes of a record.
    scheme : {"ipc", "tcp"}
    way : {"poll", "iterate"}
        How the reader reads.
    """

    def __init__(self, cores: tuple[int, int], size: int, scheme: str, way: str) -> None:
        """Open both ends; the reader is answered when this returns."""
        shm = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.size = size
        self.way = way
        self.sent = 0
        self.publisher = Partner(cores[0])
        self.subscriber = Partner(cores[1])
        try:
            address = self.publisher.call(open_fanout, str(self.directory), scheme)
            self.subscriber.start(open_reader, address)
            self.publisher.call(turn_until_subscribed)
            self.subscriber.result()
        except BaseException:
            self.close()
            raise

    def throughput(self, messages: int) -> Outcome:
        """Write at full speed; records per second until the last one was read."""
        start_ns = lead(0)
        last_ns, _ = self._exchange(publish_fast, messages, start_ns, timed=False)
        return Outcome(messages * 1e9 / (last_ns - start_ns), verified=verified(messages))

    def latency(self, messages: int, rate: float) -> Outcome:
        """Write on a schedule; from the time due until the reader has it."""
        _, histogram = self._exchange(publish_due, messages, lead(messages), rate, timed=True)
        return Outcome(float(histogram.percentile(50.0)), histogram, verified(messages))

    def _exchange(
        self, publish: Any, messages: int, start_ns: int, *rate: float, timed: bool
    ) -> tuple[int, LatencyHistogram]:
        first, self.sent = self.sent, self.sent + messages
        skip = first + int(messages * WARM_SHARE)
        self.subscriber.start(READ[self.way], messages, first, skip if timed else None)
        self.publisher.call(publish, messages, first, start_ns, self.size, *rate)
        seen, wrong, missed, last_ns, counts = self.subscriber.result()
        if (seen, wrong, missed) != (messages, 0, 0):
            raise PeerSilentError(
                f"expected {messages:,} records in order, found {seen:,}, {wrong} wrong, "
                f"{missed} missed"
            )
        histogram = LatencyHistogram()
        for latency in counts:
            histogram.record(latency)
        return last_ns, histogram

    def close(self) -> None:
        """End both processes."""
        self.publisher.close()
        self.subscriber.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def verified(messages: int) -> str:
    """Say what was checked."""
    return f"{messages:,} written = {messages:,} read, each looked at, in order"


# --- what partners do -------------------------------------------------------------------------


def open_fanout(state: dict[str, Any], directory: str, scheme: str) -> str:
    """Open ring and fan-out; return where subscribers connect."""
    open_ring(state, directory, CAPACITY_BYTES)
    address = "ipc" if scheme == "ipc" else "tcp://127.0.0.1:*"
    fanout = ZmqFanout(ZmqConfig(addresses=(address,), queue_bytes=QUEUE_BYTES), Path(directory))
    fanout.on_start()
    state["fanout"] = fanout
    return fanout.addresses[0]


def turn_until_subscribed(state: dict[str, Any]) -> None:
    """Turn the fan-out until somebody subscribed."""
    deadline_ns = monotonic_ns() + 60_000_000_000
    while not state["fanout"].statistics()["subscribers"]:
        state["fanout"].work(monotonic_ns())
        if monotonic_ns() > deadline_ns:
            raise TimeoutError("expected a subscriber within 60 s, found none")


def publish_fast(
    state: dict[str, Any], messages: int, first: int, start_ns: int, size: int
) -> None:
    """Write at full speed in runs, each sent before the next one."""
    ring, work = state["ring"], state["fanout"].work
    while monotonic_ns() < start_ns:
        pass
    for at in range(0, messages, RUN_RECORDS):
        write_bursts(ring, 1, min(RUN_RECORDS, messages - at), 0, size, first + at)
        while work(monotonic_ns()):
            pass


def publish_due(
    state: dict[str, Any], messages: int, first: int, start_ns: int, size: int, rate: float
) -> None:
    """Write each record when it is due, and send it."""
    dues = [start_ns + int(number * 1e9 / rate) for number in range(messages)]
    ready = [
        (due, DUE.pack(due).ljust(size - 8, b"\7") + DUE.pack(first + i), first + i)
        for i, due in enumerate(dues)
    ]
    append, work, clock = state["ring"].append, state["fanout"].work, monotonic_ns
    for due, payload, number in ready:
        while clock() < due:
            pass
        append(Kind.MESSAGE, payload, number=number)
        work(clock())


def open_reader(state: dict[str, Any], address: str) -> None:
    """Subscribe, and wait for the answer."""
    state["reader"] = Reader(f"zmq:{address}", timeout=60.0)


Found = tuple[int, int, int, int, list[int]]


def read_polling(state: dict[str, Any], messages: int, first: int, skip: int | None) -> Found:
    """Read numpy batches until all came, or none for a while; see `Found`."""
    reader = state["reader"]
    seen = wrong = missed = 0
    latencies: list[int] = []
    last_ns = monotonic_ns()
    timeout = (IDLE_NS + 1_000_000_000) / 1e9
    while seen < messages:
        batch = reader.poll(timeout=timeout)
        now_ns = monotonic_ns()
        if not len(batch):
            break
        last_ns = now_ns
        wrong += note_batch(batch, now_ns, None, first + seen)
        missed += batch.lapped
        if skip is not None:
            latencies += [
                now_ns - DUE.unpack_from(batch.payload(i))[0]
                for i in range(len(batch))
                if first + seen + i >= skip
            ]
        seen += len(batch)
    return seen, wrong, missed, last_ns, latencies


def read_iterating(state: dict[str, Any], messages: int, first: int, skip: int | None) -> Found:
    """Read record by record, an object each; see `Found`."""
    reader = state["reader"]
    seen = wrong = missed = 0
    latencies: list[int] = []
    last_ns = monotonic_ns()
    for record in reader:
        if skip is not None and first + seen >= skip:
            latencies.append(monotonic_ns() - DUE.unpack_from(record.payload)[0])
        missed += record.lapped
        wrong += record.number != first + seen
        seen += 1
        if seen == messages:
            last_ns = monotonic_ns()
            break
    return seen, wrong, missed, last_ns, latencies


READ = {"poll": read_polling, "iterate": read_iterating}
