"""Messages of IEX by the way that a feed goes: update by update, books kept by `OrderBook`.

The updates are turned back into the rows that `decode_iex` makes, so that both are compared with
the same expectation. What updates do not carry is 0 there: the flags of trades and quotes.
"""

import math
from collections.abc import Iterable
from typing import Any

from udpfast.core.layout import Kind
from udpfast.market.book import OrderBook
from udpfast.market.names import NameTable
from udpfast.market.updates import Update, view_update
from udpfast.payload.iex.decode import DecodedIex
from udpfast.payload.iex.layouts import PRICE_DECIMALS
from udpfast.payload.iex.updates import IexDecoder
from udpfast.wire.framing import NumberedMessage

__all__ = ["IexUpdates", "scaled"]

_STATUSES = {0: ord("?"), 2: ord("P"), 5: ord("T"), 7: ord("H")}
_MORE = 16  # PRESENT_MORE


class IexUpdates:
    """What the updates of one session say.

    Parameters
    ----------
    messages : iterable
        All of them, from number 1 on.
    deep : bool
        DEEP, otherwise TOPS.

    Attributes
    ----------
    decoded : DecodedIex
        Rows of T, 8, 5, Q and H, as they were on the wire.
    books : dict of str to OrderBook
        By symbol.
    others : dict
        Outcome -> messages without an update.
    """

    def __init__(self, messages: Iterable[NumberedMessage], deep: bool) -> None:
        rows: dict[str, Any] = {}
        self.decoded = DecodedIex(rows)
        self._rows = rows
        self.books: dict[str, OrderBook] = {}
        self.others: dict[Any, int] = {}
        names = NameTable(capacity=1 << 14)
        decoder = IexDecoder(names, deep=deep)
        decoder.session(1)
        for number, data in messages:
            found = decoder.decode(data, number=number)
            if found.kind < 0:
                self.others[found.kind] = self.others.get(found.kind, 0) + 1
                continue
            update = view_update(found.kind, found.payload)
            symbol = names[found.symbol_id] or ""
            self._take(update, symbol)
            if update.kind is Kind.BOOK:
                self.books.setdefault(symbol, OrderBook()).apply(found.payload)

    def _take(self, update: Update, symbol: str) -> None:
        header = update.header
        row = {
            "number": int(header["exchange_sequence"]),
            "time_ns": int(header["exchange_time_utc"]),
            "symbol": symbol.encode(),
            "flags": 0,
        }
        if update.kind is Kind.MARKET_STATUS:
            kind = "H"
            row["flags"] = _STATUSES[int(header["trading_status"])]
        elif update.kind is Kind.TOP_OF_BOOK:
            kind = "Q"
            for side in ("bid", "ask"):
                row[f"{side}_price"] = scaled(header[f"{side}_price"])
                row[f"{side}_size"] = int(header[f"{side}_quantity"])
        else:
            (one,) = update.rows
            row |= {"price": scaled(one["price"]), "size": int(one["quantity"])}
            if update.kind is Kind.TRADES:
                kind = "T"
                row["trade_id"] = int(one["trade_id"])
            else:
                kind = "8" if header["bid_count"] else "5"
                row["flags"] = int(not header["present"] & _MORE)
        self._rows.setdefault(kind, []).append(row)


def scaled(price: float) -> int:
    """Return a price as on the wire, where no such side is 0."""
    return 0 if math.isnan(price) else round(price * 10**PRICE_DECIMALS)
