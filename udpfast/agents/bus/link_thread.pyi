from typing import final

from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.link_seal import LinkSeal
from udpfast.bus.link_sender import LinkSender
from udpfast.core.agent import Agent
from udpfast.shm.wake import WakeRegion

__all__ = ["ConsumerThread", "SourceThread", "link_thread"]

class LinkThread(Agent):
    @property
    def broken(self) -> bool: ...
    @property
    def speaking(self) -> bool: ...
    @property
    def forged(self) -> bool: ...
    @property
    def idle(self) -> str: ...
    def wake(self) -> None: ...

@final
class SourceThread(LinkThread):
    def __init__(
        self,
        source: LinkSender,
        fd: int,
        idle: str,
        *,
        acks: int = -1,
        seal: LinkSeal | None = None,
    ) -> None: ...
    def odd(self) -> bytes: ...

@final
class ConsumerThread(LinkThread):
    def __init__(
        self,
        consumer: LinkReceiver,
        fd: int,
        idle: str,
        *,
        seal: LinkSeal | None = None,
        wake: WakeRegion | None = None,
    ) -> None: ...

def link_thread(
    end: LinkSender | LinkReceiver,
    fd: int,
    idle: str,
    *,
    acks: int = -1,
    seal: LinkSeal | None = None,
    wake: WakeRegion | None = None,
) -> SourceThread | ConsumerThread: ...
