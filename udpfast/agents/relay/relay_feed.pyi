from typing import final

import numpy as np
import numpy.typing as npt

from udpfast.agents.relay.relay_lines import RelayLines
from udpfast.agents.relay.relay_rounds import RelayRounds

__all__ = ["RelayFeed"]

@final
class RelayFeed(RelayRounds):
    @property
    def sessions(self) -> list[int]: ...
    def __init__(
        self,
        lines: RelayLines | None = None,
        *,
        objects: int = ...,
        heartbeat_interval_ns: int = 100_000_000,
        snapshot_interval_ns: int = 1_000_000_000,
        snapshot_rate_per_s: int = 20_000,
        session_id: int | None = None,
        counts: npt.NDArray[np.int64] | None = None,
        bits_per_s: int = 0,
        burst_bytes: int = 16_384,
        headers: int = ...,
        late_ns: int = 1_000_000_000,
    ) -> None: ...
    def read_counts(self) -> dict[str, int]: ...
