"""The epochs of a copy of a store, and the place where two copies diverge.

An epoch begins at a position, from which its writer appends. Two copies that share the pair (epoch,
position) have the same records up to where the next pair of either one begins.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = ["Lineage", "divergence"]

_PAIR = struct.Struct("<QQ")


class Lineage:
    """The epochs of one copy of a store, in order.

    Parameters
    ----------
    pairs : sequence of (int, int), optional
        Each epoch and the position where it begins.
    """

    def __init__(self, pairs: Sequence[tuple[int, int]] = ()) -> None:
        self.pairs = list(pairs)

    @property
    def epoch(self) -> int:
        """The latest epoch; 0: there is none yet."""
        return self.pairs[-1][0] if self.pairs else 0

    def begin(self, epoch: int, position: int) -> None:
        """Note that an epoch begins there. Epochs at or behind that position wrote nothing."""
        self.cut(position)
        self.pairs.append((epoch, position))

    def cut(self, position: int) -> None:
        """Forget the epochs that have no record before a position."""
        while self.pairs and self.pairs[-1][1] >= position:
            self.pairs.pop()

    def at(self, position: int) -> tuple[int, int | None]:
        """Return the epoch of the record at a position, and where the next one begins, or None."""
        following = None
        for epoch, start in reversed(self.pairs):
            if start <= position:
                return epoch, following
            following = start
        return 0, following

    def until(self, epoch: int, position: int) -> int:
        """Return up to where this copy has the records of another one.

        Parameters
        ----------
        epoch : int
            Epoch of the other copy's last record.
        position : int
            End of the other copy.
        """
        return min([position, *(start for begun, start in self.pairs if begun > epoch)])

    def before(self, end: int) -> list[tuple[int, int]]:
        """Return the pairs of which a copy that ends at `end` has records."""
        return [pair for pair in self.pairs if pair[1] < end]

    def pack(self) -> bytes:
        """Return the pairs as bytes, for `unpack`."""
        return b"".join(_PAIR.pack(*pair) for pair in self.pairs)

    @staticmethod
    def unpack(content: bytes) -> Lineage:
        """Return the lineage that `pack` packed."""
        return Lineage([(epoch, start) for epoch, start in _PAIR.iter_unpack(content)])


def divergence(
    own: Sequence[tuple[int, int]], end: int, other: Sequence[tuple[int, int]], other_end: int
) -> int:
    """Return the position up to which two copies of one store are the same.

    Parameters
    ----------
    own, other : sequence of (int, int)
        Epochs of each copy. `other` may lack the oldest ones; `own` must be complete.
    end, other_end : int
        Ends of the copies.
    """
    known = {pair: at for at, pair in enumerate(own)}
    for at in range(len(other) - 1, -1, -1):
        if other[at] in known:
            behind = known[other[at]] + 1
            own_until = own[behind][1] if behind < len(own) else end
            other_until = other[at + 1][1] if at + 1 < len(other) else other_end
            return min(own_until, other_until, end, other_end)
    # They share no epoch: they differ from where the oldest known epoch of the other one begins.
    return min(end, other_end, other[0][1] if other else other_end)
