"""Whether a channel is carried: by any of the lines that it is sent on."""

from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = ["Carriage", "Carrier"]


class Carrier(Protocol):
    """What a line counts; `net.sender.DatagramSender` is one."""

    @property
    def carried(self) -> int:
        """How many datagrams have left."""

    @property
    def unreachable(self) -> int:
        """How many of those that are done with were given up, because there was no way for them."""

    @property
    def trouble(self) -> str:
        """Why that was, the last time; "" if each found a way."""


class Carriage:
    """Notices that no line of a channel carries anything any more, and that one does again.

    Attributes
    ----------
    silent : bool
        Whether nothing of what was sent since the look before the last one left, on any line.
    """

    def __init__(self, name: str, lines: Sequence[Carrier]) -> None:
        self.silent = False
        self._name = name
        self._lines = lines
        self._carried = 0
        self._given_up = 0

    def look(self, unsent: Sequence[int], failures: Mapping[int, OSError]) -> str:
        """Compare with the last look; return a sentence if the channel fell silent or speaks again.

        Parameters
        ----------
        unsent : sequence of int
            Datagrams per line that were given up without being done with.
        failures : mapping of int to OSError
            Why, by line, where that is known.
        """
        carried = sum(line.carried for line in self._lines)
        given_up = sum(unsent) + sum(line.unreachable for line in self._lines)
        moved, lost = carried > self._carried, given_up > self._given_up
        self._carried, self._given_up = carried, given_up
        if self.silent and moved:
            self.silent = False
            return f"{self._name}: is sent again"
        if not self.silent and lost and not moved:
            self.silent = True
            reasons = (
                f"line {index}: {failures.get(index) or line.trouble or 'its queue is full'}"
                for index, line in enumerate(self._lines)
            )
            return f"{self._name}: is not sent on any line: {'; '.join(reasons)}"
        return ""
