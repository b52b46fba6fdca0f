from pathlib import Path
from typing import final

from udpfast.agents.relay.relay_feed import RelayFeed
from udpfast.config import FeedConfig, RelayConfig
from udpfast.core.agent import Agent
from udpfast.shm.relay_counts import RelayCounts

__all__ = ["Relay", "build"]

@final
class Relay(Agent):
    @property
    def feed(self) -> RelayFeed: ...
    @property
    def counts(self) -> RelayCounts: ...
    def __init__(
        self, config: RelayConfig, directory: Path, name: str = "relay", *, keep: bool = False
    ) -> None: ...
    @property
    def index(self) -> int: ...
    def read_counts(self) -> dict[str, dict[str, int]]: ...
    def work(self, now_ns: int) -> int: ...

def build(config: FeedConfig, directory: Path) -> Relay: ...
