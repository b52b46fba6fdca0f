"""Single orders of a feed as lines of 80 columns: levels, queues at the best price, the largest."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udpfast.cli.top_words import short
from udpfast.client.books import Books
from udpfast.market.order_queues import OrderQueues

__all__ = ["books_lines", "order_lines"]

#: Shown of each side: levels, orders of the queue at the best price, and largest orders.
LEVELS, QUEUE, LARGEST = 5, 6, 3
#: Instruments of a feed that are shown: those with the most orders.
INSTRUMENTS = 6


def books_lines(books: Books) -> Iterator[str]:
    """Yield the lines about the instruments with the most orders."""
    ordered = [one for one in books.instruments() if one.orders]
    if not ordered:
        yield "no single orders: a feed has them with books.orders = true, if its venue does"
        return
    ordered.sort(key=lambda one: (-one.orders, one.exchange or "", one.symbol or ""))
    for one in ordered[:INSTRUMENTS]:
        yield from order_lines(books, one.exchange or "", one.symbol or "")
        yield ""
    if len(ordered) > INSTRUMENTS:
        yield f"and {len(ordered) - INSTRUMENTS} more instruments with orders"


def order_lines(books: Books, exchange: str, symbol: str) -> Iterator[str]:
    """Yield the lines about the orders of one instrument; none, if it has none.

    Parameters
    ----------
    books : Books
    exchange, symbol : str
    """
    try:
        queues = books.orders(exchange, symbol)
    except KeyError:
        return
    state = "IN DOUBT" if queues.stale else "sound"
    yield f"{symbol[:40]} @ {exchange[:20]}: {short(len(queues))} orders, {state}"
    yield f"{'orders':>8}{'quantity':>12}{'bid':>16}    {'ask':<16}{'quantity':<12}{'orders':<8}"
    bids, asks = queues.bid_levels(LEVELS), queues.ask_levels(LEVELS)
    for at in range(max(len(bids), len(asks))):
        bid, ask = _level(bids, at), _level(asks, at)
        yield f"{bid[2]:>8}{bid[1]:>12}{bid[0]:>16}    {ask[0]:<16}{ask[1]:<12}{ask[2]:<8}".rstrip()
    yield from _side("bid", queues, queues.bids())
    yield from _side("ask", queues, queues.asks())


def _level(levels: NDArray[np.void], at: int) -> Sequence[str]:
    if at >= len(levels):
        return "", "", ""
    row = levels[at]
    return f"{float(row['price']):,.10g}", short(row["quantity"]), short(row["orders"])


def _side(side: str, queues: OrderQueues, orders: NDArray[np.void]) -> Iterator[str]:
    # The queue at the best price, the first to be filled in front; then who is largest, and where.
    if not len(orders):
        return
    best = orders[orders["price"] == orders["price"][0]]
    shown = ", ".join(short(one) for one in best["quantity"][:QUEUE].tolist())
    more = f", and {len(best) - QUEUE} more" if len(best) > QUEUE else ""
    yield from _wrapped(f"queue at the best {side}: {shown}{more}")
    largest = np.argsort(-orders["quantity"], kind="stable")[:LARGEST]
    places = "; ".join(_place(queues, orders[at]) for at in largest.tolist())
    yield from _wrapped(f"largest {side}s: {places}")


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 79, subsequent_indent="  ")


def _place(queues: OrderQueues, order: Any) -> str:
    place = queues.place(order["order_id"].decode())
    return f"{short(place.quantity)} at {place.price:,.10g}, {place.orders_before} before it"
