"""How long to wait before something that ended with an error is started again."""

from __future__ import annotations

from udpfast.config import RunConfig

__all__ = ["Backoff"]


class Backoff:
    """Waits that double from end to end, and begin anew after a time of running.

    Parameters
    ----------
    settings : RunConfig
        `restart_first_ms`, `restart_longest_ms`, `restart_steady_ms`.

    Attributes
    ----------
    in_a_row : int
        Ends since it last ran for `restart_steady_ms`.
    """

    def __init__(self, settings: RunConfig) -> None:
        self._settings = settings
        self.in_a_row = 0

    def ended(self, ran_ns: int) -> int:
        """Return how many ns to wait, after it had run for `ran_ns`."""
        settings = self._settings
        if ran_ns >= settings.restart_steady_ms * 1_000_000:
            self.in_a_row = 0
        wait_ms = settings.restart_first_ms << min(self.in_a_row, 32)
        self.in_a_row += 1
        return min(wait_ms, settings.restart_longest_ms) * 1_000_000
