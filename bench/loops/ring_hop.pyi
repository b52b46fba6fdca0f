import numpy as np
import numpy.typing as npt

from udpfast.client.batch import Batch
from udpfast.log.cursor import RingCursor
from udpfast.log.ring import Ring
from udpfast.shm.histogram import LatencyHistogram

__all__ = [
    "PROGRESS_STRIDE",
    "advance",
    "look",
    "note_batch",
    "read_attended",
    "read_fast",
    "read_paced",
    "write_bursts",
    "write_fast",
    "write_paced",
]

PROGRESS_STRIDE: int

def write_fast(
    ring: Ring, progress: npt.NDArray[np.uint64], records: int, size: int, readers: int = ...
) -> int: ...
def write_paced(ring: Ring, due_ns: npt.NDArray[np.int64], size: int) -> int: ...
def write_bursts(
    ring: Ring, bursts: int, burst: int, period_ns: int, size: int, first: int = ...
) -> npt.NDArray[np.int64]: ...
def read_fast(
    cursor: RingCursor,
    progress: npt.NDArray[np.uint64],
    records: int,
    reader: int = ...,
    timeout_ns: int = ...,
) -> tuple[int, int, int]: ...
def read_paced(
    cursor: RingCursor,
    records: int,
    histogram: LatencyHistogram,
    *,
    skip: int = ...,
    timeout_ns: int = ...,
) -> tuple[int, int]: ...
def read_attended(
    cursor: RingCursor,
    records: int,
    histogram: LatencyHistogram,
    *,
    away_ns: int,
    skip: int = ...,
    timeout_ns: int = ...,
) -> tuple[int, int, int]: ...
def note_batch(
    batch: Batch,
    now_ns: int,
    histogram: LatencyHistogram | None,
    first: int,
    skip: int = ...,
) -> int: ...
def advance(progress: npt.NDArray[np.uint64], records: int, reader: int = ...) -> None: ...
def look(cursor: RingCursor) -> tuple[int, int]: ...
