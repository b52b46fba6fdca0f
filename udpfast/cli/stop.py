"""The wish to stop, as the handler of a signal tells it to a loop that sleeps."""

from __future__ import annotations

import contextlib
from queue import Empty, SimpleQueue

__all__ = ["Stop"]


class Stop:
    """Set by a handler, waited for by the main thread, in the middle of which that handler runs.

    So no `threading.Event`: its lock may be held where the handler interrupts, and is then waited
    for for ever. A SimpleQueue may be put into anywhere.
    """

    def __init__(self) -> None:
        self._wanted = False
        self._told: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Ask to stop."""
        self._wanted = True
        self._told.put(None)

    def is_set(self) -> bool:
        """Return whether it was asked for."""
        return self._wanted

    def wait(self, seconds: float) -> bool:
        """Sleep until it is asked for, `seconds` at most; return whether it was."""
        if not self._wanted:
            with contextlib.suppress(Empty):
                self._told.get(timeout=seconds)
        return self._wanted
