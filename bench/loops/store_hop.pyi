from typing import final

import numpy as np
import numpy.typing as npt

from udpfast.bus.link_sender import LinkSender
from udpfast.core.agent import Agent

__all__ = ["StorePace", "TcpEcho", "TcpPace"]

class Pace(Agent):
    @property
    def latencies(self) -> npt.NDArray[np.int64]: ...
    @property
    def done(self) -> bool: ...

@final
class StorePace(Pace):
    def __init__(self, source: LinkSender, count: int, size: int, gap_ns: int) -> None: ...

@final
class TcpEcho(Agent):
    def __init__(self, fd: int) -> None: ...

@final
class TcpPace(Pace):
    def __init__(self, fd: int, count: int, size: int, gap_ns: int) -> None: ...
