from typing import final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

__all__ = ["Publication"]

@final
class Publication:
    flush_at: int
    message_size_max: int
    def __init__(
        self,
        session_id: int,
        *,
        first_seqno: int = ...,
        first_snapshot_seqno: int = ...,
        encoding: int = ...,
        revision: str = ...,
        byteorder: str = ...,
        heartbeat_interval_ns: int = ...,
    ) -> None: ...
    def publish(
        self,
        payload: Buffer,
        object_type: int,
        object_id: int,
        *,
        snapshot: bool = ...,
        now_ns: int,
        stamp_offset: int = ...,
        stamp_ns: int = ...,
    ) -> int: ...
    def publish_snapshot(
        self,
        payload: Buffer,
        object_type: int,
        object_id: int,
        *,
        last_seqno: int | None = ...,
        now_ns: int,
        stamp_offset: int = ...,
        stamp_ns: int = ...,
    ) -> int: ...
    def begin_snapshot(
        self,
        payload: Buffer,
        object_type: int,
        object_id: int,
        *,
        last_seqno: int | None = ...,
        now_ns: int,
        stamp_offset: int = ...,
        stamp_ns: int = ...,
    ) -> int: ...
    def continue_snapshot(self, datagrams_max: int, *, now_ns: int) -> int: ...
    @staticmethod
    def check(
        payload: Buffer, object_type: int, object_id: int, *, stamp_offset: int = ...
    ) -> None: ...
    def heartbeat(self, now_ns: int) -> int: ...
    def heartbeat_due_ns(self) -> int: ...
    def restart(self, session_id: int) -> None: ...
    def take(self, channel: int) -> list[bytes]: ...
    def views(
        self, channel: int
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def clear(self, channel: int) -> None: ...
    def pending(self, channel: int) -> int: ...
    def last_seqno(self, object_type: int, object_id: int) -> int: ...
    def counters(self, channel: int) -> dict[str, int]: ...
    @property
    def session_id(self) -> int: ...
    @property
    def snapshot_open(self) -> bool: ...
    @property
    def next_seqno(self) -> int: ...
    @property
    def next_snapshot_seqno(self) -> int: ...
