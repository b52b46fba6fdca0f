"""What `Books` keeps of one instrument, in a row."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KeptInstrument"]


class KeptInstrument(NamedTuple):
    """What is kept of one instrument, and whether it can be trusted.

    Attributes
    ----------
    exchange, symbol : str
    stale : bool or None
        Of its book of levels; None: there is none.
    bids, asks : int
        Levels of that book.
    orders_stale : bool or None
        Of its single orders; None: there were none.
    orders : int
        How many rest.
    """

    exchange: str | None
    symbol: str | None
    stale: bool | None
    bids: int
    asks: int
    orders_stale: bool | None
    orders: int
