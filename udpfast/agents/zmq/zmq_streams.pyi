from typing import final

from udpfast.agents.feed.ring_names import RingNames

__all__ = ["Stream", "Streams"]

@final
class Stream: ...

@final
class Streams:
    @property
    def live(self) -> list[Stream]: ...
    def __init__(self, names: RingNames, records: int) -> None: ...
