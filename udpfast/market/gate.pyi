from typing import NamedTuple, Self, final

from udpfast.core.layout import ObjectStatus

__all__ = ["ObjectGate", "ObjectOutput", "ObjectView", "seqno_at_or_before"]

class ObjectOutput(NamedTuple):
    kind: int
    flags: int
    object_type: int
    object_id: int
    seqno: int
    last_seqno: int
    channel: int
    tag: int
    payload: bytes

class ObjectView(NamedTuple):
    status: ObjectStatus
    applied_seqno: int | None
    first_collected: int | None
    collected: int
    tag: int

def seqno_at_or_before(a: int, b: int) -> bool: ...

@final
class ObjectGate:
    saw_session_from_first: bool
    def __new__(
        cls,
        *,
        objects_max: int = 65536,
        collect_messages_max: int = 4096,
        collect_bytes: int = ...,
        snapshots: int = ...,  # truth: callers pass all of these by one mapping
    ) -> Self: ...
    def admit(
        self,
        *,
        kind: int = 2,
        channel: int = 0,
        flags: int = 0,
        object_type: int = 0,
        object_id: int = 0,
        seqno: int = 0,
        last_seqno: int = 0,
        session_id: int = 0,
        payload: bytes = b"x",
        gated: bool = True,
        refused: bool = False,
    ) -> list[ObjectOutput]: ...
    def tag(self, object_type: int, object_id: int, tag: int) -> None: ...
    def state(self, object_type: int, object_id: int) -> ObjectView | None: ...
    def probes(self, object_type: int, object_id: int) -> int: ...
    def counters(self) -> dict[str, int]: ...
