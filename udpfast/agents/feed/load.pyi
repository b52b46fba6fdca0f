from collections.abc import Sequence
from typing import final

from udpfast.net.sender import DatagramSender

__all__ = ["LoadGenerator"]

@final
class LoadGenerator:
    def __init__(
        self,
        senders: Sequence[DatagramSender],
        *,
        rate_per_s: float,
        size_bytes: int = ...,
        count: int = ...,
        session_id: int = ...,
        first_seqno: int = ...,
        object_type: int = ...,
        object_id: int = ...,
    ) -> None: ...
    def run(self, duration_ns: int) -> bool: ...
    @property
    def sent(self) -> int: ...
    @property
    def unsent(self) -> list[int]: ...
    @property
    def late_ns_max(self) -> int: ...
    @property
    def next_seqno(self) -> int: ...
