from typing import final

from udpfast.agents.feed.ring_names import RingNames

__all__ = ["Envelopes"]

@final
class Envelopes:
    def __init__(self, names: RingNames, batch_bytes: int, heartbeat_ms: int) -> None: ...
