from typing import final

import numpy as np
import numpy.typing as npt

from udpfast.bus.log import Store
from udpfast.core.agent import Agent

__all__ = ["BareReader", "append_times"]

@final
class BareReader(Agent):
    def __init__(self, store: Store, gap_ns: int) -> None: ...
    @property
    def count(self) -> int: ...

def append_times(
    store: Store, count: int, size: int, batch: int, gap_ns: int
) -> npt.NDArray[np.int64]: ...
