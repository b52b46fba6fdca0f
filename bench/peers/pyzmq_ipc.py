"""pyzmq: PUB and SUB over a Unix socket.

The subscriber blocks: one that polls takes turns with the library's own thread on one core.
"""

from __future__ import annotations

from .face import Peer, Place, Take

__all__ = ["PEER"]

WAIT_MS = 100


class Publisher:
    """A PUB socket."""

    def __init__(self, place: Place, _: int) -> None:
        """Bind, with queues that have no limit: a message is late rather than lost."""
        import zmq

        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PUB)
        self.socket.set_hwm(0)
        self.socket.bind(self.address(place))
        self.send = self.socket.send

    def address(self, place: Place) -> str:
        """Return where it is bound."""
        return f"ipc://{place.directory}/zmq"

    def close(self) -> None:
        """Close socket and context."""
        self.socket.close(linger=0)
        self.context.term()


class Subscriber:
    """A SUB socket."""

    def __init__(self, place: Place, _: int, take: Take) -> None:
        """Connect, and subscribe to everything."""
        import zmq

        self.take = take
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.set_hwm(0)
        self.socket.rcvtimeo = WAIT_MS
        self.socket.connect(self.address(place))
        self.socket.subscribe(b"")
        self.nothing = zmq.Again

    def address(self, place: Place) -> str:
        """Return where it connects."""
        return f"ipc://{place.directory}/zmq"

    def step(self) -> None:
        """Take one message."""
        try:
            message = self.socket.recv()
        except self.nothing:
            return
        self.take(message)

    def close(self) -> None:
        """Close socket and context."""
        self.socket.close(linger=0)
        self.context.term()


PEER = Peer(
    variant="pyzmq ipc",
    module="zmq",
    package="pyzmq",
    less="no network, no gaps told, no decoding",
    messages=50_000,
    publisher=Publisher,
    subscriber=Subscriber,
)
