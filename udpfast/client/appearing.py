"""Wait for what an address names: its feed or its recorder may be about to start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from udpfast.errors import NotReadyError

__all__ = ["deadline_of", "time_left", "when_there"]

T = TypeVar("T")

_PAUSE_S = 0.01


def deadline_of(timeout: float | None) -> float:
    """Return when so many seconds are over, by `time.monotonic`; None: never."""
    return float("inf") if timeout is None else time.monotonic() + timeout


def time_left(deadline_s: float) -> float:
    """Return the seconds until then, 0 if it has passed."""
    return max(0.0, deadline_s - time.monotonic())


def when_there(
    attach: Callable[[], T],
    deadline_s: float,
    absent: tuple[type[Exception], ...] = (FileNotFoundError, NotReadyError),
) -> T:
    """Return what `attach` returns, as soon as it finds it.

    Parameters
    ----------
    attach : callable
        Called again and again, at least once.
    deadline_s : float
        Until when, by `time.monotonic`; then it raises what `attach` raises.
    absent : tuple of exception types
        What `attach` raises as long as it finds nothing.
    """
    while True:
        try:
            return attach()
        except absent:
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(_PAUSE_S)
