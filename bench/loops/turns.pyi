from types import TracebackType
from typing import Self, final

from udpfast.core.agent import Agent

__all__ = ["Turns"]

@final
class Turns:
    def __init__(self, agent: Agent) -> None: ...
    def turn(self, now_ns: int) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
