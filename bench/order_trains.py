"""Bursts of single orders: ITCH in MoldUDP64, whose books fill before the first burst."""

from __future__ import annotations

import numpy as np

from .drain_trains import Train
from .loops.book_cost import OrderFlow

__all__ = ["OrderTrain"]

#: Messages in a datagram of the opening.
OPENING = 30


class OrderTrain(Train):
    """One burst of a flow of orders: a row per datagram.

    Parameters
    ----------
    stocks, live : int
        About so many orders are alive, a multiple of 30.
    messages : int
        Of a datagram; each is padded to the same size, as a venue may.
    count : int
        Datagrams.
    """

    def __init__(self, stocks: int, live: int, messages: int, count: int) -> None:
        """Fill the books, and make the first burst."""
        self.each = messages
        self._flow = OrderFlow(stocks, live, 0)
        opening = self._flow.opening(OPENING)
        self._number = 1 + live
        super().__init__(np.zeros((count, 20 + 38 * messages), np.uint8), count * messages, opening)
        self.advance()

    def advance(self) -> None:
        """Turn this burst into the next one."""
        self.rows[:] = self._flow.burst(len(self.rows), self.each, self._number)
        self._number += self.messages
