"""Books of single orders by itch-book, a C++ library: the same messages, in memory."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LESS", "PACKAGE", "Books", "version"]

PACKAGE = "itch-book"
LESS = "no doubt, no updates: books and queues, nobody told"

Messages = npt.NDArray[np.uint8]


def version() -> str:
    """Return the installed version."""
    return f"{PACKAGE} {metadata.version(PACKAGE)}"


class Books:
    """Books that nobody is told of.

    Raises
    ------
    ImportError
        It is not installed.
    """

    def __init__(self) -> None:
        """Begin without orders."""
        from itch_book._core import Session

        self._session: Any = Session(tables=[], depth=0, symbols=[])

    def feed(self, messages: Messages) -> None:
        """Take messages, each behind its u16 size."""
        self._session.feed(messages)

    def counted(self) -> dict[str, int]:
        """Return what it counts: messages, orders alive, references that it did not know."""
        return dict(self._session.stats())
