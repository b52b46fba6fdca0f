from collections.abc import Iterable, Sequence
from typing import final

from udpfast.core.layout import Kind

__all__ = ["Filter", "NameFilter"]

@final
class NameFilter:
    def __init__(self, wanted: str | Iterable[str] | None = None) -> None: ...
    def unknown(self, known: Iterable[str]) -> list[str]: ...

@final
class Filter:
    def __init__(
        self,
        kinds: Kind | str | Iterable[Kind | str] | None = None,
        exchanges: str | Iterable[str] | None = None,
        symbols: str | Iterable[str] | None = None,
    ) -> None: ...
    def describe_unknown(self, known: Sequence[str]) -> str | None: ...
