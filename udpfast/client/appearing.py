"""Wait until the target of an address exists: its feed or recorder may be about to start."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from udpfast.errors import NotReadyError, sentence

__all__ = ["PAUSE_S", "deadline_of", "time_left", "when_there"]

T = TypeVar("T")

#: Time between two attempts.
PAUSE_S = 0.01
#: What is about to start is there by then. For what is not, its name may be wrong.
_SAID_AFTER_S = 0.5


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

    Warns
    -----
    UserWarning
        Its name looks like another one that exists, after half a second of waiting.
    """
    said_at_s = time.monotonic() + _SAID_AFTER_S
    while True:
        try:
            return attach()
        except absent as error:
            now_s = time.monotonic()
            if now_s >= deadline_s:
                raise
            if now_s >= said_at_s:
                said_at_s = float("inf")
                if "did you mean" in str(error):
                    warnings.warn(f"{sentence(error)} (it is waited for)", stacklevel=2)
        time.sleep(PAUSE_S)
