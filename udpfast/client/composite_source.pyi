from collections.abc import Callable, Sequence
from typing import final

from udpfast.client.source import PolledSource, Source

__all__ = ["CompositeSource", "Member", "open_sources"]

@final
class Member:
    def __init__(self, source: Source, address: str) -> None: ...

@final
class CompositeSource(PolledSource):
    def __init__(self, members: list[Member], batch: int) -> None: ...

def open_sources(
    addresses: Sequence[str], open_one: Callable[[str], Source], batch: int
) -> CompositeSource: ...
