from typing import final

from udpfast.bus.replication import Consumer, Source
from udpfast.core.agent import Agent

__all__ = ["ConsumerThread", "SourceThread", "link_thread"]

class LinkThread(Agent):
    @property
    def broken(self) -> bool: ...
    @property
    def idle(self) -> str: ...
    def wake(self) -> None: ...

@final
class SourceThread(LinkThread):
    def __init__(self, source: Source, fd: int, idle: str, *, acks: int = -1) -> None: ...
    def odd(self) -> bytes: ...

@final
class ConsumerThread(LinkThread):
    def __init__(self, consumer: Consumer, fd: int, idle: str) -> None: ...

def link_thread(
    end: Source | Consumer, fd: int, idle: str, *, acks: int = -1
) -> SourceThread | ConsumerThread: ...
