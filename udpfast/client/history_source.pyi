from pathlib import Path
from typing import final

from udpfast.client.ring_source import RingSource
from udpfast.client.source import Source
from udpfast.log.journal_span import Place

__all__ = ["HistorySource"]

@final
class HistorySource(Source):
    def __init__(
        self,
        directory: Path,
        start: str | Place,
        live: RingSource,
        addresses: tuple[str, str],
        *,
        batch: int,
        buffer_bytes: int | None,
    ) -> None: ...
