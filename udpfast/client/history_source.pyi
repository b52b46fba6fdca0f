from typing import final

from udpfast.client.journal_source import JournalSource
from udpfast.client.ring_source import RingSource
from udpfast.client.source import Source

__all__ = ["HistorySource", "open_history"]

@final
class HistorySource(Source):
    def __init__(
        self,
        history: JournalSource,
        live: RingSource,
        history_address: str,
        live_address: str,
        start_ns: int | None = None,
    ) -> None: ...
    @property
    def log(self) -> bytes: ...

def open_history(
    live: RingSource, start_ns: int, batch: int, buffer_bytes: int | None, address: str
) -> HistorySource: ...
