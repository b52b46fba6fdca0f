"""Idle strategies: what a loop does after a turn without work."""

import enum

import cython

from udpfast.errors import ConfigError

__all__ = ["IdleStrategy", "Idler", "idle_strategy"]


class IdleStrategy(enum.IntEnum):
    """What a loop does after a turn without work."""

    SPIN = IDLE_SPIN
    YIELD = IDLE_YIELD
    BACKOFF = IDLE_BACKOFF
    SLEEP = IDLE_SLEEP


def idle_strategy(name: str | IdleStrategy) -> IdleStrategy:
    """Return the strategy of a name in lower case, as in settings. A strategy is returned as is.

    Raises
    ------
    ConfigError
        There is no such strategy.
    """
    if isinstance(name, IdleStrategy):
        return name
    for strategy in IdleStrategy:
        if strategy.name.lower() == name:
            return strategy
    names = ", ".join(strategy.name.lower() for strategy in IdleStrategy)
    raise ConfigError(f"idle must be one of {names}, was {name!r}")


@cython.final
cdef class Idler:
    """An idle strategy for a loop that is written in Python.

    Parameters
    ----------
    strategy : str or IdleStrategy
        "spin", "yield", "backoff" (spin, then yield, then sleep for longer and longer) or "sleep".
    sleep_max_ns : int
        The longest sleep of "backoff" and "sleep".
    """

    cdef Idle _idle

    def __init__(
            self, strategy: str | IdleStrategy = "backoff", *,
            int64_t sleep_max_ns=IDLE_SLEEP_MAX_NS):
        if sleep_max_ns < IDLE_SLEEP_MIN_NS:
            raise ConfigError(
                f"sleep_max_ns must be at least {IDLE_SLEEP_MIN_NS}, was {sleep_max_ns}")
        idle_reset(&self._idle, idle_strategy(strategy), sleep_max_ns)

    def step(self, int work_count) -> None:
        """Wait according to the strategy after a turn that did `work_count` things; 0: none.

        Returns at once if the turn did work.
        """
        with nogil:
            idle_step(&self._idle, work_count)

    @property
    def parked(self) -> bool:
        """Whether the last step gave the core away by a yield or a sleep."""
        return self._idle.parked != 0

    @property
    def empty_turns(self) -> int:
        """Number of turns without work since the last one with work."""
        return self._idle.empty_turns

    @property
    def next_sleep_ns(self) -> int:
        """Duration of the next sleep of a "backoff", in nanoseconds."""
        return self._idle.sleep_ns
