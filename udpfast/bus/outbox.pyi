import enum
from typing import Any

__all__ = ["OUTBOX_HEADER", "Outbox", "OutboxState", "outbox_facts"]

OUTBOX_HEADER: int

class OutboxState(enum.IntEnum):
    NEW = 0
    REGISTERED = 1
    NAME_IN_USE = 2
    SUPERSEDED = 3
    LOST = 4

class Outbox:
    bell: int
    closed: bool
    def __init__(self, memory: Any) -> None: ...
    @staticmethod
    def size_bytes(slots: int, capacity: int) -> int: ...
    @staticmethod
    def create(
        memory: Any, name: str, host: str, nonce: int, slots: int, capacity: int
    ) -> Outbox: ...
    def send(self, payload: bytes | bytearray | memoryview, type: int = 0) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> OutboxState: ...
    @property
    def sender(self) -> tuple[int, int]: ...
    def counts(self) -> dict[str, int]: ...

def outbox_facts(header: bytes, size_bytes: int) -> dict[str, Any]: ...
