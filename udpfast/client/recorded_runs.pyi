from typing import final

from udpfast.client.journal_source import JournalSource

__all__ = ["RecordedRuns"]

@final
class RecordedRuns:
    def __init__(
        self, source: JournalSource, log: bytes = b"", index: int = 0, journal_index: int = 0
    ) -> None: ...
