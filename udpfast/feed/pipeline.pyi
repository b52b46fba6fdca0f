from collections.abc import Iterable
from typing import NamedTuple, final

from udpfast.core.layout import Kind

__all__ = ["FeedMessage", "FeedPipeline"]

class FeedMessage(NamedTuple):
    kind: Kind
    flags: int
    channel: int
    line: int
    session_id: int
    seqno: int
    last_seqno: int
    object_type: int
    object_id: int
    control: int
    fragments: int
    received_ns: int
    payload: bytes
    number: int = 0
    session: int = 0
    stream: int = 0
    sent_ns: int = 0
    object: int = 0
    detail: int = 0

@final
class FeedPipeline:
    def __new__(
        cls,
        *,
        framing: str = "roq",
        revision: str = "current",
        byteorder: str = "little",
        encodings: Iterable[int] = (1, 2),
        streams: int = 64,
        lines_incremental: int = 1,
        lines_snapshot: int = 1,
        window: int = 8192,
        slab_cells: int | None = None,
        out_of_order_max_interval: int | None = None,
        lost_packet_wait_ns: int = 5_000_000,
        lost_packet_wait_auto: bool = False,
        on_gap: str = "keep_all",
        session_adopt_datagrams: int = 2,
        stale_session_grace_ns: int = 7_200_000_000_000,
        restart_datagrams: int = 32,
        inactivity_timeout_ns: int = 10_000_000_000,
        line_dead_ns: int = 100_000_000,
    ) -> FeedPipeline: ...
    def accept(
        self,
        channel: int,
        line: int,
        data: bytes,
        received_ns: int,
        now_ns: int,
        *,
        flags: int = 0,
        address: int = 0,
    ) -> int: ...
    def take(self) -> list[FeedMessage]: ...
    def expire(self, now_ns: int) -> None: ...
    def finish(self, now_ns: int) -> None: ...
    def counters(self) -> dict[str, dict[str, int]]: ...
    def set_proof(self, row: int, column: str, value: int) -> None: ...
    @property
    def pending(self) -> tuple[int, int]: ...
