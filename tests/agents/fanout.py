"""A fan-out that a test runs over an instance which it fills, and ways to look at its messages."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import zmq

from tests.client.instance import Instance
from tests.waiting import PATIENCE_S, wait_until
from udpfast import Reader, ReadRecord
from udpfast.agents.zmq.zmq_fanout import ZmqFanout
from udpfast.config import ZmqConfig
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns
from udpfast.net.envelope import EnvelopeType, Message, unpack

T = TypeVar("T")

BOTH = ("ipc", "tcp://127.0.0.1:*")
#: No machine is so loaded that a reader takes this fan-out for silent.
NEVER_SILENT = {"heartbeat_ms": 60_000}


@contextlib.contextmanager
def running(directory: Path, **settings: Any) -> Iterator[ZmqFanout]:
    """Run a fan-out over the instance in a directory, on both kinds of socket unless told."""
    fanout = ZmqFanout(ZmqConfig(**({"addresses": BOTH} | NEVER_SILENT | settings)), directory)
    runner = AgentRunner(fanout)
    runner.start()
    try:
        yield fanout
    finally:
        runner.stop()
        runner.join()


def caught_up(fanout: ZmqFanout, instance: Instance) -> None:
    """Wait until the fan-out has read all that the ring has, and sent it."""
    wait_until(
        lambda: (
            fanout.statistics()["records"] + fanout.statistics()["unseen"] == instance.ring.index
        )
    )


class Subscriber:
    """A plain SUB socket, as somebody else's program has one."""

    def __init__(self, address: str, *topics: bytes) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.rcvtimeo = int(PATIENCE_S * 1000)
        self.socket.connect(address)
        for topic in topics:
            self.socket.subscribe(topic)

    def take(self) -> Message:
        return unpack(self.socket.recv())

    def until(self, kind: EnvelopeType) -> list[Message]:
        """Return the messages up to the first of a type."""
        messages = [self.take()]
        while messages[-1].envelope["type"] != kind:
            messages.append(self.take())
        return messages

    def close(self) -> None:
        self.socket.close(linger=0)
        self.context.term()

    def __enter__(self) -> "Subscriber":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Turned:
    """A fan-out that turns when the test says so: what it has not read may still be changed."""

    def __init__(self, instance: Instance, **settings: Any) -> None:
        self.instance = instance
        self.fanout = ZmqFanout(ZmqConfig(**(NEVER_SILENT | settings)), instance.directory)

    def open(
        self, query: str = "", pause_s: float = 0.0, others: Sequence[str] = (), **options: Any
    ) -> Reader:
        """Open a reader, which waits for the fan-out's answer, while it turns.

        With a pause its subscription has most likely come before the first turn. With `others` it
        reads these addresses, too.
        """
        address = f"zmq:{self.fanout.addresses[0]}{query}"
        named = [address, *others] if others else address
        return self._while_it_turns(lambda: Reader(named, **options), pause_s)

    def rest(self, reader: Reader) -> list[ReadRecord]:
        """Return what a reader gets up to the end, of which it may be told while it reads."""
        return self._while_it_turns(lambda: list(reader))

    def _while_it_turns(self, work: Callable[[], T], pause_s: float = 0.0) -> T:
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(work)
            time.sleep(pause_s)
            while not done.done():
                self.fanout.work(monotonic_ns())
                time.sleep(0.0005)  # the reader's turn: without it each waits for the other
            return done.result()

    def turn(self) -> None:
        """Send what there is."""
        while self.fanout.work(monotonic_ns()) > 0:
            pass

    def end(self) -> None:
        """Close the ring, and turn until that was told."""
        self.turn()
        self.instance.ring.close()
        while self.fanout.work(monotonic_ns()) == 0:
            pass

    def __enter__(self) -> "Turned":
        self.fanout.on_start()
        return self

    def __exit__(self, *_: object) -> None:
        self.fanout.on_stop()
