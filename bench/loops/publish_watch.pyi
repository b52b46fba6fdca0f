from typing import final

from udpfast.core.agent import Agent
from udpfast.log.cursor import RingCursor
from udpfast.shm.histogram import LatencyHistogram

__all__ = ["PublishWatch"]

@final
class PublishWatch(Agent):
    @property
    def histogram(self) -> LatencyHistogram: ...
    def __init__(
        self, loop: Agent, cursor: RingCursor, *, skip: int = ..., first_seqno: int = ...
    ) -> None: ...
    @property
    def messages(self) -> int: ...
    @property
    def wrong(self) -> int: ...
    @property
    def gaps(self) -> int: ...
