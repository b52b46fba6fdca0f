from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from udpfast.log.journal import Journal
from udpfast.log.ring import Ring

__all__ = ["append_cost_ns", "copy_cost_ns", "publish_lateness_ns"]

def append_cost_ns(journal: Journal, size: int, count: int) -> float: ...
def copy_cost_ns(path: Path, size: int, count: int) -> float: ...
def publish_lateness_ns(
    ring: Ring, size: int, count: int, interval_ns: int, away_ns: int
) -> NDArray[np.int64]: ...
