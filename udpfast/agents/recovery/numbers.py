"""Numbers as a publisher has them, which may begin anew, and as records have them, which do not."""

from __future__ import annotations

__all__ = ["Numbers"]


class Numbers:
    """How a framing's numbers go on.

    Parameters
    ----------
    bits : int
        Of a number.
    skips_zero : bool
        1 follows the highest, not 0.
    """

    def __init__(self, bits: int, *, skips_zero: bool = False) -> None:
        self._period = (1 << bits) - skips_zero
        self._first = int(skips_zero)

    def published(self, number: int) -> int:
        """Return a record's number as its publisher has it."""
        return (number - self._first) % self._period + self._first

    def unwrapped(self, number: int, near: int) -> int:
        """Return a publisher's number as records have it: the one that is nearest to `near`."""
        turns = (near - number + self._period // 2) // self._period
        return number + turns * self._period
