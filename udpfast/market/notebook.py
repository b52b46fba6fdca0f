"""Order books and other objects as tables in a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from udpfast.market.book import OrderBook

__all__ = ["book_html", "book_state", "html_table", "price_word"]

#: Levels of each side that a notebook shows.
LEVELS_SHOWN = 10


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str) -> str:
    """Return an HTML table. Numbers are right-aligned with separators; all else is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def book_html(book: OrderBook) -> str:
    """Return the best levels of a book as HTML, bids on the left, and if it can be trusted."""
    bids, asks = book.bids(LEVELS_SHOWN), book.asks(LEVELS_SHOWN)
    rows = []
    for place in range(max(len(bids), len(asks))):
        bid = [price_word(value) for value in bids[place]] if place < len(bids) else ["", ""]
        ask = [price_word(value) for value in asks[place]] if place < len(asks) else ["", ""]
        rows.append((bid[1], bid[0], *ask))
    counts = book.levels
    return html_table(
        ("bid quantity", "bid", "ask", "ask quantity"),
        rows,
        f"{book_state(book)}, {counts[0]} + {counts[1]} levels",
    )


def book_state(book: OrderBook) -> str:
    """Return a word for whether a book can be trusted: STALE, CROSSED or sound."""
    return "STALE" if book.stale else "CROSSED" if book.crossed else "sound"


def price_word(value: float) -> str:
    """Return a price or quantity in at most 12 digits, or "" for NaN."""
    return "" if math.isnan(value) else f"{value:.12g}"


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td style="text-align:right">{value:,}</td>'
    return f'<td style="text-align:right">{escape("" if value is None else str(value))}</td>'
