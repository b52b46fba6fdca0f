from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, final

from udpfast.core.idle import IdleStrategy

__all__ = ["Agent", "AgentRunner", "CallableAgent", "Grant"]

class Agent:
    @property
    def role(self) -> str: ...
    def __init__(self, role: str) -> None: ...
    def on_start(self) -> None: ...
    def on_stop(self) -> None: ...

@final
class CallableAgent(Agent):
    def __init__(
        self,
        role: str,
        work: Callable[[int], int | None],
        close: Callable[[], object] | None = None,
    ) -> None: ...

@dataclass(frozen=True, slots=True)
class Grant:
    name: str
    asked: str
    granted: bool
    reason: str

@final
class AgentRunner:
    def __init__(
        self,
        agents: Agent | Sequence[Agent],
        *,
        core: int | None = ...,
        idle: str | IdleStrategy = ...,
        fifo_priority: int | None = ...,
        lock_memory: bool = ...,
        strict: bool = ...,
    ) -> None: ...
    @property
    def agents(self) -> tuple[Agent, ...]: ...
    @property
    def grants(self) -> tuple[Grant, ...]: ...
    @property
    def role(self) -> str: ...
    @property
    def cycles(self) -> int: ...
    @property
    def cycle_longest_ns(self) -> int: ...
    @property
    def cycles_slow(self) -> int: ...
    def start(self) -> None: ...
    def run(self) -> None: ...
    def stop(self) -> None: ...
    def join(self, timeout_s: float | None = ...) -> bool: ...
    def finish(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
