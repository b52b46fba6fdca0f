from typing import final

import numpy as np
import numpy.typing as npt

from udpfast.core.agent import Agent
from udpfast.net.datagram import DatagramReceiver
from udpfast.net.sender import DatagramSender

__all__ = ["BurstSender", "drain_agent", "drain_receiver"]

@final
class BurstSender:
    def __init__(self, core: int | None = None) -> None: ...
    def awake(self) -> None: ...
    def rest(self) -> None: ...
    def close(self) -> None: ...
    def send(
        self,
        sender: DatagramSender,
        datagrams: npt.NDArray[np.uint8],
        train: int = ...,
    ) -> None: ...

def drain_agent(agent: Agent, turns: int = ...) -> tuple[int, int]: ...
def drain_receiver(receiver: DatagramReceiver) -> tuple[int, int, int]: ...
