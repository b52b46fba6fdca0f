"""LCM: UDP multicast with fragmentation, the nearest peer in Python."""

from __future__ import annotations

from pathlib import Path

from .face import Peer, Place, Take

__all__ = ["PEER"]

CHANNEL = "bench"


def address(place: Place) -> str:
    """Return LCM's URL: this host only, and a queue as large as the host grants."""
    granted = int(Path("/proc/sys/net/core/rmem_max").read_text())
    return f"udpm://239.255.76.67:{place.port}?ttl=0&recv_buf_size={granted}"


class Publisher:
    """Publish on one channel."""

    def __init__(self, place: Place, _: int) -> None:
        """Open the multicast socket."""
        import lcm

        self.lcm = lcm.LCM(address(place))

    def send(self, message: bytes) -> None:
        """Publish one message."""
        self.lcm.publish(CHANNEL, message)

    def close(self) -> None:
        """Let it go: LCM has no close."""
        del self.lcm


class Subscriber:
    """Subscribe to one channel, without a limit to LCM's own queue."""

    def __init__(self, place: Place, _: int, take: Take) -> None:
        """Join the group."""
        import lcm

        self.take = take
        self.lcm = lcm.LCM(address(place))
        self.lcm.subscribe(CHANNEL, self.handle).set_queue_capacity(0)

    def handle(self, _: str, message: bytes) -> None:
        """Take one message: LCM's callback."""
        self.take(message)

    def step(self) -> None:
        """Look once, without waiting."""
        self.lcm.handle_timeout(0)

    def close(self) -> None:
        """Let it go: LCM has no close."""
        del self.lcm


PEER = Peer(
    variant="LCM udpm",
    module="lcm",
    package="lcm",
    less="no order, no gaps told, no second line, one process",
    messages=20_000,
    publisher=Publisher,
    subscriber=Subscriber,
)
