from typing import final

from udpfast.agents.feed.ring_names import RingNames

__all__ = ["TopicStream", "TopicStreams"]

@final
class TopicStream: ...

@final
class TopicStreams:
    @property
    def live(self) -> list[TopicStream]: ...
    def __init__(self, names: RingNames, records: int) -> None: ...
