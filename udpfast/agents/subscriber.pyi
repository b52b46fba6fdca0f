from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from udpfast.agents.engine import Engine
from udpfast.config import FeedConfig
from udpfast.core.agent import Agent
from udpfast.net.datagram import DatagramReceiver

__all__ = ["Subscriber"]

@final
class FeedLoop(Agent):
    @property
    def receivers(self) -> list[DatagramReceiver]: ...
    def __init__(self, engine: Engine, config: FeedConfig) -> None: ...

class Subscriber:
    config: FeedConfig
    directory: Path
    def __init__(self, config: str | Path | FeedConfig | Mapping[str, Any]) -> None: ...
    @property
    def name(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def join(self, timeout_s: float | None = None) -> None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    def counters(self) -> dict[str, dict[str, int]]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
