"""How long to wait before something that ended with an error is started again."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Backoff", "RestartSettings"]


class RestartSettings(Protocol):
    """What a `RunConfig` and a `HostConfig` both have."""

    @property
    def restart_first_ms(self) -> int:
        """Wait before the first restart."""

    @property
    def restart_longest_ms(self) -> int:
        """Longest wait."""

    @property
    def restart_steady_ms(self) -> int:
        """Time of running after which the first wait holds again."""


class Backoff:
    """Waits that double from end to end, and begin anew after a time of running.

    Parameters
    ----------
    settings : RestartSettings

    Attributes
    ----------
    in_a_row : int
        Ends since it last ran for `restart_steady_ms`.
    """

    def __init__(self, settings: RestartSettings) -> None:
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
