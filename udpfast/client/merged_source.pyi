from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias, final

from udpfast.client.source import PolledSource, Source

__all__ = ["Member", "MergedSource", "open_sources"]

_Start: TypeAlias = str | datetime | int | tuple[str, int]

@final
class Member:
    def __init__(self, source: Source, address: str) -> None: ...

@final
class MergedSource(PolledSource):
    def __init__(self, members: list[Member], batch: int) -> None: ...

def open_sources(
    addresses: Sequence[str],
    open_one: Callable[[str, _Start | None], Source],
    *,
    start: _Start | None,
    batch: int,
    buffer_bytes: int | None,
    deadline_s: float,
) -> MergedSource: ...
