from pathlib import Path
from typing import final

from udpfast.agents.recording import Recording
from udpfast.config import FeedConfig, RecordConfig
from udpfast.core.agent import Agent

__all__ = ["Recorder", "build"]

@final
class Recorder(Agent):
    @property
    def recordings(self) -> list[Recording]: ...
    def __init__(self, config: RecordConfig, directory: Path, name: str) -> None: ...
    def work(self, now_ns: int) -> int: ...
    def keep(self) -> None: ...

def build(config: FeedConfig, directory: Path) -> Recorder: ...
