from collections.abc import Iterable
from typing import final

from udpfast.core.layout import Kind

__all__ = ["Filter", "NameFilter"]

@final
class NameFilter:
    def __init__(self, wanted: str | Iterable[str] | None = None) -> None: ...

@final
class Filter:
    def __init__(
        self,
        kinds: Kind | Iterable[Kind] | None = None,
        exchanges: str | Iterable[str] | None = None,
        symbols: str | Iterable[str] | None = None,
    ) -> None: ...
