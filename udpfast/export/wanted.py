"""Which records of a journal an export takes: of a time, of some instruments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from udpfast.core.layout import Kind
from udpfast.core.moment import moment_text
from udpfast.errors import shown

if TYPE_CHECKING:
    from udpfast.export.columns import Names
    from udpfast.export.segments import Part
    from udpfast.market.block import Block

__all__ = ["ALL", "Wanted", "both"]


class Wanted(Struct, frozen=True):
    """The records that an export takes; by default all.

    Attributes
    ----------
    start_ns, end_ns : int or None
        Only records published at or after `start_ns` and before `end_ns`, UNIX ns; None: no limit.
    symbols, exchanges : tuple of str
        Only updates of these names, and every doubt that may be about them. Empty: all.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    symbols: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any limit."""
        return self != ALL

    def __str__(self) -> str:
        """Return the limits as the end of a sentence about records; empty if there are none."""
        names = " and ".join(map(shown, (*self.symbols, *self.exchanges)))
        times = ((" from {}", self.start_ns), (" until {}", self.end_ns))
        said = [text.format(moment_text(at)) for text, at in times if at is not None]
        return (f" of {names}" if names else "") + "".join(said)

    def reaches(self, part: Part) -> bool:
        """Return whether a part can have wanted records."""
        return part.first_ns > part.last_ns or (
            (self.start_ns is None or part.last_ns >= self.start_ns)
            and (self.end_ns is None or part.first_ns < self.end_ns)
        )

    def keep(self, block: Block, names: Names) -> NDArray[np.bool_] | None:
        """Return by record whether it is wanted; None: all are."""
        if not self:
            return None
        headers = block.headers
        keep = np.ones(len(headers), np.bool_)
        if self.start_ns is not None:
            keep &= headers["published_ns"] >= self.start_ns
        if self.end_ns is not None:
            keep &= headers["published_ns"] < self.end_ns
        exchange_ids, symbol_ids = block.ids()
        kinds = headers["kind"]
        # As a Reader does: a doubt that does not say of which instrument it is may be of these.
        passes = (kinds < Kind.BOOK) & (kinds != Kind.MESSAGE)
        passes &= (exchange_ids == 0) | (symbol_ids == 0)
        for ids, words in ((exchange_ids, self.exchanges), (symbol_ids, self.symbols)):
            if words:
                known = names.known(words)
                keep &= known[np.minimum(ids, len(known) - 1)] | passes
        return keep


#: Every record.
ALL = Wanted()


def both(
    one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None
) -> NDArray[np.bool_] | None:
    """Return which records two choices have in common; None: all."""
    return one if other is None else other if one is None else one & other
