"""zenoh: peer to peer over TCP on this host; its subscriber is called in a thread of zenoh's."""

from __future__ import annotations

import json
import time
from typing import Any

from .face import Peer, Place, Take

__all__ = ["PEER"]

KEY = "bench/peers"
REST_S = 0.001


def session(listen: list[str], connect: list[str]) -> Any:
    """Open a session that looks for nobody else."""
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", json.dumps(listen))
    config.insert_json5("connect/endpoints", json.dumps(connect))
    return zenoh.open(config)


class Publisher:
    """Declare a publisher that blocks when the way is congested."""

    def __init__(self, place: Place, _: int) -> None:
        """Listen."""
        import zenoh

        self.session = session([f"tcp/127.0.0.1:{place.port}"], [])
        self.publisher = self.session.declare_publisher(
            KEY, congestion_control=zenoh.CongestionControl.BLOCK
        )
        self.send = self.publisher.put

    def close(self) -> None:
        """Close the session."""
        self.session.close()


class Subscriber:
    """Declare a subscriber with a callback."""

    def __init__(self, place: Place, _: int, take: Take) -> None:
        """Connect."""
        self.take = take
        self.session = session([], [f"tcp/127.0.0.1:{place.port}"])
        self.subscriber = self.session.declare_subscriber(KEY, self.handle)

    def handle(self, sample: Any) -> None:
        """Take one message: zenoh's callback."""
        self.take(sample.payload.to_bytes())

    def step(self) -> None:
        """Rest: the callback does the work."""
        time.sleep(REST_S)

    def close(self) -> None:
        """Close the session."""
        self.session.close()


PEER = Peer(
    variant="zenoh tcp",
    module="zenoh",
    package="eclipse-zenoh",
    less="no gaps told, no second line, no decoding",
    messages=50_000,
    publisher=Publisher,
    subscriber=Subscriber,
)
