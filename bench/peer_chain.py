"""All of udpfast in the place of a peer: from a publisher's socket to numpy batches in Python.

partner A: load generator --UDP, 127.0.0.1--> partner B: feed loop, ring, Reader.poll

Both cores are taken by then, so the feed loop and the strategy take turns in one thread: what
comes is received, ordered and published to the ring as always, and read from there as always.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.agents.feed.load import LoadGenerator
from udpfast.client.reader import Reader
from udpfast.config import parse_feed
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.core.layout import FRAME, Kind
from udpfast.net.sender import DatagramSender

from .loops.drainload import drain_agent
from .partner import Partner
from .peer_trial import IDLE_NS, Arrivals, lead, timed_outcome, verify
from .trials import Outcome

__all__ = ["ChainEnds"]

DUE = struct.Struct("<q")
#: As fast as it goes: all are due at once.
FULL_SPEED = 1e9
WARM_MESSAGES = 1_000
#: Between two looks into the ring.
TURNS = 4


class ChainEnds:
    """Both ends, each in a process of its own.

    Parameters
    ----------
    cores : (int, int)
        The publisher's and the subscriber's.
    size : int
        Bytes of a message, 8..512.
    trains : bool
        Whether bursts leave and arrive in trains (`segment`, `receive.gro`); the other settings
        are the defaults.
    """

    def __init__(self, cores: tuple[int, int], size: int, *, trains: bool) -> None:
        """Open both ends and send some messages, untimed."""
        shm = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.publisher = Partner(cores[0])
        self.subscriber = Partner(cores[1])
        try:
            address = self.subscriber.call(open_feed, self.directory, trains)
            self.publisher.call(open_load, address, size, trains)
            self.throughput(WARM_MESSAGES)
        except BaseException:
            self.close()
            raise

    def throughput(self, messages: int) -> Outcome:
        """Publish at full speed; messages per second until the last one was read."""
        start_ns = lead(0)
        arrivals = self._exchange(messages, FULL_SPEED, start_ns, timed=False)
        verified = verify(messages, arrivals)
        return Outcome(arrivals.came * 1e9 / (arrivals.last_ns - start_ns), verified=verified)

    def latency(self, messages: int, rate: float) -> Outcome:
        """Publish on a schedule; from the time due until the batch is there."""
        arrivals = self._exchange(messages, rate, lead(0), timed=True)
        return timed_outcome(arrivals, verify(messages, arrivals))

    def _exchange(self, messages: int, rate: float, start_ns: int, *, timed: bool) -> Arrivals:
        self.subscriber.start(follow, messages, start_ns, timed)
        self.publisher.call(send_load, messages, rate, start_ns)
        found: Arrivals = self.subscriber.result()
        return found

    def close(self) -> None:
        """End both processes."""
        self.publisher.close()
        self.subscriber.close()
        shutil.rmtree(self.directory, ignore_errors=True)


# --- what partners do -------------------------------------------------------------------------


def open_feed(state: dict[str, Any], directory: Path, trains: bool) -> str:
    """Open feed and reader; return where the feed listens."""
    config = parse_feed(
        {
            "name": "peers",
            "incremental": {"lines": [{"name": "A", "address": "127.0.0.1:0"}]},
            "receive": {"gro": trains},
        }
    )
    engine = Engine(config, directory)
    loop = FeedLoop(engine, config)
    loop.on_start()
    reader = Reader(f"ring:{directory}", start="begin")
    state.update(engine=engine, loop=loop, reader=reader, expected=1)
    host, port = loop.receivers[0].address[:2]
    return f"{host}:{port}"


def open_load(state: dict[str, Any], address: str, size: int, trains: bool) -> None:
    """Open the socket of the load."""
    state.update(sender=DatagramSender(address, segment=trains), size=size, next_seqno=1)


def send_load(state: dict[str, Any], messages: int, rate: float, start_ns: int) -> None:
    """Send from a time on; numbers continue those of the load before."""
    load = LoadGenerator(
        [state["sender"]],
        rate_per_s=rate,
        size_bytes=state["size"],
        count=messages,
        first_seqno=state["next_seqno"],
    )
    while monotonic_ns() < start_ns:
        pass
    while not load.run(IDLE_NS):
        pass
    state["next_seqno"] = load.next_seqno


def follow(state: dict[str, Any], messages: int, start_ns: int, timed: bool) -> Arrivals:
    """Turn the loop and read the ring until all came, or none for a while."""
    loop, reader, expected = state["loop"], state["reader"], state["expected"]
    latencies: list[int] = []
    came = wrong = 0
    last_ns = start_ns
    while came < messages and monotonic_ns() - last_ns < IDLE_NS:
        if not drain_agent(loop, TURNS)[1]:
            continue
        # All that the turns published, so that the loop does not lap its own reader.
        while len(batch := reader.poll(timeout=0)):
            unix_ns, last_ns = realtime_ns(), monotonic_ns()
            whole = np.flatnonzero(batch.headers["kind"] == Kind.MESSAGE)
            seqnos = batch.headers["number"][whole]
            wrong += int(np.count_nonzero(seqnos != expected + np.arange(len(seqnos))))
            expected += len(seqnos)
            came += len(seqnos)
            if timed:
                stamps = [DUE.unpack_from(batch.payload(int(i)), FRAME.itemsize)[0] for i in whole]
                latencies += [unix_ns - stamp for stamp in stamps]
    state["expected"] = expected
    return Arrivals(came, wrong, last_ns, latencies)
