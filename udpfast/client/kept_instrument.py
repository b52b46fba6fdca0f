"""The row that `Books` returns for each instrument."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KeptInstrument"]


class KeptInstrument(NamedTuple):
    """The books that are kept for one instrument, and whether they can be trusted.

    Attributes
    ----------
    exchange, symbol : str
        The instrument's names; None if unknown.
    stale : bool or None
        Whether its book of levels is stale; None: it has no such book.
    bids, asks : int
        Number of levels of that book.
    orders_stale : bool or None
        Whether its single orders are stale; None: it has no single orders.
    orders : int
        Number of resting orders.
    """

    exchange: str | None
    symbol: str | None
    stale: bool | None
    bids: int
    asks: int
    orders_stale: bool | None
    orders: int
