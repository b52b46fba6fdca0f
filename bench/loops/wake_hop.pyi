import numpy as np
from numpy.typing import NDArray

from udpfast.log.ring import Ring
from udpfast.shm.wake import WakeRegion

__all__ = ["turn_cost_ns", "wake_cost_ns", "write_turns"]

def write_turns(
    ring: Ring, wake: WakeRegion, due_ns: NDArray[np.int64], first: int = 0
) -> None: ...
def turn_cost_ns(wake: WakeRegion, turns: int) -> float: ...
def wake_cost_ns(wake: WakeRegion, wakes: int) -> float: ...
