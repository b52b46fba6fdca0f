"""Wait until the target of an address exists: its feed or recorder may be about to start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from udpfast.errors import NotReadyError

__all__ = ["PAUSE_S", "deadline_of", "time_left", "when_there"]

T = TypeVar("T")

#: Time between two attempts.
PAUSE_S = 0.01


def deadline_of(timeout: float | None) -> float:
    """Return the `time.monotonic` at which a timeout in seconds ends; None never ends."""
    return float("inf") if timeout is None else time.monotonic() + timeout


def time_left(deadline_s: float) -> float:
    """Return the seconds left until a deadline; 0 if it has passed."""
    return max(0.0, deadline_s - time.monotonic())


def when_there(
    attach: Callable[[], T],
    deadline_s: float,
    absent: tuple[type[Exception], ...] = (FileNotFoundError, NotReadyError),
) -> T:
    """Call `attach` until it succeeds, and return its result.

    Parameters
    ----------
    attach : callable
        Called at least once, then every 10 ms until it succeeds.
    deadline_s : float
        When to give up, by `time.monotonic`; the last exception of `attach` is then raised.
    absent : tuple of exception types
        What `attach` raises while its target does not exist. Others are raised at once.
    """
    while True:
        try:
            return attach()
        except absent:
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(PAUSE_S)
