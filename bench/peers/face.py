"""The face behind which every peer stands: one publisher, one subscriber, messages of bytes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Peer", "Place", "Receiving", "Sending", "installed"]

#: Gets every message that came.
Take = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Place:
    """Where both ends meet: a directory, and a port, that nobody else uses."""

    directory: Path
    port: int


class Sending(Protocol):
    """A publisher."""

    def send(self, message: bytes) -> object:
        """Publish one message."""

    def close(self) -> None:
        """Close it."""


class Receiving(Protocol):
    """A subscriber; `take` may be set to something else between two steps."""

    take: Take

    def step(self) -> None:
        """Hand what came to `take`; wait at most for a fraction of a second."""

    def close(self) -> None:
        """Close it."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer.

    Attributes
    ----------
    variant : str
        What the tables call it.
    module, package : str
        What it is imported as, and what pip installs.
    less : str
        What it does less than a feed and its ring.
    messages : int
        So many in a trial of throughput: a tenth of a second or so.
    publisher, subscriber : callable
        Open an end: place, bytes of a message.
    """

    variant: str
    module: str
    package: str
    less: str
    messages: int
    publisher: Callable[[Place, int], Sending]
    subscriber: Callable[[Place, int, Take], Receiving]

    @property
    def version(self) -> str:
        """Package and version; the package alone where it is not installed."""
        try:
            return f"{self.package} {importlib.metadata.version(self.package)}"
        except importlib.metadata.PackageNotFoundError:
            return self.package


def installed(peer: Peer) -> bool:
    """Return whether a peer can be imported."""
    return importlib.util.find_spec(peer.module) is not None
