"""A store that a feed keeps by itself: nobody copies it, and no daemon of a bus is needed."""

from __future__ import annotations

import socket
import threading

from udpfast.agents.bus.store_disk import StoreDisk
from udpfast.archive.bus_files import describe_store
from udpfast.config import FeedConfig
from udpfast.config.bus import StoreConfig
from udpfast.core.worker import Worker
from udpfast.shm.instance import journal_directory

__all__ = ["FeedStore"]

#: What `bus stat` shows of links and messages, where there are none.
NO_BUS: dict[str, object] = {
    "source_end": None,
    **dict.fromkeys(("waits", "stopped"), ""),
    **dict.fromkeys(("reconnects", "damaged", "quarantined", "unauthentic", "clock_steps"), 0),
    "verdicts": {},
    "feed": None,
}
_TELL_S = 0.02
#: Turns between two descriptions.
_DESCRIBE = 5


class FeedStore:
    """The disk of a feed's store, and the threads that keep it and say how far it is.

    Parameters
    ----------
    config : FeedConfig

    Attributes
    ----------
    disk : StoreDisk

    Raises
    ------
    OSError, RegionError, WriterExistsError
        As `StoreDisk` does.
    """

    def __init__(self, config: FeedConfig) -> None:
        wanted = config.store
        host = socket.gethostname()[:32] or "localhost"
        settings = StoreConfig(
            sequencer=host,
            port=0,  # nobody connects
            segment_bytes=wanted.segment_bytes,
            sync_ms=wanted.sync_ms,
            keep_segments=wanted.keep_segments,
        )
        path = journal_directory(wanted.directory or config.name, create=True)
        self.disk = StoreDisk(
            path, config.name, host, settings, create=True, fed=True, group=config.access.group
        )
        self._stopping = threading.Event()
        self._threads = [Worker(work, "udpfast keep") for work in (self._keep, self._tell)]
        for thread in self._threads:
            thread.start()

    def _keep(self) -> None:
        self.disk.keep(self._stopping)

    def _tell(self) -> None:
        turn = 0
        while True:
            self.disk.tell(self.disk.store.writer)
            if turn % _DESCRIBE == 0:
                self.disk.remove_old()
                self.disk.take_said()
                describe_store(self.disk.directory, self._description())
            turn += 1
            if self._stopping.wait(_TELL_S):
                return

    def close(self, *, failed: bool = False) -> None:
        """End it: the disk has everything then. `failed`: an error ended the feed. Idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for thread in self._threads:
            thread.finish()
        self.disk.end(self._description(), failed=failed)

    def _description(self) -> dict[str, object]:
        # As a daemon describes a store; nobody copies this one, and no app sends.
        return {**NO_BUS, **self.disk.description(), "following": self.disk.store.writer}
