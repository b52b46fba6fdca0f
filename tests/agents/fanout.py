"""A fan-out that a test runs over an instance which it fills, and ways to look at its messages."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zmq

from tests.client.instance import Instance
from udpfast.agents.zmq_fanout import ZmqFanout
from udpfast.config import ZmqConfig
from udpfast.core.agent import AgentRunner
from udpfast.net.envelope import EnvelopeType, Message, unpack

BOTH = ("ipc", "tcp://127.0.0.1:*")
#: s that what must come may take: reached only by a failure.
LIMIT_S = 20.0


@contextlib.contextmanager
def running(directory: Path, **settings: Any) -> Iterator[ZmqFanout]:
    """Run a fan-out over the instance in a directory, on both kinds of socket unless told."""
    fanout = ZmqFanout(ZmqConfig(**({"addresses": BOTH} | settings)), directory)
    runner = AgentRunner(fanout)
    runner.start()
    try:
        yield fanout
    finally:
        runner.stop()
        runner.join()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


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
        self.socket.rcvtimeo = int(LIMIT_S * 1000)
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
