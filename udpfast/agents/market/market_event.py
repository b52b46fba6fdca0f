"""What a source of market data hands to a gateway that publishes it.

A source has `instruments` and is iterable: events in the order of `recv_ns`. An instrument is
named by its index in `instruments`. `market_recording` and `market_simulation` are sources.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["BookChange", "Instrument", "Levels", "MarketEvent", "MarketSource", "Quote", "Trade"]

#: Book levels of one side: shape (n, 2), price and quantity.
Levels = npt.NDArray[np.float64]


class Instrument(NamedTuple):
    """What is traded where; `price_digits` and `quantity_digits` are decimal digits."""

    exchange: str
    symbol: str
    price_digits: int
    quantity_digits: int

    @property
    def name(self) -> str:
        """Exchange and symbol, as in "binance-spot:BTCUSDT"."""
        return f"{self.exchange}:{self.symbol}"

    @property
    def tick_size(self) -> float:
        """The smallest price step that the digits allow."""
        return float(f"1e-{self.price_digits}")


class BookChange(NamedTuple):
    """Levels of one message: quantity 0 removes. A snapshot replaces the book.

    The arrays may be views into one that holds all messages: read only.
    """

    recv_ns: int
    instrument: int
    snapshot: bool
    bids: Levels
    asks: Levels
    exchange_ns: int
    sequence: int


class Quote(NamedTuple):
    """Best bid and offer."""

    recv_ns: int
    instrument: int
    bid_price: float
    bid_quantity: float
    ask_price: float
    ask_quantity: float
    exchange_ns: int
    sequence: int


class Trade(NamedTuple):
    """One trade; `side` is the taker's: 1 bought, 2 sold."""

    recv_ns: int
    instrument: int
    side: int
    price: float
    quantity: float
    trade_id: str
    exchange_ns: int


MarketEvent = BookChange | Quote | Trade


class MarketSource(Protocol):
    """Where events come from."""

    @property
    def instruments(self) -> Sequence[Instrument]:
        """The instruments, in the order of their index."""

    def __iter__(self) -> Iterator[MarketEvent]:
        """Begin again at the first event."""
