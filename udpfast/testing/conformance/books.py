"""Books of all symbols from decoded updates, the plain way: a dictionary of prices per side."""

from typing import Any

from udpfast.core.layout import Kind
from udpfast.market.updates import view_update

__all__ = ["Books"]

_SNAPSHOT = 1  # UpdateType of the schema: the whole book, not a change to it


class Books:
    """What every book holds now."""

    def __init__(self) -> None:
        """Begin with no book."""
        self._books: dict[str, tuple[dict[float, float], dict[float, float]]] = {}

    def clear(self) -> None:
        """Forget every book: a new session began."""
        self._books.clear()

    def apply(self, symbol: str, payload: bytes) -> None:
        """Apply one decoded update of kind BOOK."""
        update = view_update(Kind.BOOK, payload)
        if update.header["update_type"] == _SNAPSHOT or symbol not in self._books:
            self._books[symbol] = ({}, {})
        for side, rows in zip(self._books[symbol], (update.bids, update.asks), strict=True):
            for row in rows:
                price, quantity = float(row["price"]), float(row["quantity"])
                if quantity == 0:
                    side.pop(price, None)
                else:
                    side[price] = quantity

    def levels(self) -> dict[str, dict[str, list[Any]]]:
        """Return {symbol: {"bids": [[price, quantity], ..], "asks": ..}}, best price first."""
        return {
            symbol: {
                "bids": [[price, bids[price]] for price in sorted(bids, reverse=True)],
                "asks": [[price, asks[price]] for price in sorted(asks)],
            }
            for symbol, (bids, asks) in self._books.items()
        }
