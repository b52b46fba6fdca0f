import enum
from typing import final

__all__ = ["IdleStrategy", "Idler", "idle_strategy"]

class IdleStrategy(enum.IntEnum):
    SPIN = 0
    YIELD = 1
    BACKOFF = 2
    SLEEP = 3

def idle_strategy(name: str | IdleStrategy) -> IdleStrategy: ...

@final
class Idler:
    def __init__(self, strategy: str | IdleStrategy = ..., *, sleep_max_ns: int = ...) -> None: ...
    def step(self, work_count: int) -> None: ...
    @property
    def parked(self) -> bool: ...
    @property
    def empty_turns(self) -> int: ...
    @property
    def next_sleep_ns(self) -> int: ...
